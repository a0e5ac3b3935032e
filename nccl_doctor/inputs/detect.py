"""What kind of file some bytes are from, recognised by content; and files that are mostly holes, which are not read."""

import errno
import io
import os
import re
import sys

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.streams import compression, encoding, growth_problem, open_regular

NCCL = compiled(
    rb"NCCL (?:INFO|WARN|ATTN|TRACE|CALL|DIAG) |\bR?CCL version \d|\bNCCL version \d|:\d+:\d+ \[-?\d+\] (?:\S+:\d+ )?(?:INFO|WARN) "
)
_HOLE = 64  # zero bytes; binary files have shorter rows of them
_STRAY = 2_000  # bytes of text for each single zero byte that a program printed by mistake
_SPARSE_FROM = 1 << 20  # bytes; smaller files may be stored inline and use no block
_BLOCK = 512  # bytes in which `st_blocks` counts
_OFFICE = (b"[Content_Types].xml", b"docProps/", b"_rels/.rels", b"xl/", b"word/", b"mimetypeapplication/vnd.oasis")
_NAME_OF_MEMBER = 30  # bytes in front of the name of the first one
_ZEROS = bytes(64)  # what is read in the place of a hole
_JOB = compiled(
    rb"Traceback \(most recent call last\)|<std(?:out|err)>:|\[rank\d+\]:|^ ?\d+: |\bsrun: |slurmstepd: |\bmpirun\b|torch|"
    rb"[Hh]orovod|NVRM: |SXid|nccl|^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\(\w+ pid=\d+|[Ee]poch|\biter(?:ation)?\b|\bstep\b|\bloss\b",
    re.MULTILINE,
)
_JSON = compiled(rb"\s*(?:\{\s*(?:\"|\}|$)|\[\s*(?:[{\"\]]|$))")
_JSON_HEAD = compiled(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:[\"}]|\Z)|\[\s*\{)")
_RECORD = compiled(
    rb'[{,]\s*"(?:log|message|msg|text|textPayload|level|levelname|severity|timestamp|time|ts|stream)"\s*:',
    re.IGNORECASE,
)
_XML = compiled(  # and not a text that begins with a tag of HTML, as Markdown may
    rb"\s*<(?:\?xml|!DOCTYPE|!--|system\b|graphs\b|html\b"
    rb"|(?!(?:style|details|summary|div|p|h[1-6]|br|hr|img|center|table|a)\b)"
    rb"[A-Za-z_][\w.:-]*(?:\s+[\w.:-]+\s*=\s*[\"'][^\"'<]*[\"'])*\s*/?>\s*[<\n])"
)
_REPORT = compiled(rb'\s*\{\s*"(?:schema":\s*"nccl-doctor/report/|\$schema":\s*"[^"]{0,200}sarif)')
_DOCKER = compiled(rb"\s*\{\"log\":\"")
_LOG_NAME = compiled(r"\.(?:log|out|err|stdout|stderr|o\d+|e\d+)(?:[.-]\d+)?(?:\.(?:gz|xz|bz2|zst))?$")
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\x08\x0b\x0c\x1b") + b"\x7f"

PROGRAMS = (
    (b"\x7fELF", "program"),
    (b"\x89PNG\r\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF8", "image"),
    (b"%PDF-", "pdf"),
    (b"\x89HDF\r\n", "hdf5"),
    (b"\x93NUMPY", "numpy"),
)


def begins_json(head: bytes) -> bool:
    """Whether a text begins as records of JSON do. A log may begin with `[rank0]` or `{'loss': 2.5}`."""
    return _JSON_HEAD.match(head) is not None


def sniff(head: bytes, name: str = "") -> str:
    """The kind of a file from its first bytes (64 kB are enough).

    `nccl-log`, `job-log`, `text`, `json`, `xml`, `sqlite`, `pickle`, `tar`, `zip`, `office`, `compressed`, `program`, `image`, `pdf`,
    `hdf5`, `numpy`, `report` (of ours, or SARIF), `binary` or `empty`. `name` only decides whether text without any mark of a
    job is a log or just text.
    """
    if not head.strip():
        return "empty"
    if head.startswith(b"SQLite format 3\x00"):
        return "sqlite"
    if coding := encoding(head):
        head = head.decode(coding, "replace").encode("utf-8", "replace")
    if binary := _binary(head):
        return binary
    head = head.removeprefix(b"\xef\xbb\xbf")
    control = len(head) - len(head.translate(None, _CONTROL))
    nccl = NCCL.search(head)
    # Ranks that share one NCCL_DEBUG_FILE leave holes of zero bytes in it, so an NCCL line counts for more than they do.
    if nccl is None and (_zeros(head) or control > len(head) // 50 + head.count(b"\x00")):
        return "binary"
    if _REPORT.match(head):
        return "report"
    if _JSON.match(head) and not _DOCKER.match(head):
        return "json"
    if nccl is not None:
        return "nccl-log"
    if _XML.match(head) and b'<stdout rank="' not in head and b'<stderr rank="' not in head:
        return "xml"
    if _JOB.search(head) or _LOG_NAME.search(name):
        return "job-log"
    return "text"


def no_log(head: bytes) -> str | None:
    """What a file is in which nothing was of use, where it cannot be a log: a script, or JSON other than an object a line."""
    text = head.strip()
    if text.startswith(b"#!/"):
        return "is a script, not a log"
    first, _, more = text.partition(b"\n")
    if _JSON.match(text) and (not first.endswith(b"}") or (not more and _RECORD.search(first) is None)):
        return "is JSON of no kind that is known"
    return None


def _zeros(head: bytes) -> bool:
    """True where zero bytes are part of the content.

    A node that crashes leaves one block of them at the end of a text, a log that was cut while it was written a hole. A program
    that prints a number as a character leaves a few in a long text.
    """
    first = head.find(b"\x00")
    if first >= 0 and not head[first:].strip(b"\x00"):
        return first < 200
    short = [len(zeros) for zeros in re.findall(rb"\x00+", head.rstrip(b"\x00")) if len(zeros) < _HOLE]
    return sum(short) > len(head) // _STRAY


def _binary(head: bytes) -> str | None:
    if compression(head):
        return "compressed"
    if head[257:262] == b"ustar":
        return "tar"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "office" if head.startswith(_OFFICE, _NAME_OF_MEMBER) else "zip"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "pickle"
    return next((kind for magic, kind in PROGRAMS if head.startswith(magic)), None)


def is_hollow(found: os.stat_result) -> bool:
    """Whether less than half of a file lies on the disk."""
    return found.st_size > _SPARSE_FROM and found.st_blocks * _BLOCK < found.st_size // 2


def stat_solid(file: str | os.PathLike[str] | int) -> os.stat_result:
    """The state of a file that lies on the disk, by its path or descriptor. Raises OSError for one that is mostly a hole."""
    found = os.stat(file)  # noqa: PTH116 - also of a descriptor
    if is_hollow(found):
        raise OSError(errno.EFBIG, "a sparse file")
    return found


class SizedFile:
    """The bytes that a file had when it was opened: one that grows faster than it is read would never end."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._left = os.fstat(file.fileno()).st_size or sys.maxsize  # those of the kernel have no size

    def read(self, size: int, /) -> bytes:
        data = self._file.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()


class HollowFile:
    """The bytes of a log that was truncated while its writer went on, or of a sparse file: few zeros in the place of a hole, none in front.

    Where the file system does not tell holes, zeros are read up to the ratio that holds for compressed files. Raises OverflowError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open_regular(path)
        self._place = 0
        self._read = 0
        found = os.fstat(self._file.fileno())
        self._size, self._stored = found.st_size, found.st_blocks * _BLOCK

    def read(self, size: int, /) -> bytes:
        handle, place = self._file.fileno(), self._place
        try:
            data = os.lseek(handle, place, os.SEEK_DATA)
            end = os.lseek(handle, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data up to the end
                self._place = self._size
                return _ZEROS if 0 < place < self._size else b""
            data, end = place, place + size  # the file system knows no holes
        self._place = data
        if 0 < place < data:
            return _ZEROS
        os.lseek(handle, data, os.SEEK_SET)
        piece = os.read(handle, min(size, end - data))
        self._place += len(piece)
        self._read += len(piece)
        if problem := growth_problem(self._read, self._stored):
            raise OverflowError(problem)
        return piece

    def close(self) -> None:
        self._file.close()
