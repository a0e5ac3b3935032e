"""Writes what belongs below share/ of an installation, from the program: man pages, shell completion, a format for lnav.

`python packaging/share.py DIR`; the build of the wheel does it, so none of these files is kept in the repository.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import lnav_format
from click.shell_completion import get_completion_class

from nccl_doctor import __version__
from nccl_doctor.cli.main import COMPLETE, cli

NAME = "nccl-doctor"
SHELLS = {
    "bash": f"bash-completion/completions/{NAME}",
    "zsh": f"zsh/site-functions/_{NAME}",
    "fish": f"fish/vendor_completions.d/{NAME}.fish",
}


def main(folder: Path) -> None:
    """Write all files below `folder`."""
    files = {f"lnav/formats/nccl_doctor/{lnav_format.NAME}.json": lnav_format.text()}
    files |= {f"man/man1/{name}.1": text for name, text in man_pages()}
    files |= {place: completion(shell) for shell, place in SHELLS.items()}
    for place, text in files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


def completion(shell: str) -> str:
    """The script with which a shell asks the program what may come next."""
    found = get_completion_class(shell)
    assert found is not None
    made = found(cli, {}, NAME, COMPLETE)
    return f"{made.source_template % made.source_vars()}\n".lstrip("\n")


def man_pages() -> Iterator[tuple[str, str]]:
    """Name and text of the page of the program, and of one for each command."""
    top = click.Context(cli, info_name=NAME)
    commands = {name: cli.get_command(top, name) for name in cli.list_commands(top)}
    listed = [(f"\\fB{_plain(name)}\\fR", _plain(one.get_short_help_str(200))) for name, one in commands.items() if one]
    others = ", ".join(f"\\fB{_plain(f'{NAME}-{name}')}\\fR(1)" for name in commands)
    yield (
        NAME,
        _page(top, [("COMMANDS", _terms(listed)), ("EXIT STATUS", [_plain(cli.epilog or "")]), ("SEE ALSO", [others])]),
    )
    for name, command in commands.items():
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        parts = [("SEE ALSO", [f"\\fB{_plain(NAME)}\\fR(1)"])]
        if isinstance(command, click.Group):
            below = [(one, command.get_command(context, one)) for one in command.list_commands(context)]
            parts[:0] = [part for one, inner in below if inner for part in _subcommand(inner, one, context)]
        yield f"{NAME}-{name}", _page(context, parts)


def _page(context: click.Context, more: list[tuple[str, list[str]]]) -> str:
    command = context.command
    title = context.command_path.replace(" ", "-")
    short = command.get_short_help_str(200).rstrip(".")
    parts = [
        ("NAME", [f"{_plain(title)} \\- {_plain(short)}"]),
        ("SYNOPSIS", [_synopsis(context)]),
        ("DESCRIPTION", _paragraphs(command.help or "")),
        ("OPTIONS", _options(context)),
        *more,
    ]
    head = f'.TH "{_plain(title.upper())}" 1 "" "{NAME} {__version__}" "User Commands"'
    body = [line for heading, lines in parts if lines for line in (f".SH {heading}", *lines)]
    return "\n".join([head, ".nh", ".ad l", *body]) + "\n"


def _subcommand(command: click.Command, name: str, parent: click.Context) -> list[tuple[str, list[str]]]:
    context = click.Context(command, info_name=name, parent=parent)
    lines = [_synopsis(context), ".PP", *_paragraphs(command.help or ""), *_options(context)]
    return [(f'"{_plain(context.command_path)}"', lines)]


def _synopsis(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"\\fB{_plain(context.command_path)}\\fR {_plain(pieces)}"


def _options(context: click.Context) -> list[str]:
    shown = [one for one in context.command.get_params(context) if isinstance(one, click.Option)]
    records = filter(None, (one.get_help_record(context) for one in shown))
    return _terms([("\\fB" + _plain(names).replace("|", "|\\:") + "\\fR", _plain(text)) for names, text in records])


def _terms(rows: list[tuple[str, str]]) -> list[str]:
    return [line for term, text in rows for line in (".TP", term, text or "\\&")]


def _paragraphs(text: str) -> list[str]:
    """Help of click: paragraphs, one of which is kept line by line behind a backspace."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        kept = block.startswith("\b\n")
        rows = [_plain(row.strip()) for row in block.removeprefix("\b\n").splitlines() if row.strip()]
        lines += [".PP" if lines else "", *([".nf", *rows, ".fi"] if kept else [" ".join(rows)])]
    return [line for line in lines if line]


def _plain(text: str) -> str:
    """Text that roff prints as it is."""
    shown = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


if __name__ == "__main__":
    main(Path(sys.argv[1]))
