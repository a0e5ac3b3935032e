"""Joins records into which a log service split one line.

The journal splits what a service prints at 48 KiB (LineMax) and marks every piece but the last by ``_LINE_BREAK=line-max``
(`man 7 systemd.journal-fields`). Docker's drivers for the journal and for Fluentd split at 16 KiB and mark the pieces by
``CONTAINER_PARTIAL_MESSAGE`` and ``partial_message``; collectors that read Kubernetes' files keep the mark as ``logtag``::

    {"_STREAM_ID": "4be1", "_LINE_BREAK": "line-max", "MESSAGE": "node01:101:140 [0] NCCL WA"}
    {"_STREAM_ID": "4be1", "MESSAGE": "RN Call to ibv_modify_qp failed"}
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.inputs.exports.records import first_pod, message_of
from nccl_doctor.inputs.text_lines import LONGEST_PIECE

_STREAMS = ("CONTAINER_PARTIAL_ID", "partial_id", "_STREAM_ID")
_OF_PIECES = frozenset((*_STREAMS, "logtag"))
_MOST = 10_000  # streams of which a record waits for its next piece


class _Begun(NamedTuple):
    """A record that waits for its next piece."""

    number: int
    row: dict[str, Any]
    name: str  # of the field that holds the message
    text: str

    def whole(self) -> tuple[int, dict[str, Any]]:
        """The first piece with the text of all."""
        return self.number, {**self.row, self.name: self.text}


class SplitRecords:
    """Takes records as they come, and gives whole ones."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, ...], _Begun] = {}

    def add(self, number: int, row: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The records that this one makes complete, with the numbers of their first pieces."""
        of = _stream(row)
        piece = None if of is None else message_of(row)
        if of is None or piece is None:
            yield number, row
            return
        begun = self._waiting.pop(of, None)
        if begun is not None and _is_older(row, begun.row):  # the newest come first
            yield begun.whole()
            begun = None
        begun = _Begun(number, row, *piece) if begun is None else begun._replace(text=begun.text + piece[1])
        if _goes_on(row) and len(begun.text) < LONGEST_PIECE and len(self._waiting) < _MOST:
            self._waiting[of] = begun
        else:
            yield begun.whole()

    def rest(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The records of which the last piece is missing."""
        for begun in sorted(self._waiting.values(), key=lambda begun: begun.number):
            yield begun.whole()
        self._waiting.clear()


def is_piece(row: dict[str, Any]) -> bool:
    """Whether a record may be a piece of one that was split."""
    return not _OF_PIECES.isdisjoint(row) and _stream(row) is not None


def _stream(row: dict[str, Any]) -> tuple[str, ...] | None:
    """What the pieces of a record have in common; None for a record that is whole."""
    for name in _STREAMS:
        if isinstance(of := row.get(name), str):
            return name, of
    if row.get("logtag") in ("P", "F"):
        return "logtag", first_pod(row) or "", str(row.get("stream"))
    return None


def _goes_on(row: dict[str, Any]) -> bool:
    """Whether another piece follows."""
    if row.get("CONTAINER_PARTIAL_ID") is not None:
        return row.get("CONTAINER_PARTIAL_MESSAGE") == "true"
    if row.get("partial_id") is not None:
        return row.get("partial_last") == "false"
    return row.get("_LINE_BREAK") == "line-max" or row.get("logtag") == "P"


def _is_older(row: dict[str, Any], than: dict[str, Any]) -> bool:
    """Whether the journal wrote a record before another one."""
    own, other = (str(one.get("__REALTIME_TIMESTAMP", "")) for one in (row, than))
    return own.isdecimal() and other.isdecimal() and int(own[:20]) < int(other[:20])
