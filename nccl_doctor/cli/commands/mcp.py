"""`nccl-doctor mcp`: answers the questions of an assistant about files."""

import signal
from pathlib import Path

import click

from nccl_doctor.cli.value_types import PATH, NumberRange
from nccl_doctor.common.errors import UsageProblem


@click.command("mcp")
@click.argument("folders", nargs=-1, metavar="[DIR...]", type=PATH)
@click.option(
    "--timeout",
    type=NumberRange(1, 3600),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="For one answer.",
)
def command(folders: tuple[Path, ...], timeout: float) -> None:
    """Answer an assistant over MCP about files below DIR: analyze, explain, facts, sql.

    DIR is the current folder by default; files outside are not read, and nothing is written. The assistant starts this
    command and talks to it through standard input and output. Needs nccl-doctor[mcp].
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageProblem(f"{folder}: no such folder")
    for number in (signal.SIGINT, signal.SIGTERM):  # an exception in the middle of an import may be lost
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        from nccl_doctor.cli import mcp_server
    except ImportError:
        raise UsageProblem("mcp needs the SDK: pip install 'nccl-doctor[mcp]'") from None
    try:
        mcp_server.serve(folders or (Path(),), timeout)
    except OSError as error:
        raise UsageProblem(f"cannot serve: {error.strerror}") from None
    except ExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, OSError | RuntimeError):  # a pipe, a thread or a process that could not be had
            raise
        raise UsageProblem(f"cannot serve: {first}") from None
