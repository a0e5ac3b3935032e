"""Matrices of copies: text and JSON say the same, levels of a machine are no fault, broken and hostile input."""

import io
import json

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CopyRate, CopySlow, CopyTest, Measure
from nccl_doctor.formats.bandwidth import copy_matrices
from nccl_doctor.formats.declaration import Reading

SAMPLE = FIXTURES / "bandwidth" / "nvbandwidth.txt"
Matrix = list[list[float | None]]


def read(text: str) -> tuple[Facts, Reading]:
    facts = Facts()
    reading = copy_matrices.read_format(io.BytesIO(text.encode()), "c.txt", facts)
    derive_all(facts)
    return facts, reading


def culprits(facts: Facts) -> list[tuple[str, str | None, int | None, int | None]]:
    return [(row.what, row.host, row.gpu, row.peer) for row in facts.rows(CopySlow)]


def printed(title: str, test: str, rows: Matrix, labels: list[str] | None = None) -> str:
    """A matrix as nvbandwidth prints it."""
    width = max(map(len, labels)) if labels else 2
    cells = [["N/A" if value is None else f"{value:.2f}" for value in row] for row in rows]
    lines = [f"Running {test}.", title, " " * width + "".join(f"{at:>10}" for at in range(len(rows[0])))]
    lines += [
        f"{labels[at] if labels else at:>{width}}" + "".join(f"{cell:>10}" for cell in row)
        for at, row in enumerate(cells)
    ]
    total = sum(value or 0 for row in rows for value in row)
    return "\n".join([*lines, "", f"SUM {test} {total:.2f}", "", ""])


def head(gpus: int, host: str = "node01", model: str = "NVIDIA H100 80GB HBM3") -> str:
    devices = [f"Device {at}: {model} (00000000:{16 + at:02x}:00)" for at in range(gpus)]
    return "\n".join(["nvbandwidth Version: v0.8", "", "Driver Version: 570.124.06", "", host, *devices, "", ""])


def square(gpus: int, usual: float, **slow: float) -> Matrix:
    """All pairs alike, but for those named `p2_6=…` and GPUs named `g3=…`."""
    rows: Matrix = [[None if row == column else usual for column in range(gpus)] for row in range(gpus)]
    for name, value in slow.items():
        for row in range(gpus):
            for column in range(gpus):
                ends = {int(part) for part in name[1:].split("_")}
                if row != column and (ends == {row, column} or (len(ends) == 1 and ends & {row, column})):
                    rows[row][column] = value
    return rows


def copies(rows: Matrix) -> str:
    test = "device_to_device_memcpy_read_ce"
    return head(len(rows)) + printed("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", test, rows)


def test_the_sample_names_its_slow_gpu_and_every_number() -> None:
    report, _, _ = analyze.analyze([str(SAMPLE)])
    assert [("gpu-peer-copy-slow", "likely")] == [(one.name, one.confidence) for one in report.findings]
    assert "node07 GPU 3" in report.findings[0].message
    facts, reading = read(SAMPLE.read_text())
    sums = {line.split()[1]: float(line.split()[2]) for line in SAMPLE.read_text().splitlines() if line[:4] == "SUM "}
    assert sums == {row.test: row.total for row in facts.rows(CopyTest)}
    for test in facts.rows(CopyTest):
        values = [row.value for row in facts.rows(CopyRate) if row.test == test.number and row.value is not None]
        assert sums[test.test] == pytest.approx(sum(values), abs=0.01 * len(values))
    assert reading.note is None


def test_json_says_what_the_text_says() -> None:
    rows = square(4, 390.0, g2=200.0)
    text, _ = read(copies(rows))
    answer = {
        "nvbandwidth": {
            "Driver Version": "570.124.06",
            "GPU Device list": [
                f"{at}: NVIDIA H100 80GB HBM3 (00000000:{16 + at:02x}:00): (node01)" for at in range(4)
            ],
            "testcases": [
                {
                    "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["N/A" if value is None else f"{value:g}" for value in row] for row in rows],
                    "name": "device_to_device_memcpy_read_ce",
                    "status": "Passed",
                    "sum": sum(value or 0 for row in rows for value in row),
                },
                {"name": "multinode_bisect_write_ce", "status": "Waived"},
            ],
        }
    }
    found, reading = read(json.dumps(answer, indent="\t"))
    assert 2 == reading.understood
    assert [row[:-1] for row in text.rows(CopyRate)] == [row[:-1] for row in found.rows(CopyRate)]
    assert [("gpu", "node01", 2, None)] == culprits(found) == culprits(text)
    assert ["passed", "waived"] == [row.status for row in found.rows(CopyTest)]
    cut, reading = read(json.dumps(answer)[:-40])
    assert reading.note is not None
    assert [("gpu", "node01", 2, None)] == culprits(cut)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (square(8, 390.0), []),
        (square(8, 390.0, g5=200.0), [("gpu", "node01", 5, None)]),
        (square(8, 390.0, g5=200.0, g6=200.0), [("gpu", "node01", 5, None), ("gpu", "node01", 6, None)]),
        (square(8, 390.0, p2_6=180.0), [("pair", "node01", 2, 6)]),
        (square(8, 390.0, g5=200.0, p0_1=90.0), [("gpu", "node01", 5, None), ("pair", "node01", 0, 1)]),
        # pairs below one switch, pairs on one socket, pairs across the sockets
        (
            [[None if a == b else 24.0 if a // 2 == b // 2 else 20.0 if a // 4 == b // 4 else 9.0 for a in range(8)] for b in range(8)],
            [],
        ),
        # a hybrid cube mesh: two links to some, one to others, none to the rest
        (
            [[None if a == b else 48.0 if (a ^ b) in (1, 4) else 24.0 if (a ^ b) in (2, 3) else 9.0 for a in range(8)] for b in range(8)],
            [],
        ),
        # bridges of two GPUs each
        ([[None if a == b else 220.0 if a // 2 == b // 2 else 18.0 for a in range(4)] for b in range(4)], []),
    ],
)  # fmt: skip
def test_culprits_of_a_matrix(rows: Matrix, expected: list[tuple[str, str, int, int | None]]) -> None:
    assert expected == culprits(read(copies(rows))[0])


def test_a_gpu_that_only_receives_slowly_is_named() -> None:
    rows = [[None if a == b else 120.0 if a == 3 else 390.0 for a in range(8)] for b in range(8)]
    assert [("gpu", "node01", 3, None)] == culprits(read(copies(rows))[0])


def test_a_gpu_without_peer_access_is_cut_off() -> None:
    rows = [[None if a == b or 3 in (a, b) else 390.0 for a in range(8)] for b in range(8)]
    assert [("cut-off", "node01", 3, None)] == culprits(read(copies(rows))[0])


def test_half_of_the_gpus_may_be_slow_but_not_for_certain() -> None:
    test = "host_to_device_memcpy_ce"
    title = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
    facts, _ = read(head(8) + printed(title, test, [[55.0, 55.1, 55.0, 55.2, 42.0, 42.1, 42.0, 42.0]]))
    assert [] == facts.rows(CopySlow)
    facts, _ = read(head(4) + printed(title, test, [[55.0, 55.1, 26.0, 26.2]]))
    assert [(2, 0), (3, 0)] == [(row.gpu, row.alone) for row in facts.rows(CopySlow)]


def test_nodes_with_one_gpu_are_compared_with_each_other(tmp_path: object) -> None:
    test = "host_to_device_memcpy_ce"
    facts = Facts()
    for at in range(6):
        rate = 95.0 if at == 4 else 372.0 + at
        text = head(1, f"gh{at}", "NVIDIA GH200 480GB") + printed(
            "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", test, [[rate]]
        )
        copy_matrices.read_format(io.BytesIO(text.encode()), f"gh{at}.txt", facts)
    derive_all(facts)
    assert [("host-link", "gh4", 0, None)] == culprits(facts)


def test_processes_of_several_nodes_keep_their_host() -> None:
    lines = ["nvbandwidth Version: v0.8", "MPI version: Open MPI v4.1.4"]
    lines += [f"Process {at} (node{at // 2:02}): device {at % 2}: NVIDIA GB200 (0000000{at}:01:00)" for at in range(8)]
    test = "multinode_device_to_device_memcpy_read_ce"
    text = "\n".join([*lines, "", ""]) + printed(
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", test, square(8, 390.0, g5=97.0)
    )
    assert [("gpu-far", "node02", 1, None)] == culprits(read(text)[0])
    bisect = [[97.0] if at == 2 else [390.0] for at in range(8)]
    labels = [f"{at}->{(at + 4) % 8}" for at in range(8)]
    text = "\n".join([*lines, "", ""]) + printed(
        "Bisect benchmarking, simultaneous write CE BW", "multinode_bisect_write_ce", bisect, labels
    )
    rows = read(text)[0].rows(CopySlow)
    assert [("pair", "node01", 0, "node03", 0)] == [
        (row.what, row.host, row.gpu, row.peer_host, row.peer) for row in rows
    ]


def test_latency_is_slow_where_it_is_long() -> None:
    rows = square(8, 720.0, p1_4=1900.0)
    text = head(8) + printed(
        "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", "device_to_device_latency_sm", rows
    )
    facts, _ = read(text)
    assert [("pair", "node01", 1, 4)] == culprits(facts)
    assert [(1900.0, 720.0)] == [(row.value, row.usual) for row in facts.rows(CopySlow)]
    assert [("copy_latency", 720.0, "ns")] == [(row.name, row.value, row.unit) for row in facts.rows(Measure)]


def test_the_sample_of_cuda_tells_nvlink_from_copies_through_the_host() -> None:
    def matrix(title: str, rows: Matrix) -> list[str]:
        lines = [title, "   D\\D" + "".join(f"{at:6d} " for at in range(len(rows)))]
        return lines + [f"{at:6d} " + "".join(f"{value:6.02f} " for value in row) for at, row in enumerate(rows)]

    def pairs(usual: float, slow: float) -> Matrix:
        return [[1500.0 if a == b else slow if {a, b} == {0, 3} else usual for a in range(4)] for b in range(4)]

    text = "\n".join(
        [
            "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]",
            *(
                f"Device: {at}, NVIDIA A100-SXM4-40GB, pciBusID: {at + 7:x}, pciDeviceID: 0, pciDomainID:0"
                for at in range(4)
            ),
            "P2P Connectivity Matrix",
            "     D\\D     0     1     2     3",
            *(f"     {at}\t     1     1     1     1" for at in range(4)),
            *matrix("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", pairs(11.0, 4.0)),
            *matrix("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", pairs(270.0, 90.0)),
            "",
        ]
    )
    facts, _ = read(text)
    assert [("pair", None, 0, 3)] == culprits(facts)
    assert [90.0] == [row.value for row in facts.rows(CopySlow)]


def test_hostile_numbers_and_shapes_are_left_out() -> None:
    title = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
    text = (
        head(2)
        + f"Running host_to_device_memcpy_ce.\n{title}\n           0         1\n 0     {'9' * 400}     1.0\n 0   5.0\n"
    )
    facts, _ = read(text)
    assert [] == facts.rows(CopyRate)
    for broken in (
        '{"nvbandwidth": 5}',
        '{"nvbandwidth": {"testcases": [5, {"name": []}, {"name": "a", "bandwidth_matrix": [5]}]}}',
    ):
        assert [] == read(broken)[0].rows(CopyRate)


def test_a_gpu_that_is_slow_to_other_hosts_only() -> None:
    rows = [
        [None if a == b else 190.0 if 6 in (a, b) and a // 4 != b // 4 else 395.0 for a in range(8)] for b in range(8)
    ]
    lines = [f"Process {at} (tray{at // 4 + 1}): device {at % 4}: NVIDIA GB200 (0000000{at}:01:00)" for at in range(8)]
    text = "nvbandwidth Version: v0.8\n" + "\n".join(lines) + "\n\n"
    text += printed(
        "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)", "multinode_device_to_device_memcpy_write_ce", rows
    )
    assert [("gpu-far", "tray2", 2, None)] == culprits(read(text)[0])


def test_lines_of_several_hosts_that_pdsh_mixed_are_kept_apart() -> None:
    outputs = {
        f"node0{at}": copies(square(4, 390.0, g2=200.0) if at == 3 else square(4, 390.0))
        .replace("node01", f"node0{at}")
        .splitlines()
        for at in range(1, 5)
    }
    mixed = "\n".join(f"{host}: {lines[at]}" for at in range(len(outputs["node01"])) for host, lines in outputs.items())
    facts, _ = read(mixed + "\n")
    assert [("gpu", "node03", 2, None)] == culprits(facts)
    assert 4 == len({row.number for row in facts.rows(CopyTest)})


@pytest.mark.parametrize("error", ["CUDA_ERROR_NOT_PERMITTED", "cudaErrorUnsupportedPtxVersion"])
def test_a_test_that_cuda_ended_has_failed(error: str) -> None:
    facts = analyze.read_text(
        "nvbandwidth Version: v0.8\nDevice 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)\n\n"
        f"Running host_to_device_memcpy_ce.\n[{error}] words of CUDA in expression call()\n"
    )
    assert [("host_to_device_memcpy_ce", "error")] == facts.query("SELECT test, status FROM copy_test")
