"""The order of the diagnosis: who stands first, and what stands under whom."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import answers, engine, schema


def finding(
    name: str,
    group: str,
    *explains: str,
    severity: str = "error",
    role: str = "cause",
    confidence: str = "likely",
) -> answers.Answer:
    """The answer of an invented rule that found one thing."""
    rule = schema.Rule(
        id=f"ZZZ{len(name):03}{name}", name=name, title=name, severity=severity, role=role, confidence=confidence,
        since="0.1", needs=[], query="SELECT 1 AS ref", message=name, why="", fix="", explains=list(explains),
        group=group, path=Path(name),
    )  # fmt: skip
    return engine.ask(rule, Facts())


def told(*answers: answers.Answer) -> list[Finding]:
    return diagnose.diagnose(Facts(), answers).findings


def names(*answers: answers.Answer) -> list[str]:
    return [f.name for f in told(*answers)]


def test_the_class_of_the_cause_decides() -> None:
    assert ["full", "cut", "gone"] == names(
        finding("gone", "peer"), finding("cut", "network"), finding("full", "resource")
    )


def test_a_cause_stands_before_what_it_explains_though_its_class_comes_later() -> None:
    found = told(finding("waits", "desync"), finding("loader", "input", "waits"))
    assert ["loader", "waits"] == [f.name for f in found]
    assert [found[0].rule] == found[1].explained_by


@pytest.mark.parametrize(
    "loader",
    [
        finding("loader", "input", "waits", confidence="possible"),
        finding("loader", "input", "waits", role="symptom"),
        finding("loader", "input", "waits", severity="warning"),
    ],
)
def test_a_weak_finding_does_not_stand_before_a_stronger_one(loader: answers.Answer) -> None:
    assert ["waits", "loader"] == names(finding("waits", "desync"), loader)


def test_where_two_explain_each_other_the_order_of_classes_holds() -> None:
    found = told(finding("crash", "peer", "waits"), finding("waits", "desync", "crash"))
    assert ["waits", "crash"] == [f.name for f in found]
    assert [] == found[0].explained_by


def test_findings_that_explain_each_other_in_a_circle_all_stay() -> None:
    circle = [finding("a", "resource", "b"), finding("b", "network", "c"), finding("c", "peer", "a")]
    assert ["a", "b", "c"] == sorted(names(*circle))


def test_a_note_does_not_account_for_an_alarm() -> None:
    found = told(finding("remark", "resource", "broken", severity="note"), finding("broken", "peer"))
    assert ["broken", "remark"] == [f.name for f in found]
    assert [] == found[0].explained_by


def test_among_notes_a_cause_comes_before_what_only_describes() -> None:
    assert ["setting", "ethernet"] == names(
        finding("ethernet", "resource", severity="note", role="context"),
        finding("setting", "config", severity="note"),
    )


def test_a_failure_without_a_reason_is_said_only_where_nothing_else_was_found() -> None:
    failed = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
    found = analyze.report_of(analyze.read_text(failed)).findings
    assert ["failure-unexplained"] == [finding.name for finding in found]
    known = (
        "node01:101:140 [0] init.cc:12 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000\n"
    )
    found = analyze.report_of(analyze.read_text(known + failed)).findings
    assert "duplicate-gpu" == found[0].name
    assert "failure-unexplained" not in [finding.name for finding in found]


def test_the_last_error_of_a_framework_is_read_as_a_warning_of_nccl() -> None:
    warning = "NET/IB : Got completion from peer 10.1.0.4<41230> with error 12, opcode 0, len 0, vendor err 129"
    for text in (
        f"Last error: {warning}\n",
        f"Last error:\n{warning}\n",
        f"[rank3]: Last error:\n[rank3]: {warning}\n",
    ):
        facts = analyze.read_text(f"first\n{text}")
        assert [(12, 129)] == facts.query("SELECT status, vendor_err FROM ib_error")
        assert warning in facts.query("SELECT text FROM evidence")[0][0]


def test_a_last_error_without_a_pattern_of_its_own_is_that_of_the_catalogue() -> None:
    text = (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, "
        "internal error, NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
    )
    for warning, name in (
        ("Proxy Call to rank 0 failed (Connect)", "peer-failure-reported"),
        (
            "Invalid NCCL_COMM_ID, please use format: <ipv4>:<port> or [<ipv6>]:<port> or <hostname>:<port>",
            "comm-id-unusable",
        ),
    ):
        report = analyze.report_of(analyze.read_text(f"{text}{warning}\n"))
        assert name == report.findings[0].name
        assert [warning] == [place.text for place in report.findings[0].evidence]


def _ucx(minute: int, rank: int) -> str:
    text = "parser.c:1999 UCX  ERROR Invalid value for TLS: 'rcc'. Expected: comma-separated list of: string"
    return f"2026-05-07T12:{minute:02}:00Z [rank{rank}]: [1700000000.123456] [node01:4321 :0] {text}"


def _pmix(minute: int, rank: int) -> str:
    text = (
        "slurmstepd: error: mpi/pmix_v5: _dmdx_req: node01 [0]: pmixp_dmdx.c:319: Bad request from node02: nspace"
        ' "slurm.pmix.77.0" has only 2 ranks, asked for 3'
    )
    return f"2026-05-07T12:{minute:02}:00Z [rank{rank}]: {text}"


@pytest.mark.parametrize(("ucx", "pmix"), [(1, 5), (5, 1)])
def test_of_faults_that_several_programs_report_the_earliest_comes_first(ucx: int, pmix: int) -> None:
    """The catalogue's rules are of one class: the time of the lines decides, not their place in the file."""
    report = analyze.report_of(analyze.read_text(f"{_ucx(ucx, 3)}\n{_pmix(pmix, 5)}\n"))
    found = [(finding.name, finding.ranks) for finding in report.findings]
    expected = [("setting-rejected", "3"), ("component-version-mismatch", "5")]
    assert (expected if ucx < pmix else expected[::-1]) == found


def test_of_many_ranks_that_report_a_fault_the_first_one_is_named() -> None:
    report = analyze.report_of(analyze.read_text(f"{_ucx(5, 7)}\n{_ucx(1, 2)}\n{_ucx(3, 4)}\n"))
    (finding,) = report.findings
    assert "2,4,7" == finding.ranks
    assert "first rank 2 " in finding.message.lower()
