"""What is remembered between runs: per caller, locked, and never trusted where somebody else could have written it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import NodeCounter
from nccl_doctor.node.runtime import state


def growth(folder: Path, value: int, boot: str = "a", caller: str = "prolog") -> int | None:
    """How much a counter grew since this caller looked last; None where that is not known."""
    facts = Facts()
    facts.add([NodeCounter("node01", "mlx5_0/1", "link_downed", value, None, 1)])
    with state.opened(folder) as memory:
        state.remember_counters(facts, memory, caller, boot)
    derive_all(facts)
    (row,) = facts.rows(NodeCounter)
    return None if row.before is None else row.value - row.before


def test_counters_are_compared_within_one_boot(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    seen = [
        growth(folder, 3),
        growth(folder, 5),
        growth(folder, 9, "b"),
        growth(folder, 1, "b"),
        growth(folder, 6, "b"),
    ]
    assert [None, 2, None, None, 5] == seen


def test_each_caller_sees_a_growth(tmp_path: Path) -> None:
    for caller in ("prolog", "health", "exporter"):
        assert growth(tmp_path, 3, caller=caller) is None
    assert 1 == growth(tmp_path, 4, caller="exporter")
    assert 1 == growth(tmp_path, 4, caller="prolog")
    assert 0 == growth(tmp_path, 4, caller="prolog")
    assert 1 == growth(tmp_path, 4, caller="health")


def test_what_was_written_is_read_and_is_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    with state.opened(folder) as memory:
        assert {} == memory.read("node")
        memory.write("node", {"a": [1]})
        memory.write("node", {"a": [2]})
        assert {"a": [2]} == memory.read("node")
    assert memory.problem is None
    assert 0o700 == folder.stat().st_mode & 0o777
    assert [("node.json", 0o600)] == [(one.name, one.stat().st_mode & 0o777) for one in folder.iterdir()]


GARBAGE = (
    b"", b"garbage", b"[1]", b"\xff\xfe\x00", b'{"a": ' * 5000, b"[" * 200_000, b'{"counters": 7, "boot_id": "a"}',
    b'{"boot_id": "a", "counters": {"mlx5_0/1/link_downed": "3"}}',
    b'{"boot_id": "a", "counters": {"mlx5_0/1/link_downed": true}}',
)  # fmt: skip


@pytest.mark.parametrize("content", GARBAGE)
def test_damaged_state_is_no_error(tmp_path: Path, content: bytes) -> None:
    replace_file(tmp_path / "counters-prolog.json", content)
    assert growth(tmp_path, 3) is None
    assert 1 == growth(tmp_path, 4)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner:
                    st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)))  # fmt: skip
def test_any_json_is_no_error(tmp_path: Path, content: object) -> None:
    replace_file(tmp_path / "counters-prolog.json", json.dumps({"boot_id": "a", "counters": content}).encode())
    assert growth(tmp_path, 3) is None


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    growth(tmp_path, 3)
    file = tmp_path / "counters-prolog.json"
    with file.open("ab") as stream:
        stream.write(b" " * state.MOST)
    assert growth(tmp_path, 4) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    growth(tmp_path, 3)
    (tmp_path / "counters-prolog.json").chmod(mode)
    assert growth(tmp_path, 4) is None
    assert 1 == growth(tmp_path, 5)


def test_links_fifos_and_folders_in_place_of_a_file_are_replaced(tmp_path: Path) -> None:
    growth(tmp_path / "real", 3)
    target = tmp_path / "real" / "counters-prolog.json"
    before = target.read_bytes()
    folder = tmp_path / "hostile"
    folder.mkdir(mode=0o700)
    file = folder / "counters-prolog.json"
    file.symlink_to(target)
    assert growth(folder, 4) is None
    assert before == target.read_bytes()
    assert 1 == growth(folder, 5)
    file.unlink()
    os.mkfifo(file)
    assert growth(folder, 6) is None
    file.unlink()
    file.mkdir()
    assert growth(folder, 7) is None


def test_a_folder_that_others_can_write_or_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    growth(folder, 3)
    folder.chmod(0o777)
    with state.opened(folder) as memory:
        assert {} == memory.read("counters-prolog")
        memory.write("node", {"a": 1})
    assert "writable" in (memory.problem or "")
    assert not (folder / "node.json").exists()
    folder.chmod(0o700)
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        assert growth(tmp_path / name, 4) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
def test_what_belongs_to_somebody_else_is_not_believed(tmp_path: Path) -> None:
    growth(tmp_path, 3)
    os.chown(tmp_path / "counters-prolog.json", 65534, 65534)
    assert growth(tmp_path, 4) is None
    os.chown(tmp_path, 65534, 65534)
    with state.opened(tmp_path) as memory:
        assert {} == memory.read("counters-prolog")
    assert "65534" in (memory.problem or "")


def test_a_lock_that_is_not_released_does_not_hold_us_up(tmp_path: Path) -> None:
    growth(tmp_path, 3)
    code = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with state.opened(tmp_path, 0.1) as memory:
            assert {} == memory.read("counters-prolog")
        assert "another run" in (memory.problem or "")
        holder.kill()
    assert 1 == growth(tmp_path, 4)  # a killed holder leaves no lock


def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nccl_doctor.node.runtime import state\n"
        "for _ in range(50):\n"
        "    with state.opened(Path(sys.argv[1]), 60) as memory:\n"
        "        memory.write('node', {'n': memory.read('node').get('n', 0) + 1})"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [0, 0] == [run.wait() for run in runs]
    with state.opened(tmp_path) as memory:
        assert {"n": 100} == memory.read("node")


def test_names_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    with state.opened(tmp_path) as memory, pytest.raises(ValueError, match="not a name"):
        memory.read("../node")


@pytest.mark.parametrize("name", ["Prolog", "a b", "../x", "", "-x"])
def test_callers_have_plain_names(name: str) -> None:
    assert not state.is_name(name)
