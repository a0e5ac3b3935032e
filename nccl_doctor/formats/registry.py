"""The formats of all families: recognises a file by how it begins, a table inside a log by its literals, and calls the reader.

Formats are found by listing the folders beside this module; see `declaration` for what a folder declares.
"""

import importlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.part import PartFacts
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats import fronts
from nccl_doctor.formats.declaration import Format, Reader, Reading
from nccl_doctor.formats.headings import Sections
from nccl_doctor.formats.pastes import Piece
from nccl_doctor.formats.windows import Windows
from nccl_doctor.inputs import exports, labelled
from nccl_doctor.inputs.detect import NCCL, begins_json
from nccl_doctor.inputs.streams import InputProblem, Readable
from nccl_doctor.inputs.text_lines import Joined, Translated, read_ahead, read_head

_HEAD_BYTES = 1 << 16  # within which formats are recognised
_LEAD_LINES = 20
# `[root@node01 ~]# dcgmi nvlink`, `root@node01:~# nvidia-smi`, `PS C:> nvidia-smi`
_SHELL_PROMPT = compiled(
    rb"^(?:\[[^\]@\s]{1,40}@[^\]\n]{1,80}\][$#]|[\w.-]{1,40}@[\w.-]{1,80}:[^$#\n]{0,80}[$#]|PS [A-Z]:[^>\n]{0,120}>) ?\S[^\n]*",
    re.MULTILINE,
)


def _declared() -> dict[Format, str]:
    """Every declared format and the package of its family."""
    families = sorted(entry.parent.name for entry in Path(__file__).parent.glob("*/__init__.py"))
    packages = [importlib.import_module(f"nccl_doctor.formats.{family}") for family in families]
    return {known: package.__name__ for package in packages for known in package.FORMATS}


def ordered(formats: Iterable[Format]) -> tuple[Format, ...]:
    """The formats by name, each behind those that it is declared to come after.

    Raises ValueError where a name in `after` is unknown or the declarations form a cycle.
    """
    waiting = sorted(formats, key=lambda known: known.kind)
    done: list[Format] = []
    while waiting:
        placed = {known.kind for known in done}
        ready = next((known for known in waiting if placed.issuperset(known.after)), None)
        if ready is None:
            raise ValueError(f"formats wait for each other: {', '.join(known.kind for known in waiting)}")
        waiting.remove(ready)
        done.append(ready)
    return tuple(done)


_PACKAGES = _declared()
FORMATS: Sequence[Format] = ordered(_PACKAGES)  # in the order in which they are tried


def recognise(head: bytes) -> Format | None:
    """The format of a file that starts with these bytes; None for a log, also for one that starts with the output of a command."""
    known = _recognise(head)
    return None if known is not None and goes_on(known, head) else known


def goes_on(known: Format, text: bytes) -> bool:
    """Whether a file that starts as this format goes on as the log of a job or with outputs of others, as this text of it shows."""
    return fronts.end_of_front(known, text, _others(known)) is not None


@lru_cache
def _others(known: Format) -> tuple[bytes, ...]:
    """Literals of other formats. Those of steps are in any line, and what holds one is a line of a job or nothing."""
    found = (other for other in FORMATS if other is not known and not other.last and other.kind != "training-steps")
    return tuple(sorted({literal for other in found for literal in other.inside}.difference(known.inside)))


def _recognise(head: bytes) -> Format | None:
    """The format whose output a file starts with."""
    head = _opened(head)
    found = _begins(head)
    if found is None and (lead := _lead(head)):
        found = _begins(head[lead:])
    if found is None and (behind := _behind_prefixes(head)) is not None:
        found = behind[0]
    if found is None and (cells := _separators(head)) is not None:
        found = _begins(head.translate(cells))
    return found


def _separators(head: bytes) -> bytes | None:
    """What makes a table with commas and decimal points of one that a spreadsheet wrote with `;` or tabs; None for other text."""
    title = head.partition(b"\n")[0]
    separator = next((one for one in (b";", b"\t") if title.count(one) >= 2), None)
    return None if separator is None or b"," in title else bytes.maketrans(separator + b",", b",.")


def _opened(head: bytes) -> bytes:
    """The first bytes without the records of Docker's json-file driver around the lines."""
    if not exports.is_docker(head):
        return head
    whole = head[: head.rfind(b"\n") + 1] or head
    return exports.Exported(io.BytesIO(whole), "docker").read(2 * _HEAD_BYTES)


def _behind_prefixes(head: bytes) -> tuple[Format, labelled.Behind] | None:
    """The format that all lines show behind the prefixes of a launcher, and these prefixes; None for logs."""
    if NCCL.search(head):
        return None
    found = ((_begins(behind.text), behind) for behind in labelled.unlabelled(head))
    return next(((known, behind) for known, behind in found if known is not None), None)


def _begins(head: bytes) -> Format | None:
    return next((known for known in FORMATS if known.begins is not None and known.begins.search(head)), None)


def _lead(head: bytes) -> int:
    """Bytes in front of a captured output: a byte order mark, blank lines, and the prompt under which its command was typed.

    Zero for a session of several commands, which is read as a log: what one of them printed is not all there is.
    """
    at = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    for _ in range(_LEAD_LINES):
        end = head.find(b"\n", at)
        if end < 0 or (head[at:end].strip() and not _SHELL_PROMPT.match(head, at, end)):
            break
        at = end + 1
    if not at:
        return 0
    later = _SHELL_PROMPT.search(head, at)
    return 0 if later is not None and head[later.end() :].strip() else at


def _without_lead(known: Format, stream: Readable) -> Readable:
    """The stream with blank lines for what `_lead` finds and for a prompt at its end, so that lines keep their numbers."""
    if known.begins is None:
        return stream
    head = read_head(stream, _HEAD_BYTES)
    lead = _lead(head)
    if lead and known.begins.search(head) is None and known.begins.search(head[lead:]):
        head = head[:lead].count(b"\n") * b"\n" + head[lead:]
    last = _SHELL_PROMPT.search(head) if len(head) < _HEAD_BYTES else None
    if last is not None and not head[last.end() :].strip():
        head = head[: last.start()] + head[last.end() :]
    return Joined(head, stream)


def is_known(head: bytes) -> bool:
    """Whether some reader other than that of logs takes a file that starts with these bytes."""
    return _recognise(head) is not None


def is_logged(known: Format, head: bytes) -> bool:
    """Whether a file that begins so is read as a log that holds this format."""
    return known.logged and any(literal in head for literal in known.inside)


def within(seen: Iterable[bytes], head: bytes, *, led: bool = False) -> list[Format]:
    """The formats of which a literal is among those seen in a log, and that with which it starts; `led` where it is known to."""
    literals = set(seen)
    lead = _recognise(head)
    leads = lead is not None and (led or lead.leads or goes_on(lead, head))
    found = (known for known in FORMATS if literals.intersection(known.inside) or (known is lead and leads))
    return [known for known in found if not known.last]


def of_other_text() -> list[Format]:
    """The formats that are tried on text that no other reader could use."""
    return [known for known in FORMATS if known.last and not known.inside]


def of_other_loops(seen: Iterable[bytes]) -> list[Format]:
    """The formats that are tried on logs of which no reader knows the step lines, by the literals seen in one."""
    literals = set(seen)
    return [known for known in FORMATS if known.last and literals.intersection(known.inside)]


def read_file(known: Format, stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file with the reader of its format; an error ends this file, not the analysis, and the note names it.

    A ValueError is a value that the reader cannot use, such as a number of thousands of digits. A TypeError or LookupError is
    a mistake in the reader, and the note says so. With NCCL_DOCTOR_DEBUG set errors are raised.
    """
    reader: Reader = importlib.import_module(f"{_PACKAGES[known]}.{known.module}")
    try:
        head = read_head(stream, _HEAD_BYTES)
        stream = Joined(head, stream)
        if exports.is_docker(head):
            head, stream = _opened(head), exports.Exported(stream, "docker")
        behind = _behind_prefixes(head) if known.begins is not None and _begins(head) is None else None
        if behind is not None and behind[0] == known:
            return _read_parts(reader, stream, behind[1], name, facts)
        cells = _separators(head) if known.begins is not None and _recognise(head) == known else None
        if cells is not None and _begins(head) is None:
            stream = Translated(stream, cells)
        return reader.read_format(_without_lead(known, stream), name, facts)
    except (ValueError, ArithmeticError, TypeError, LookupError) as error:
        if os.environ.get("NCCL_DOCTOR_DEBUG"):
            raise
        own = isinstance(error, TypeError | LookupError)
        what = (
            f"a bug in our reader of {known.kind} ended the reading" if own else f"read only in part, as {known.kind}"
        )
        return Reading(0, 0, f"{what}: {type(error).__name__}: {error}".split("\n")[0][:200])


def read_inside(known: Format, stream: Readable, name: str, facts: Facts) -> Reading:
    """Read what a log holds of a format, as `read_file` does, where its literals and their reach say that it may be.

    A format without literals, or a document of JSON, is read as far as nothing else follows.
    """
    head = read_ahead(stream, _HEAD_BYTES)
    stream = Joined(head, stream)
    if not known.inside or (begins_json(head) and _recognise(head) == known):
        return read_file(known, fronts.front_of(known, stream, _others(known)), name, facts)
    if known.reach is None:
        return read_file(known, stream, name, facts)
    near = Windows(stream, known.inside, known.reach, f"inside-{known.kind}")
    part: Windows | Sections = near
    source_line = near.source_line
    if known.heading is not None:
        sections = part = Sections(near, known.heading, opened=_recognise(head) == known)
        source_line = lambda line: near.source_line(sections.source_line(line))  # noqa: E731
    rows = PartFacts(facts, name, None, source_line, [])
    try:
        reading = read_file(known, part, name, cast(Facts, rows))
    finally:
        rows.flush()
    return reading._replace(lines=near.lines)


def read_piece(known: Format, piece: Piece, name: str, facts: Facts) -> Reading:
    """Read one of the outputs that stand in a text, as if it were a file of its own; evidence names the lines of the text."""
    waiting: list[Any] = []
    rows = PartFacts(facts, name, None, lambda line: line + piece.above, waiting)
    try:
        return read_file(known, io.BytesIO(piece.text), name, cast(Facts, rows))
    except InputProblem as problem:
        return Reading(0, 0, f"read only in part: {problem.reason}")
    finally:
        facts.add(waiting)


def _read_parts(reader: Reader, stream: Readable, behind: labelled.Behind, name: str, facts: Facts) -> Reading:
    """Read what each writer wrote into a file. The tasks of srun have no host: where there are several, their number stands for it."""
    parts = labelled.Parts(stream, behind.peels)
    lines = used = 0
    note = None
    waiting: list[Any] = []
    try:
        for part in parts:
            host = part.label.host
            if host is None and part.label.rank is not None and behind.several:
                host = f"task {part.label.rank}"
            rows = cast(Facts, PartFacts(facts, name, host, part.source_line, waiting))
            reading = reader.read_format(part.stream, name, rows)
            lines, used, note = lines + reading.lines, used + reading.understood, note or reading.note
    finally:
        facts.add(waiting)
    if parts.problem is not None:
        note = note or f"read only in part: {parts.problem}"
    return Reading(lines, used, note)
