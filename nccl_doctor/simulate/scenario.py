"""The stages of a job, from launch to end; a fault ends it early."""

from collections.abc import Callable, Iterator

from nccl_doctor.simulate import communicator, connect, startup, training
from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.faults.registry import FAULTS, Break
from nccl_doctor.simulate.graph import Ring, Trees, channels
from nccl_doctor.simulate.phase import KERNEL_STAMP, Phase, fill_times, merge_sources
from nccl_doctor.simulate.prefixes import PREFIXES, Place, decorate
from nccl_doctor.simulate.spec import Spec

Stage = tuple[str, Callable[[], Iterator[Phase]]]


def _stages(cluster: Cluster) -> list[Stage]:
    rings = [Ring(cluster, channel) for channel in range(channels(cluster))]
    trees = Trees(cluster, rings)
    lazy = cluster.v >= (2, 22)

    def each(seconds: float, lines: Callable[..., list[str]], *more: object) -> Callable[[], Iterator[Phase]]:
        def phases() -> Iterator[Phase]:
            phase = Phase(seconds)
            for rank in cluster.ranks:
                said = lines(cluster, rank, *more)
                if said:
                    phase.add(rank, *said)
            yield phase

        return phases

    def network() -> Iterator[Phase]:
        yield from each(1.5, startup.network)()
        if cluster.v < (2, 22) and cluster.ranks[0].host.bootstrap:
            phase = Phase(0.1)
            phase.add(cluster.ranks[0], f"NCCL version {cluster.ranks[0].host.version_text}")
            yield phase

    def done(cluster: Cluster, rank: Rank) -> list[str]:
        trees_too = [] if lazy else connect.tree_lines(cluster, rank, rings, trees)
        return connect.rings_done(rank, rank.host.peermem) + trees_too

    stages: list[Stage] = [
        ("launch", lambda: training.launch(cluster)),
        ("bootstrap", each(1.0, startup.bootstrap)),
        ("network", network),
        ("start", each(1.0, communicator.start)),
        ("graph", each(1.0, communicator.graph, rings, trees)),
    ]
    complete: Stage = ("complete", each(1.0, communicator.complete, len(rings)))
    connecting: list[Stage] = [("connect", each(2.0, connect.ring_lines, rings)), ("connected", each(1.0, done))]
    stages += [complete, *connecting] if lazy else [*connecting, complete]
    half = max(1, cluster.spec.steps // 2)
    stages += [
        ("train", lambda: training.steps(cluster, 0, half)),
        ("rest", lambda: training.steps(cluster, half, cluster.spec.steps)),
        ("end", lambda: training.end(cluster)),
        ("destroy", each(1.0, communicator.destroyed, "Destroy")),
    ]
    return stages


def _tell(cluster: Cluster, stop: Break | None) -> Iterator[Phase]:
    for name, phases in _stages(cluster):
        yield from phases()
        if name in cluster.added_lines:
            phase = Phase(0.5)
            for source, text in cluster.added_lines[name]:
                phase.add(source, text)
            yield phase
        if stop is not None and name == stop.stage:
            yield from stop.phases()
            return


def write_log(spec: Spec) -> Iterator[str]:
    """Yields the lines of the job's log, without newlines.

    Raises ValueError for an impossible spec, such as a fault between nodes in a job on one node.
    """
    return (line for _, line in _told(spec))


def write_files(spec: Spec) -> dict[str, list[str]]:
    """The log of the job and, for each host whose kernel printed something, its log: file name -> lines.

    Raises ValueError as `write_log` does.
    """
    files: dict[str, list[str]] = {"job.log": []}
    for kernel_of, line in _told(spec):
        files.setdefault(f"kernel-{kernel_of}.log" if kernel_of else "job.log", []).append(line)
    return files


def _told(spec: Spec) -> Iterator[tuple[str | None, str]]:
    """(host whose kernel printed it or None, line) of all lines of a job."""
    spec.check()
    if spec.prefix not in PREFIXES:
        raise ValueError(f"unknown prefix {spec.prefix!r}; known: {', '.join(PREFIXES)}")
    stop: Break | None = None
    if spec.fault is not None:
        if spec.fault not in FAULTS:
            raise ValueError(f"unknown fault {spec.fault!r}; known: {', '.join(FAULTS)}")
        fault = FAULTS[spec.fault]
        missing = fault.needs.missing(spec)
        if missing:
            raise ValueError(f"fault {spec.fault} needs {missing}")
    cluster = Cluster(spec)
    if spec.fault is not None:
        stop = FAULTS[spec.fault].inject(cluster)
    return _lines(cluster, stop)


def _lines(cluster: Cluster, stop: Break | None) -> Iterator[tuple[str | None, str]]:
    spec = cluster.spec
    now = float(cluster.epoch)
    all_stamped = spec.prefix == "nccl-time"
    ranks = len(cluster.ranks)
    for phase in _tell(cluster, stop):
        for when, source, text in merge_sources(phase, now, cluster.rng, spec.interleave):
            place = Place(source, when, ranks)
            kernel_of = source.name if isinstance(source, Host) and text.startswith(KERNEL_STAMP) else None
            for line in fill_times(text, when, all_stamped).split("\n"):
                yield kernel_of, decorate(spec.prefix, place, line)
        now += phase.seconds
