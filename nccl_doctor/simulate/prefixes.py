"""Prefixes that launchers and log collectors add to each line."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from nccl_doctor.simulate.cluster import Host, Rank
from nccl_doctor.simulate.phase import Source


class Place(NamedTuple):
    """Where a line came from."""

    source: Source
    when: float  # seconds since the epoch
    ranks: int  # in the job


def _iso(when: float, digits: int) -> str:
    now = datetime.fromtimestamp(when, UTC)
    fraction = f"{now.microsecond:06d}789"[:digits]
    return f"{now:%Y-%m-%dT%H:%M:%S}.{fraction}Z"


def _host(source: Source) -> Host | None:
    return source.host if isinstance(source, Rank) else source


def _by_rank(form: Callable[[Rank, Place], str]) -> Callable[[Place], str]:
    """Returns a prefix for lines of ranks only."""

    def prefix(place: Place) -> str:
        return form(place.source, place) if isinstance(place.source, Rank) else ""

    return prefix


def _by_host(form: Callable[[Host, Place], str]) -> Callable[[Place], str]:
    """Returns a prefix for all lines of a host."""

    def prefix(place: Place) -> str:
        host = _host(place.source)
        return form(host, place) if host is not None else ""

    return prefix


PREFIXES: dict[str, Callable[[Place], str]] = {
    "none": lambda place: "",
    "mpirun": _by_rank(lambda rank, place: f"[1,{rank.number}]<stdout>:"),
    "horovodrun": _by_rank(lambda rank, place: f"[{rank.number}]<stdout>:"),
    "srun": _by_rank(lambda rank, place: f"{rank.number:>{len(str(place.ranks - 1))}}: "),
    "torchrun": _by_rank(lambda rank, place: f"[default{rank.local}]:"),
    "rank": _by_rank(lambda rank, place: f"[rank{rank.number}]:"),
    "ray": _by_rank(
        lambda rank, place: f"\x1b[36m(RayTrainWorker pid={rank.pid}, ip={rank.host.address})\x1b[0m ",
    ),
    "sagemaker": _by_rank(lambda rank, place: f"[1,mpirank:{rank.number},algo-{rank.host.index + 1}]<stdout>:"),
    "kubectl": _by_host(lambda host, place: f"[pod/train-worker-{host.index}/pytorch] "),
    "iso": lambda place: _iso(place.when, 6) + " ",
    "cloudwatch": lambda place: f"  | {_iso(place.when, 3)} | ",
    "cri": lambda place: f"{_iso(place.when, 9)} stdout F ",
    "docker-compose": _by_host(lambda host, place: f"worker-{host.index}  | "),
    "pdsh": _by_host(lambda host, place: f"{host.name}: "),
    "nccl-time": lambda place: "",  # NCCL_DEBUG_TIMESTAMP_LEVELS=ALL: NCCL itself writes the time, 2.26 and newer
    "ansi": _by_host(lambda host, place: f"\x1b[{34 + host.index % 3}m"),
}
"""Name -> text in front of a line. `ansi` also closes the colour at the end of the line."""


def decorate(name: str, place: Place, line: str) -> str:
    """Returns a line as this launcher or collector prints it."""
    before = PREFIXES[name](place)
    return f"{before}{line}\x1b[0m" if before and name == "ansi" else before + line
