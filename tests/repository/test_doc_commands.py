"""Every command line of the README and of the documents: those on shipped or simulated input are run, others are parsed.

A block of `console` holds commands that are run one after the other in a folder of their own, and the beginning of what they print:
a line `…` stands for lines that are left out, `…` at the end of a line for the rest of it.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import site_pages
from helpers.places import FIXTURES, ROOT

from nccl_doctor.cli.main import cli, main

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?<![\w/.:-])nccl-doctor (?P<words>[a-z-](?:[^\n|;&`#>]|<(?!<)|`(?!`))*)")
WORDS = re.compile(r"`nccl-doctor ([a-z][^`\n]*)`")
REST = "…"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for block in BLOCK.finditer(page.read_text("utf-8")):
        if block["language"] in languages:
            yield block["text"]


def parsed(text: str) -> list[str]:
    """The words of a command line; words in capitals and with gaps are as good as any."""
    return shlex.split(text.replace("…", " X ").replace("\\\n", " "), comments=True)


def refused(words: list[str]) -> str:
    """Why click does not take these words; empty where it does. Files need not exist."""
    context, command = click.Context(cli, info_name="nccl-doctor"), cli
    try:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            part = command.get_command(context, words[0])
            if part is None:
                return f"there is no command {words[0]}"
            command, words = part, words[1:]
            context = click.Context(command, context, command.name)
        values, _, _ = command.make_parser(context).parse_args(list(words))
        for option in command.params:
            if isinstance(option.type, click.Choice) and values.get(option.name) is not None and not option.multiple:
                value = values[option.name]
                if isinstance(value, str) and not value.isupper():
                    option.type.convert(value, option, context)
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_can_be_called_as_they_are_written(page: Path) -> None:
    calls = [found["words"] for block in blocks(page, "sh", "console") for found in CALL.finditer(block)]
    calls += WORDS.findall(BLOCK.sub("", page.read_text("utf-8")))
    for call in calls:
        words = [word for word in parsed(call) if word not in ("...", "X")]
        assert not refused(words), f"nccl-doctor {call}: {refused(words)}"


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that it is said to print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def differs(shown: list[str], printed: list[str]) -> str:
    """The first line that is shown and was not printed there; empty where all were."""
    at, anywhere = 0, False
    for line in shown:
        if line.strip() == REST:
            anywhere = True
            continue
        places = range(at, len(printed)) if anywhere else range(at, min(at + 1, len(printed)))
        start = line.removesuffix(REST).rstrip() if line.endswith(REST) else None
        found = next(
            (
                one
                for one in places
                if (printed[one].startswith(start) if start is not None else printed[one].rstrip() == line.rstrip())
            ),
            None,
        )
        if found is None:
            return line
        at, anywhere = found + 1, False
    return ""


RUN = [page for page in PAGES if any(blocks(page, "console"))]


@pytest.mark.parametrize("page", RUN, ids=name)
def test_commands_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    Path("fixtures").symlink_to(FIXTURES)
    for block in blocks(page, "console"):
        for command, shown in steps(block):
            program, *words = shlex.split(command)
            if program == "mkdir":
                Path(words[0]).mkdir()
                continue
            assert "nccl-doctor" == program
            status = main(words)
            printed = capsys.readouterr()
            assert status not in (2, 3), f"{command}: {printed.err}"
            assert not differs(shown, printed.out.split("\n")), f"{command}\nprints:\n{printed.out}"


def test_what_differs_is_found() -> None:
    printed = ["a", "b c", "d", "e"]
    assert "" == differs(["a", "b…", "…", "e"], printed)
    assert "d" == differs(["a", "d"], printed)
    assert "x" == differs(["…", "x"], printed)


@pytest.mark.parametrize(
    "words", [["analyse", "x"], ["analyze", "--no-such", "x"], ["analyze", "--format", "pdf", "x"], ["stacks", "--pid"]]
)
def test_wrong_commands_are_refused(words: list[str]) -> None:
    assert refused(words)


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages <= named
    assert named - pages <= set(site_pages.generated())
    assert os.path.lexists(ROOT / "docs" / "index.md")
