"""nvidia-bug-report.log.gz: its sections go to the readers of what they hold.

The script needs a GPU's driver, so that the report here is made of its section heads (nvidia-bug-report.sh of driver 550) around
captures that the other tests read alone.
"""

import gzip
import io
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuHealth, KernelModule, LinkCounter, NodeGpu, NvlinkState, Xid
from nccl_doctor.formats.gpu import smi_query

CAPTURES = FIXTURES / "captures"
BAR = "____________________________________________\n"


def section(head: str, body: str) -> str:
    return f"{BAR}\n{head}\n\n{body}\n"


def report_text() -> str:
    kernel = "Nov 22 02:11:14 node07 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    errors = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n" + "".join(
        f"\t Link {link}: Replay Errors: {4021 if link == 3 else 0}\n" for link in range(6)
    )
    return (
        section(
            "Start of NVIDIA bug report log file.", "nvidia-bug-report.sh Version: 33667133\nuname: Linux node07 5.15.0"
        )
        + section(
            "*** /etc/issue\n*** ls: -rw-r--r-- 1 root root 26 2026-05-05 10:00:00 /etc/issue", "Ubuntu 22.04 LTS"
        )
        + section("/usr/bin/nvidia-smi --query", (CAPTURES / "smi_q_gpu3.txt").read_text())
        + section("/usr/bin/nvidia-smi nvlink --status", (CAPTURES / "nvlink_up.txt").read_text())
        + section("/usr/bin/nvidia-smi nvlink -e", errors)
        + section("/bin/lsmod", (CAPTURES / "lsmod_no_peermem.txt").read_text())
        + section("journalctl -b -0:", kernel)
    )


def test_every_section_is_read_as_the_same_capture_alone(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(gzip.compress(report_text().encode()))
    report, facts, _ = analyze.analyze([str(path)])
    _, alone, _ = analyze.analyze([str(CAPTURES / "smi_q_gpu3.txt")])
    assert [row[1:-1] for row in alone.rows(NodeGpu)] == [row[1:-1] for row in facts.rows(NodeGpu)]
    assert [row[1:-1] for row in alone.rows(GpuHealth)] == [row[1:-1] for row in facts.rows(GpuHealth)]
    assert 8 == len(facts.rows(NvlinkState))
    assert {79} == {row.code for row in facts.rows(Xid)}
    assert facts.rows(KernelModule)
    found = {finding.name for finding in report.findings}
    assert {
        "gpu-ecc-uncorrectable-now",
        "gpu-pcie-lanes-captured",
        "nvlink-errors-stand-out",
        "xid-79-off-bus",
    } <= found


def test_replays_of_the_pcie_link_stand_out() -> None:
    text = (CAPTURES / "smi_q.txt").read_text()
    parts = text.split("Replays Since Reset               : 0")
    bad = (
        "Replays Since Reset               : 0".join(parts[:3])
        + "Replays Since Reset               : 88210"
        + ("Replays Since Reset               : 0".join(parts[3:]))
    )
    facts = Facts()
    smi_query.read_format(io.BytesIO(bad.encode()), "q.txt", facts)
    assert [("GPU 2", 88210)] == [(row.link, row.value) for row in facts.rows(LinkCounter) if row.value]


QUERY = """\
==============NVSMI LOG==============

Driver Version                            : 550.54.15
Attached GPUs                             : 2
GPU 00000000:1B:00.0
    Fan Speed                             : Unknown Error
    Temperature
        GPU Current Temp                  : 33 C
GPU 00000000:1C:00.0
    Fan Speed                             : N/A
    Temperature
        GPU Current Temp                  : {}
    Clocks
        SM                                : Unknown Error
"""
QUERY_XML = """\
<nvidia_smi_log>
<driver_version>550.54.15</driver_version>
<gpu id="00000000:1B:00.0">
<fan_speed>Unknown Error</fan_speed>
</gpu>
<gpu id="00000000:1C:00.0">
<temperature><gpu_temp>30 C</gpu_temp></temperature>
<sm_clock>{}</sm_clock>
</gpu>
</nvidia_smi_log>
"""


@pytest.mark.parametrize("form", [QUERY, QUERY_XML])
@pytest.mark.parametrize(
    ("answer", "problem"), [("GPU requires reset", "reset-required"), ("Unknown Error", "unreadable")]
)
def test_readings_that_fail_are_of_their_gpu(form: str, answer: str, problem: str) -> None:
    facts = Facts()
    smi_query.read_format(io.BytesIO(form.format(answer).encode()), "q.txt", facts)
    assert [(1, "0000:1c:00.0", problem)] == facts.query("SELECT gpu, pci, name FROM node_gpu_error")


def test_the_fabric_of_a_broken_domain() -> None:
    text = (CAPTURES / "smi_q.txt").read_text()
    health = "        Health\n            Bandwidth                     : Degraded\n            Route Unhealthy               : True\n"
    facts = Facts()
    whole = text.replace(
        "        Status                            : Success\n", f"        Status : Success\n{health}", 1
    )
    smi_query.read_format(io.BytesIO(whole.encode()), "q.txt", facts)
    assert ("completed", 0, "degraded bandwidth, route unhealthy") == facts.rows(NodeGpu)[0][
        NodeGpu._fields.index("fabric_state") : NodeGpu._fields.index("fabric_health") + 1
    ]


def test_hosts_of_one_log_and_a_cut_section() -> None:
    text = (CAPTURES / "smi_q.txt").read_text().splitlines()
    facts = Facts()
    lines = [f"node0{host}: {line}" for line in text[:200] for host in (1, 2)]
    smi_query.read_format(io.BytesIO(("hello\n" + "\n".join(lines)).encode()), "q.txt", facts)
    assert {"node01", "node02"} == {row.host for row in facts.rows(NodeGpu)}
    assert 4 >= len(facts.rows(NodeGpu))
