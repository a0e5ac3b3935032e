"""The table of plain `nvidia-smi`: old and new layouts, of many nodes, inside logs, damaged."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import refusals, smi_table

RULE = "+-----------------------------------------+------------------------+----------------------+"
TITLES = (
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
    "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
    "|                                         |                        |               MIG M. |\n"
    "|=========================================+========================+======================|\n"
)
OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 450.80.02    Driver Version: 450.80.02    CUDA Version: 11.0     |
|-------------------------------+----------------------+----------------------+
|   0  Tesla V100-SXM2...  On   | 00000000:00:1B.0 Off |                    0 |
| N/A   41C    P0    45W / 300W |      3MiB / 16160MiB |      0%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   1  GeForce RTX 208...  Off  | 00000000:00:1C.0  On |                  N/A |
| 30%   34C    P8    N/A /  N/A |    412MiB / 11019MiB |     N/A      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
"""


def table(uncorrected: list[int], driver: str = "570.124.06") -> str:
    head = f"{RULE}\n| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: 12.8     |\n"
    gpus = "".join(
        f"| {gpu:>3}  NVIDIA H100 80GB HBM3          On  |   00000000:{24 + gpu:02X}:00.0 Off | {count:>20} |\n"
        f"| N/A   {30 + gpu}C    P0            {100 + gpu}W /  700W |   {70123 + gpu}MiB /  81559MiB |    {90 + gpu:>3}%      Default |\n"
        f"|                                         |                        |             Disabled |\n{RULE}\n"
        for gpu, count in enumerate(uncorrected)
    )
    return head + TITLES + gpus


def read(text: str) -> Facts:
    facts = Facts()
    smi_table.read_format(io.BytesIO(text.encode()), "smi.txt", facts)
    return facts


def test_the_head_of_driver_610() -> None:
    text = table([0]).replace("Driver Version:", "KMD Version:").replace("CUDA Version:", "CUDA UMD Version:")
    assert [("570.124.06", 12080)] == read(text).query("SELECT driver, cuda FROM node_driver")
    assert [(0, 90)] == read(text).query("SELECT gpu, util FROM node_gpu")


def test_every_cell_is_read() -> None:
    facts = read(table([0, 12]))
    assert [("570.124.06", 12080, 2)] == facts.query("SELECT driver, cuda, gpus FROM node_driver")
    assert [
        (0, "0000:18:00.0", 30, 0, 100.0, 700.0, 70123.0, 81559.0, 90, 1, 0),
        (1, "0000:19:00.0", 31, 0, 101.0, 700.0, 70124.0, 81559.0, 91, 1, 0),
    ] == facts.query(
        "SELECT gpu, pci, temperature, pstate, power, power_limit, memory_used, memory_total, util, persistence, mig FROM node_gpu"
    )
    assert [(0, 1, 0), (1, 1, 12)] == facts.query("SELECT gpu, ecc, uncorrected FROM gpu_health ORDER BY gpu")


def test_an_old_table_with_shortened_names() -> None:
    facts = read(OLD)
    assert [
        (0, None, 41, 45.0, 300.0, 3.0, 0),
        (1, None, 34, None, None, 412.0, None),
    ] == facts.query("SELECT gpu, model, temperature, power, power_limit, memory_used, util FROM node_gpu")
    assert [(0, 0), (1, None)] == facts.query("SELECT gpu, uncorrected FROM gpu_health ORDER BY gpu")


@pytest.mark.parametrize("label", ["", "{}: ", "node{:02}: "])
def test_of_many_nodes_inside_a_log(label: str) -> None:
    text = [table([0, bad]) for bad in (3, 0)]
    lines = [
        label.format(node) + line for node, one in enumerate(text) for line in f"step 1 loss 2.0\n{one}".splitlines()
    ]
    facts = read("\n".join(lines) + "\n")
    hosts = facts.query("SELECT DISTINCT host FROM node_gpu ORDER BY host")
    assert ([("node00",), ("node01",)] if label.startswith("node") else [(None,)]) == hosts
    assert [(3,)] == facts.query("SELECT max(uncorrected) FROM gpu_health")


def test_a_gpu_with_uncorrected_errors_is_found_and_a_healthy_one_is_not() -> None:
    bad = analyze.report_of(analyze.read_text(table([0, 12])))
    assert ["gpu-ecc-uncorrectable-now"] == [one.name for one in bad.findings if one.severity == "error"]
    good = analyze.report_of(analyze.read_text(table([0, 0])))
    assert [] == [one.name for one in good.findings]


MIG = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: N/A      |
|-------------------------------+----------------------+----------------------+
|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                   On |
| N/A   32C    P0    66W / 400W |    100MiB / 40537MiB |     N/A      Default |
|                               |                      |              Enabled |
+-------------------------------+----------------------+----------------------+
|   1  GRID A100D-80C      On   | 00000000:0F:00.0 Off |                    0 |
| N/A   N/A    P0    N/A /  N/A |   6300MiB / 81920MiB |      0%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|  1    1   0   0  |     11MiB / 20096MiB | 42      0 |  3   0    2    0    0 |
+------------------+----------------------+-----------+-----------------------+
"""


def test_gpus_in_parts_and_virtual_ones_without_a_cuda_version() -> None:
    facts = read(MIG)
    assert [("470.82.01", None, 2)] == facts.query("SELECT driver, cuda, gpus FROM node_driver")
    rows = facts.query("SELECT gpu, mig, temperature, memory_used, util FROM node_gpu ORDER BY gpu")
    assert [(0, 1, 32, 100.0, None), (1, 0, None, 6300.0, 0)] == rows
    assert [] == facts.query("SELECT * FROM node_gpu_error")


BROKEN = table([0, 0, 0]).replace(" 31C ", " ERR! ").replace("101W /  700W", "ERR! /  700W")
LOST = BROKEN.replace("70124MiB /  81559MiB", "       GPU is lost  ")


@pytest.mark.parametrize(
    ("text", "problem", "rule"),
    [
        (BROKEN, ("unreadable", "ERR!: temperature, power"), "gpu-readings-fail"),
        (LOST, ("gpu-lost", "GPU is lost: temperature, power, memory"), "gpu-lost"),
    ],
)
@pytest.mark.parametrize("node", ["", "gpu7", "node07"])
def test_a_gpu_whose_readings_fail_is_found_on_its_node(
    text: str, problem: tuple[str, str], rule: str, node: str
) -> None:
    lines = [f"{node}: {line}" if node else line for line in text.splitlines()]
    facts = analyze.read_text("\n".join(lines) + "\n")
    errors = facts.query("SELECT host, gpu, pci, name, text FROM node_gpu_error")
    assert [(node or None, 1, "0000:19:00.0", *problem)] == errors
    assert [rule] == [one.name for one in analyze.report_of(facts).findings]


def test_a_fan_that_says_nothing_is_no_fault() -> None:
    facts = read(table([0]).replace("| N/A   30C", "| ERR!  30C"))
    assert [(30,)] == facts.query("SELECT temperature FROM node_gpu")
    assert [] == facts.query("SELECT * FROM node_gpu_error")


def test_of_two_tables_the_worst_errors_count() -> None:
    facts = read(table([0, 12]) + table([0, 0]).replace(" 31C ", " 44C "))
    assert [(0, 0), (1, 12)] == facts.query("SELECT gpu, uncorrected FROM gpu_health ORDER BY gpu")
    assert [(44,)] == facts.query("SELECT temperature FROM node_gpu WHERE gpu = 1")


@pytest.mark.parametrize("cut", [2, 40, 300, 700])
def test_a_cut_table_is_named(cut: int) -> None:
    text = table([0, 0, 0])
    reading = smi_table.read_format(io.BytesIO(text[: text.index("|   2 ") + cut].encode()), "smi.txt", Facts())
    inside = text[: text.index("|   2 ") + cut].splitlines()[-1].startswith("|")
    assert inside == ("the file is cut" in (reading.note or ""))
    assert smi_table.read_format(io.BytesIO(text.encode()), "smi.txt", Facts()).note is None


@given(st.integers(0, len(table([0, 1]))), st.binary(max_size=20))
def test_a_cut_or_spoilt_table_never_fails(at: int, noise: bytes) -> None:
    data = table([0, 1]).encode()
    facts = Facts()
    smi_table.read_format(io.BytesIO(data[:at] + noise + data[at + len(noise) :]), "smi.txt", facts)
    assert facts.query("SELECT count(*) FROM node_gpu")[0][0] <= 2


PROCESSES = """\
|    0   N/A  N/A           41231      C   /opt/conda/bin/python                 71990MiB |
|    0   N/A  N/A           41232      C   ...conda3/envs/tf/bin/python            836MiB |
|    1   N/A  N/A           41232    C+G   python                                 N/A      |
|    1     1    0           41233      C   python                                71990MiB |
|    1        513      M+C   python                                        30MiB |
"""


def test_processes_are_read_but_those_of_instances() -> None:
    """An instance of a divided GPU is a GPU of its own; of two tables of a node the later one counts."""
    facts = read(table([0]) + PROCESSES.replace("4123", "999") + table([0, 0]) + PROCESSES)
    assert [
        (0, 41231, "C", "/opt/conda/bin/python", 71990.0),
        (0, 41232, "C", "...conda3/envs/tf/bin/python", 836.0),
        (1, 513, "M+C", "python", 30.0),
        (1, 41232, "C+G", "python", None),
    ] == facts.query("SELECT gpu, pid, kind, name, memory FROM gpu_process ORDER BY gpu, pid")


def test_contexts_of_other_ranks_are_named() -> None:
    row = "|    {}   N/A  N/A           4123{}      C   python                        {:>15}MiB |\n"
    own = table([0] * 4) + "".join(row.format(gpu, gpu, 71990) for gpu in range(4))
    others = "".join(row.format(0, gpu, 536) for gpu in range(1, 4))
    for text, wanted in ((own + others, ["extra-context-on-gpu0"]), (own, [])):
        assert wanted == [finding.name for finding in analyze.report_of(analyze.read_text(text)).findings]


def test_each_refusal_is_one() -> None:
    assert all(map(refusals.is_refused, refusals.REFUSALS))
    assert not refusals.is_refused("| N/A   30C    P0             101W /  700W |")
