"""docs/architecture.md names packages and files that exist, and every package of the tree."""

import re
from pathlib import Path

from helpers.places import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGE = ROOT / "nccl_doctor"
MOST_FILES = 18  # a folder with more is two folders
MOST_LINES = 400


def test_every_package_has_a_line() -> None:
    named = re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE)
    packages = [folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()]
    assert sorted(packages) == sorted(named)


def test_files_and_folders_that_are_named_exist() -> None:
    paths = set(re.findall(r"`((?:nccl_doctor|rules)/[\w/.-]+?)`", PAGE))
    paths |= {f"nccl_doctor/{path}" for path in re.findall(r"`([a-z]+/[a-z]+)`", PAGE)}
    assert [] == sorted(path for path in paths if not (ROOT / path).exists())


def test_each_way_has_at_most_ten_stops_with_a_file_each() -> None:
    ways = re.split(r"^## The way of ", PAGE, flags=re.MULTILINE)[1:]
    assert 5 == len(ways)
    for way in ways:
        stops = re.findall(r"^\d+\. (.*)$", way.split("\n## ")[0], re.MULTILINE)
        assert 0 < len(stops) <= 10
        assert all(re.match(r"`nccl_doctor/[\w/]+\.py`: ", stop) for stop in stops), stops


def test_only_packages_lie_at_the_top() -> None:
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert {"__init__.py", "__main__.py", "py.typed"} == files


def test_no_folder_and_no_module_is_too_large() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if "compiled" not in path.parts]
    by_folder: dict[Path, int] = {}
    for path in modules:
        by_folder[path.parent] = by_folder.get(path.parent, 0) + 1
    assert {} == {str(folder): count for folder, count in by_folder.items() if count > MOST_FILES}
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in modules}
    assert {} == {path: length for path, length in lengths.items() if length > MOST_LINES}
