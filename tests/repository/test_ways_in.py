"""Ways in for other programs: the GitHub action, the format for lnav, man pages, shell completion."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from helpers.places import FIXTURES, ROOT

from nccl_doctor.app.analyze import analyze
from nccl_doctor.cli.main import COMMANDS, cli, main
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.log import line_patterns
from nccl_doctor.reporters import render


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build puts below share/."""
    folder = tmp_path_factory.mktemp("share")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "packaging" / "share.py", folder], env=environ, check=True)
    return folder


def test_every_command_and_option_has_its_man_page(share: Path) -> None:
    pages = {path.stem: path.read_text() for path in (share / "man" / "man1").iterdir()}
    assert {"nccl-doctor", *(f"nccl-doctor-{name}" for name in COMMANDS)} == set(pages)
    top = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        for option in (one for one in command.params if isinstance(one, click.Option) and not one.hidden):
            assert option.opts[-1].replace("-", "\\-") in pages[f"nccl-doctor-{name}"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint_about_a_man_page(share: Path) -> None:
    pages = sorted((share / "man" / "man1").iterdir())
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", *pages], capture_output=True, text=True, check=True)
    assert "" == done.stderr
    assert "nccl-doctor analyze [OPTIONS] PATH..." in re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(share: Path, tmp_path: Path) -> None:
    (tmp_path / "nccl-doctor").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nccl_doctor "$@"\n')
    (tmp_path / "nccl-doctor").chmod(0o755)
    script = share / "bash-completion" / "completions" / "nccl-doctor"
    ask = 'source "$1"; COMP_WORDS=(nccl-doctor anal); COMP_CWORD=1; _nccl_doctor_completion nccl-doctor; echo "${COMPREPLY[@]}"'
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = ["bash", "--norc", "-c", ask, "bash", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    assert "analyze\n" == done.stdout
    called = [sys.executable, "-m", "nccl_doctor", "--version"]
    done = subprocess.run(
        called, capture_output=True, text=True, env={**environ, "_NCCL_DOCTOR_COMPLETE": "bash_source"}, check=True
    )
    assert done.stdout.startswith("nccl-doctor ")  # a job that sets it changes no call
    for shell in ("zsh/site-functions/_nccl-doctor", "fish/vendor_completions.d/nccl-doctor.fish"):
        assert "_NCCL_DOCTOR_COMPLETE" in (share / shell).read_text()


def test_the_format_for_lnav_has_a_table_for_each_pattern_with_parts(share: Path) -> None:
    form = json.loads((share / "lnav" / "formats" / "nccl_doctor" / "nccl_log.json").read_text())["nccl_log"]
    parts = [one for one in line_patterns.load() if one.where == "nccl" and "(?P<" in one.regex]
    assert len(parts) == len(form["search-table"]) > 200
    for one in parts:
        table = form["search-table"][f"nccl_{re.sub('[^a-z0-9]', '_', one.name.removeprefix('nccl-'))}"]
        level = one.level or "INFO"
        assert re.search(table["pattern"], f"[2026-05-07 12:00:01] n1:1:1 [0] NCCL {level} {one.sample[0]}"), one.name


@pytest.mark.skipif(shutil.which("lnav") is None, reason="lnav is not installed")
def test_lnav_takes_the_format_and_answers_from_it(share: Path, tmp_path: Path) -> None:
    lines = [
        line for line in (FIXTURES / "demo.log").read_text().splitlines() if re.search(r"\] .*NCCL (INFO|WARN) ", line)
    ]
    log = tmp_path / "demo.log"
    log.write_text("".join(f"[2026-05-07 12:00:01] {line}\n" for line in lines))
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    lnav = ["lnav", "-I", str(share / "lnav")]
    checked = subprocess.run([*lnav, "-C"], capture_output=True, text=True, env=environ, check=False)
    assert (0, "") == (checked.returncode, checked.stdout + checked.stderr)
    query = ";SELECT count(*) AS n, sum(log_level = 'error') AS bad FROM nccl_log"
    done = subprocess.run([*lnav, "-n", "-c", query, str(log)], capture_output=True, text=True, env=environ, check=True)
    warned = sum(" NCCL WARN " in line for line in lines)
    assert [str(len(lines)), str(warned)] == done.stdout.split()[-2:]


@pytest.fixture
def action(tmp_path: Path) -> dict[str, str]:
    """What GitHub hands to the step."""
    doctor = tmp_path / "doctor"
    doctor.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nccl_doctor "$@"\n')
    doctor.chmod(0o755)
    return {
        **os.environ, "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output"), "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "SARIF": str(tmp_path / "found.sarif"), "DOCTOR": str(doctor),
    }  # fmt: skip


def step(environ: dict[str, str], **inputs: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "packaging" / "github_action.sh")]
    return subprocess.run(command, capture_output=True, text=True, env={**environ, **inputs}, check=False, cwd=ROOT)


def test_the_action_annotates_and_writes_sarif_and_a_summary(action: dict[str, str], tmp_path: Path) -> None:
    done = step(action, PATHS="fixtures/demo.log\n\n", FAIL_ON="error")
    assert 1 == done.returncode, done.stderr
    assert done.stdout.startswith("::error title=RES040 memlock-limit%3A ")
    assert all(line.startswith("::") for line in done.stdout.splitlines())
    assert "verdict=error\n" == (tmp_path / "output").read_text()
    assert (tmp_path / "summary").read_text().startswith("## ERROR: ")
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert "memlock-limit" == run["tool"]["driver"]["rules"][0]["name"]


def test_the_action_fails_for_what_cannot_be_read_and_takes_names_as_names(
    action: dict[str, str], tmp_path: Path
) -> None:
    assert 2 == step(action, PATHS="nowhere.log", FAIL_ON="never").returncode
    assert 2 == step(action, PATHS=f"--save={tmp_path}/evil\n$(touch {tmp_path}/evil)", FAIL_ON="never").returncode
    assert not (tmp_path / "evil").exists()


def test_no_input_of_the_action_becomes_code() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert [] == [one["run"] for one in steps if "${{" in one["run"]]
    used = set(re.findall(r'"?\$(PATHS|FAIL_ON|SARIF|DOCTOR)\b', (ROOT / "packaging" / "github_action.sh").read_text()))
    assert used == set(steps[1]["env"])


def test_no_text_of_a_log_begins_another_command() -> None:
    report = analyze([str(FIXTURES / "demo.log")])[0]
    evil = "a%0A::set-output name=x::y\r\n::stop-commands::z\n::error::,:"
    finding = Finding(**{**vars(report.findings[0]), "title": evil, "message": evil, "fix": evil * 40})
    lines = render("github", Report(**{**vars(report), "findings": [finding] * 12})).splitlines()
    assert 12 == len(lines)
    assert all(re.fullmatch(r"::(error|notice) title=[^,:\n]*::[^\n]*", line) for line in lines)
    assert "2 more of level error" in lines[10]
    assert all("%250A" in line for line in lines[:10])


def test_the_format_github_is_one_of_analyze(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["analyze", str(FIXTURES / "gpu" / "busy85.csv"), "--format", "github"])
    assert capsys.readouterr().out.startswith("::")
