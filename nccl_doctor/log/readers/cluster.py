"""Reads logs with the workers of a Dask cluster: parts of large files and groups of small ones.

Workers open the files by the same names, as on a shared file system, and count; their counts are merged in order here, so that the
result is that of a serial run. What no worker could read, because it was killed too often, sees another file under that name, or
runs another version, is read here.
"""

import atexit
import logging
import pickle
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nccl_doctor
from nccl_doctor.common import interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.formats import registry
from nccl_doctor.inputs.streams import open_regular
from nccl_doctor.log import parallel
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.parallel import OnBytes
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.workers import processors

JOBS = 4  # of Slurm, where the user names no number
CONNECTED = "20s"  # to reach a scheduler
MOST = 1_000  # workers of a cluster of our own
TASK = 48 << 20  # bytes that are worth one of a worker
_MARK = 4096  # bytes at the start of a part by which a worker knows that it reads the same file


class NotTheSame(Exception):
    """A worker that would read something else than this process."""


class _Part(NamedTuple):
    """A part of a file, or all of it."""

    path: Path
    start: int
    stop: int
    mark: bytes  # its first bytes


@contextmanager
def connected(where: str, say: Callable[[str], None]) -> Iterator[Any]:
    """A client of the cluster that `--dask` names: `local[:N]`, `slurm[:JOBS]`, or the address of a scheduler.

    Raises UsageProblem where there is none.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageProblem("--dask needs more packages: pip install 'nccl-doctor[cluster]'") from None
    with ExitStack() as open_:
        try:
            cluster = _started(where, say, open_)
            if cluster is not None:
                open_.enter_context(cluster)
            client = Client(where if cluster is None else cluster, timeout=CONNECTED, set_as_default=False)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise UsageProblem(f"--dask {where}: {' '.join(str(error).split()) or type(error).__name__}") from None
        open_.enter_context(client)
        waiting = "" if client.scheduler_info()["workers"] else ", of which none is there yet"
        say(f"reading with the workers of {client.scheduler.address}{waiting}")
        yield client


def _started(where: str, say: Callable[[str], None], open_: ExitStack) -> Any:
    """A cluster of our own; None where the words are the address of one that runs. Raises ValueError for a wrong number.

    What the workers of `local` keep on disk is removed when `open_` is closed.
    """
    kind, _, number = where.partition(":")
    if kind not in ("local", "slurm"):
        return None
    workers = JOBS if kind == "slurm" else processors()
    if number:
        workers = int(number[:9]) if number.isdecimal() else 0
    if not 0 < workers <= MOST:
        raise ValueError(f"{kind}:N starts 1 to {MOST:,} workers")
    if kind == "local":
        return _local(workers, open_)
    # Importing dask_jobqueue sets a handler of Ctrl-C, which ends the program with status 0.
    on_interrupt = signal.getsignal(signal.SIGINT)
    from nccl_doctor.log.readers import slurm_workers

    signal.signal(signal.SIGINT, on_interrupt)
    return slurm_workers.started(workers, say)


def _local(workers: int, open_: ExitStack) -> Any:
    import dask
    from distributed import LocalCluster
    from distributed.deploy.spec import close_clusters

    folder = open_.enter_context(TemporaryDirectory(prefix="nccl-doctor-", ignore_cleanup_errors=True))
    open_.enter_context(dask.config.set({"temporary-directory": folder}))
    open_.callback(_end_workers)
    atexit.unregister(close_clusters)  # which tries once more to close one whose closing a signal interrupted
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what workers lack is told by `ClusterReader`
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL")


def _end_workers() -> None:
    """End what is left of a cluster that could not be closed."""
    for child in active_children():
        child.kill()
        child.join()


class ClusterReader:
    """Logs that the workers read before they are asked for; has the methods of `parallel.ReadAhead`."""

    def __init__(self, client: Any, say: Callable[[str], None], files: Iterable[tuple[Path, int]]) -> None:
        """`files` are plain ones and their sizes in bytes, in the order in which they will be asked for."""
        self._client = client
        self._say = say
        self._jobs: dict[Path, list[tuple[_Part, Any, int]]] = {}
        self._told = False  # why a worker could not read a part
        group: list[_Part] = []
        full = 0
        files = list(files)
        for number, (path, size) in enumerate(files, 1):
            with suppress(OSError):
                parts = _parts(path, size)
                if len(parts) > 1:
                    self._jobs[path] = [(part, self._submit([part]), 0) for part in parts]
                else:
                    group += parts
                    full += size
            if group and (full >= parallel.GROUP or number == len(files)):
                job = self._submit(group)
                self._jobs |= {part.path: [(part, job, place)] for place, part in enumerate(group)}
                group, full = [], 0

    def scan_file(self, path: Path, on_bytes: OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The counts of a file and what its end shows, as `parallel.scan_file` gives them."""
        counts = LogCounts()
        for part, job, place in self._jobs.pop(path, []):
            if counts.bytes < part.start:  # the reading was stopped before
                break
            packed = self._result(job, place)
            if packed is None:
                counts.merge(parallel.read_part(path, part.start, part.stop - part.start, on_bytes).packed())
                continue
            more = pickle.loads(packed)
            counts.merge(more)
            if on_bytes is not None:
                on_bytes(more.size)
        if not counts.bytes:
            return parallel.scan_file(path, on_bytes)
        return counts, parallel.read_end(path, counts.bytes)

    def vanished(self, _read: Collection[Path]) -> tuple[()]:
        """No log: each is read once."""
        return ()

    def close(self) -> None:
        """Cancel what was not asked for."""
        left = [job for jobs in self._jobs.values() for _, job, _ in jobs]
        if left:
            self._client.cancel(left)

    def _submit(self, parts: list[_Part]) -> Any:
        return self._client.submit(read_parts, parts, nccl_doctor.__version__, pure=False)

    def _result(self, job: Any, place: int) -> bytes | None:
        """The packed counts that a worker gave; None where none could, or where reading was stopped."""
        try:
            with interruption.wait():
                result: list[bytes] = job.result()
            return result[place]
        except interruption.Stopped:
            return None
        except Exception as error:  # of the worker or of Dask: a part is worth more than its reason
            if not self._told:
                reason = " ".join(str(error).split())
                self._say(f"what a worker could not read is read here: {type(error).__name__}: {reason}")
            self._told = True
            return None


def _parts(path: Path, size: int) -> list[_Part]:
    """A log in parts that are worth a task; none of a file of another format."""
    with open_regular(path) as file:
        if registry.recognise(file.read(parallel.HEAD)) is not None:
            return []
        count = max(size // TASK, 1)
        cuts = [parallel.line_start(file, size * part // count) for part in range(1, count)]
        parts = []
        for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
            file.seek(start)
            parts.append(_Part(path, start, stop, file.read(_MARK)[: stop - start]))
        return parts


def read_parts(parts: list[_Part], version: str) -> list[bytes]:
    """The packed counts of each part. Runs on a worker; raises NotTheSame where the result would not fit."""
    if version != nccl_doctor.__version__:
        raise NotTheSame(f"the worker has nccl-doctor {nccl_doctor.__version__}, not {version}")
    return [_read_part(part) for part in parts]


def _read_part(part: _Part) -> bytes:
    with open_regular(part.path) as file:
        file.seek(part.start)
        if file.read(len(part.mark)) != part.mark:
            raise NotTheSame(f"{part.path} is another file on the worker")
    counts = parallel.read_part(part.path, part.start, part.stop - part.start)
    if counts.bytes < part.stop - part.start:
        raise NotTheSame(f"{part.path} is shorter on the worker")
    return pickle.dumps(counts.packed(), pickle.HIGHEST_PROTOCOL)
