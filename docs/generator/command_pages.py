"""A page for each command: what its `--help` says."""

from collections.abc import Iterator

import click
from markup import code, page, prose, table

from nccl_doctor.cli.main import COMMANDS, cli

INDEX = "commands/index.md"


def place(name: str) -> str:
    return f"commands/{name}.md"


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about commands."""
    rows = ((f"[`{name}`]({name}.md)", prose(says)) for name, says in COMMANDS.items())
    yield (
        INDEX,
        page(
            "# Commands",
            table(("command", "does"), rows),
            f"{prose(cli.epilog or '')} `preflight` has exit statuses of its own: see [Prologues](../prologues.md).",
        ),
    )
    top = click.Context(cli, info_name="nccl-doctor")
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        yield place(name), page(f"# `nccl-doctor {name}`", *_command(command, click.Context(command, top, name)))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """Usage, text and options of a command, then those of its subcommands."""
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    yield from map(prose, (command.help or "").split("\n\n"))
    rows = [row for one in command.get_params(context) if (row := one.get_help_record(context)) and row[1]]
    if rows:
        yield table(("option", "does"), ((code(option), prose(says)) for option, says in rows))
    if command.epilog:
        yield prose(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield f"## `nccl-doctor {context.info_name} {name}` {{ #{name} }}"
            yield from _command(part, click.Context(part, context, name))
