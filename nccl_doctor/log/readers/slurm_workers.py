"""Jobs of Slurm as the workers of a Dask cluster, and what sbatch says where it refuses them."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import dask
from dask_jobqueue import SLURMCluster
from dask_jobqueue.slurm import SLURMJob
from distributed.core import Status

from nccl_doctor.common import interruption

# A folder of the job's own for what its worker keeps on disk, which the job removes: a worker that is cancelled leaves it.
_OWN_FOLDER = [
    'folder=$(mktemp -d "${TMPDIR:-/tmp}/nccl-doctor-XXXXXXXX") && export DASK_TEMPORARY_DIRECTORY="$folder"',
    """trap 'rm -rf "$folder"' EXIT""",
    "trap 'exit 143' TERM",
]


def started(jobs: int, say: Callable[[str], None]) -> Any:
    """A cluster with so many jobs of one worker each; `say` is told why some were refused.

    Partition, account, memory and interface come from Dask's own configuration (`jobqueue.slurm`). Raises RuntimeError where
    every job was refused.
    """
    answers: SimpleQueue[str] = SimpleQueue()

    class Job(SLURMJob):  # type: ignore[misc]  # dask_jobqueue has no types
        """A job that says what became of it. One that was refused counts as started, because Dask cannot close it otherwise."""

        async def start(self) -> None:
            try:
                await super().start()
            except (OSError, RuntimeError, ValueError) as error:
                self.status = Status.running
                answers.put(_reason(error))
            else:
                answers.put("")

    site = dask.config.get("jobqueue.slurm", {})
    cores = site.get("cores") or 1
    usual = {"cores": cores, "processes": cores, "memory": "4GB"}
    prologue = [*(site.get("job-script-prologue") or []), *_OWN_FOLDER]
    cluster = SLURMCluster(
        job_cls=Job, job_script_prologue=prologue, **{name: site.get(name) or value for name, value in usual.items()}
    )
    cluster.scale(jobs=jobs)
    refused = []
    try:
        with interruption.wait():
            refused = [reason for reason in (answers.get() for _ in range(jobs)) if reason]
    except interruption.Stopped:  # the reading that follows stops at once
        return cluster
    if len(refused) == jobs:
        cluster.close()
        raise RuntimeError(refused[0])
    if refused:
        say(f"{len(refused)} of {jobs} jobs were refused: {refused[0]}")
    return cluster


def _reason(error: Exception) -> str:
    """What sbatch said: its words without the command line and the status around them."""
    if isinstance(error, FileNotFoundError):
        return "there is no sbatch"
    said = str(error).rpartition("stderr:\n")[2].splitlines()
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").removeprefix("fatal: ") for line in said]
    return next((line for line in reversed(lines) if line.strip()), type(error).__name__)
