"""`nccl-doctor record`: runs a job and keeps what a diagnosis needs."""

import os
from pathlib import Path

import click

from nccl_doctor.cli.output import complain
from nccl_doctor.cli.value_types import PATH, NumberRange
from nccl_doctor.common.errors import UsageProblem

DEFAULT = "nccl-doctor-runs"
OPEN_MPI = ("mpirun", "mpiexec", "orterun")  # forward to other nodes only the variables that -x names


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=PATH, default=DEFAULT, show_default=True, metavar="DIR")
@click.option(
    "--interval", type=NumberRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between samples."
)
@click.option("--torch", is_flag=True, help="Turn on PyTorch's flight recorder.")
@click.option("--horovod", is_flag=True, help="Turn on Horovod's timeline.")
@click.option(
    "--keep", type=click.IntRange(1), metavar="N", help="Keep N runs of this node; remove older finished ones."
)
@click.option("--duration", type=NumberRange(0.1), metavar="SECONDS", help="Without CMD: stop after SECONDS.")
@click.option("--tty", is_flag=True, help="Give CMD a terminal: prompts and progress bars look as without `record`.")
@click.option(
    "--rotate", type=click.IntRange(1), metavar="MB", help="Compress the recorded output after each MB megabytes."
)
@click.option(
    "--report", is_flag=True, help="When CMD has ended, print the diagnosis to stderr and keep it as report.txt."
)
@click.option("--no-auto", is_flag=True, help="Do not look at stacks when the job stands still.")
@click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def command(
    output: Path,
    interval: float,
    torch: bool,
    horovod: bool,
    keep: int | None,
    duration: float | None,
    tty: bool,
    rotate: int | None,
    report: bool,
    no_auto: bool,
    job: tuple[str, ...],
) -> int:
    """Run CMD, write NCCL's log to files, sample the node, and keep all of it in DIR for `analyze DIR`.

    Exit status and output are those of CMD, whatever happens to DIR. Signals are passed on. Variables that you set are not
    changed. Several nodes and ranks may record into one DIR. Without CMD, the jobs that already run on this node are sampled
    until they end.
    """
    from nccl_doctor.app.recorder import recorder

    if job and duration is not None:
        raise UsageProblem("--duration applies to jobs that already run; CMD ends by itself")
    if not job and (tty or rotate or report):
        raise UsageProblem("--tty, --rotate and --report need a CMD to run")
    if job and Path(job[0]).name in OPEN_MPI and "NCCL_DEBUG" not in job:
        complain(
            "Open MPI forwards only named variables to other nodes: add -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x NCCL_DEBUG_FILE"
        )
    try:
        run = recorder.new_run(output)
    except UsageProblem as problem:
        if not job:
            raise
        complain(f"{problem}; the job runs without a recording")
        return _run_alone(job)
    if keep is not None:
        recorder.rotate(output, keep - 1)
    this = recorder.Recorder(run, interval, rotate << 20 if rotate else None, auto=not no_auto)
    if not job:
        complain(f"recording into {run}; press Ctrl-C to stop")
        this.attach(duration, complain)
        return 0
    status = this.job(job, torch, horovod, tty)
    for lacking in this.lacking():
        complain(lacking)
    if report:
        recorder.report(run)
    return status


def _run_alone(job: tuple[str, ...]) -> int:
    """Become the job. Raises UsageProblem."""
    try:
        os.execvp(job[0], job)
    except OSError as error:
        raise UsageProblem(f"cannot run {job[0]}: {error.strerror}") from None
