"""`nccl-doctor simulate`: the log of an invented job."""

from pathlib import Path

import click

from nccl_doctor.cli import grid
from nccl_doctor.cli.output import emit, write_file
from nccl_doctor.errors import UsageProblem


@click.command("simulate")
@click.option("--nodes", type=int, default=2, show_default=True)
@click.option("--gpus", type=int, default=8, show_default=True, help="GPUs a node.")
@click.option("--nccl", default="2.21.5", show_default=True, help="Version of NCCL.")
@click.option("--network", default="ib", show_default=True)
@click.option("--framework", default="pytorch", show_default=True)
@click.option("--prefix", default="none", show_default=True, help="What the launcher puts in front of each line.")
@click.option("--fault", help="What goes wrong; without it the job is healthy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal logs.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to stdout.")
@click.option("--list", "listing", is_flag=True, help="Print the known values and stop.")
def command(
    nodes: int,
    gpus: int,
    nccl: str,
    network: str,
    framework: str,
    prefix: str,
    fault: str | None,
    seed: int,
    output: Path | None,
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
            emit(f"{name}: {', '.join(values)}\n")
        emit("--fault:\n" + grid.render(("name", "what is wrong"), [(f.name, f.doc) for f in simulate.FAULTS.values()]))
        return
    spec = simulate.Spec(nodes, gpus, nccl, network, framework, prefix, fault, seed)
    try:
        text = "".join(line + "\n" for line in simulate.write_log(spec))
    except ValueError as error:
        raise UsageProblem(f"{error} (see nccl-doctor simulate --list)") from None
    if output is None:
        emit(text)
    else:
        write_file(output, text.encode("utf-8"))
