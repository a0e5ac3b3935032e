"""`nccl-doctor simulate`: the log of an invented job."""

import difflib
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nccl_doctor.cli import table
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.simulate import Spec


@click.command("simulate")
@click.option("--nodes", type=int, default=2, show_default=True)
@click.option("--gpus", type=int, default=8, show_default=True, help="GPUs a node.")
@click.option("--nccl", "version", default="2.21.5", show_default=True, help="Version of NCCL.")
@click.option("--network", default="ib", show_default=True)
@click.option("--framework", default="pytorch", show_default=True)
@click.option("--prefix", default="none", show_default=True, help="What the launcher puts in front of each line.")
@click.option("--fault", help="What goes wrong; without it the job is healthy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal logs.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to stdout.")
@click.option(
    "--node", "machine", metavar="TYPE", help="Not a log but the tree of a node of this machine type, into FILE."
)
@click.option("--list", "listing", is_flag=True, help="Print the known values and stop.")
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
    machine: str | None,
    listing: bool,
) -> None:
    """Write the log of an invented job, with a fault of choice.

    What NCCL, the framework, the launcher and the kernel would print; hosts and addresses are invented.
    """
    from nccl_doctor import simulate

    if listing:
        for name, values in (
            ("--nccl", simulate.VERSIONS),
            ("--network", simulate.NETWORKS),
            ("--framework", simulate.FRAMEWORKS),
            ("--prefix", simulate.PREFIXES),
        ):
            emit(textwrap.fill(f"{name}: {', '.join(values)}", 80, subsequent_indent="  ") + "\n")
        _list_nodes()
        emit(
            "--fault:\n" + table.render(("name", "what is wrong"), [(f.name, f.doc) for f in simulate.FAULTS.values()])
        )
        return
    if machine is not None:
        _node(machine, fault, output)
        return
    spec = simulate.Spec(nodes, gpus, version, network, framework, prefix, fault, seed)
    try:
        spec.check()
        if fault is not None and fault not in simulate.FAULTS:
            near = difflib.get_close_matches(fault, simulate.FAULTS, 3, 0.5)
            raise ValueError(f"no fault is called {fault}" + (f"; near are {', '.join(near)}" if near else ""))
        spec = _fitting(ctx, spec, simulate.fit(spec))
        text = "".join(line + "\n" for line in simulate.write_log(spec))
    except ValueError as error:
        raise UsageProblem(f"{error} (see nccl-doctor simulate --list)") from None
    if output is None:
        emit(text)
    else:
        write_file(output, text.encode("utf-8"))


def _list_nodes() -> None:
    from nccl_doctor.simulate import node

    emit(textwrap.fill(f"--node: {', '.join(node.MACHINES)}", 80, subsequent_indent="  ") + "\n")
    emit(textwrap.fill(f"--fault with --node: {', '.join(node.FAULTS)}", 80, subsequent_indent="  ") + "\n")


def _node(machine: str, fault: str | None, output: Path | None) -> None:
    """Write the tree of a node into a folder that is new or empty."""
    from nccl_doctor.simulate import node

    if output is None:
        raise UsageProblem("--node writes a folder: name it with -o")
    for name, known in ((machine, node.MACHINES), (fault, node.FAULTS)):
        if name is not None and name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            raise UsageProblem(f"nothing is called {name}" + (f"; near are {', '.join(near)}" if near else ""))
    if fault is not None and machine not in node.FAULTS[fault].machines:
        raise UsageProblem(f"{fault} does not occur on {machine}; it does on {', '.join(node.FAULTS[fault].machines)}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageProblem(f"{output} exists and is not an empty folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
        node.build(machine, fault).write(output)
    except OSError as error:
        raise UsageProblem(f"cannot write {output}: {error.strerror}") from None


def _fitting(ctx: click.Context, wanted: "Spec", fitting: "Spec") -> "Spec":
    """The job that can show the fault. Defaults give way and stderr says so; raises UsageProblem where a named value would."""
    for name in ("nodes", "gpus", "version", "network", "framework"):
        given, needed = getattr(wanted, name), getattr(fitting, name)
        if given == needed:
            continue
        option = "--nccl" if name == "version" else f"--{name}"
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageProblem(f"{wanted.fault} does not show with {option} {given}; it does with {option} {needed}")
        complain(f"{option} is {needed}, because {wanted.fault} does not show with {given}")
    return fitting
