"""One report in every way of reading: by one process, by several, and by the workers of a Dask cluster."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.log import parallel
from nccl_doctor.log.readers import cluster
from nccl_doctor.reporters import json_report

PART = 10_000  # bytes of a log that is read in parts, and of a group of logs that a process gets


def _reports(paths: Sequence[Path], client: Any = None) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The way of reading, and its report as JSON holds it, or why there is none. `client` is that of a Dask cluster."""
    yield "serial", _report(paths, 1, parallel.ReadAhead)
    yield "parallel", _report(paths, 3, parallel.ReadAhead)
    if client is not None:
        told: list[str] = []
        yield "dask", _report(paths, 1, partial(cluster.ClusterReader, client, told.append))
        assert [] == told


def differences(paths: Sequence[Path], client: Any = None) -> list[str]:
    """Where reports differ from that of one process: the way of reading, the key, and both values."""
    (_, serial), *others = _reports(paths, client)
    return [f"{way}: {line}" for way, report in others for line in _compared(serial, report, "")]


def _report(paths: Sequence[Path], processes: int, read_ahead: Any) -> dict[str, Any] | str:
    small = mock.patch.multiple(parallel, processors=lambda: processes, PARALLEL=PART, GROUP=PART)
    with small, mock.patch.object(cluster, "TASK", PART):
        try:
            report, _, problems = analyze.analyze([str(path) for path in paths], read_ahead=read_ahead)
        except UsageProblem as problem:
            return str(problem)
    found: dict[str, Any] = json.loads(json.dumps({**json_report.document(report), "problems": problems}, default=str))
    return found


def _compared(one: Any, other: Any, key: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from _compared(one.get(name), other.get(name), f"{key}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from _compared(mine, its, f"{key}[{number}]")
    elif one != other:
        yield f"{key}: {one!r} -> {other!r}"
