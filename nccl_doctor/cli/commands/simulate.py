"""`nccl-doctor simulate`: writes the log of an invented job, or the tree of an invented node."""

import difflib
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nccl_doctor.cli import table
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.cli.value_types import PATH
from nccl_doctor.common.atomic_write import filled
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.simulate import Spec


@click.command("simulate")
@click.option("--nodes", type=int, default=2, show_default=True)
@click.option("--gpus", type=int, default=8, show_default=True, help="GPUs per node.")
@click.option("--nccl", "version", default="2.21.5", show_default=True, help="NCCL version.")
@click.option("--network", default="ib", show_default=True)
@click.option("--framework", default="pytorch", show_default=True)
@click.option("--prefix", default="none", show_default=True, help="Prefix that the launcher adds to each line.")
@click.option("--fault", help="What goes wrong; without it, the job is healthy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal logs.")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write to FILE, not to stdout.")
@click.option(
    "--split", is_flag=True, help="Write a folder: kernel lines go into one file per host, the others into job.log."
)
@click.option(
    "--pairs",
    type=int,
    metavar="N",
    help="Write the folder FILE with N runs of all_reduce_perf, each between two of the nodes.",
)
@click.option(
    "--monitored",
    is_flag=True,
    help="Write a folder: the log of a job with slow steps, samples of its GPUs, and a kernel log.",
)
@click.option("--apart", is_flag=True, help="With --monitored: the fault falls on other steps than the slow ones.")
@click.option(
    "--node", "machine", metavar="TYPE", help="Write the tree of a node of this machine type into the folder FILE."
)
@click.option("--list", "listing", is_flag=True, help="Print the known values and exit.")
@click.pass_context
def command(
    ctx: click.Context,
    nodes: int,
    gpus: int,
    version: str,
    network: str,
    framework: str,
    prefix: str,
    fault: str | None,
    seed: int,
    output: Path | None,
    split: bool,
    pairs: int | None,
    monitored: bool,
    apart: bool,
    machine: str | None,
    listing: bool,
) -> None:
    """Write the log of an invented job, with a fault of your choice.

    The log holds what NCCL, the framework, the launcher and the kernel would print. Hosts and addresses are invented.
    """
    from nccl_doctor import simulate

    if listing:
        _list_values()
        return
    if machine is not None:
        _write_node(machine, fault, output)
        return
    spec = simulate.Spec(nodes, gpus, version, network, framework, prefix, fault, seed)
    if pairs is not None:
        _write_folder("--pairs", output, lambda: simulate.write_pairs(spec, pairs))
        return
    if monitored:
        _write_folder("--monitored", output, lambda: simulate.write_monitored(spec, apart=apart))
        return
    try:
        spec.check()
        if fault is not None and fault not in simulate.FAULTS:
            raise ValueError(f"no fault is called {fault}{_similar(fault, simulate.FAULTS)}")
        spec = _adapted(ctx, spec, simulate.fit(spec))
        files = simulate.write_files(spec) if split else {"": simulate.write_log(spec)}
        texts = {name: "".join(line + "\n" for line in lines) for name, lines in files.items()}
    except ValueError as error:
        raise UsageProblem(f"{error} (see nccl-doctor simulate --list)") from None
    if split:
        with filled(_named(output, "--split")) as folder:
            for name, text in texts.items():
                write_file(folder / name, text.encode("utf-8"))
    elif output is None:
        emit(texts[""])
    else:
        write_file(output, texts[""].encode("utf-8"))


def _list_values() -> None:
    """Print the known values of every option."""
    from nccl_doctor import simulate
    from nccl_doctor.simulate import node

    for name, values in (
        ("--nccl", simulate.VERSIONS),
        ("--network", simulate.NETWORKS),
        ("--framework", simulate.FRAMEWORKS),
        ("--prefix", simulate.PREFIXES),
        ("--node", node.ALL_MACHINES),
        ("--fault with --node", node.FAULTS),
        ("--fault with --pairs", simulate.PAIR_FAULTS),
        ("--fault with --monitored", simulate.MONITORED_FAULTS),
    ):
        emit(textwrap.fill(f"{name}: {', '.join(values)}", 80, subsequent_indent="  ") + "\n")
    faults = [(fault.name, fault.doc) for fault in simulate.FAULTS.values()]
    emit("--fault:\n" + table.render(("name", "what is wrong"), faults))


def _similar(name: str, known: Iterable[str]) -> str:
    """`; similar: a, b`; empty when no known name is similar."""
    similar = difflib.get_close_matches(name, known, 3, 0.5)
    return f"; similar: {', '.join(similar)}" if similar else ""


def _write_node(machine: str, fault: str | None, output: Path | None) -> None:
    """Write the tree of a node into a new or empty folder."""
    from nccl_doctor.simulate import node

    for kind, name, known in (("machine type", machine, node.ALL_MACHINES), ("fault", fault, node.FAULTS)):
        if name is not None and name not in known:
            raise UsageProblem(f"no {kind} is called {name}{_similar(name, known)}")
    if fault is not None and machine not in node.FAULTS[fault].machines:
        raise UsageProblem(f"{fault} does not occur on {machine}, only on {', '.join(node.FAULTS[fault].machines)}")
    with filled(_named(output, "--node")) as folder:
        node.build(machine, fault).write(folder)


def _write_folder(option: str, output: Path | None, files: Callable[[], dict[str, list[str]]]) -> None:
    """Write files into a new or empty folder."""
    try:
        written = files()
    except ValueError as error:
        raise UsageProblem(str(error)) from None
    with filled(_named(output, option)) as folder:
        for name, lines in written.items():
            write_file(folder / name, "".join(line + "\n" for line in lines).encode("utf-8"))


def _named(output: Path | None, option: str) -> Path:
    """The folder that an option writes to. Raises UsageProblem where it is not named."""
    if output is None:
        raise UsageProblem(f"{option} writes a folder: name it with -o")
    return output


def _adapted(ctx: click.Context, asked: "Spec", fitting: "Spec") -> "Spec":
    """Returns the job that can show the fault.

    Changed defaults are reported on stderr. Raises UsageProblem when an option from the command line had to change.
    """
    for name in ("nodes", "gpus", "version", "network", "framework"):
        given, needed = getattr(asked, name), getattr(fitting, name)
        if given == needed:
            continue
        option = "--nccl" if name == "version" else f"--{name}"
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageProblem(f"{asked.fault} does not occur with {option} {given}; use {option} {needed}")
        complain(f"{option} is {needed}, because {asked.fault} does not occur with {given}")
    return fitting
