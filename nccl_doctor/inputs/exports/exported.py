"""Which files are exported logs, and the stream of the lines inside one.

JSON with a record a line, a CSV table and the journal's export form are read as they come, JSON also between lines of text. A
document of JSON, and a table whose newest line comes first, are held up to the budget `held`.
"""

import re
from bisect import bisect_right

from nccl_doctor.inputs import wrapping
from nccl_doctor.inputs.exports import journal, json_logs, logcli, partials, tables
from nccl_doctor.inputs.exports.rows import Cut
from nccl_doctor.inputs.streams import Readable

_DOCKER = re.compile(rb'\{"log":"(?!\{)(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')


class Exported:
    """A stream of the lines inside a stream of records. `source_line` gives where a line was in the file."""

    def __init__(self, stream: Readable, kind: str) -> None:
        self.problem: str | None = None  # what was not read of the file
        self._rows = _READERS[kind](stream)
        self._ready = bytearray()
        self._given = 0  # lines
        self._starts = [1]  # lines of the output from which on the lines of the file are …
        self._places = [1]  # … these, one after another

    def read(self, size: int) -> bytes:
        """So many bytes of lines, fewer only at the end."""
        while len(self._ready) < size:
            try:
                row = next(self._rows, None)
            except Cut as cut:
                self.problem = str(cut)
                break
            if row is None:
                break
            number, lines = row
            for line in lines:
                self._given += 1
                self._note(number)
                self._ready += line + b"\n"
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def source_line(self, line: int) -> int:
        """The number in the file of a line that was given."""
        at = bisect_right(self._starts, line) - 1
        return self._places[at] + max(line - self._starts[at], 0) if at >= 0 else line

    def _note(self, number: int) -> None:
        if self._places[-1] + self._given - self._starts[-1] != number:
            self._starts.append(self._given)
            self._places.append(number)


def recognise(head: bytes) -> str | None:
    """The kind of an exported log by its first bytes (64 kB are enough); None for any other file."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(journal.START):
        return "journal"
    if (parts := partials.recognise(head)) is not None:
        return parts
    if _DOCKER.match(head):  # whose records are opened where they are read, also by several processes
        return None
    if logcli.recognise(head):
        return "logcli"
    if (of_json := json_logs.recognise(head)) is not None:
        return of_json
    if tables.dialect(head) is not None:
        return "table"
    return "wrapped" if wrapping.recognise(head) is not None else None


_READERS = {
    "lines": json_logs.line_rows, "document": json_logs.document_rows, "journal": journal.journal_rows,
    "table": tables.table_rows, "logcli": logcli.logcli_rows, "wrapped": wrapping.rows, "cri-parts": partials.cri_rows,
    "docker-parts": partials.docker_rows, "fork": partials.fork_rows,
}  # fmt: skip
