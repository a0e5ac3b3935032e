"""Files that nothing here reads are named with what converts them, in the report and on stderr."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.inputs import conversions
from nccl_doctor.inputs.conversions import of_file
from nccl_doctor.reporters import Options, render

BINARY = b"\x01\x00\x02\xff" * 20
FILES = {
    "profile.nsys-rep": (BINARY, "nsys stats"),
    "old.qdrep": (BINARY, "nsys export --type sqlite"),
    "run.nvvp": (b"SQLite format 3\x00" + b"\x00" * 200, "nvprof -i"),
    "kernel.ncu-rep": (BINARY, "ncu --import"),
    "system@1.journal": (b"LPKSHHRH" + BINARY, "journalctl --file"),
    "core.4711": (b"\x7fELF\x02\x01\x01" + b"\x00" * 9 + b"\x04\x00" + BINARY, "gdb PROGRAM"),
    "perf.data": (b"PERFILE2" + BINARY, "perf report"),
    "node.xml": (
        b'<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n</topology>\n',
        "lstopo -i",
    ),
    "sa21": (b"\xd5\x96" + BINARY, "sar -A -f"),
    "ib0.pcap": (b"\xd4\xc3\xb2\xa1" + BINARY, "tcpdump"),
    "et.json": (
        b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": [{"id": 1, "name": "aten::mm"}]}',
        "torch.profiler.profile",
    ),
    "snapshot.pickle": (pickle.dumps({"segments": [{"device": 0}], "device_traces": [[]]}), "_memory_viz"),
    "snapshot2.pkl": (pickle.dumps({"segments": [], "device_traces": [[]]}, protocol=2), "_memory_viz"),
    "vm.trace.json": (
        b'{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","pid":7,"name":"process_name","args":{"name":"/device:GPU:0"}}]}',
        "xprof",
    ),
    "vm.xplane.pb": (BINARY, "xprof"),
    "run-1.swanlab": (b":SWL" + BINARY, "swanlab watch"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_foreign_file_is_named_with_what_converts_it(name: str, tmp_path: Path) -> None:
    content, command = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageProblem, match=command):
        analyze.analyze([str(tmp_path / name)])


def test_the_store_of_aim_is_known_by_its_folder() -> None:
    for name in ("x/.aim/seqs/chunks/5e0/000009.sst", ".aim/meta/index/MANIFEST-000004"):
        found = of_file(BINARY, name)
        assert found is not None
        assert "dataframe()" in str(found)
    assert of_file(BINARY, "aim/meta/index/000009.sst") is None


@pytest.mark.parametrize("path", sorted(p for p in FIXTURES.rglob("*") if p.is_file()), ids=lambda p: p.name)
def test_no_file_that_is_read_is_taken_for_a_foreign_one(path: Path) -> None:
    assert of_file(path.read_bytes()[:65536], path.name) is None


def test_beside_a_log_they_are_in_the_report_and_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.log").write_bytes((FIXTURES / "demo.log").read_bytes())
    alone = analyze.analyze([str(tmp_path)])[0]
    for name in ("a.nsys-rep", "b.nsys-rep", "system.journal"):
        (tmp_path / name).write_bytes(FILES.get(name, (b"LPKSHHRH", ""))[0] if "journal" in name else BINARY)
    report = analyze.analyze([str(tmp_path)])[0]
    assert (alone.verdict, alone.basis) == (report.verdict, report.basis)
    assert [f"{tmp_path}/a.nsys-rep and 1 more", f"{tmp_path}/system.journal"] == [
        one.path for one in report.inputs if one.kind == "unread"
    ]
    assert 2 == render("terminal", report, Options(verbose=True)).count("\nNot read ")
    main(["analyze", str(tmp_path)])
    printed = capsys.readouterr().err
    assert "nsys stats" in printed
    assert "journalctl --file" in printed


@pytest.mark.parametrize("packed", [False, True])
def test_what_nobody_reads_is_named_in_folders_and_archives(tmp_path: Path, packed: bool) -> None:
    """Kinds without a conversion too, those of one kind together; the verdict is that of the log alone."""
    strange = {
        "data.bin.1": bytes(range(256)) * 9,
        "data.bin.2": bytes(range(256)) * 9,
        "model.pkl.gz": gzip.compress(pickle.dumps({"w": [1]})),
        "app": b"\x7fELF\x02\x01\x01" + bytes(200),
        "conf/settings": b"<?xml version='1.0'?><config><a>1</a></config>",
        "kernel.journal": b"LPKSHHRH" + BINARY,
        "empty": b"",
        "train.py": b"import torch\n",
    }
    files = {**strange, "job.log": (FIXTURES / "demo.log").read_bytes()}
    place = tmp_path / "run.tar" if packed else tmp_path
    if packed:
        with tarfile.open(place, "w") as tar:
            for name, data in sorted(files.items()):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    else:
        for name, data in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(data)
    report, _, problems = analyze.analyze([str(place)])
    alone = analyze.analyze([str(FIXTURES / "demo.log")])[0]
    before = f"{place}!" if packed else f"{place}/"
    unread = {one.path.removeprefix(before): one.note for one in report.inputs if one.kind == "unread"}
    assert {"app", "data.bin.1 and 1 more", "conf/settings", "kernel.journal", "model.pkl.gz"} == unread.keys()
    assert "journalctl --file" in unread["kernel.journal"]
    assert [f"{before}{name}: {note}" for name, note in unread.items()] == problems
    assert (alone.verdict, alone.basis) == (report.verdict, report.basis)
    assert all(f"not read: {note}" in render("markdown", report).replace("\\", "") for note in problems)
    shown = render("terminal", report, Options(width=300, verbose=True))
    assert all(f"{before}{name}: " in shown for name in unread)


@pytest.mark.parametrize("log", [FIXTURES / "demo.log", FIXTURES / "throughput" / "megatron_8.log"])
def test_many_of_them_leave_room_for_the_answer(tmp_path: Path, log: Path) -> None:
    for name, (data, _) in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "job.log").write_bytes(log.read_bytes())
    report = analyze.analyze([str(tmp_path)])[0]
    rows = render("terminal", report, Options()).splitlines()
    unread = sum(one.kind == "unread" for one in report.inputs)
    named = sum(row.startswith("Not read ") for row in rows)
    assert 0 < named < unread
    assert f"{unread - named} more inputs not read: -v" in {row.strip() for row in rows}
    assert 23 >= len(rows)


def test_beside_several_jobs_it_is_named_too(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes((FIXTURES / "nccl_tests" / "a100_8.out").read_bytes())
    (tmp_path / "blob").write_bytes(bytes(range(256)) * 9)
    report = analyze.analyze([str(tmp_path)], apart="each")[0]
    assert 2 == len(report.jobs)
    for form in ("terminal", "markdown"):
        assert "blob: is binary data, not a log" in render(form, report, Options(width=200))


@pytest.mark.parametrize(
    ("command", "is_output"),
    [
        ("sudo lspci -tv", True),
        ("sudo sysctl -w net.core.rmem_max=1", False),
        ("sudo /sbin/sysctl vm.drop_caches=3", False),
        ("sudo ip link set ib0 mtu 4092", False),
        ("ip -br addr", True),
        ("numactl --cpunodebind=0 python train.py", False),
        ("numactl --show", True),
    ],
)
def test_a_command_that_sets_something_or_runs_another_has_no_output(command: str, is_output: bool) -> None:
    assert is_output == bool(list(conversions.sections(f"+ {command}\nsome text\n+ date\n")))
