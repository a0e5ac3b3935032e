"""Logs that are rotated while they are followed: which files hold them, found without comparing all with all."""

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.log.readers import followed, rotated

RANKS = 60


def renamed(path: Path) -> None:
    path.rename(f"{path}.1")


def compressed(path: Path) -> None:
    times = path.stat()
    packed = path.with_name(f"{path.name}.1.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(times.st_atime_ns, times.st_mtime_ns))
    path.unlink()


def copied(path: Path) -> None:
    shutil.copy2(path, f"{path}.1")
    os.truncate(path, 0)


def removed(path: Path) -> None:
    path.unlink()


def look(follower: followed.Follower, paths: list[Path]) -> list[str]:
    """Read the files, and return the names of logs that are no longer there."""
    follower((path, path.stat().st_size) for path in paths)
    for path in paths:
        follower.scan_file(path)
    return [gone.name for gone in follower.vanished(set(paths))]


@pytest.mark.parametrize("name", ["rank{}.log", "job.log.{}"])  # the second ones may be parts of one log
@pytest.mark.parametrize(
    ("happens", "ending", "is_lost"),
    [(renamed, ".1", False), (compressed, ".1.gz", False), (copied, ".1", False), (removed, "", True)],
)
def test_logs_that_are_rotated_at_once_are_looked_at_once_each(
    happens: Callable[[Path], None],
    ending: str,
    is_lost: bool,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every log had been compared with every file: 28 s at each look for 1,000 ranks."""
    ranks = [tmp_path / name.format(rank) for rank in range(RANKS)]
    for path in ranks:
        path.write_text(f"{path.name}: a line of the first hour\n")
    follower = followed.Follower()
    assert [] == look(follower, ranks)
    for path in ranks:
        happens(path)
    calls: Counter[str] = Counter()
    for function in (rotated.list_folder, rotated.read_head, rotated.inode_of, rotated.when_changed):
        monkeypatch.setattr(rotated, function.__name__, counted(function, calls))

    for _ in range(2):
        found = set(follower.refresh())
        if not is_lost:
            assert {Path(f"{path}{ending}") for path in ranks} <= found
        lost = look(follower, [path for path in found | set(tmp_path.iterdir()) if path.suffix != ".gz"])
        assert ([str(path) for path in ranks] if is_lost else []) == lost

    assert calls["list_folder"] < 20
    assert max(calls.values()) < 12 * RANKS


def counted(function: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    def counting(*arguments: Any) -> Any:
        calls[function.__name__] += 1
        return function(*arguments)

    return counting


@pytest.mark.parametrize(
    ("name", "logs"),
    [
        ("job.log.1", {"job.log"}),
        ("job.log-20240131.gz", {"job.log"}),
        ("job-2.log", {"job.log", "job"}),
        ("job.log", set()),
        ("job.log.old.zst", {"job.log"}),
        ("job.log.2024-01-31", {"job.log", "job.log.2024", "job.log.2024-01"}),
        (".1", set()),
        ("-" * 255, set()),
    ],
)
def test_names_of_rotated_parts(name: str, logs: set[str]) -> None:
    assert logs == set(rotated.logs_of(name))
