"""Names of hosts as collecting tools write them: one word, or a list such as `node[01-02,04],login1`."""

import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.prefix_checks import kind_of

_HOST = compiled(
    r"(?=[^\s\d]{0,200}\d|[\w-]{1,63}\.[\w-]{1,63}\.)[A-Za-z][A-Za-z0-9-]{0,62}(?:[._][A-Za-z0-9-]{1,63}){0,8}"
)
# Where a whole line names the writer, `ib01` is a node; with one digit it is a device.
_PADDED = compiled(r"(?:gpu|ib|worker|job|p|r|v)-?(?:0\d{1,3}|[1-9]\d{1,3})")
_DEVICE = compiled(r"(?:GPU|NIC|CPU)\d{1,3}|gpu\d")
_LIST = compiled(
    r"[A-Za-z0-9][\w.-]{0,252}(?:\[[\d,-]{1,4000}\][\w.-]{0,100})?(?:,[A-Za-z0-9][\w.-]{0,252}(?:\[[\d,-]{1,4000}\][\w.-]{0,100})?){0,500}"
)
_PART = compiled(r"([\w.-]+)(?:\[([\d,-]+)\]([\w.-]*))?")
_MOST = 4_096  # hosts of one list


def is_name(word: str) -> bool:
    """Whether a word looks like the name of a host: letters with a number, or several labels; not a device or a counter."""
    if _DEVICE.fullmatch(word):
        return False
    return _HOST.fullmatch(word) is not None and (not kind_of(word)[0] or _PADDED.fullmatch(word) is not None)


def expand(text: str) -> tuple[str, ...]:
    """The hosts of a list, at most 4,096; none where it is no list of names that look like hosts.

    ClusterShell would make all names of `n[1-999999999]` before the first can be counted.
    """
    if not _LIST.fullmatch(text):
        return ()
    names = []
    for name in _parts(text):
        names.append(name)
        if len(names) >= _MOST:
            break
    return tuple(names) if all(map(is_name, names)) else ()


def _parts(text: str) -> Iterator[str]:
    for stem, numbers, rest in _PART.findall(text):
        if not numbers:
            yield stem
        for one in numbers.split(",") if numbers else ():
            first, _, last = one.partition("-")
            if not first.isdecimal() or not (last or first).isdecimal() or len(first) > 9 or len(last) > 9:
                return
            for number in range(int(first), min(int(last or first), int(first) + _MOST) + 1):
                yield f"{stem}{number:0{len(first)}}{rest}"


def same_stem(names: set[str]) -> bool:
    """Whether names differ in their numbers only."""
    return len({re.sub(r"\d+", "#", name) for name in names}) == 1
