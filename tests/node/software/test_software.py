"""Software and settings of a node: what is read, in which order a process would load it, and what the rules say."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import NcclLibrary
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.software import elf, environment, installed, nccl_conf
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import software as made

COLLECTORS = ("software", "scheduler", "environment")
JOB = {
    "nccl-packages-overwrite-each-other", "cuda-stubs-in-library-path", "cuda-compat-older-than-driver", "driver-older-than-cuda",
    "framework-without-cuda", "nccl-library-broken", "cdi-spec-stale", "fewer-gpus-than-granted",
    "fewer-cpus-than-gpus", "world-size-differs-from-tasks", "more-processes-than-gpus", "rendezvous-on-loopback",
    "rendezvous-unreachable", "socket-ifname-names-no-interface", "ib-hca-names-no-device", "setting-file-missing",
    "visible-devices-wrong", "setting-device-missing", "fast-network-switched-off", "provider-without-efa",
}  # fmt: skip
OURS = [
    fault for fault in node.FAULTS.values()
    if fault.change.__module__.endswith((".software", ".scheduler"))
]  # fmt: skip


def ask(tree: node.Tree, folder: Path) -> tuple[Report, Facts]:
    tree.write(folder)
    facts = preflight.look(Root(folder), names=COLLECTORS)
    return preflight.report_of(facts), facts


@pytest.mark.parametrize("machine", list(node.MACHINES))
def test_a_healthy_node_gives_notes_at_most(machine: str, tmp_path: Path) -> None:
    report, facts = ask(node.build(machine), tmp_path)
    assert [] == [finding.message for finding in report.findings if finding.severity != "note"]
    assert "fit" == report.fitness
    assert {"ok"} == {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}
    assert [] == [check.rule for check in report.checks if check.outcome == "broken"]


@pytest.mark.parametrize(
    ("fault", "machine"),
    [(fault, fault.machines[-1]) for fault in OURS],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_planted_fault_comes_first(fault: node.Fault, machine: str, tmp_path: Path) -> None:
    report, _ = ask(node.build(machine, fault.name), tmp_path)
    assert fault.name == report.findings[0].name
    assert ("job" if fault.name in JOB else "fit") == report.fitness


def libraries(root: Root) -> list[NcclLibrary]:
    return [row for row in installed.collect(root) if isinstance(row, NcclLibrary)]


def test_the_loader_takes_preload_then_rpath_then_the_environment_then_the_cache(tmp_path: Path) -> None:
    tree = node.build("p5")
    for place in ("/opt/a", "/opt/b", made.LIBS):
        made.library(tree, f"{place}/libnccl.so.2", nccl="2.18.3")
    made.variables(tree, LD_PRELOAD="/opt/a/libnccl.so.2", LD_LIBRARY_PATH="/opt/b:/usr/local/cuda/lib64")
    tree.put("/etc/ld.so.cache", f"libnccl.so.2\0{made.LIBS}/libnccl.so.2\0{made.LIBS}/libnccl.so.2.18.3\0")
    tree.write(tmp_path)
    found = [(row.how, row.place, row.version) for row in libraries(Root(tmp_path))]
    assert [
        ("LD_PRELOAD", 1, "2.18.3"),
        ("torch", 2, "2.21.5"),
        ("LD_LIBRARY_PATH", 3, "2.18.3"),
        ("ld.so.cache", 4, "2.18.3"),
    ] == found


def test_runpath_comes_after_the_environment(tmp_path: Path) -> None:
    tree = node.build("p5")
    made.library(tree, made.TORCH, needed=["libnccl.so.2"], runpath=["$ORIGIN/../../nvidia/nccl/lib"])
    made.library(tree, "/opt/b/libnccl.so.2", nccl="2.18.3")
    made.variables(tree, LD_LIBRARY_PATH="/opt/b")
    tree.write(tmp_path)
    assert ["LD_LIBRARY_PATH", "torch"] == [row.how for row in libraries(Root(tmp_path))]


def test_an_nccl_inside_pytorch_comes_first(tmp_path: Path) -> None:
    tree = node.build("p5")
    made.library(tree, made.TORCH, needed=["libcudart.so.12"], nccl="2.14.3", cuda="11.7")
    tree.write(tmp_path)
    assert [("torch", 1, "2.14.3"), ("not searched", None, "2.21.5")] == [
        (row.how, row.place, row.version) for row in libraries(Root(tmp_path))
    ]


def test_the_version_in_a_file_name_serves_where_the_file_says_nothing(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.link("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "libnccl.so.2.19.3")
    tree.put("/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3", "")
    tree.write(tmp_path)
    (found,) = libraries(Root(tmp_path))
    assert ("2.19.3", "default folder", 0) == (found.version, found.how, found.size)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize(
    ("flag", "rpath", "runpath"), [("disable", ["$ORIGIN/../lib"], []), ("enable", [], ["$ORIGIN/../lib"])]
)
def test_a_real_library_is_read(tmp_path: Path, flag: str, rpath: list[str], runpath: list[str]) -> None:
    (tmp_path / "one.c").write_text(
        'const char *version = "NCCL version 2.21.5+cuda12.4"; const char *f = "NCCL version %d.%d.%d";\n'
        "extern int puts(const char *); int ncclAllReduce(void) { puts(f); return puts(version); }\n"
    )
    out = tmp_path / "libnccl.so.2"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-Wl,-rpath,$ORIGIN/../lib,--{flag}-new-dtags",
        "-o",
        str(out),
        str(tmp_path / "one.c"),
    ]
    subprocess.run(command, check=True)
    found = elf.look(str(out))
    assert found is not None
    assert ("2.21.5", "12.4", True, True) == (found.nccl, found.cuda, found.elf, found.calls_nccl)
    assert (rpath, runpath) == (found.rpath, found.runpath)
    assert "libc.so.6" in found.needed
    content = out.read_bytes()
    for size in (0, 5, 63, 64, 200, len(content) // 2, len(content) - 3):
        (tmp_path / "cut").write_bytes(content[:size])
        assert elf.look(str(tmp_path / "cut")) is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"\x7fELF\x02" + b"\xff" * 4000, b"\x7fELF\x02" + b"\0" * 4000, b"\x7fELF\x01" + b"\0" * 100,
     b"\x7fELF\x02".ljust(40, b"\0") + struct.pack("<QIHHHHHH", 64, 0, 64, 56, 65535, 64, 65535, 3) + b"\x03" * 5000],
    ids=["empty", "magic", "ones", "zeros", "32 bits", "wrong tables"],
)  # fmt: skip
def test_what_only_looks_like_a_library(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    found = elf.look(str(tmp_path / "x.so"))
    assert found is not None
    assert (None, []) == (found.nccl, found.needed)


def test_no_library_is_none(tmp_path: Path) -> None:
    assert elf.look(str(tmp_path / "none")) is None
    assert elf.look(str(tmp_path)) is None


CONF = """# site settings
NCCL_DEBUG=WARN
NCCL_IB_HCA = mlx5
 NCCL_IB_TIMEOUT=22
NCCL_SOCKET_IFNAME="eth0"
NCCL_IB_GID_INDEX=3 # RoCE v2
NCCL_NET_GDR_LEVEL=SYS\r
NCCL_ALGO=Ring, Tree
export NCCL_PROTO=Simple
NCCL_BUFFSIZE

PYTHONPATH=/x
"""


def test_a_settings_file_is_read_as_nccl_reads_it() -> None:
    found = [(row.line, row.name, row.value, row.problem) for row in nccl_conf.parse(CONF, "/etc/nccl.conf")]
    assert [
        (2, "NCCL_DEBUG", "WARN", ""),
        (3, "NCCL_IB_HCA ", " mlx5", "blank-in-name"),
        (4, " NCCL_IB_TIMEOUT", "22", "blank-in-name"),
        (5, "NCCL_SOCKET_IFNAME", '"eth0"', "quotes"),
        (6, "NCCL_IB_GID_INDEX", "3 # RoCE v2", "comment"),
        (7, "NCCL_NET_GDR_LEVEL", "SYS\r", "carriage-return"),
        (8, "NCCL_ALGO", "Ring, Tree", "blank-in-value"),
        (9, "export NCCL_PROTO", "Simple", "no-setting"),
        (10, "NCCL_BUFFSIZE", "", "no-setting"),
        (12, "PYTHONPATH", "/x", "not-nccl"),
    ] == found


def test_the_environment_beats_the_users_file_and_that_the_systems(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/home/alice/.nccl.conf", "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n")
    tree.put("/etc/nccl.conf", "NCCL_ALGO=Tree\nNCCL_PROTO=Simple\n")
    tree.put("/opt/named.conf", "NCCL_PROTO=LL\n")
    tree.write(tmp_path)
    given = {"HOME": "/home/alice", "NCCL_DEBUG": "WARN"}
    rows = nccl_conf.lines(Root(tmp_path), given)
    assert ["overridden", "", "overridden", ""] == [row.problem for row in rows]
    rows = nccl_conf.lines(Root(tmp_path), {**given, "NCCL_CONF_FILE": "/opt/named.conf"})
    assert [("/opt/named.conf", ""), ("/etc/nccl.conf", ""), ("/etc/nccl.conf", "overridden")] == [
        (row.file, row.problem) for row in rows
    ]


HOSTILE: list[dict[str, Any]] = [
    {},
    {"environ": {"PATH": ":::/", "LD_LIBRARY_PATH": ":" * 500, "LD_PRELOAD": " : ", "CUDA_VISIBLE_DEVICES": ",,,", "HOME": "x",
                 "NCCL_IB_HCA": "^=,:", "SLURM_JOB_ID": "x", "SLURM_JOB_GPUS": "9-1,x", "MASTER_ADDR": "-x", "MASTER_PORT": "99999999",
                 "WORLD_SIZE": "-3", "UCX_NET_DEVICES": ",:", "NCCL_TOPO_FILE": "/" + "a" * 5000, "PBS_NODEFILE": "x"}},
    {"environ": [], "libraries": {"x": 3}, "times": {"a": "b"}, "launchers": {"torchrun": 5}, "commands": {}},
    {"environ": {"PATH": None, "NCCL_CONF_FILE": "/proc", "HOME": "/"}},
]  # fmt: skip


@pytest.mark.parametrize("extra", HOSTILE, ids=["plain", "values", "types", "nulls"])
@pytest.mark.parametrize(
    "content", ["", "\0\x01\ufffd", "=\n{[\"'\n==> x <==\n", "x" * 100_000], ids=["empty", "binary", "marks", "long"]
)
def test_broken_content_raises_nothing(tmp_path: Path, extra: dict[str, Any], content: str) -> None:
    tree = node.build("p4d")
    for path in list(tree.files):
        tree.files[path] = content
    tree.extra = {**tree.extra, **extra}
    _, facts = ask(tree, tmp_path)
    outcomes = dict(facts.query("SELECT source, outcome FROM collection"))
    assert set(outcomes.values()) <= {"ok", "absent"}, facts.query("SELECT source, note FROM collection")


def test_nothing_at_all_is_absent(tmp_path: Path) -> None:
    report, facts = ask(node.Tree(), tmp_path)
    assert "fit" == report.fitness
    assert [] == report.findings
    with pytest.raises(Absent):
        list(environment.collect(Root(tmp_path)))
    assert {"ok", "absent"} == {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}


def test_no_framework_is_imported_and_this_machine_can_be_read() -> None:
    code = (
        "import sys; from nccl_doctor.node.software import environment, installed as software\n"
        "from nccl_doctor.node.scheduler import grants; from nccl_doctor.node.network import ssh\n"
        "from nccl_doctor.node.runtime.root import Root\nlist(software.collect(Root()))\n"
        "print([name for name in ('torch', 'tensorflow', 'pandas', 'yaml', 'ClusterShell') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
