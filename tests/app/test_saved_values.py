"""Values of the right type in a saved base that nothing of ours writes: whoever wrote the base is not trusted."""

import sqlite3
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import JobFact

ODD = [
    ("lead", "waited", 1e149),
    ("lead", "seconds", -1e149),
    ("lead", "symptom_ref", -(1 << 63)),
    ("message", "host", "9" * 5_000),
    ("process", "host", "n" + "9" * 5_000),
    ("message", "rank", -(1 << 63)),
    ("rank", "rank", -7),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "job.db"
    _, facts, _ = analyze.analyze([str(FIXTURES / "job" / "xid-hang")])
    facts.save(path)
    return path


@pytest.mark.parametrize(("table", "column", "value"), ODD, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("some", ["1", "rowid % 3 = 1"], ids=["all rows", "some rows"])
def test_odd_value_of_a_saved_base_stops_nothing(
    table: str, column: str, value: object, some: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "job.db"
    changed.write_bytes(base.read_bytes())
    with sqlite3.connect(changed) as db:
        assert db.execute(f"UPDATE {table} SET {column} = ? WHERE {some}", (value,)).rowcount
    db.close()

    page = ["analyze", "--format", "html", str(changed)]
    for arguments in (["analyze", str(changed)], page, ["compare", str(base), str(changed), "--format", "markdown"]):
        assert main(arguments) < 2
        assert "internal error" not in capsys.readouterr().err


def test_a_saved_base_without_an_aspect_of_the_coverage_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, _ = analyze.read_facts([str(FIXTURES / "throughput" / "tf_cnn_synthetic.log")])
    facts.save(tmp_path / "job.db")
    with sqlite3.connect(tmp_path / "job.db") as db:
        assert db.execute("UPDATE coverage SET aspect = 'x' WHERE aspect = 'end'").rowcount
    db.close()

    assert main(["analyze", str(tmp_path / "job.db")]) == 0
    said = capsys.readouterr()
    assert "nothing found" in said.out.lower()
    assert "internal error" not in said.err


@pytest.mark.parametrize("value", ["abc", "²", "9" * 5_000, ""])
def test_odd_number_of_a_job_is_left_out(value: str) -> None:
    facts = Facts()
    facts.add([JobFact(name, value, None) for name in ("hosts", "cuda_driver")])

    assert analyze.report_of(facts).job["hosts"] is None
