"""A kept tree whose JSON holds values of other types: what the collectors say of it still fits the tables."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import analyze, preflight
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime import collect
from nccl_doctor.node.runtime.root import EXTRA, Root
from nccl_doctor.simulate import node

INSTEAD = [{"x": [1]}, [{}], "\ud800", True, 1 << 70, -0.5, None]


def replaced(value: Any, instead: Any, depth: int) -> Any:
    """The value with everything at this depth of it replaced."""
    if not depth:
        return instead
    if isinstance(value, dict):
        return {key: replaced(one, instead, depth - 1) for key, one in value.items()}
    return [replaced(one, instead, depth - 1) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("instead", INSTEAD, ids=repr)
def test_rows_hold_values_of_their_columns_or_none(instead: Any, tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    originals = {file: json.loads(file.read_text("utf-8")) for file in (tmp_path / EXTRA).glob("*.json")}
    for depth in (1, 2, 3):
        for file, content in originals.items():
            file.write_text(json.dumps(replaced(content, instead, depth)), "utf-8")
        root = Root(tmp_path)
        for name in collect.COLLECTORS:
            for said in collect.answer(name, root):
                if isinstance(said, list):
                    types = column_types(by_name()[said[0]])
                    wrong = {
                        column: value
                        for (column, wanted), value in zip(types.items(), said[1], strict=True)
                        if value is not None and not isinstance(value, (float, int) if wanted is float else wanted)
                    }
                    assert {} == wrong, said


def test_a_report_on_such_a_tree_can_be_saved_and_read(tmp_path: Path) -> None:
    tree = tmp_path / "node01"
    node.build("dgx-h100").write(tree)
    for file in (tree / EXTRA).glob("*.json"):
        file.write_text(json.dumps(replaced(json.loads(file.read_text("utf-8")), {"x": [1]}, 2)), "utf-8")
    report, facts, _ = analyze.analyze([str(tree)])
    facts.save(tmp_path / "node.db")

    assert [] == [check.rule for check in report.checks if check.outcome == "broken"]
    assert facts.counts() == Facts.open(tmp_path / "node.db").counts()


def test_json_of_a_tree_that_never_ends_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / EXTRA
    folder.mkdir()
    (folder / "shm.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "stat.json")

    assert [{}, {}] == [Root(tmp_path).extra(name) for name in ("shm", "stat")]


def replace_files(tree: Path, make: Callable[[Path], object]) -> None:
    """Put something else in the place of each file of a node, but not of the marker of a tree."""
    for file in [one for one in tree.rglob("*") if one.is_file() and EXTRA not in one.parts]:
        file.unlink()
        make(file)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)])
def test_what_is_no_file_of_a_tree_is_not_waited_for(make: Callable[[Path], object], tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    replace_files(tmp_path, make)

    facts = preflight.look(Root(tmp_path, deep=1), seconds=600)

    judged = [one for one in facts.rows(Collection) if "cannot be the copy of a file" not in (one.note or "")]
    assert [] == [one for one in judged if one.outcome in ("hung", "failed")]


@pytest.mark.parametrize("every", [1, 10])
def test_pipes_in_the_place_of_files_of_a_tree_make_no_fault_of_the_node(every: int, tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and EXTRA not in path.parts]
    for path in sorted(files)[::every]:
        path.unlink()
        os.mkfifo(path)

    facts = preflight.look(Root(tmp_path), seconds=600)
    report = preflight.report_of(facts)

    assert ("unknown", []) == (preflight.fitness(report, facts.rows(Collection)), report.findings)
    assert all("cannot be the copy of a file: /" in one for one in report.missing)


@pytest.mark.parametrize(
    "data", [b"\0" * (1 << 20), b"a" * (1 << 20), b"x 1 y: 2\n" * 100_000], ids=lambda data: data[:3]
)
def test_files_of_megabytes_in_a_tree_fail_no_collector(data: bytes, tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    replace_files(tmp_path, lambda file: file.write_bytes(data))

    facts = preflight.look(Root(tmp_path), seconds=600)

    assert [] == [one for one in facts.rows(Collection) if one.outcome in ("hung", "failed")]
    assert {None} == {one.host for one in facts.rows(Collection)}  # no megabyte of a name in each row


def test_a_pipe_in_the_place_of_the_name_of_a_node_stops_nothing(tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    name = tmp_path / "proc/sys/kernel/hostname"
    name.unlink()
    os.mkfifo(name)

    report, _, _ = analyze.analyze([str(tmp_path)])

    assert "node" == report.inputs[0].kind
    assert preflight.hostname(Root(tmp_path)) is None
