"""What tools that run a command on many hosts print: whose the lines are, and what is not such output."""

import io
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import IbPort, LinkCounter, MountProbe
from nccl_doctor.inputs import exports
from nccl_doctor.inputs.exports.host_names import expand, is_name
from nccl_doctor.inputs.prefixes import split

PORT = "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: {}\n\t\tPhysical state: {}\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n"
UP, DOWN = PORT.format("Active", "LinkUp"), PORT.format("Down", "Polling")
DISK = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sdb1       1.0T  {}  {}  {}% /scratch\n"
COUNTERS = "# Port counters: Lid 11 port 1 (CapMask: 0x1200)\nSymbolErrorCounter:..............{}\nLinkDownedCounter:...............0\n"


def lines_of(text: str) -> list[tuple[str | None, str]]:
    kind = exports.recognise(text.encode())
    assert kind in exports.COLLECTED
    read = exports.Exported(io.BytesIO(text.encode()), kind).read(1 << 20).decode()
    found = [split(line) for line in read.splitlines()]
    return [(label.host, rest) for label, rest in found]


def facts_of(tmp_path: Path, text: str) -> analyze.Facts:
    path = tmp_path / "capture.txt"
    path.write_text(text)
    facts, problems = analyze.read_facts([str(path)])
    assert [] == problems
    return facts


@pytest.mark.parametrize(
    "text",
    [
        "----------------\nn01\n----------------\none\n----------------\nn02\n----------------\ntwo\n",  # dshbak
        "---------------\nn01 (1)\n---------------\none\n---------------\nn02 (1)\n---------------\ntwo\n",  # clush -b
        "clush: 0/2\rclush: 2/2     \r---------------\nn01\n---------------\none\n---------------\nn02\n---------------\ntwo\n",
        "n01 | CHANGED | rc=0 >>\none\nn02 | SUCCESS | rc=0 >>\ntwo\n",
        "[WARNING]: of the tool\n\nn01 | CHANGED | rc=0 >>\none\nn02 | CHANGED | rc=0 >>\ntwo\n",
        "== n01 ==\none\n== n02 ==\ntwo\n",
        "=== n01\none\n=== n02\ntwo\n",
        "##### n01 #####\none\n##### n02 #####\ntwo\n",
        ">>> n01 <<<\none\n>>> n02 <<<\ntwo\n",
        "--- host: n01 ---\none\n--- host: n02 ---\ntwo\n",
        "n01\tone\nn02\ttwo\n",  # parallel --tag
    ],
)
def test_forms(text: str) -> None:
    assert [("n01", "one"), ("n02", "two")] == [row for row in lines_of(text) if row[0] and row[1]]


def test_what_hosts_printed_alike_counts_for_each() -> None:
    text = "----------------\nn[01-02,04]\n----------------\nsame\n----------------\nn03\n----------------\nother\n"
    assert [("n01", "same"), ("n02", "same"), ("n04", "same"), ("n03", "other")] == lines_of(text)


def test_a_host_that_failed_keeps_its_line() -> None:
    text = 'n01 | CHANGED | rc=0 >>\none\nn02 | UNREACHABLE! => {"changed": false, "msg": "Failed to connect"}\n'
    assert ("n02", text.splitlines()[2].partition(" | ")[2]) == lines_of(text)[-1]


@pytest.mark.parametrize(
    "text",
    [
        "=== epoch1 ===\nloss 1\n=== epoch2 ===\nloss 2\n",
        "----------------\nresults\n----------------\n1\n",
        "== Setup ==\nx\n== n01 ==\ny\n",
        "== n01 ==\nonly one\n",
        "mlx5_0: 1\nmlx5_1: 2\n",
        "eth0: a\neth0: b\neth1: a\neth1: b\n",
        "GPU0\tX\tNV18\nGPU1\tNV18\tX\n",
        "1\timages/sec: 243.5\t8.1\n10\timages/sec: 243.6\t8.0\n",
        "2026-11-24\t1.5\n2026-11-25\t1.6\n",
        "1e-05\t1.5\n2e-05\t1.6\n",
        "node01: a\nnode02: b\n",  # is read as it is
        "0: step 1 loss 2\n1: step 1 loss 2\n",
        "0: node01:1:1 [0] NCCL INFO x\n1: node02:1:1 [0] NCCL INFO x\n",
    ],
)
def test_other_texts(text: str) -> None:
    assert exports.recognise(text.encode()) not in exports.COLLECTED


def test_names() -> None:
    assert ("n01", "n02", "n04", "m1") == expand("n[01-02,04],m1")
    assert () == expand("a[x]") == expand("results") == expand("step[1-3]")
    assert 4096 == len(expand("n[1-999999999]"))
    assert is_name("ib01")
    assert not is_name("ib0")
    assert is_name("a.b.example")
    assert not is_name("1")


@pytest.mark.parametrize(
    "text",
    [
        f"---------------\nib[01,03] (2)\n---------------\n{UP}---------------\nib02\n---------------\n{DOWN}",
        f"ib01 | CHANGED | rc=0 >>\n{UP}ib02 | CHANGED | rc=0 >>\n{DOWN}ib03 | CHANGED | rc=0 >>\n{UP}",
        "".join(f"ib0{n}: {line}\n" for n, port in enumerate((UP, DOWN, UP), 1) for line in port.splitlines()),
        "".join(f"ib0{n}\t{line}\n" for n, port in enumerate((UP, DOWN, UP), 1) for line in port.splitlines()),
    ],
)
def test_ports_of_hosts(tmp_path: Path, text: str) -> None:
    rows = facts_of(tmp_path, text).rows(IbPort)
    assert {"ib01": "Active", "ib02": "Down", "ib03": "Active"} == {row.host: row.state for row in rows}


def test_tasks_of_srun(tmp_path: Path) -> None:
    text = "".join(f"{n}: {line}\n" for n, port in enumerate((UP, DOWN)) for line in port.splitlines())
    assert {"task 0": "Active", "task 1": "Down"} == {
        row.host: row.state for row in facts_of(tmp_path, text).rows(IbPort)
    }


def test_counters_and_their_lines(tmp_path: Path) -> None:
    text = f"== ib01 ==\n{COUNTERS.format(0)}== ib02 ==\n{COUNTERS.format(5123)}"
    facts = facts_of(tmp_path, text)
    (row,) = [row for row in facts.rows(LinkCounter) if row.value]
    assert ("ib02", 5123) == (row.host, row.value)
    assert [(7,)] == [tuple(found) for found in facts.query("SELECT line FROM evidence WHERE id = ?", (row.ref,))]


def test_full_disk(tmp_path: Path) -> None:
    text = f"n01 | CHANGED | rc=0 >>\n{DISK.format('1G', '999G', 1)}n02 | CHANGED | rc=0 >>\n{DISK.format('1.0T', '0', 100)}"
    assert {"n01": False, "n02": True} == {row.host: row.free == 0 for row in facts_of(tmp_path, text).rows(MountProbe)}


def test_kernel_messages(tmp_path: Path) -> None:
    xid = "[Tue Nov 24 04:10:14 2026] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
    text = f"----------------\nn[01,03]\n----------------\nnothing\n----------------\nn02\n----------------\n{xid}\n"
    hosts = [row[0] for row in facts_of(tmp_path, text).query("SELECT host FROM xid")]
    assert ["n02"] == hosts


def test_a_file_in_a_format_of_its_own(tmp_path: Path) -> None:
    job = '{{"fio version": "fio-3.33", "jobs": [{{"jobname": "a", "error": 0, "read": {{"bw_bytes": {}}}}}]}}\n'
    text = "".join(f"== n0{n} ==\n{job.format(rate)}" for n, rate in enumerate((9e8, 8e6), 1))
    facts = facts_of(tmp_path, text)
    assert {"n01": 900.0, "n02": 8.0} == dict(facts.query("SELECT host, value FROM active_test"))
