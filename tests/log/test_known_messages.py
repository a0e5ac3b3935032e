"""From lines to rows of `known_message`, and from these to findings: what the catalogue knows and no special rule claims."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts

UP = "node01:100:150 [0] NCCL INFO comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE\n"


def report(text: str, folder: Path) -> Report:
    path = folder / "job.log"
    path.write_text(text)
    return analyze.analyze([str(path)])[0]


def known(text: str) -> list[tuple[object, ...]]:
    facts: Facts = analyze.read_text(text)
    return facts.sql("SELECT program, message, kind, role, host, n FROM known_message ORDER BY ref")[1]


def test_a_warning_is_a_row_with_its_class() -> None:
    text = "node01:100:150 [0] proxy.cc:12 NCCL WARN Proxy append mismatch\n" * 3
    assert [("nccl", "proxy-queue", "internal", "echo", "node01", 3)] == known(text)


def test_a_line_of_another_program_is_a_row() -> None:
    rows = known("slurmstepd: error: *** STEP 12.0 ON node07 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n")
    assert ["slurm"] == [row[0] for row in rows]


def test_a_step_on_several_nodes_says_which_one_writes() -> None:
    text = "".join(f"slurmstepd-node{n}: error: setpriority(5): Permission denied\n" for n in (2, 7))
    assert ["node2", "node7"] == [row[4] for row in known(text + "slurmstepd: error: fork: Permission denied\n")][:2]
    assert None is known("slurmstepd: error: setpriority(5): Permission denied\n")[0][4]


def test_an_info_line_is_a_row_where_the_catalogue_says_so() -> None:
    text = "node01:100:150 [0] NCCL INFO RAS connect timeout warning (5s) on socket connection with 10.1.0.5<40001>\n"
    assert [("nccl", "ras-timeout", "timeout", "echo", "node01", 1)] == known(text)
    assert [] == known("node01:100:150 [0] NCCL INFO Connected all rings\n")


@pytest.mark.parametrize(
    "text",
    [
        "NET/IB : GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 4), read 0 mode Default",
        "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0'",
        "NET/Plugin: Loaded net plugin AWS Libfabric (v8)",
        "RAS client listening socket at ::1<28028>",
        "Using non-device net plugin version 0",
    ],
)
def test_an_info_line_without_a_failure_is_no_row(text: str) -> None:
    assert [] == known(f"node01:100:150 [0] NCCL INFO {text}\n")


@pytest.mark.parametrize(
    ("line", "name", "severity"),
    [
        ("misc/socket.cc:9 NCCL WARN ncclSocketReady: unexpected socket state 4", "program-state-unexpected", "error"),
        ("proxy.cc:9 NCCL WARN [Proxy service] Too many connections (128 max)", "node-resource-exhausted", "error"),
        (
            "argcheck.cc:9 NCCL WARN AllReduce : invalid root 9 (root should be in the 0..8 range)",
            "setting-rejected",
            "error",
        ),
    ],
)
def test_a_message_that_no_rule_knows_is_reported_with_its_meaning(
    line: str, name: str, severity: str, tmp_path: Path
) -> None:
    found = report(f"node01:100:150 [0] {line}\n", tmp_path).findings
    assert (name, severity) == (found[0].name, found[0].severity)
    assert found[0].message.startswith("NCCL: ")
    assert "possible" == found[0].confidence or "likely" == found[0].confidence


def test_a_job_that_went_on_gets_a_note_only(tmp_path: Path) -> None:
    warning = "node01:100:150 [0] proxy.cc:9 NCCL WARN [Proxy service] Too many connections (128 max)\n"
    assert {"note"} == {found.severity for found in report(warning + UP, tmp_path).findings}


def test_a_harmless_message_is_neither_a_finding_nor_unread(tmp_path: Path) -> None:
    text = (
        UP + "node01:100:150 [0] init.cc:9 NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n"
    )
    assert not [found for found in report(text, tmp_path).findings if found.rule.startswith("MSG")]


def test_what_a_special_rule_shows_is_not_shown_again(tmp_path: Path) -> None:
    said = "Error: failed to extend /dev/shm/nccl-a to 33030524 bytes, error: No space left on device (28)"
    text = f"node01:100:150 [0] misc/shmutils.cc:87 NCCL WARN {said}\n"
    assert ["dev-shm-full"] == [found.name for found in report(text, tmp_path).findings]


def test_an_echo_gives_way_to_an_error_that_was_found(tmp_path: Path) -> None:
    echo = "node01:100:150 [0] proxy.cc:12 NCCL WARN Proxy append mismatch\n"
    assert ["program-state-unexpected"] == [
        found.name for found in report(echo, tmp_path).findings if found.rule.startswith("MSG")
    ]
    both = "node01 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=100, GPU has fallen off the bus.\n" + echo
    assert not [found for found in report(both, tmp_path).findings if found.rule.startswith("MSG")]
