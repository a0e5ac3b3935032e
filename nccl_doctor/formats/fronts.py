"""What a script printed in front of something else: where it ends, and the part of a stream that it is.

nvidia-smi -q; ibstat; srun python train.py        three outputs in one file, the first of which begins it
{"nodes": [ ... ]}                                 a document of JSON, and behind it the log of the job
Name:   node01                                     `kubectl describe node`, and behind it the log of the job
"""

import io
import re
from collections.abc import Collection, Sequence

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format
from nccl_doctor.formats.job_lines import job_lines
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_ahead

FURTHER = 1 << 20  # bytes within which something else begins
_SHORTEST = 6  # letters of a literal that tells the output of another command from other text
_LARGE = 1 << 17  # bytes of a text in which the literals are looked for together
_TIMES = 20  # a literal is looked for again where it is part of the front; lines between a title and one below it
# the end of a line that closes a document, and in the next one what no value of JSON begins with
_BEHIND_JSON = compiled(
    rb"[}\]][ \t]{0,80}\r?\n(?:[ \t]{0,80}\r?\n){0,40}(?=(?!true\b|false\b|null\b|NaN\b|Inf)[A-Za-z=#|+*(<]"
    rb"|\[(?:[A-Za-z]|20\d\d[-/]))"
)
_KEY = compiled(rb"[A-Za-z][\w./-]{0,80}:(?: |\r?$)|-(?: |-- ?\r?$)", re.MULTILINE)
_SEPARATORS = (b",", b"\t", b";")


def end_of_front(known: Format, text: bytes, others: Sequence[bytes] = ()) -> int | None:
    """Where a text that begins as this format goes on as something else: as the log of a job, or with one of these literals.

    None where it does not, or where its format is not declared to be printed in front of anything.
    """
    if begins_json(text):
        found = _BEHIND_JSON.search(text)
        is_one = found is not None and b"\n{" not in text[: found.end()].strip()
        return found.end() if found is not None and is_one else None
    if not known.leads:
        return None
    job = next((place for place in job_lines(text) if not known.quotes or _is_unlike(text, place)), None)
    begins = (_begin_of(known, text, literal) for literal in _present(known, text, others))
    end = min((place for place in (job, *begins) if place is not None), default=None)
    return _first_unlike(text, end) if end is not None and known.quotes else end


def _present(known: Format, text: bytes, others: Sequence[bytes]) -> Collection[bytes]:
    """The literals that tell the output of another command, as far as a text may hold them: in a large one those that it holds."""
    telling = [literal for literal in others if len(literal.strip()) >= _SHORTEST]
    if len(text) < _LARGE:  # to load the automaton takes longer
        return telling
    return prefilter(frozenset(), frozenset(telling), f"front-{known.kind}").scan(text)[1]


def _begin_of(known: Format, text: bytes, literal: bytes) -> int | None:
    """Where the first line begins that holds a literal and is not part of the front. A literal may begin with the line end in front."""
    at = -1
    for _ in range(_TIMES):
        at = text.find(literal, at + 1)
        if at < 0:
            return None
        start = text.rfind(b"\n", 0, at + literal.startswith(b"\n")) + 1
        if known.quotes:
            start = _title_above(text, start)
        if start and (not known.quotes or _is_unlike(text, start)):
            return start
    return None


def _title_above(text: bytes, start: int) -> int:
    """Where the line begins below which a line is indented."""
    for _ in range(_TIMES):
        if start and text[start : start + 1].isspace():
            start = text.rfind(b"\n", 0, start - 1) + 1
    return start


def _first_unlike(text: bytes, end: int) -> int:
    """Where the first of the lines up to `end` begins that is not one of the text above it: what jobs print first may tell nothing."""
    at = text.find(b"\n") + 1
    while at < end and (text[at : at + 1] in (b"#", b"\n", b"\r") or not _is_unlike(text, at)):
        at = text.find(b"\n", at) + 1
    return at


def _is_unlike(text: bytes, place: int) -> bool:
    """Whether a line is none of those of the text above it: not indented, not a key of YAML, and of other cells than the titles."""
    if text[place : place + 1].isspace() or _KEY.match(text, place):
        return False
    end = text.find(b"\n", place)
    title, line = text.partition(b"\n")[0], text[place : end if end >= 0 else len(text)]
    separator = next((one for one in _SEPARATORS if one in title), None)
    return separator is None or line.count(separator) != title.count(separator)


def front_of(known: Format, stream: Readable, others: Sequence[bytes] = ()) -> Readable:
    """The part of a stream that its format takes; all of it where nothing else follows."""
    head = read_ahead(stream, FURTHER)
    end = end_of_front(known, head, others)
    return Joined(head, stream) if end is None else io.BytesIO(head[:end])
