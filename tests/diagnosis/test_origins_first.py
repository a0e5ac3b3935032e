"""What failed here comes before what only says that something else failed, whichever was printed first, for all of the catalogue."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.knowledge import catalogue
from nccl_doctor.knowledge.known_message import KnownMessage
from nccl_doctor.knowledge.templates import LINE, RECORD
from tests.helpers.examples import examples
from tests.knowledge.test_catalogue import MESSAGES, filled

ALARMS = [message for message in MESSAGES if message.grade() == "error"]
ORIGINS = [message for message in ALARMS if message.is_origin and message.confidence != "possible"]
ECHOES = [message for message in ALARMS if message.is_echo]


def text_of(message: KnownMessage) -> str:
    return message.sample[0] if message.sample else filled(message.match[0])


def line_of(message: KnownMessage, rank: int) -> str:
    text = text_of(message)
    if message.where == RECORD:
        return f"node0{rank}:10{rank}:150 [{rank}] misc/x.cc:9 NCCL {message.level} {text}"
    return text


def findings(*lines: str) -> list[Finding]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        path.write_text("\n".join(lines) + "\n")
        return analyze.analyze([str(path)])[0].findings


def first_of(line: str, found: list[Finding]) -> int | None:
    """The place of the first alarm that shows this line."""
    end = line.rstrip().rsplit("\n", 1)[-1][-40:]
    return next(
        (
            place
            for place, finding in enumerate(found)
            if finding.severity == "error" and any(end in shown.text for shown in finding.evidence)
        ),
        None,
    )


@examples(25)
@given(st.sampled_from(ORIGINS), st.sampled_from(ECHOES), st.booleans())
def test_an_origin_comes_before_an_echo(origin: KnownMessage, echo: KnownMessage, is_later: bool) -> None:
    here, elsewhere = line_of(origin, 1), line_of(echo, 2)
    alone = findings(here)
    assume(first_of(here, alone) == 0 and alone[0].role == "cause")  # else a special rule knows that it may not matter
    assume(all(one.role != "cause" or one.severity != "error" for one in findings(elsewhere)))  # or is a cause itself
    both = findings(elsewhere, here) if is_later else findings(here, elsewhere)
    assert 0 == first_of(here, both), (origin.key, echo.key, [finding.name for finding in both])


@given(
    st.sampled_from([message for message in ORIGINS if message.where == LINE]),
    st.sampled_from([message for message in ECHOES if message.where == LINE]),
    st.booleans(),
)
def test_on_one_line_the_origin_counts(origin: KnownMessage, echo: KnownMessage, is_later: bool) -> None:
    here, elsewhere = text_of(origin), text_of(echo)
    hit = catalogue.catalogue().find(f"{elsewhere} : {here}" if is_later else f"{here} : {elsewhere}", LINE)
    assert hit is not None
    assert not hit.message.is_echo, hit.message.key


@given(
    st.sampled_from([message for message in ORIGINS if message.where == LINE]),
    st.sampled_from([message for message in ECHOES if re.search(r"\{[a-z]\w*\}", message.match[0])]),
)
def test_the_reason_that_an_echo_quotes_counts(origin: KnownMessage, echo: KnownMessage) -> None:
    reason = filled(origin.match[0])
    text = filled(echo.match[0], reason)
    found = echo.found(0, text)
    assume(found is not None and reason in found.groupdict().values())  # else the reason holds what ends the gap
    assume("  " not in text)  # blanks at the end of the reason are not kept
    assume(re.search(rf"(?<!\w){re.escape(reason)}", text))  # a name such as that in `MPI_{function}` is no reason
    hit = catalogue.catalogue().find(text, echo.where)
    assert hit is not None
    assert not hit.message.is_echo, hit.message.key


def test_a_share_that_fails_a_rank_is_why_horovod_misses_it() -> None:
    found = findings(
        "[1,0]<stderr>:[2026-01-01 10:00:00.000123: W /src/horovod/common/stall_inspector.cc:107] One or more tensors were "
        "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more "
        "than 60 seconds.",
        "[1,0]<stderr>:Missing ranks:",
        "[1,0]<stderr>:5: [allreduce.0.bias]",
        "[1,5]<stderr>:Traceback (most recent call last):",
        '[1,5]<stderr>:  File "train.py", line 2, in <module>',
        "[1,5]<stderr>:OSError: [Errno 116] Stale file handle: '/data/train/a.jpg'",
    )
    assert [one.name for one in found][:2] == ["filesystem-not-responding", "horovod-stall-missing-ranks"]
    assert found[1].explained_by


def test_what_slowed_a_job_down_comes_behind_what_ended_it() -> None:
    waits = [
        f"Epoch: [0][{step}/5004]\tTime {0.3 + step % 7 / 20:.3f} (0.5)\tData {0.2 + step % 7 / 20:.3f} (0.2)\tLoss 6.8"
        for step in range(10, 400, 10)
    ]
    error = "node01:101:150 [1] NCCL WARN NET/IB : Requested properties for vNic 10, only 10 vNics have been created"
    assert ["input-pipeline-stall"] == [finding.name for finding in findings(*waits)][:1]
    names = [finding.name for finding in findings(*waits, error)]
    assert names.index("program-state-unexpected") < names.index("input-pipeline-stall")


def test_what_an_exception_says_comes_before_that_it_was_not_caught() -> None:
    found = findings(
        "terminate called after throwing an instance of 'engine::Exception'",
        "  what():  [TensorRT-LLM][ERROR] Assertion failed: Failed: MPI error /src/mpiUtils.cpp:99 '6' (/src/mpiUtils.cpp:99)",
    )
    assert found[0].name == "world-size-wrong"


def test_a_possible_warning_that_explains_no_error_comes_behind_it() -> None:
    found = findings(
        "node01:101:140 [0] NCCL INFO Bootstrap : Using [0]eth0:10.1.0.4<0> [1]docker0:172.17.0.1<0>",
        "node01:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_8:1/RoCE [RO]; OOB eth0:10.1.0.4<0>",
        "[rank0]: RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    )
    assert found[0].severity == "error"
