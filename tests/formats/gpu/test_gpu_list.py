"""Lists of GPUs: `nvidia-smi -L`, `dcgmi discovery`, `nvidia-smi mig -lgi`."""

from nccl_doctor.app import analyze
from nccl_doctor.app.analyze import report_of

LISTED = "SELECT host, tool, gpu, uuid, pci, model, instances, profiles FROM listed_gpu ORDER BY host, gpu"
UUID = "GPU-5c0ffee0-0000-4000-8000-00000000000"


def test_nvidia_smi_lists_gpus_and_their_instances() -> None:
    facts = analyze.read_text(
        f"GPU 0: NVIDIA A30 (UUID: {UUID}0)\n"
        "  MIG 1g.6gb      Device  0: (UUID: MIG-5c0ffee0-0000-4000-8000-000000000010)\n"
        "  MIG 2g.12gb     Device  1: (UUID: MIG-5c0ffee0-0000-4000-8000-000000000011)\n"
        f"GPU 1: NVIDIA A30 (UUID: {UUID}1)\nGPU 2: NVIDIA A30 (UUID: GP"
    )
    assert [
        (None, "nvidia-smi", 0, f"{UUID}0", None, "NVIDIA A30", 2, "1g.6gb,2g.12gb"),
        (None, "nvidia-smi", 1, f"{UUID}1", None, "NVIDIA A30", 0, None),
    ] == facts.query(LISTED)
    assert ["gpu-divided"] == [finding.name for finding in report_of(facts).findings]
    assert ["nvidia-smi -L: 2 GPUs, NVIDIA A30, 2 instances of MIG"] == report_of(facts).job["captured"]


def test_dcgmi_shows_a_gpu_in_several_rows() -> None:
    rows = "".join(
        f"| {gpu}      | Name: NVIDIA H200                                                    |\n"
        f"|        | PCI Bus ID: 00000000:{gpu + 1}9:00.0                                         |\n"
        f"|        | Device UUID: {UUID}{gpu}                |\n"
        "+--------+----------------------------------------------------------------------+\n"
        for gpu in (0, 1)
    )
    head = "2 GPUs found.\n| GPU ID | Device Information                                                   |\n"
    facts = analyze.read_text(f"{head}{rows}4 NvSwitches found.\n| Switch ID |\n| 0         |\n")
    assert [
        (None, "dcgmi", gpu, f"{UUID}{gpu}", f"00000000:{gpu + 1}9:00.0", "NVIDIA H200", 0, None) for gpu in (0, 1)
    ] == facts.query(LISTED)


def test_instances_of_mig() -> None:
    facts = analyze.read_text(
        "| GPU instances:                                        |\n"
        "| GPU   Name             Profile  Instance   Placement  |\n"
        "|   0  MIG 1g.10gb         19       13          6:1     |\n"
        "|   0  MIG 3g.40gb          9        2          0:4     |\n"
        "|   3  MIG 7g.80gb          0        0          0:8     |\n"
    )
    assert [
        (None, "nvidia-smi mig", 0, None, None, None, 2, "1g.10gb,3g.40gb"),
        (None, "nvidia-smi mig", 3, None, None, None, 1, "7g.80gb"),
    ] == facts.query(LISTED)


def test_the_node_with_a_gpu_less_is_named() -> None:
    text = "".join(
        f"node{host}: GPU {gpu}: NVIDIA H200 (UUID: {UUID}{gpu})\n"
        for host in (1, 2, 3)
        for gpu in range(7 if host == 2 else 8)
    )
    found = report_of(analyze.read_text(text)).findings
    assert [("gpus-listed-fewer", "node2")] == [(finding.name, finding.hosts) for finding in found]


_AGENTS = """HSA System Attributes
Agent 1
  Name:                    AMD EPYC 9654 96-Core Processor
  Uuid:                    CPU-XX
  Marketing Name:          AMD EPYC 9654 96-Core Processor
  Device Type:             CPU
  BDFID:                   0
Agent 2
  Name:                    gfx942
  Uuid:                    GPU-0a1b2c3d4e5f6071
  Marketing Name:          AMD Instinct MI300X
  Device Type:             GPU
  BDFID:                   1296
  ISA Info:
    Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
Agent 3
  Name:                    gfx942
  Uuid:                    GPU-0a1b2c3d4e5f6072
  Device Type:             GPU
  BDFID:                   9480
"""


def test_agents_of_rocminfo() -> None:
    facts = analyze.read_text(_AGENTS)
    assert [
        (None, "rocminfo", 0, "GPU-0a1b2c3d4e5f6071", "05:02.0", "AMD Instinct MI300X", 0, None),
        (None, "rocminfo", 1, "GPU-0a1b2c3d4e5f6072", "25:01.0", "gfx942", 0, None),
    ] == facts.query(LISTED)


def test_pairs_of_gpus_where_the_title_is_underlined() -> None:
    text = "\x1b[4mGPU0\tGPU1\x1b[0m\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
    assert [(0, 1, 0), (1, 0, 0)] == analyze.read_text(text).query("SELECT gpu, peer, read FROM gpu_pair")


def test_pairs_of_gpus_with_blanks_between_the_columns() -> None:
    text = "        GPU0    GPU1\n GPU0   X       NS\n GPU1   NS      X\n\nLegend:\n\n  X    = Self\n  CNS  = Chipset not supported\n"
    assert [(0, 1, 5), (1, 0, 5)] == analyze.read_text(text).query("SELECT gpu, peer, read FROM gpu_pair")
