"""Which files are exported logs or collected from many hosts, and the stream of the lines inside one.

JSON with a record a line, a CSV table and the journal's export form are read as they come, JSON also between lines of text. A
document of JSON, and a table whose newest line comes first, are held up to the budget `held`.
"""

from collections.abc import Callable, Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import wrapping
from nccl_doctor.inputs.exports import host_groups, journal, json_logs, logcli, notebooks, partials, tables
from nccl_doctor.inputs.exports.rows import Cut, Run
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LineNumbers

_DOCKER = compiled(rb'\{"log":"(?!\{)(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')
_DOCKER_RECORD = compiled(rb'\s{0,20}\{"log":"(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')


class Exported:
    """A stream of the lines inside a stream of records. `source_line` gives where a line was in the file."""

    def __init__(self, stream: Readable, kind: str) -> None:
        self.problem: str | None = None  # what was not read of the file
        self._rows = _READERS[kind](stream)
        self._ready = bytearray()
        self._numbers = LineNumbers()
        self.source_line = self._numbers.source_line

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
            if isinstance(row, Run):
                self._numbers.add(row.number, row.lines)
                self._ready += row.text
                continue
            number, lines = row
            for line in lines:
                self._numbers.add(number)
                self._ready += line + b"\n"
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data


COLLECTED = ("headings", "tags")  # kinds of what many hosts printed: behind the names of the hosts is any format


def is_docker(head: bytes) -> bool:
    """Whether Docker's json-file driver wrote these first bytes."""
    return _DOCKER_RECORD.match(head) is not None


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
    if notebooks.recognise(head):
        return "notebook"
    if (of_json := json_logs.recognise(head)) is not None:
        return of_json
    if (groups := host_groups.recognise(head)) is not None:
        return groups
    if tables.dialect(head) is not None:
        return "table"
    return "wrapped" if wrapping.recognise(head) is not None else None


_READERS: dict[str, Callable[[Readable], Iterator[tuple[int, list[bytes]]] | Iterator[Run]]] = {
    "lines": json_logs.line_rows, "document": json_logs.document_rows, "journal": journal.journal_rows,
    "table": tables.table_rows, "logcli": logcli.logcli_rows, "wrapped": wrapping.rows, "cri-parts": partials.cri_rows,
    "docker-parts": partials.docker_rows, "fork": partials.fork_rows, "docker": partials.opened_rows,
    "notebook": notebooks.notebook_rows, "headings": host_groups.heading_rows, "tags": host_groups.tag_rows,
}  # fmt: skip
