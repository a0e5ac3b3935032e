"""Appends to a file that may be full, read-only, slow or gone, without ever raising an error or growing without bound."""

import gzip
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MEMORY = 16 << 20  # bytes that wait in memory for a file that cannot be written
RETRY = 1.0  # seconds between two attempts after a failure
PIECE = 1 << 20  # bytes of one write
SYNC = 1.0  # seconds between two fdatasync calls, at least


class Spool:
    """One file that grows. Bytes wait in memory while it cannot be written; beyond `memory` the newest are dropped.

    `gap` makes the record that is written, once the file works again, where bytes were dropped: (bytes, why) -> record.
    With `rotate`, a file that has this many bytes is compressed to `NAME.N.gz`, and a new one begins; it is cut at a line
    end. One thread adds and one flushes.
    """

    def __init__(
        self,
        path: Path,
        gap: Callable[[int, str], bytes],
        *,
        memory: int = MEMORY,
        rotate: int | None = None,
        sync: float = SYNC,
    ) -> None:
        self.dropped = 0  # bytes, in all
        self.why = ""  # the last error
        self.path = path
        self._gap = gap
        self._memory = memory
        self._sync = sync
        self._rotate = rotate
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._missing = 0  # bytes dropped behind what waits
        self._file: int | None = None
        self._retry_at = 0.0
        self._synced_at = 0.0

    @property
    def waiting(self) -> int:
        """Bytes that are not in the file yet."""
        return len(self._waiting)

    def add(self, data: bytes) -> None:
        """Take bytes; call `flush` to write them."""
        with self._lock:
            if self._missing or len(self._waiting) + len(data) > self._memory:
                self._missing += len(data)
                self.dropped += len(data)
            else:
                self._waiting += data

    def flush(self) -> bool:
        """Write what waits; False where it could not all be written. May block where the file system hangs."""
        if time.monotonic() < self._retry_at:
            return False
        try:
            self._write()
        except OSError as error:
            self.why = error.strerror or str(error)
            self._retry_at = time.monotonic() + RETRY
            return False
        return True

    def _write(self) -> None:
        while piece := self._next():
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self.path, flags, 0o644)
            done = os.write(self._file, piece)
            with self._lock:
                del self._waiting[:done]
        if self._file is not None and time.monotonic() - self._synced_at >= self._sync:
            os.fdatasync(self._file)
            self._synced_at = time.monotonic()
        if self._rotate is not None and self._file is not None and os.fstat(self._file).st_size >= self._rotate:
            self._turn()

    def _next(self) -> bytes:
        """The bytes to write next; what was dropped is told behind what waited before it."""
        with self._lock:
            if not self._waiting and self._missing:
                self._waiting += self._gap(self._missing, self.why)
                self._missing = 0
            return bytes(self._waiting[:PIECE])

    def _turn(self) -> None:
        """Compress what the file holds up to its last line end; the rest becomes the new file."""
        number = 1
        while (packed := self.path.with_name(f"{self.path.name}.{number}.gz")).exists():
            number += 1
        part, new = packed.with_suffix(".part"), self.path.with_name(f"{self.path.name}.part")
        with self.path.open("rb") as old:
            size = old.seek(0, os.SEEK_END)
            near_end = max(size - PIECE, 0)
            old.seek(near_end)
            cut = near_end + old.read().rfind(b"\n") + 1
            old.seek(0)
            left = cut = cut if cut > near_end else size
            with gzip.open(part, "wb", compresslevel=1) as copy:
                while piece := old.read(min(left, PIECE)):
                    copy.write(piece)
                    left -= len(piece)
            new.write_bytes(old.read())
        part.rename(packed)
        new.rename(self.path)
        self.close()

    def close(self) -> None:
        """Close the file; it is opened again when there is more to write."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None
