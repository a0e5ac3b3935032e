"""The commands beside analyze: facts, sql, rules, explain, simulate, and rules of a site."""

import csv
import inspect
import io
import json
import os
import re
from pathlib import Path

import pytest
from helpers.places import DEMO

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.cli.site import rule_folders
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.tables import TABLES

pytestmark = pytest.mark.usefixtures("plain_surroundings")


def test_sql_and_facts_show_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["sql", str(DEMO), "SELECT count(*) AS n FROM process", "--format", "csv"])
    processes = int(capsys.readouterr().out.split()[1])
    assert processes > 0
    main(["facts", str(DEMO), "--table", "process", "--format", "json"])
    assert processes == len(json.loads(capsys.readouterr().out))
    main(["facts", str(DEMO)])
    assert f"process  {processes}" in " ".join(capsys.readouterr().out.split()).replace(
        f"process {processes}", f"process  {processes}"
    )


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_the_meaning_of_a_column_stands_on_its_line(table: type) -> None:
    """`facts` reads it from there; a formatter moves one that is too long."""
    assert [] == re.findall(r"^    (\w+): \($", inspect.getsource(table), re.MULTILINE)


def test_facts_are_exported_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tables"
    assert 0 == main(["facts", str(DEMO), "--export", str(folder)])
    written = sorted(capsys.readouterr().out.splitlines())
    assert sorted(map(str, folder.iterdir())) == written
    facts, _ = analyze.read_facts([str(DEMO)])
    assert {name for name, number in facts.counts().items() if number} == {path.stem for path in folder.iterdir()}
    with (folder / "process.csv").open() as lines:
        columns, *rows = csv.reader(lines)
    wanted_columns, wanted = facts.sql("SELECT * FROM process")
    assert wanted_columns == columns
    assert [["" if cell is None else str(cell) for cell in row] for row in wanted] == rows
    assert 2 == main(["facts", str(DEMO), "--export", str(folder)])
    assert "is not an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--format", "parquet"], ["--export", "x", "--table", "job"], ["--export", "x", "--format", "json"]]
)
def test_facts_refuses_what_it_cannot_export(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["facts", str(DEMO), *options])
    assert "--export" in capsys.readouterr().err


def test_parquet_keeps_types_and_unknown_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra of the package")
    folder = tmp_path / "tables"
    assert 0 == main(["facts", str(DEMO), "--export", str(folder), "--format", "parquet"])
    facts, _ = analyze.read_facts([str(DEMO)])
    for path in folder.iterdir():
        columns, rows = facts.sql(f"SELECT * FROM {path.stem}")
        table = parquet.read_table(path)
        assert columns == table.column_names
        assert rows == [tuple(row.values()) for row in table.to_pylist()]


def test_facts_without_a_path_describes_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["facts"])
    assert "net_device" in capsys.readouterr().out
    main(["facts", "--table", "ib_error", "--format", "csv"])
    assert "status,integer,ibv_wc_status" in capsys.readouterr().out


def test_a_table_shows_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sql", str(DEMO), "SELECT 'a' || char(27) || '[31mb' AS text, 1 AS one, NULL AS none"])
    assert ["text  one  none", "----  ---  ----", "ab      1"] == capsys.readouterr().out.splitlines()


def test_rules_are_listed_shown_and_searched(capsys: pytest.CaptureFixture[str]) -> None:
    main(["rules", "--help"])
    capsys.readouterr()
    main(["rules", "list", "dev-shm-full", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert all("dev-shm-full" in row["name"] for row in rows)
    row = next(row for row in rows if row["name"] == "dev-shm-full")
    main(["rules", "show", row["id"]])
    assert 'name = "dev-shm-full"' in capsys.readouterr().out


RULE = '''
id = "SITE001"
name = "our-rule"
title = "Something of ours"
severity = "warning"
role = "context"
confidence = "certain"
since = "0.1"
needs = []
query = "SELECT host, ref FROM process WHERE host = 'node01' LIMIT 1"
message = "{host} is ours"
why = "It is."
fix = "Nothing."
references = ["our wiki"]

[[example]]
name = "ours"
log = """
node01:101:140 [0] NCCL INFO NET/IB : No device found.
"""
expect = [{ host = "%s" }]

[[example]]
name = "not ours"
log = """
gpu-a:101:140 [0] NCCL INFO NET/IB : No device found.
"""
expect = []
'''


def site(folder: Path, host: str = "node01") -> Path:
    (folder / "site").mkdir(parents=True, exist_ok=True)
    path = folder / "site" / "our-rule.toml"
    path.write_text(RULE % host)
    return path


def test_rules_check_runs_the_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = site(tmp_path)
    assert 0 == main(["rules", "check", str(path.parent)]), capsys.readouterr().out
    site(tmp_path, host="node02")
    assert 1 == main(["rules", "check", str(path.parent)])
    assert "example 'ours': no row like {'host': 'node02'}" in capsys.readouterr().out
    path.write_text("= broken")
    assert 1 == main(["rules", "check", str(path.parent)])


def test_rules_try_shows_rows_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text("node01:101:140 [0] NCCL INFO NET/IB : No device found.\n" * 3)
    assert 0 == main(["rules", "try", str(site(tmp_path)), str(log)])
    out = capsys.readouterr().out
    assert out.startswith("found\n\nwarning, context, certain: node01 is ours\n")
    assert "job.log:1: " in out


def test_site_rules_take_part_and_configuration_silences_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.log"
    log.write_text("node01:101:140 [0] NCCL INFO NET/IB : No device found.\n" * 3)
    rules = ["--rules", str(site(tmp_path).parent)]
    main(["analyze", str(log), *rules, "--format", "json"])
    assert "our-rule" in {f["name"] for f in json.loads(capsys.readouterr().out)["findings"]}
    (tmp_path / "c.toml").write_text('off = ["SITE001"]')
    main(["analyze", str(log), *rules, "--config", str(tmp_path / "c.toml"), "--format", "json"])
    assert "our-rule" not in {f["name"] for f in json.loads(capsys.readouterr().out)["findings"]}


def test_a_site_rule_that_cannot_be_used_is_told_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.log"
    log.write_text("node01:101:140 [0] NCCL INFO NET/IB : No device found.\n" * 3)
    ours = site(tmp_path)
    ours.with_name("torn.toml").write_text('id = "SITE0')
    ours.with_name("twice.toml").write_text(ours.read_text().replace("our-rule", "twice"))
    ours.with_name("wrong.toml").write_text(
        ours.read_text()
        .replace("our-rule", "wrong")
        .replace("SITE001", "SITE002")
        .replace("FROM process", "FROM no_table")
    )
    main(["analyze", str(log), "--rules", str(ours.parent), "--format", "json"])
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert "our-rule" in {f["name"] for f in told["findings"]}
    assert [] == [check["name"] for check in told["checks"] if check["outcome"] == "broken"]
    torn, twice, wrong = err.splitlines()
    assert torn.startswith("nccl-doctor: rule left out: ")
    assert "torn.toml: " in torn
    assert "twice.toml: SITE001 is already used by " in twice
    assert "no such table: no_table" in wrong
    assert 0 == main(["rules", "list", "our", "--rules", str(ours.parent)])
    assert "SITE001" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_one_may_not_enter_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert 2 == main(["analyze", str(closed)])
    assert f"nccl-doctor: {closed}: you may not read it\n" == capsys.readouterr().err
    main(["analyze", str(DEMO), "--rules", str(closed)])
    assert f"nccl-doctor: rule left out: {closed}: permission denied\n" == capsys.readouterr().err


def test_a_pasted_text_may_start_with_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["explain", "-> 3"])
    assert capsys.readouterr().out.startswith("ncclInternalError = 3")
    assert 0 == main(["explain", "- pod: node01:101:140 [0] NCCL INFO NET/IB : No device found."])
    assert "The verbs library works" in capsys.readouterr().out


def test_rules_that_others_can_write_are_not_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "config" / "nccl-doctor" / "rules"
    mine.mkdir(parents=True)
    (mine / "x.toml").write_text("")
    (mine / "x.toml").chmod(0o666)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert () == rule_folders(system=tmp_path / "absent")
    assert "ignored" in capsys.readouterr().err
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert (mine,) == rule_folders(system=tmp_path / "absent")


def test_rules_in_the_current_folder_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules").mkdir()
    monkeypatch.chdir(tmp_path)
    assert () == rule_folders(system=tmp_path / "absent")
    with pytest.raises(UsageProblem):
        rule_folders(["absent"], system=tmp_path / "absent")


def test_equal_seeds_give_equal_logs(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        main(["simulate", "--gpus", "2", "--seed", seed])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["analyse", "job.log"], "did you mean analyze?"),
        (["preflght"], "did you mean preflight?"),
        (["frobnicate"], "the commands are analyze, compare"),
        (["a log.txt"], "type nccl-doctor analyze 'a log.txt'"),
        (["explain", "tcp-falback"], "did you mean tcp-fallback?"),
        (["explain", "no-such-thing-at-all"], "give the id or name of a rule"),
    ],
)
def test_what_is_misspelled_is_answered_with_what_was_meant(
    arguments: list[str],
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a log.txt").touch()
    assert 2 == main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert meant in line


def test_explain_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "dev-shm-full"])
    named = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"dev-shm-full\n")))
    assert 0 == main(["explain", "-"])
    assert named == capsys.readouterr().out
