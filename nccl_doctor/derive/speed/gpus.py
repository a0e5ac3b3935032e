"""Tables about GPUs made from their samples: whose they are, and how each compares with its peers."""

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuPeer, GpuUse

_TABLES = ("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "gpu_process")
_SAMPLES = 20  # fewer prove nothing about a GPU
_MANY = 64  # from so many GPUs on one more or less does not move the median
_IN_USE = 1024.0  # MiB
_FLOOR = 0.01  # of the median: a spread below that is noise of the reading


def derive_gpu(facts: Facts) -> None:
    """Name the hosts of samples and fill `gpu_peer`. Call after the table `host` is there."""
    if "gpu_use" not in facts.looked():
        return
    _name_hosts(facts)
    facts.add(_peers(facts.rows(GpuUse)))
    facts.look("gpu_peer")


def _name_hosts(facts: Facts) -> None:
    """nvidia-smi prints no host; the path of its file mostly does, and a job on one host leaves no choice."""
    hosts = [name for (name,) in facts.own("SELECT name FROM host")]
    for (file,) in facts.own("SELECT DISTINCT file FROM gpu_use WHERE host IS NULL"):
        host = _host_of(file, hosts)
        if host is not None:
            for table in _TABLES:
                facts.own(
                    f"UPDATE {table} SET host = ? WHERE host IS NULL AND ref IN (SELECT id FROM evidence WHERE file = ?)",
                    (host, file),
                )


def _host_of(file: str, hosts: Sequence[str]) -> str | None:
    """The one host that a file's path names: a part between separators, or the whole of `gpu_HOST.csv`."""
    path = file.replace("!", "/")
    named = {host for host in hosts if re.search(rf"(?:^|[/_.-]){re.escape(host)}(?:[/_.-]|$)", path)}
    if len(named) == 1:
        return named.pop()
    if not named and len(hosts) == 1:
        return hosts[0]
    if not hosts:
        words = re.search(
            r"(?:^|[_.-])((?:node|host|worker|compute)-?[a-z]*\d+[a-z0-9-]*)(?:[_.]|$)", PurePath(path).stem
        )
        return words[1] if words else None
    return None


def _peers(uses: list[GpuUse]) -> Iterator[GpuPeer]:
    for metric, column in (("utilisation", "util_mean"), ("power", "power_median"), ("clock", "clock_median")):
        rows = [use for use in uses if _taking_part(use) and getattr(use, column) is not None]
        values = [float(getattr(use, column)) for use in rows]
        if len(rows) < 2:
            continue
        whole = _spread(values) if len(rows) >= _MANY else None
        for number, (use, value) in enumerate(zip(rows, values, strict=True)):
            median, mad = whole or _spread(values[:number] + values[number + 1 :])
            if median <= 0:
                continue
            score = (value - median) / max(1.4826 * mad, _FLOOR * median)
            yield GpuPeer(use.host, use.gpu, metric, value, median, mad, score, value / median, len(rows) - 1, use.ref)


def _taking_part(use: GpuUse) -> bool:
    if use.samples < _SAMPLES and use.source != "jobstats":
        return False
    return (use.memory_max or 0) >= _IN_USE or (use.util_mean or 0) >= 5


def _spread(values: list[float]) -> tuple[float, float]:
    """Median and median absolute deviation."""
    middle = statistics.median(values)
    return middle, statistics.median(abs(value - middle) for value in values)
