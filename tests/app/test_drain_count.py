"""Drained nodes are counted in a shared folder: never beyond the limit, whatever the file holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_doctor.app.drain_count import reserve


def ask(folder: Path, node: str, now: float = 10_000.0, most: int = 2) -> int:
    return reserve(str(folder), "HOST101", node, most, 3600.0, now)


def test_others_are_counted_and_oneself_is_not(tmp_path: Path) -> None:
    assert [0, 0, 1, 2, 2, 1] == [ask(tmp_path, name) for name in ("n1", "n1", "n2", "n3", "n4", "n1")]


def test_nodes_leave_the_window(tmp_path: Path) -> None:
    assert [0, 1, 2] == [ask(tmp_path, name, now) for name, now in (("n1", 1e4), ("n2", 1.1e4), ("n3", 1.2e4))]
    assert 1 == ask(tmp_path, "n3", 1.39e4)


def test_nodes_that_ask_at_once_do_not_get_more_places_than_there_are(tmp_path: Path) -> None:
    code = (
        "import sys; from nccl_doctor.app.drain_count import reserve\n"
        "got = [n for n in range(20) if reserve(sys.argv[1], 'R', f'{sys.argv[2]}-{n}', 7, 3600.0, 1e4) < 7]\n"
        "print(len(got))"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)], stdout=subprocess.PIPE) for n in range(3)
    ]
    assert 7 == sum(int(run.communicate()[0]) for run in runs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.binary(max_size=200) | st.just(b"9999 n9\n" * 1000))
def test_any_content_is_no_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "HOST101.drained").write_bytes(content)
    assert ask(tmp_path, "n1") >= 0


def test_links_fifos_and_missing_folders_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "shadow"
    target.write_text("secret")
    file = tmp_path / "HOST101.drained"
    file.symlink_to(target)
    with pytest.raises(OSError, match="HOST101"):
        ask(tmp_path, "n1")
    assert "secret" == target.read_text()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a file"):
        ask(tmp_path, "n1")
    file.unlink()
    os.link(target, file)
    with pytest.raises(OSError, match="ours alone"):
        ask(tmp_path, "n1")
    assert "secret" == target.read_text()
    with pytest.raises(OSError, match="no/such"):
        ask(Path("/no/such"), "n1")


@pytest.mark.skipif(os.geteuid() != 0, reason="what root believes")
def test_what_users_can_write_is_not_counted(tmp_path: Path) -> None:
    """A user who adds nodes there keeps broken nodes in service."""
    assert 0 == ask(tmp_path, "n1")
    file = tmp_path / "HOST101.drained"
    for weak, mode in ((file, 0o666), (tmp_path, 0o777), (tmp_path, 0o1777)):
        before = weak.stat().st_mode
        weak.chmod(mode)
        with pytest.raises(OSError, match=r"ours alone|writable by everybody"):
            ask(tmp_path, "n2")
        weak.chmod(before)
    assert 1 == ask(tmp_path, "n2")
    os.chown(file, 65534, 65534)
    with pytest.raises(OSError, match="ours alone"):
        ask(tmp_path, "n3")
