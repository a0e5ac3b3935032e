"""Children end with their parent, however it ends, with every tool that they started; ranks share one look."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.app import preflight
from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection, NodeCounter
from nccl_doctor.node.runtime import children, collect, shared_look, state
from nccl_doctor.node.runtime.root import Root

# A preflight whose collectors start tools that sleep, one of them below a shell that is not their child.
HANGING = """
import os, subprocess, sys, types
from nccl_doctor.facts.store import Facts
from nccl_doctor.node.runtime import collect
from nccl_doctor.node.runtime.root import Root

def work(root):
    with open(sys.argv[1] + f"/{os.getpid()}", "w"): pass
    subprocess.Popen(["sh", "-c", f"sleep 1000 & echo > {sys.argv[1]}/$!; echo > {sys.argv[1]}/$$; wait"])
    import time
    time.sleep(1000)
    yield

for name in ("one", "two"):
    collect.MODULES[name] = name
    sys.modules[f"nccl_doctor.node.{name}"] = types.SimpleNamespace(TABLES=(), collect=work)
collect.collect(Facts(), Root(), "node01", names=("one", "two"), seconds=600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True])
def test_all_processes_end_with_the_parent(tmp_path: Path, number: signal.Signals, group: bool) -> None:
    parent = subprocess.Popen([sys.executable, "-c", HANGING, str(tmp_path)], start_new_session=True)
    try:
        until(lambda: 6 == len(list(tmp_path.iterdir())))
        started = [int(one.name) for one in tmp_path.iterdir()]
        family = [one.pid for one in psutil.Process(parent.pid).children(recursive=True)]
        assert set(started) <= set(family)
        assert all(map(runs, started))
        (os.killpg if group else os.kill)(parent.pid, number)  # a scheduler kills one process or the whole group
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(map(runs, family)))


def test_all_processes_end_with_the_block(tmp_path: Path) -> None:
    others = {one.pid for one in psutil.Process().children(recursive=True)}  # of earlier tests
    with children.guarded() as started:
        first, reading = started.start(lambda pipe: time.sleep(1000))
        family = [one.pid for one in psutil.Process().children(recursive=True) if one.pid not in others]
        assert first in family
    os.close(reading)
    until(lambda: not any(map(runs, family)))


def test_a_child_answers_or_is_given_up() -> None:
    assert {"a": [1, None]} == children.ask(lambda: {"a": [1, None]}, 30)
    assert "x" * 500_000 == children.ask(lambda: "x" * 500_000, 30)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
        children.ask(lambda: time.sleep(1000), 0.2)
    for work in (lambda: 1 / 0, lambda: object(), lambda: os.kill(os.getpid(), signal.SIGKILL)):
        with pytest.raises(OSError, match="without an answer"):
            children.ask(work, 30)


def counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors that leave a file for each time that they were asked."""

    def module(name: str) -> object:
        def read(root: Root) -> object:
            (folder / f"{name}-{os.getpid()}").touch()
            return iter(())

        return type("Module", (), {"TABLES": (), "collect": staticmethod(read)})

    for name in ("gpu", "environment"):
        monkeypatch.setitem(collect.MODULES, name, name)
        monkeypatch.setitem(sys.modules, f"nccl_doctor.node.{name}", module(name))


def test_callers_share_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    asked.mkdir()
    counting(asked, monkeypatch)
    shared = tmp_path / "state"

    def look() -> tuple[str, list[str]]:
        facts = Facts()
        name = collect.collect(facts, Root(), "node01", names=("gpu", "environment"), seconds=30, shared=shared)
        return name, [f"{row.source} {row.outcome}" for row in facts.rows(Collection)]

    seen = [look() for _ in range(3)]
    assert [["gpu ok", "environment ok"]] * 3 == [said for _, said in seen]
    assert 1 == len({name for name, _ in seen})
    assert (1, 3) == tuple(len(list(asked.glob(f"{name}-*"))) for name in ("gpu", "environment"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # another grant, another look
    assert seen[0][0] != look()[0]
    monkeypatch.setattr(shared_look, "FRESH", -1.0)
    assert look()[0] != look()[0]


def test_eight_ranks_at_once_ask_the_driver_once(tmp_path: Path) -> None:
    code = (
        "import os, sys, types\n"
        "from nccl_doctor.facts.store import Facts\n"
        "from nccl_doctor.node.runtime import collect\n"
        "from nccl_doctor.node.runtime.root import Root\n"
        "from pathlib import Path\n"
        "def work(root):\n"
        "    (Path(sys.argv[1]) / f'asked-{os.getpid()}').touch()\n"
        "    return iter(())\n"
        "collect.MODULES['gpu'] = 'one'\n"
        "sys.modules['nccl_doctor.node.one'] = types.SimpleNamespace(TABLES=(), collect=work)\n"
        "print(collect.collect(Facts(), Root(), 'node01', names=('gpu',), seconds=120, shared=Path(sys.argv[1]) / 'state'))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    looks = {rank.communicate()[0] for rank in ranks}
    if 1 == len(looks):  # eight starts on a slow machine may take longer than a look is fresh
        assert 1 == len(list(tmp_path.glob("asked-*")))
    assert len(looks) == len(list(tmp_path.glob("asked-*")))


def test_a_look_of_somebody_else_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    asked.mkdir()
    counting(asked, monkeypatch)
    shared = tmp_path / "state"
    for _ in range(2):
        collect.collect(Facts(), Root(), "node01", names=("gpu",), seconds=30, shared=shared)
    assert 1 == len(list(asked.iterdir()))
    file = shared / "looks" / "look.json"
    whole = json.loads(file.read_text())
    for spoil in (
        {"rows": {"gpu": [], "pci": []}},
        {"ended": 7},
        {"at": whole["at"] + 1e6},
        {"key": "x"},
        {"look": None},
    ):
        with state.opened(shared / "looks") as kept:
            kept.write("look", whole | spoil)
        before = len(list(asked.iterdir()))
        collect.collect(Facts(), Root(), "node01", names=("gpu",), seconds=30, shared=shared)
        assert before + 1 == len(list(asked.iterdir())), spoil
    file.chmod(0o666)
    collect.collect(Facts(), Root(), "node01", names=("gpu",), seconds=30, shared=shared)
    assert before + 2 == len(list(asked.iterdir()))


def test_a_look_ends_with_the_connection(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(collect.ConnectionEnded):
        collect.collect(Facts(), Root(), "node01", names=("host",), seconds=600, connection=reading)
    os.close(reading)
    with Path("/dev/null").open() as null:
        facts = preflight.look(Root(), ("host",), 60.0, "node01", connection=null.fileno())
    assert ["host"] == [row.source for row in facts.rows(Collection)]


@pytest.mark.parametrize(("how", "outcome"), [("hangs", "hung"), ("ends", "failed"), ("is killed", "failed")])
def test_collectors_that_share_a_child_do_not_share_a_fate(
    monkeypatch: pytest.MonkeyPatch, how: str, outcome: str
) -> None:
    def read(root: Root) -> Iterator[NodeCounter]:
        yield NodeCounter("node01", "efa0", "rx_drops", 7, None, Seen("/sys", "7"))
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            signal.pause()
        os._exit(0)

    well = SimpleNamespace(TABLES=(), collect=lambda root: iter(()))
    names = ("amd", "efa", "selinux", "software")
    assert set(names) <= set(collect.SHORT)
    for name in names:
        monkeypatch.setitem(collect.MODULES, name, name)
        module = SimpleNamespace(TABLES=(), collect=read) if name == "efa" else well
        monkeypatch.setitem(sys.modules, f"nccl_doctor.node.{name}", module)
    monkeypatch.setattr(collect, "STALLED", 0.1)
    facts = Facts()
    collect.collect(facts, Root(), "node01", names=names, seconds=10 if how == "hangs" else 600)
    outcomes = {row.source: row.outcome for row in facts.rows(Collection)}
    assert {"amd": "ok", "efa": outcome, "selinux": "ok", "software": "ok"} == outcomes
    assert [7] == [row.value for row in facts.rows(NodeCounter)]
