"""How long jobs of LSF waited and ran, in the table of `bhist` and behind the events of `bhist -l`."""

import io

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.cluster import lsf_history

TITLES = "PEND     PSUSP    RUN      USUSP    SSUSP    UNKWN    TOTAL"
LONG = """
Job <81234>, Job Name <train>, User <ada>, Project <default>, Command <python t
                     rain.py>
Mon Mar  2 10:00:01: Submitted from host <login1>, to Queue <gpu>, CWD <$HOME>;
Mon Mar  2 12:03:13: {end}

Summary of time in seconds spent in various states by  Mon Mar  2 12:03:13
  {titles}
  190      0        7202     0        0        0        7392
"""


def read(text: str) -> tuple[list[AccountedJob], int]:
    facts = Facts()
    reading = lsf_history.read_format(io.BytesIO(text.encode()), "bhist.txt", facts)
    return facts.rows(AccountedJob), reading.understood


def test_the_table_of_several_jobs() -> None:
    rows, _ = read(
        f"Summary of time in seconds spent in various states:\nJOBID   USER    JOB_NAME  {TITLES}\n"
        "81234   ada     train     190     0       7202    0       0       0       7392\n"
        "81235[7] ada    train     9200    0       602     0       40      0       9842\n"
    )
    assert [("81234", 7202.0, 190.0), ("81235[7]", 602.0, 9200.0)] == [
        (row.job, row.elapsed_s, row.waited_s) for row in rows
    ]
    assert {None} == {row.state for row in rows}


def test_events_tell_how_the_job_ended() -> None:
    for end, state in (
        ("Done successfully. The CPU time used is 1 seconds;", "COMPLETED"),
        ("Exited with exit code 1. The CPU time used is 1 seconds;", "FAILED"),
        ("Completed <exit>; TERM_MEMLIMIT: job killed after reaching LSF memory usage limit;", "OUT_OF_MEMORY"),
    ):
        ((row,), _) = read(LONG.format(end=end, titles=TITLES))
        assert ("81234", "train", state, 7202.0, 190.0) == (row.job, row.name, row.state, row.elapsed_s, row.waited_s)


def test_other_text_and_a_torn_table() -> None:
    assert ([], 0) == read("Summary of time in seconds spent in various states:\n81234   ada     train     190\n")
    assert ([], 0) == read("1 2 3 4 5 6 7 8\n" * 50)
