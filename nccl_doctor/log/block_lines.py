"""The lines of a block: around a place, and behind one."""

from collections.abc import Iterator

from nccl_doctor.common import digit_shapes
from nccl_doctor.log.multiline import LineBehind, NextLines, line_behind


class BlockLines:
    """The lines behind places of a block, each looked at once."""

    def __init__(self, block: bytes, ahead: int) -> None:
        """`ahead` is how many bytes behind a line the lines of its record are looked for."""
        self._block = block
        self._ahead = ahead
        self._lines: dict[int, tuple[str, int]] = {}  # by where they begin; and where the next one begins
        self._behind: dict[int, tuple[LineBehind, int]] = {}  # the same

    def after(self, stop: int) -> NextLines:
        """A function that gives the lines behind the one that stops there."""

        def following(count: int) -> list[str]:
            lines, begin = list[str](), min(stop + 1, len(self._block))
            at, limit = begin, begin + self._ahead
            while len(lines) < count:
                line, at = self._line(at, limit)
                lines.append(line)
                if at < 0:
                    break
            return lines

        return following

    def behind(self, stop: int) -> Iterator[LineBehind]:
        """What the lines behind the one that stops there say."""
        at = min(stop + 1, len(self._block))
        limit = at + self._ahead
        known = self._behind
        while at >= 0:
            found = known.get(at)
            if found is None or found[1] > limit:
                line, end = self._line(at, limit)
                found = line_behind(line), end
                if end >= 0:
                    known[at] = found
            line_found, at = found
            yield line_found

    def next_lines(self, stop: int, count: int) -> bytes:
        """So many lines behind the one that stops there, each behind its line break; empty where they are long, binary or have no end."""
        end = stop
        for _ in range(count):
            end = self._block.find(b"\n", end + 1, end + 2 + digit_shapes.LONGEST)
            if end < 0:
                return b""
        lines = self._block[stop:end]
        return b"" if b"\0" in lines else lines

    def note(self, start: int, stop: int, line: LineBehind) -> None:
        """Remember what the line from `start` to `stop` says; the last one of a log may have no end."""
        if stop < len(self._block):
            self._behind[start] = line, stop + 1

    def _line(self, at: int, limit: int) -> tuple[str, int]:
        """The line that begins there, and where the next one begins; -1 where this one does not end before the limit."""
        known = self._lines.get(at)
        if known is None or known[1] > limit:
            end = self._block.find(b"\n", at, limit)
            if end < 0:
                return self._block[at:limit].decode("utf-8", "replace"), -1
            known = self._lines[at] = self._block[at:end].decode("utf-8", "replace"), end + 1
        return known


def around(block: bytes, at: int) -> tuple[int, int, int, int]:
    """The line that holds an offset: its start, where its text begins and ends that no carriage return wiped, its end."""
    start = block.rfind(b"\n", 0, at) + 1
    stop = block.find(b"\n", at)
    stop = len(block) if stop < 0 else stop
    bar = block.rfind(b"\r", start, at) + 1
    done = block.find(b"\r", at, stop)
    return start, max(start, bar), stop if done < 0 else done, stop
