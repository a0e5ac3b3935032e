"""Draining and giving back in Slurm, with a stand-in for scontrol: only nodes in service, never what others decided."""

import time
from pathlib import Path

import pytest

from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.cli import drain, slurm
from nccl_doctor.cli.prologue import OWNER
from nccl_doctor.diagnosis.report import Finding, Report


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol that tells what it was asked and knows one node."""
    script = tmp_path / "scontrol"
    script.write_text(
        '#!/bin/sh\necho "$@" >> "$0.asked"\n[ "$1" = show ] && cat "$0.node"\n[ -e "$0.hang" ] && sleep 60\nexit 0\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(slurm, "FOLDERS", (str(tmp_path),))
    return script


def asked(controller: Path) -> list[str]:
    return Path(f"{controller}.asked").read_text().splitlines()


OURS = "Reason=nccl-doctor:GPU001 old [root@2026-01-01T00:00:00]"


@pytest.mark.parametrize(
    ("line", "updates"),
    [
        *((f"State={state}", True) for state in ("IDLE", "MIXED+PLANNED", "IDLE-", "ALLOCATED+COMPLETING", "IDLE+RESERVED",
                                                 "IDLE*", "ALLOCATED+CLOUD", "IDLE+DYNAMIC_FUTURE", "MIXED+BLOCKED")),
        *((f"State={state}", False) for state in (
            "DOWN", "DOWN*", "IDLE+FAIL", "FAILING", "IDLE+MAINT", "IDLE+MAINTENANCE+RESERVED", "IDLE+REBOOT_REQUESTED",
            "IDLE+REBOOT_ISSUED", "IDLE+POWERED_DOWN", "IDLE+POWERING_UP", "FUTURE", "UNKNOWN", "ERROR", "IDLE+INVALID_REG",
            "IDLE+A_WORD_OF_TOMORROW", "IDLE$", "IDLE~", "IDLE#", "IDLE!", "IDLE%", "IDLE@", "IDLE^", "")),
        (f"State=IDLE+DRAIN {OURS}", True),
        (f"State=IDLE+DRAIN {OURS}".replace("GPU001", "NIC003"), False),  # its time counts
        (f"State=IDLE+DRAIN {OURS}".replace("GPU001", "NIC0031"), True),
        ("State=IDLE+DRAIN Reason=waiting for a part [root@2026-01-01T00:00:00]", False),
        ("State=IDLE+MAINT Reason=service", False),
        (f"State=DOWN*+DRAIN {OURS}", False),
        ("no such node", False),
    ],
)  # fmt: skip
def test_reasons_of_others_are_never_replaced(controller: Path, line: str, updates: bool) -> None:
    Path(f"{controller}.node").write_text(f"NodeName=n1 {line}\n")
    answer = slurm.drain("n1", "nccl-doctor:NIC003 down\nnow")
    assert line.startswith("State=") == isinstance(answer, bool) or line == "State="
    assert updates == ("update NodeName=n1 State=DRAIN Reason=nccl-doctor:NIC003 down now" in asked(controller))
    assert (answer is True) == (updates and "DRAIN" not in line)
    assert slurm.resume("n1") is None or not isinstance(answer, bool)
    given_back = "DRAIN" in line and OWNER in line and "DOWN" not in line
    assert given_back == ("update NodeName=n1 State=UNDRAIN" in asked(controller))


def test_what_drained_at_the_same_moment_is_undone_beyond_the_cap(controller: Path) -> None:
    """Both nodes saw a free place; the one that came second gives it back."""
    node, nodes = (Path(f"{controller}.{name}") for name in ("node", "nodes"))
    controller.write_text(
        '#!/bin/sh\necho "$@" >> "$0.asked"\ncase "$*" in "show node -o") cat "$0.nodes" ;; show*) cat "$0.node" ;;\n'
        f'*State=DRAIN*) echo "NodeName=n2 State=IDLE+DRAIN {OURS}" > "$0.node"; cat "$0.both" > "$0.nodes" ;; esac\n'
    )
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    rows = [f"NodeName={name} State=IDLE+DRAIN Reason=nccl-doctor:GPU001 x [root@{now}]\n" for name in ("n1", "n2")]
    settings = Settings(cap=1, cap_share=0.0)
    for before, undone in (("n1", True), ("n3", False)):  # of the same second: the first by name keeps its place
        Path(f"{controller}.asked").write_text("")
        node.write_text("NodeName=n2 State=IDLE\n")
        nodes.write_text("NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE\nNodeName=n3 State=IDLE\n")
        Path(f"{controller}.both").write_text("".join(rows).replace("NodeName=n1", f"NodeName={before}"))
        report = broken_report("GPU001")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURMD_NODENAME", "n2")
            drain.drain(report, (), "slurm", settings, print)
        assert undone == ("update NodeName=n2 State=UNDRAIN" in asked(controller))
        assert ["warn" if undone else "drain"] == [finding.action for finding in report.findings]


def broken_report(rule: str) -> Report:
    finding = Finding(rule, "gone", "Gone", "error", "cause", "certain", "GPU 3 is gone", "", "", action="drain")
    return Report("error", [], {}, [finding], [], fitness="drain")


def test_a_controller_that_is_away_does_not_hold_us_up(controller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"{controller}.node").write_text("NodeName=n1 State=IDLE\n")
    Path(f"{controller}.hang").touch()
    monkeypatch.setattr(slurm, "SECONDS", 0.3)
    assert "scontrol show failed" in str(slurm.drain("n1", "why"))
