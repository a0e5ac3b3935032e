"""`nccl-doctor record`: run a job and keep what a diagnosis needs."""

from pathlib import Path

import click

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem

DEFAULT = "nccl-doctor-runs"
FORWARDS_ONLY_NAMED = (
    "mpirun",
    "mpiexec",
    "orterun",
)  # Open MPI sends no variable to other nodes that -x does not name


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path), default=DEFAULT, show_default=True, metavar="DIR")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between samples."
)
@click.option("--torch", is_flag=True, help="PyTorch's flight recorder too.")
@click.option("--horovod", is_flag=True, help="Horovod's timeline too.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Remove older finished runs of this node.")
@click.option("--duration", type=click.FloatRange(0.1), metavar="SECONDS", help="Without CMD: how long.")
@click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def command(
    output: Path,
    interval: float,
    torch: bool,
    horovod: bool,
    keep: int | None,
    duration: float | None,
    job: tuple[str, ...],
) -> int:
    """Run CMD with NCCL's log in files, sample the node beside it, and keep all of it in DIR for `analyze DIR`.

    Exit status and output are those of CMD; signals are passed on; variables that you set stay as they are. Several nodes
    and ranks may record into one DIR. Without CMD the jobs that already run on this node are sampled until they end.
    """
    from nccl_doctor.app import record

    if job and duration is not None:
        raise UsageProblem("--duration is for a job that runs already; CMD ends by itself")
    if job and Path(job[0]).name in FORWARDS_ONLY_NAMED and "NCCL_DEBUG" not in job:
        complain(
            "Open MPI sends the settings to other nodes only when named: -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x NCCL_DEBUG_FILE"
        )
    run = record.new_run(output)
    if keep is not None:
        record.rotate(output, keep - 1)
    recorder = record.Recorder(run, interval)
    if job:
        return recorder.job(job, torch, horovod)
    complain(f"recording into {run}; Ctrl-C ends it")
    recorder.attach(duration)
    return 0
