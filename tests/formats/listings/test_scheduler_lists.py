"""Lists of schedulers: Slurm's in formats of anybody's own, and the queues of others."""

import io

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, QueuedJob, SchedulerNode
from nccl_doctor.formats.listings import job_lists, slurm_columns

COLUMNS = FIXTURES / "listings" / "sinfo_columns.txt"
GRID_ENGINE = FIXTURES / "listings" / "qstat_ge.txt"
PBS = (
    "Job id                 Name             User              Time Use S Queue\n"
    "---------------------  ---------------- ----------------  -------- - -----\n"
    "4711.pbs01             train-llm        ada               12:04:11 R gpuq\n"
    "4712.pbs01             eval             ada                      0 Q gpuq\n"
)
PBS_LONG = (
    "                                                            Req'd  Req'd   Elap\n"
    "Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time\n"
    "--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----\n"
    "4711.pbs01      ada      gpuq     train-llm   81234   4 256    2tb 24:00 R 12:04\n"
    "4712.pbs01      ada      gpuq     eval           --   1  64  256gb 01:00 H   --\n"
)
LSF = (
    "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
    "4711    ada     RUN   gpu        login1      node03      train      Nov 17 14:37\n"
    "4712    ada     PEND  gpu        login1                  eval       Nov 17 14:38\n"
)
FLUX = (
    "       JOBID USER     NAME          STATUS NTASKS NNODES     T_SUBMIT  T_REMAINING     TIME INFO\n"
    "   f2TRD37vP ada      train          SCHED      8      -  Mar29 17:28            -        -\n"
    "   f2TRBZ8e3 ada      train            RUN      8      2  Mar29 17:28            -   53.01m gpu[3-4]\n"
)
XML = (
    "<?xml version='1.0'?>\n<job_info xmlns:xsd=\"http://example.org\">\n  <queue_info>\n"
    '    <job_list state="running">\n      <JB_job_number>88</JB_job_number>\n      <JB_name>train</JB_name>\n      <state>r</state>\n'
    '    </job_list>\n  </queue_info>\n  <job_info>\n    <job_list state="pending">\n      <JB_job_number>90</JB_job_number>\n'
    "      <state>Eqw</state>\n    </job_list>\n  </job_info>\n</job_info>\n"
)


def jobs(text: str) -> dict[str, str]:
    facts = Facts()
    job_lists.read_format(io.BytesIO(text.encode()), "queue.txt", facts)
    return {row.job: row.state for row in facts.rows(QueuedJob)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GRID_ENGINE.read_text(), {"88": "RUNNING", "89": "PENDING", "90": "ERROR"}),
        (PBS, {"4711.pbs01": "RUNNING", "4712.pbs01": "PENDING"}),
        (PBS_LONG, {"4711.pbs01": "RUNNING", "4712.pbs01": "HELD"}),
        (LSF, {"4711": "RUNNING", "4712": "PENDING"}),
        (FLUX, {"f2TRD37vP": "PENDING", "f2TRBZ8e3": "RUNNING"}),
        (XML, {"88": "RUNNING", "90": "ERROR"}),
    ],
)
def test_the_jobs_of_a_queue(text: str, expected: dict[str, str]) -> None:
    assert expected == jobs(text)
    for cut in range(0, len(text), 29):
        assert jobs(text[:cut]).items() <= expected.items() or jobs(text[:cut]).keys() <= expected.keys()


def test_a_job_in_an_error_state_is_named_and_queues_of_others_are_not_slurms(tmp_path: object) -> None:
    (finding,) = analyze.analyze([str(GRID_ENGINE)])[0].findings
    assert ("queued-job-in-error", "job 90 is in an error state and does not start") == (finding.name, finding.message)


def test_columns_of_anybodys_own_format() -> None:
    report, facts = analyze.analyze([str(COLUMNS)])[:2]
    assert [("node-out-of-service", 'gpu02 is DRAIN: "GPU 3 fell off the bus"')] == [
        (one.name, one.message) for one in report.findings
    ]
    assert {("4711001", "RUNNING", 4), ("4711002", "PENDING", 2)} == {
        (row.job, row.state, row.nodes) for row in facts.rows(QueuedJob)
    }
    assert {("gpu01", 96, 48, 8), ("gpu02", 96, 0, 8)} == {
        (row.host, row.cpus, row.cpus_used, row.gpus) for row in facts.rows(SchedulerNode)
    }
    assert 192.0 == {row.name: row.value for row in facts.rows(HostNumber)}["CPUs total of gpu*"]


def test_the_shares_of_cpus_alone() -> None:
    facts = Facts()
    reading = slurm_columns.read_format(io.BytesIO(b"5725/877/34/6636\n"), "cpus.txt", facts)
    assert 1 == reading.understood
    assert {"CPUs allocated": 5725.0, "CPUs idle": 877.0, "CPUs other": 34.0, "CPUs total": 6636.0} == {
        row.name: row.value for row in facts.rows(HostNumber)
    }


@pytest.mark.parametrize(
    "text", ["a/b/c/d\n", "NAME STATE\nx y\n", "JOBID\n\n", "1/2/3/4/5\n", "CPUS(A/I/O/T)\n1/2/3\n"]
)
def test_other_text_tells_nothing(text: str) -> None:
    facts = Facts()
    assert 0 == slurm_columns.read_format(io.BytesIO(text.encode()), "x.txt", facts).understood
