"""The `nccl-doctor` program: loads a command when it is called and maps every outcome to an exit status."""

import atexit
import errno
import gc
import importlib
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Sequence

import click

from nccl_doctor.cli import interruption
from nccl_doctor.cli.fail_open import status_of_failure, syslog
from nccl_doctor.cli.output import complain, open_standard_files, silence_stdout
from nccl_doctor.common.errors import NONE_USABLE, UsageProblem, is_none_usable
from nccl_doctor.common.printable import printable

# Command name -> its line in the overview. Kept here so that `--help` imports no command.
COMMANDS = {
    "analyze": "Find the fault in logs: what, where, why, and what to do next.",
    "compare": "Show what changed between runs: findings, speed, transports, versions, settings, nodes.",
    "explain": "Explain a rule, a log line, a variable or a code.",
    "rules": "List, show and check rules.",
    "facts": "List the facts that were read from logs.",
    "sql": "Query the facts of a log with SQL.",
    "preflight": "Check whether this node is fit for the job, in about a second.",
    "watch": "Watch GPUs, network ports, hosts and ranks live, with the findings of the rules.",
    "record": "Run CMD, write NCCL's log to files, sample the node, and keep all of it in DIR for `analyze DIR`.",
    "stacks": "Dump the stacks of all ranks twice, group equal ones, and name the ranks that keep the others waiting.",
    "bundle": "Copy logs into an archive for others, with names, addresses and secrets replaced.",
    "mcp": "Answer an assistant over MCP about files below DIR: analyze, explain, facts, sql.",
    "simulate": "Write the log of an invented job, with a fault of your choice.",
}
WITH_SIGNALS = {"preflight", "record", "sample", "watch"}  # commands with an answer of their own to signals
HIDDEN = ("sample",)  # started by other commands, on this node and on others
_NO_FILE = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM)  # no file can have the path, or not for us
# Of a machine, or of limits, that give no more: what raises the limit.
_NO_MORE = {errno.EMFILE: "ulimit -n", errno.ENFILE: "ulimit -n", errno.EAGAIN: "ulimit -u", errno.ENOMEM: "ulimit -v"}
# What the loader of libraries says of them, man 3 dlerror.
_NO_LIBRARY = {
    "failed to map segment": "ulimit -v", "annot allocate memory": "ulimit -v", "oo many open files": "ulimit -n",
}  # fmt: skip
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # of an output that takes no more
OK, FOUND, USAGE, FAILED = 0, 1, 2, 3
COMPLETE = "_NCCL_DOCTOR_COMPLETE"  # with which click answers a shell
ALLOCATIONS = 50_000  # of objects between two collections of garbage; 700 by default
OF_ANALYZE = 200_000  # the same for a command that makes few cycles and ends


class LazyGroup(click.Group):
    """A group whose commands are `nccl_doctor.cli.commands.<name>.command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        command: click.Command = importlib.import_module(f"nccl_doctor.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in HIDDEN and not name.startswith("-"):
            raise click.UsageError(f"there is no command {_shown(name)}; {_meant(name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _meant(name: str) -> str:
    """What to type instead of a command that does not exist."""
    from difflib import get_close_matches

    if os.path.lexists(name):
        return f"to read this file or folder, type nccl-doctor analyze {shlex.quote(_shown(name))}"
    near = get_close_matches(name, COMMANDS, 1)
    return f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"


def _shown(name: str) -> str:
    """A word of the command line as it can be shown on one line."""
    return printable(name[:120])


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Looked up here only: the metadata of an installation take longer to read than a start has time for."""
    if wanted and not context.resilient_parsing:
        from nccl_doctor import __version__

        click.echo(f"nccl-doctor {__version__}")
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 no finding at or above --fail-on, 1 at least one, 2 wrong usage or unreadable input, "
    "3 nccl-doctor itself failed.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Read the logs of a distributed GPU job and report what went wrong, where, why, and what to type next."""


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; an error becomes one line on stderr.

    An error in `preflight --for CALLER` lets the job run; the line also goes to syslog.
    """
    try:
        open_standard_files()
        if sys.stdout is None:
            raise UsageProblem("standard output is closed")
        status = cli.main(list(arguments), prog_name="nccl-doctor", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(_without_arguments(error), err=True)
        return USAGE
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return _failed(arguments, error.format_message() + hint, USAGE)
    except click.ClickException as error:
        return _failed(arguments, error.format_message(), USAGE)
    except UsageProblem as error:
        return _failed(arguments, str(error), USAGE)
    except BrokenPipeError:
        silence_stdout()
        return OK
    except OSError as error:
        if error.errno in _NO_FILE and error.filename is not None:
            return _failed(arguments, f"{os.fsdecode(error.filename)}: {error.strerror}", USAGE)
        if error.errno in _NO_MORE:
            return _lacking(arguments, f"{error.strerror} ({_NO_MORE[error.errno]})")
        if error.errno is not None and error.filename is not None:  # a disk or a server that fails
            return _lacking(arguments, f"{os.fsdecode(error.filename)}: {error.strerror}")
        if is_none_usable(error):
            return _lacking(arguments, NONE_USABLE)
        if error.errno not in _NO_SPACE:
            return _internal(arguments, error)
        silence_stdout()
        return _failed(arguments, f"cannot write to standard output: {error.strerror}", USAGE)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # click takes any for a prompt without an answer
            return _internal(arguments, error.__cause__)
        if not WITH_SIGNALS.intersection(arguments[:1]):
            interruption.end_children()
        return interruption.status()
    except ImportError as error:
        if (lack := next((name for words, name in _NO_LIBRARY.items() if words in str(error)), None)) is None:
            return _internal(arguments, error)
        return _lacking(arguments, f"a library cannot be loaded: {error} ({lack})")
    except MemoryError:
        return _lacking(arguments, "there is not enough memory for this process (ulimit -v)")
    except Exception as error:
        return _internal(arguments, error)


def _without_arguments(error: click.exceptions.NoArgsIsHelpError) -> str:
    """What to type next; of a group of commands, its help."""
    if error.ctx.parent is not None:
        return error.format_message()
    from nccl_doctor.cli import start

    return start.text()


def _internal(arguments: Sequence[str], error: Exception) -> int:
    """The status of a bug of ours, or of the machine under us."""
    if os.environ.get("NCCL_DOCTOR_DEBUG") and status_of_failure(arguments) is None:
        raise error
    text = f"{type(error).__name__}: {error}"
    return _failed(arguments, f"internal error: {text} (set NCCL_DOCTOR_DEBUG=1 to see the traceback)", FAILED)


def _lacking(arguments: Sequence[str], text: str) -> int:
    """The status of a machine that gives no more; of `preflight`, that it could not look."""
    return _failed(arguments, text, FAILED if "preflight" in arguments[:1] else USAGE)


def _failed(arguments: Sequence[str], text: str, status: int) -> int:
    complain(text)
    harmless = status_of_failure(arguments)
    if harmless is None:
        return status
    syslog(f"{text}; nothing is drained")
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):  # closed or full: Python would end with a status of its own
        silence_stdout()
    return harmless


def run() -> None:
    """Entry point of the console script."""
    # a short command would spend a tenth of its time on walking what it has just imported
    is_analyze = sys.argv[1:2] == ["analyze"]
    gc.set_threshold(OF_ANALYZE if is_analyze else ALLOCATIONS)
    # NumPy's library would start a thread for each processor, and nothing here multiplies matrices. Where it cannot start one, it ends
    # the process by SIGINT. A job of `record` has an environment of its own.
    if not WITH_SIGNALS.intersection(sys.argv[1:2]):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not sys.warnoptions:  # as of NumPy about numbers that overflow; they are no message to users
        warnings.simplefilter("ignore")
    interruption.end_on_sigint()
    if not WITH_SIGNALS.intersection(sys.argv[1:2]):
        interruption.end_on_sigterm()
    if sys.argv[1:]:  # a shell that completes asks without arguments; a job must not turn `preflight` into that
        os.environ.pop(COMPLETE, None)
    status = main(sys.argv[1:])
    if threading.active_count() == 1:  # nothing is left to wait for
        interruption.ignore()
    gc.freeze()  # nor walk all of it at the end
    if is_analyze:
        _end_at_once(status)
    sys.exit(status)


def _end_at_once(status: int) -> None:
    """End without freeing each object, which takes 10 ms for a small log; returns where Python has more to do than that."""
    call_exit_functions = getattr(atexit, "_run_exitfuncs", None)  # of CPython; not documented, so it may go
    if (
        call_exit_functions is None
        or threading.active_count() > 1
        or sys.getprofile() is not None
        or sys.gettrace() is not None
    ):
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    call_exit_functions()
    os._exit(status)
