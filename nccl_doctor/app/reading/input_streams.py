"""Streams of inputs: how much of all of them was read, and bytes that were read before."""

import io
from collections.abc import Callable

from nccl_doctor.common import interruption
from nccl_doctor.inputs import sources
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import parallel

KEPT = 32 << 20  # bytes of a log that are kept rather than decompressed or converted twice
INTERRUPTED = "interrupted"  # ends the notes of inputs that were not read to their end


class ReadProgress:
    """Reports how much of all sources was read, in bytes as they are on disk or in their archive."""

    def __init__(self, report: Callable[[int, int], None] | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = self._in_source = self._size = 0

    def __str__(self) -> str:
        if not self._total:
            return "the first bytes"
        return f"{self._done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB"

    def begin(self, source: sources.Source) -> None:
        """Start counting a source, from its first byte."""
        self._in_source, self._size = 0, source.size or 0

    def metered(self, source: sources.Source) -> sources.Source:
        """The source, wrapped so that bytes read from it advance the progress."""
        return source._replace(opener=lambda: parallel.MeteredStream(source.opener(), self.advance))

    def advance(self, size: int) -> None:
        """Count so many more bytes of the source."""
        self._in_source = min(self._in_source + size, self._size)
        if self._report is not None:
            self._report(self._done + self._in_source, self._total)

    def end(self) -> None:
        """Count the whole source, even if a reader stopped early; of an interrupted one what was read."""
        self._done += self._in_source if interruption.requested() else self._size
        self._in_source = self._size = 0
        self.advance(0)


class RejoinedStream:
    """The bytes read to recognise an input, followed by the rest of its stream. A broken stream ends early; `problem` says why."""

    def __init__(self, head: bytes, stream: Readable, *, stoppable: bool = True) -> None:
        self._head = head
        self._stream = stream
        self._stoppable = stoppable
        self.problem: str | None = None
        self.bytes = 0

    def read(self, size: int) -> bytes:
        """At most so many bytes; empty at the end."""
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
        elif self.problem is not None:
            return b""
        elif self._stoppable and interruption.requested():
            self.problem = f"read only in part: {INTERRUPTED}"
            return b""
        else:
            try:
                data = self._stream.read(size) or b""
            except sources.InputProblem as problem:
                self.problem = problem.reason
                return b""
            if not data and interruption.requested():
                self.problem = f"read only in part: {INTERRUPTED}"
        self.bytes += len(data)
        return data


class KeptStream:
    """A stream whose bytes are kept for readers that come later, unless there are too many of them."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = False

    def read(self, size: int) -> bytes:
        """At most so many bytes; empty at the end."""
        data = self._stream.read(size)
        self._is_whole = not data
        self._size += len(data)
        if self._size <= KEPT:
            self._parts.append(data)
        else:
            self._parts.clear()
        return data

    def again(self) -> Readable | None:
        """All bytes from the first one on; None where they were not kept or not read to the end."""
        return io.BytesIO(b"".join(self._parts)) if self._is_whole and self._size <= KEPT else None
