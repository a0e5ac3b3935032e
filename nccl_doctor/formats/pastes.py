"""What people paste into documents, issues, mails and notes: the outputs of commands, each apart.

    ```bash                                     a fence of Markdown, indented or not
    $ sacct -j 4242                             a prompt, or the bare command as the first line of a fence
    JobID           JobName ...
    ```
    > # ibqueryerrors                           quoted in a mail
    > Errors for "node01 mlx5_0"
    Here is what it says:                       below a sentence, indented as a whole, or in the colours of a terminal

A log may hold such marks as well, and keeps its lines: the marks are taken off, nothing else.
"""

import re
from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

LONGEST = 1 << 20  # bytes of a text that is looked at
_NO_BREAK = "\u00a0".encode()  # in the place of a blank, as web pages have it
_COLOUR = compiled(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[ -/]{0,4}[0-Z^-~])")
_PIECES = 400
_PARAGRAPHS = 40  # of a text, that are looked at
_QUOTED_LINES = 3
_FENCE = compiled(rb"([ \t]{0,16}(?:[-*+] )?)(`{3,20}|~{3,20})[ \t]{0,4}[\w{}.+#-]{0,40}[ \t]{0,8}$")
_TOOL = (
    rb"(?:nvidia-smi|dcgmi|rocm-smi|amd-smi|sacct|seff|sstat|scontrol|sinfo|squeue|qacct|qstat|bjobs|kubectl|ib[a-z]{3,20}"
    rb"|perfquery|mlxlink|ethtool|rdma|dmesg|journalctl)"
)
# `$ sacct`, `root@node01:~# nvidia-smi`, `[root@node01 ~]# dcgmi`, `(base) me@node01 ~ % top`, `bash-5.1$ free`, `PS C:\> nvidia-smi`;
# behind other marks, `# sacct`, `> sacct`, `=== ibstat ===` or `+ free`, only the command of a known tool counts
PROMPT = compiled(
    rb"[ \t]{0,16}(?:\([\w.-]{1,40}\) ){0,2}"
    rb"(?:\[[^\]@\s]{1,40}@[^\]\n]{1,80}\] ?[$#%]|[\w.-]{1,40}@[\w.-]{1,80}(?::[^$#%\n|]{0,80}| [^$#%\n:|]{0,40})[$#%>]"
    rb"|(?:ba|z|k|c)?sh-\d[\d.]{0,8}[$#]|PS [A-Z]:[^>\n]{0,120}>)(?: {0,3}(?=[A-Za-z./~])[^\n]*| {0,3})$"
    rb"|[ \t]{0,16}[$%\xe2](?:\x9d\xaf|\x9e\x9c)? {0,3}(?=[A-Za-z./~])[^\n]*$"
    rb"|[ \t]{0,16}(?:#{1,6} {1,3}|={3,10} {0,3}|\+{1,3} |> {1,3})(?:\$ )?(?:sudo )?" + _TOOL + rb"(?:[ :][^\n]*)?$"
)
_COMMAND = compiled(
    rb"(?:sudo )?[a-z][\w./+-]{1,60}(?: [^\n|]{0,400}(?:\| ?(?:grep|head|tail|column|less|sort|tee)[^\n]{0,200})?)?$"
)
_QUOTE = compiled(rb"(?:> ?){1,4}")
_PLAIN_QUOTE = compiled(rb">(?:\s{0,4}$|[ \t]{2}|\t| ?[#$] )")
# a sentence: words without signs that tables and logs have
_PROSE = compiled(
    rb"[ \t]{0,8}(?!Traceback )[\w*\"'(][\w'*\"()`-]{0,30}(?:[ ,;:]{1,3}[\w'*\"()/.`?!-]{1,50}){3,80}[:,]{0,2}[ \t]{0,8}$"
)
_ENDED = compiled(rb"[.?!:,)][ \t]{0,8}$")
_INDENTED = compiled(rb"(?:[ \t]{0,80}\r?\n){0,40}[ \t]{1,16}\S")
_MARK = compiled(
    rb"^(?:[ \t]{0,16}(?:[-*+] )?(?:```|~~~)|" + _PLAIN_QUOTE.pattern + rb"|" + PROMPT.pattern + rb")", re.MULTILINE
)


class Piece(NamedTuple):
    """The output of one command in a text."""

    above: int  # lines of the text in front of it
    text: bytes  # without what its lines are indented by

    def behind_command(self) -> "Piece | None":
        """What follows a first line that may be the bare command; None where that line is none."""
        command, _, output = self.text.partition(b"\n")
        return Piece(self.above + 1, output) if output.strip() and _COMMAND.match(command.strip()) else None

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count(b"\n")


def may_hold(head: bytes) -> bool:
    """Whether a text that begins so may hold outputs that were pasted: a quick look."""
    return (
        is_dressed(head)
        or _INDENTED.match(head) is not None
        or _is_prose(head.split(b"\n", 40)[:40])
        or _MARK.search(head) is not None
    )


def opened(text: bytes) -> tuple[bytes, list[Piece]]:
    """The text without the marks of quotes and fences, with the same number of lines, and the outputs that they or prompts enclose."""
    lines = [line.rstrip(b"\r") for line in undressed(text).split(b"\n")]
    around = "fence" if _unindent(lines) or is_dressed(text) else "log"
    _unquote(lines)
    if _is_prose(lines[:40]):
        around = "prose"
    pieces: list[Piece] = []
    start = 0  # of the lines outside of fences, or inside of the one that is open
    fence: tuple[int, bytes] | None = None  # how far it is indented, and its signs
    for number, line in enumerate(lines):
        mark = _FENCE.match(line) if b"```" in line or b"~~~" in line else None
        if mark is None:
            if fence is not None and fence[0]:
                lines[number] = line[min(fence[0], len(line) - len(line.lstrip(b" \t"))) :]
            continue
        if fence is not None and not (mark[2].startswith(fence[1]) and line.rstrip().endswith(mark[2])):
            continue
        lines[number] = b""
        pieces += _outputs(lines, start, number, around if fence is None else "fence")
        start = number + 1
        fence = (len(mark[1]), mark[2]) if fence is None else None
    pieces += _outputs(lines, start, len(lines), around if fence is None else "fence")
    return b"\n".join(lines), pieces[:_PIECES]


def is_dressed(text: bytes) -> bool:
    """Whether a text holds colours of a terminal, or blanks of a web page."""
    return _NO_BREAK in text or b"\x1b" in text


def undressed(text: bytes) -> bytes:
    """A text without the colours of a terminal, and with plain blanks."""
    return _COLOUR.sub(b"", text.replace(_NO_BREAK, b" ")) if is_dressed(text) else text


def is_session(head: bytes) -> bool:
    """Whether a text begins with the outputs of several commands, each behind its prompt."""
    lines = head.split(b"\n")
    prompts = [number for number, line in enumerate(lines) if PROMPT.match(line.rstrip(b"\r"))]
    return len(prompts) > 1 and any(line.strip() for line in lines[prompts[1] + 1 :])


def unindented(head: bytes) -> bytes | None:
    """A text without the blanks that all its lines begin with; None where there are none."""
    lines = head.split(b"\n") if _INDENTED.match(head) else []
    return b"\n".join(lines) if _unindent(lines) else None


def without(text: bytes, pieces: list[Piece]) -> bytes:
    """The text with blank lines in the place of these pieces."""
    lines = text.split(b"\n")
    for piece in pieces:
        end = min(piece.above + piece.lines, len(lines))
        lines[piece.above : end] = [b""] * (end - piece.above)
    return b"\n".join(lines)


def _is_prose(lines: list[bytes]) -> bool:
    """Whether a text begins with a sentence."""
    first = next((line.rstrip(b"\r") for line in lines if line.strip()), b"")
    return _PROSE.match(first) is not None and _ENDED.search(first) is not None


def _unindent(lines: list[bytes]) -> bool:
    """Take the blanks off that all lines begin with, such as those of a block of code in Markdown; whether there are any."""
    written = [line for line in lines if line.strip()]
    first, last = min(written, default=b""), max(written, default=b"")  # in order: what these share, all do
    deep = next((at for at, sign in enumerate(first) if sign not in b" \t" or not last.startswith(first[: at + 1])), 0)
    if deep:
        lines[:] = [line[deep:] for line in lines]
    return deep > 0


def _unquote(lines: list[bytes]) -> None:
    """Take the marks of mail off: of lines in a row, one of which at least shows that no program wrote the mark."""
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith(b">"):
            end += 1
        if end - start >= _QUOTED_LINES and any(map(_PLAIN_QUOTE.match, lines[start:end])):
            lines[start:end] = [_QUOTE.sub(b"", line, count=1) for line in lines[start:end]]
        start = end + 1


def _outputs(lines: list[bytes], start: int, end: int, where: str) -> list[Piece]:
    """What is behind each prompt between these lines, and what a fence, or a text that people wrote, holds in front of the first one."""
    prompts = [at for at in range(start, end) if PROMPT.match(lines[at])]
    first = prompts[0] if prompts else end
    found = []
    if where == "fence":
        found.append((next((at for at in range(start, first) if lines[at].strip()), first), first))
    elif where == "prose":
        found += _paragraphs(lines, start, first)
    found += [(at + 1, after) for at, after in pairwise([*prompts, end])]
    return [
        Piece(at, b"\n".join(lines[at:after]) + b"\n")
        for at, after in found
        if any(line.strip() for line in lines[at:after])
    ]


def _paragraphs(lines: list[bytes], start: int, end: int) -> list[tuple[int, int]]:
    """From the begin of each paragraph that is no sentence to the next one that is."""
    begins = [
        at
        for at in range(start, end)
        if lines[at].strip() and (at == start or not lines[at - 1].strip() or lines[at - 1].endswith(b":"))
    ]
    ends = [at for at in begins if _PROSE.match(lines[at]) and _ENDED.search(lines[at])]
    outputs = sorted(set(begins).difference(ends))[:_PARAGRAPHS]
    return [(at, next((after for after in ends if after > at), end)) for at in outputs]
