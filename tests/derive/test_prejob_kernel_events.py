"""A kernel event of days ago never comes before the one that ended the job, and what no clock can tell is said."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.prejob_kernel_events import KERNEL
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.node.host.kernel_forms import KINDS

END = datetime(2024, 5, 9, 10, 12, 20)
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENDED = "NVRM: Xid (PCI:0000:1c:00): 79, pid=4322, name=python3, GPU has fallen off the bus."
OLD = {
    "xid-13-app-fault": "NVRM: Xid (PCI:0000:1b:00): 13, pid=4321, name=python3, Graphics Exception: ESR 0x50a730=0x3000e",
    "xid-94-contained-ecc": "NVRM: Xid (PCI:0000:1b:00): 94, pid=4321, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    "amd-gpu-data-lost": "amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block",
    "amd-gpu-hung": "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
    "host-memory-ecc": "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0)",
    "pcie-aer-errors": "pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: id=1608",
    "port-down": "mlx5_core 0000:5d:00.0 ib0: Link down",
}


def dmesg(when: datetime, text: str) -> str:
    return f"[{when:%a %b} {when.day:2d} {when:%H:%M:%S %Y}] {text}\n"


def job() -> str:
    start, init = (
        END - timedelta(days=5),
        "node01:{}:140 [{}] NCCL INFO comm 0x55b0 rank {} nranks 2 cudaDev {} nvmlDev {} busId 4f000",
    )
    ranks = "".join(
        f"{start:%Y-%m-%d %H:%M:%S},000 {init.format(101 + n, n, n, n, n)} commId 0xb9b42cb8fce289f2 - Init COMPLETE\n"
        for n in range(2)
    )
    return ranks + (
        f"[rank1]:[E{END.month}{END:%d %H:%M:%S}.399015003 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=304640, NumelOut=304640, Timeout(ms)=600000) ran for 600035 "
        "milliseconds before timing out.\n"
    )


def report(folder: Path, kernel: str) -> Report:
    (folder / "job.log").write_text(job())
    (folder / "dmesg-node01.log").write_text(kernel)
    return analyze.analyze([str(folder / "job.log"), str(folder / "dmesg-node01.log")])[0]


def test_every_kind_of_line_that_kernels_write_is_dated() -> None:
    assert {kind for kind in KINDS if not kind.startswith(("xid", "sxid"))} <= set(KERNEL)


@given(
    name=st.sampled_from(sorted(OLD)), days=st.integers(2, 30), minutes=st.integers(1, 9), before=st.booleans()
)  # fmt: skip
@example(name="xid-13-app-fault", days=2, minutes=9, before=True)
@FEW
def test_an_event_of_days_ago_never_comes_before_the_one_that_ended_the_job(
    tmp_path_factory: pytest.TempPathFactory, name: str, days: int, minutes: int, before: bool
) -> None:
    old, new = dmesg(END - timedelta(days=days), OLD[name]), dmesg(END - timedelta(minutes=minutes), ENDED)
    found = report(tmp_path_factory.mktemp("job"), old + new if before else new + old).findings
    names = [finding.name for finding in found]
    assert "xid-79-off-bus" == names[0]
    assert name not in names
    assert {"old-xid", "old-kernel-errors"} & set(names)


def test_an_event_of_days_ago_with_nothing_after_it_is_still_told(tmp_path: Path) -> None:
    """The job was stuck since: it made no steps, and nothing else happened."""
    found = report(tmp_path, dmesg(END - timedelta(days=2), ENDED)).findings
    assert "xid-79-off-bus" == found[0].name


@pytest.mark.parametrize(("stamp", "says"), [
    ("[12345.678901] ", "its line counts seconds since boot"),
    ("", "its line has no date"),
    (f"{END:%Y-%m-%dT%H:%M:%S}Z node01 kernel: ", "one of the two clocks names no time zone"),
])  # fmt: skip
def test_a_line_that_no_clock_places_says_so(tmp_path: Path, stamp: str, says: str) -> None:
    found = report(tmp_path, f"{stamp}{ENDED}\n").findings
    message = next(finding.message for finding in found if finding.name == "xid-79-off-bus")
    assert (
        message.endswith((f"no clock tells whether it belongs to the job: {says}", f"{says}."))
        or " before the " in message
    )


def test_a_line_of_the_same_clock_says_nothing_of_it(tmp_path: Path) -> None:
    found = report(tmp_path, dmesg(END - timedelta(minutes=5), ENDED)).findings
    assert not any("no clock" in finding.message for finding in found)
