"""The Python API: what it gives is what the commands print, and its page and its notebook run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

import nccl_doctor
from nccl_doctor import QueryProblem, UsageProblem, analyze, api, compare, explain
from nccl_doctor.cli.main import main

DEMO = ROOT / "fixtures" / "demo.log"
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")


@pytest.fixture(scope="module")
def report() -> api.Report:
    return analyze(DEMO)


def test_it_gives_what_the_command_prints(report: api.Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["analyze", str(DEMO), "--format", "json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == report.to_dict()
    assert (printed["verdict"], [one["rule"] for one in printed["findings"]]) == (
        report.verdict,
        [finding.rule for finding in report.findings],
    )
    assert f"<Report error: {report.headline}>" == repr(report)
    assert str(report).startswith(f"ERROR: {report.headline}")
    assert report.to_text("markdown").startswith("## ERROR")


def test_tables_come_as_frames(report: api.Report) -> None:
    frame = report.frame("rank")
    assert report.tables()["rank"] == len(frame)
    assert "host" in frame.columns
    columns, rows = report.sql("SELECT count(*) AS n FROM rank")
    assert (["n"], [(len(frame),)]) == (columns, rows)
    for query in ("DELETE FROM rank", "nowhere", "SELECT load_extension('x')"):
        with pytest.raises(QueryProblem):
            report.frame(query)


def test_a_notebook_shows_the_report_in_a_frame_that_runs_no_script(tmp_path: Path) -> None:
    evil = tmp_path / "evil.log"
    evil.write_text(DEMO.read_text() + '"></iframe><script>alert(1)</script> NCCL WARN Call to ibv_create_qp failed\n')
    shown = analyze(evil)._repr_html_()
    assert re.fullmatch(r'<iframe sandbox title="nccl-doctor" style="[^"<>]*" srcdoc="[^"<>]*"></iframe>', shown)


def test_saved_facts_give_the_same_findings(report: api.Report, tmp_path: Path) -> None:
    report.save(tmp_path / "job.db")
    assert [one.rule for one in report.findings] == [one.rule for one in analyze(tmp_path / "job.db").findings]


def test_two_runs_are_compared() -> None:
    tests = ROOT / "fixtures" / "nccl_tests"
    changes = compare(tests / "a100_8.out", tests / "h100_8_slow.out").changes
    assert "worse" in {change.effect for change in changes}


def test_what_the_caller_can_put_right_is_a_usage_problem(tmp_path: Path) -> None:
    for paths, more in (
        ((), {}),
        ((tmp_path / "nope",), {}),
        ((DEMO,), {"jobs": "all"}),
        ((DEMO,), {"config": tmp_path}),
    ):
        with pytest.raises(UsageProblem) as problem:
            analyze(*paths, **more)  # type: ignore[arg-type]
        assert "\n" not in str(problem.value)


def test_explain_answers_or_says_nothing() -> None:
    assert "Xid 79" in (explain("Xid 79") or "")
    assert explain("no such thing") is None


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import nccl_doctor; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert "['nccl_doctor']\n" == done.stdout
    assert nccl_doctor._API == set(api.__all__)
    assert nccl_doctor._API <= set(dir(nccl_doctor))
    with pytest.raises(AttributeError):
        nccl_doctor.nothing  # noqa: B018


def test_the_page_names_everything_and_its_examples_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert 3 == len(blocks)
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), {})  # noqa: S102
        assert capsys.readouterr().out
    named = set(
        re.findall(r"`(\w+)", "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")))
    )
    public = {name for name in vars(api.Report) if not name.startswith("_")} | {"problems"}
    assert public | set(api.__all__) <= named


def test_the_notebook_runs() -> None:
    import nbclient  # takes seconds, in each worker of pytest
    import nbformat

    notebook = nbformat.read(ROOT / "docs" / "api.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [] == [
        cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs
    ]  # none is kept in the repository
    nbclient.NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert all(outputs)
    assert "sandbox" in outputs[0][0]["data"]["text/html"]
    assert {"stream", "execute_result"} == {output.output_type for shown in outputs for output in shown}
