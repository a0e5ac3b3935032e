"""Compressed logs, of which several processes read many ahead of time: rotated logs, or one of each rank."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.app.reading.input_streams import RejoinedStream
from nccl_doctor.formats import registry
from nccl_doctor.inputs import exports, sources
from nccl_doctor.log import parallel
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.workers import Ahead, processors

# Kinds of files that are read as logs where no reader knows them better.
READABLE = ("nccl-log", "job-log", "text", "json")
_MANY = 4 << 20  # compressed bytes that are worth a second process
_GROUP = 1 << 20  # compressed bytes that go to a process at once


class PackedLog(NamedTuple):
    """A compressed log that was scanned."""

    counts: LogCounts
    end: RankProgress
    problem: str | None  # why it was not read to its end


class PackedLogs:
    """The compressed logs among some sources."""

    def __init__(self, given: Iterable[sources.Source]) -> None:
        """`given` are the sources in the order in which they will be asked for."""
        packed = [(one.path, one, one.size) for one in given if one.path is not None and not one.plain and one.size]
        is_worth = len(packed) > 1 and processors() > 1 and sum(size for *_, size in packed) >= _MANY
        self._ahead: Ahead[Path, sources.Source] = Ahead(_logs, packed if is_worth else (), _GROUP)

    def log(self, source: sources.Source) -> PackedLog | None:
        """What was read ahead of a log; None where it is to be read now."""
        result = self._ahead.result(source.path) if source.path is not None else None
        if result is None:
            return None
        packed, end, problem = pickle.loads(result)
        counts = LogCounts()
        counts.merge(packed)
        return PackedLog(counts, end, problem)

    def close(self) -> None:
        """Cancel what was not asked for."""
        self._ahead.close()


def _logs(given: list[sources.Source]) -> list[bytes | None]:
    return [_log(source) for source in given]


def _log(source: sources.Source) -> bytes | None:
    """Packed counts of a log; None for what is read otherwise, and for what cannot be read."""
    try:
        with sources.open_stream(source) as stream:
            head = stream.read(parallel.HEAD)
            is_log = registry.recognise(head) is None and sources.sniff(head, source.name) in READABLE
            if not is_log or exports.recognise(head) is not None:
                return None
            rejoined = RejoinedStream(head, stream)
            counts, end = parallel.scan(rejoined, large=True)
    except sources.InputProblem:
        return None
    return pickle.dumps((counts.packed(), end, rejoined.problem), pickle.HIGHEST_PROTOCOL)
