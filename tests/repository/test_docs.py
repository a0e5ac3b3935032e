"""Documents cannot drift: what they say about commands, tables and rules is compared with the program."""

import os
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import pytest
import site_pages
from helpers.places import ROOT

from nccl_doctor.cli.main import COMMANDS, cli, main
from nccl_doctor.rules import schema

PAGES = sorted(p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MADE = set(site_pages.generated())  # pages that exist in the site alone


def commands(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    ctx = click.Context(group)
    found = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        found[prefix + name] = command
        if isinstance(command, click.Group):
            found |= commands(command, f"{prefix}{name} ")
    return found


def test_the_readme_lists_the_commands_that_there_are() -> None:
    rows = re.findall(r"^\| `([a-z]+)[^|`]*` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert list(COMMANDS) == rows


def test_the_overview_says_what_the_commands_say() -> None:
    assert COMMANDS == {
        name: command.get_short_help_str(200) for name, command in commands(cli).items() if name in COMMANDS
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        there = (page.parent / target).exists() or os.path.relpath(page.parent / target, ROOT / "docs") in MADE
        assert target.startswith("https://") or there, f"{page.name}: {target}"


def test_the_readme_shows_what_the_demo_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    assert 1 == main(["analyze", "fixtures/demo.log"])
    printed = capsys.readouterr().out.rstrip("\n")
    shown = re.search(
        r"^```text\n\$ nccl-doctor analyze fixtures/demo\.log\n(.*?)\n```$",
        (ROOT / "README.md").read_text("utf-8"),
        re.M | re.S,
    )
    assert shown is not None
    assert printed == shown[1]


def test_the_readme_fits_on_a_screen_and_says_who_we_are_not() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 80
    assert "unrelated to" in text
    assert "nshinde/nccl-doctor" in text
    assert "make demo" in text
    assert "make test" in text


def test_contributing_describes_every_key_of_a_rule() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| key | meaning |")[2].partition("\n\n")[0]
    keys = {f.name for f in fields(schema.Rule)} - set(schema.SET_BY_LOADER) | {"example"}
    described = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    assert keys == described


def test_the_rule_in_contributing_is_a_rule_that_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = re.search(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    name = tomllib.loads(block[1])["name"]
    (tmp_path / "network").mkdir()
    (tmp_path / "network" / f"{name}.toml").write_text(block[1], "utf-8")
    assert 0 == main(["rules", "check", str(tmp_path)]), capsys.readouterr().out


def test_the_changelog_has_a_heading_for_each_version_and_one_sentence_a_line() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert headings
    assert [] == [one for one in headings if not re.fullmatch(r"Unreleased|\d+\.\d+\.\d+", one)]
    for line in text.splitlines():
        assert not line.startswith("- ") or re.fullmatch(r"- [^.]*(?:\.\S[^.]*)*\.", line), line
