"""The automaton of an expression's positions (Glushkov), as far as ambiguity asks for it.

Assertions other than `^` and `\\b` are taken as if they held.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

ALPHABET = "".join(map(chr, range(128))) + "é½\u2003٣한"
FEW = 6  # a repetition of at most so many times is written out
COPIES = 3  # of a part that is repeated more often, but not without end
MANY = 1_000  # one of more than so many times is as good as endless
STATES = 300_000  # of a product of automata, after which the search is given up
_NEWLINE = 1 << ALPHABET.index("\n")
_ANY = (1 << len(ALPHABET)) - 1
_WORD = sum(1 << at for at, sign in enumerate(ALPHABET) if sign.isalnum() or sign == "_")
_ATOM = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\0[0-7]{0,2}|\\[^\d]|[^\\]", re.DOTALL
)
_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})([?+]?)")
_GROUP = re.compile(r"\((?:\?(P<\w+>|P=\w+\)|[:>=!]|<[=!]|[aiLmsux]+[:)]))?")


class NotUnderstood(Exception):
    """A part of an expression that this module does not know."""


@dataclass
class _Part:
    """A part of an expression: the positions with which it begins and ends."""

    first: set[int] = field(default_factory=set)
    anchored: set[int] = field(default_factory=set)  # begins with these at the start of a text or line only
    guarded: set[int] = field(default_factory=set)  # of the first: those behind a `\\b`
    last: set[int] = field(default_factory=set)
    sure: set[int] = field(default_factory=set)  # ends behind which no assertion can fail
    empty: bool = True  # may match nothing
    anchored_empty: bool = False  # may match nothing at the start of a text or line only
    sure_empty: bool = True  # may match nothing, without an assertion
    is_end: bool = False  # is `$` or `\\Z`

    def optional(self) -> "_Part":
        """The part, or nothing."""
        return _Part(self.first, self.anchored, self.guarded, self.last, self.sure)


@cache
def _mask(text: str, flags: int) -> int:
    """The characters of the alphabet that a class or an escape matches, as bits."""
    match = re.compile(text, flags).fullmatch
    return sum(1 << at for at, sign in enumerate(ALPHABET) if match(sign))


class Automaton:
    """The positions of an expression, and which of them can follow each other."""

    def __init__(self, regex: str, flags: int, *, searched: bool, bounded_loops: bool) -> None:
        self.masks: list[int] = []
        self.follow: list[set[int]] = []
        self.atomic: list[tuple[int, ...]] = []  # the atomic groups around each position
        self.twice: set[tuple[int, int]] = set()  # steps that can be made in two ways
        self._regex = regex
        self._at = 0
        self._flags = flags & ~re.DEBUG
        self._bounded_loops = bounded_loops
        self._around: tuple[int, ...] = ()
        self._multiline = bool(flags & re.MULTILINE) or "(?m" in regex
        of_lines = self._multiline or bool(flags & re.DOTALL) or "(?s" in regex or "\\n" in regex or "\\S]" in regex
        self._every = _ANY if of_lines else _ANY & ~_NEWLINE  # a text without line ends, where none is asked for
        self._halves = "\\b" in regex
        part = self._alternatives()
        if self._at < len(regex):
            raise NotUnderstood(f"unbalanced parenthesis in {regex[:80]}")
        self.sure = part.sure
        self.last = part.last
        self.starts = part.first | part.anchored
        if searched:
            self._search(part)

    def _search(self, part: _Part) -> None:
        """Try the expression at each place: a loop over anything before it, and over line ends before `^`."""
        anywhere = self._positions(self._every)
        self._link(anywhere, anywhere)
        self._enter(anywhere, part)
        if self._multiline:
            line_ends = self._positions(_NEWLINE)
            self._link(anywhere, line_ends)
            self._link(line_ends, part.anchored)
        self.starts |= anywhere

    def _positions(self, mask: int) -> set[int]:
        """New positions for a class of characters: one, or one for its word characters and one for the others."""
        halves = (mask & _WORD, mask & ~_WORD) if self._halves else (mask,)
        places = set()
        for half in filter(None, (half & self._every for half in halves)):
            self.masks.append(half)
            self.follow.append(set())
            self.atomic.append(self._around)
            places.add(len(self.masks) - 1)
        return places

    def _link(self, sources: Iterable[int], targets: set[int]) -> None:
        for source in sources:
            self.twice.update((source, target) for target in self.follow[source] & targets)
            self.follow[source] |= targets

    def _enter(self, sources: set[int], part: _Part) -> None:
        """Let a part follow positions; behind a `\\b` only those of the other kind of character."""
        self._link(sources, part.first - part.guarded)
        for place in part.guarded:
            of_words = bool(self.masks[place] & _WORD)
            self._link((one for one in sources if bool(self.masks[one] & _WORD) != of_words), {place})

    # --- reading an expression

    def _takes(self, text: str) -> bool:
        found = self._regex.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return _Part(
            *(
                set().union(*(getattr(part, name) for part in parts))
                for name in ("first", "anchored", "guarded", "last", "sure")
            ),
            *(any(getattr(part, name) for part in parts) for name in ("empty", "anchored_empty", "sure_empty")),
        )

    def _sequence(self) -> _Part:
        whole = _Part()
        while self._at < len(self._regex) and self._regex[self._at] not in "|)":
            if self._takes("\\b"):
                rest = self._sequence()
                rest.guarded = set(rest.first)
                return self._behind(self._behind(whole, _Part(sure_empty=False)), rest)
            whole = self._behind(whole, self._quantified())
        return whole

    def _behind(self, left: _Part, right: _Part) -> _Part:
        self._enter(left.last, right)
        anchored = set(left.anchored)
        if left.anchored_empty:
            anchored |= right.first | right.anchored
        if left.empty:
            anchored |= right.anchored
        return _Part(
            left.first | right.first if left.empty else left.first,
            anchored,
            left.guarded | right.guarded if left.empty else left.guarded,
            left.last | right.last if right.empty else right.last,
            self._certain(left, right),
            left.empty and right.empty,
            (left.anchored_empty and (right.empty or right.anchored_empty)) or (left.empty and right.anchored_empty),
            left.sure_empty and right.sure_empty,
        )

    def _certain(self, left: _Part, right: _Part) -> set[int]:
        """The ends of two parts behind which no assertion can fail; a loop over anything reaches the end of a line."""
        if right.is_end and not self._every & _NEWLINE:
            return {place for place in left.sure if self.masks[place] == self._every and place in self.follow[place]}
        return left.sure | right.sure if right.sure_empty else set(right.sure)

    def _quantified(self) -> _Part:
        start, before = self._at, len(self.masks)
        part = self._atom()
        end = self._at
        found = _QUANTIFIER.match(self._regex, self._at)
        if found is None or found[1] in ("{}", "{,}"):
            return part
        self._at = found.end()
        sign, low, comma, high, more = found.groups()
        if more == "+":
            self.atomic[before:] = [(*around, start) for around in self.atomic[before:]]
        least = {"*": 0, "+": 1, "?": 0}.get(sign, int(low or 0))
        most = {"*": None, "+": None, "?": 1}.get(sign, int(high) if high else (None if comma else least))
        if most is None or most > MANY or (self._bounded_loops and most > FEW):
            self._enter(part.last, part)
            return part if least else part.optional()
        after, whole, before_it = self._at, _Part(), _Part()
        for number in range(most if most <= FEW else COPIES):
            if number:
                self._at = start
                part = self._atom()
                assert self._at == end
            self._enter(before_it.last, part)  # the copies come one behind the other
            joined = self._behind(
                _Part(
                    whole.first,
                    whole.anchored,
                    whole.guarded,
                    set(),
                    whole.sure,
                    whole.empty,
                    whole.anchored_empty,
                    whole.sure_empty,
                ),
                part if number < least else part.optional(),
            )
            whole, before_it = (
                replace(joined, last=whole.last | part.last if number >= least or part.empty else set(part.last)),
                part,
            )
        self._at = after
        return whole

    def _atom(self) -> _Part:
        regex = self._regex
        if regex[self._at] == "(":
            return self._group()
        if self._takes("\\B"):
            return _Part(sure_empty=False)
        if self._takes("^") or self._takes("\\A"):
            return _Part(empty=False, anchored_empty=True, sure_empty=False)
        if self._takes("$") or self._takes("\\Z"):
            return _Part(sure_empty=False, is_end=True)
        found = _ATOM.match(regex, self._at)
        if found is None:
            raise NotUnderstood(regex[self._at : self._at + 20])
        self._at = found.end()
        if self._flags & re.VERBOSE and found[0] == "#":
            self._at = regex.find("\n", self._at) + 1 or len(regex)
            return _Part()
        if self._flags & re.VERBOSE and found[0].isspace():
            return _Part()
        places = self._positions(_mask(found[0], self._flags & ~re.VERBOSE))
        return _Part(first=places, last=places, sure=places, empty=False, sure_empty=False)

    def _group(self) -> _Part:
        """A group, an assertion or a flag, from its parenthesis on."""
        found = _GROUP.match(self._regex, self._at)
        assert found is not None
        start, self._at, kind = self._at, found.end(), found[1] or ""
        if kind.startswith("P="):  # the text of a group before
            places = self._positions(_ANY)
            return _Part(first=places, last=places, sure=places)
        if kind == "" and self._regex.startswith("?", self._at):
            raise NotUnderstood(self._regex[self._at - 1 : self._at + 20])
        flags, around = self._flags, self._around
        if re.fullmatch("[aiLmsux]+[:)]", kind):
            self._flags |= sum(getattr(re, letter.upper()) for letter in kind[:-1])
            if kind.endswith(")"):
                return _Part()
        if kind == ">":
            self._around = (*around, start)
        part = self._alternatives()
        if not self._takes(")"):
            raise NotUnderstood(f"a group without end in {self._regex[:80]}")
        self._flags, self._around = flags, around
        if kind in ("=", "!"):  # another way, which ends there
            return _Part(first=part.first, anchored=part.anchored, guarded=part.guarded, sure_empty=False)
        return _Part(sure_empty=False) if kind in ("<=", "<!") else part

    # --- what it tells

    def matches(self, text: str) -> bool:
        """Whether the beginning of a text of the alphabet is a match, if assertions hold."""
        states = self.starts
        for sign in text:
            bit = 1 << ALPHABET.index(sign)
            states = {state for state in states if self.masks[state] & bit}
            if states & self.last:
                return True
            states = set().union(*(self.follow[state] for state in states))
        return False

    def loops(self) -> list[set[int]]:
        """The positions that can follow themselves, in groups that reach each other."""
        reach = {place: self.reachable(place) for place in range(len(self.masks))}
        groups: list[set[int]] = []
        for place in (place for place in reach if place in reach[place]):
            group = next((one for one in groups if min(one) in reach[place] and place in reach[min(one)]), None)
            if group is None:
                groups.append({place})
            else:
                group.add(place)
        return groups

    def reachable(self, place: int) -> set[int]:
        """The positions that can come behind one, at any distance."""
        seen: set[int] = set()
        waiting = [place]
        while waiting:
            more = self.follow[waiting.pop()] - seen
            seen |= more
            waiting += more
        return seen

    def path(self, start: tuple[int, ...], goal: tuple[int, ...], within: tuple[set[int], ...]) -> str | None:
        """A text that takes several runs of the automaton at once from a start to a goal; None where there is none.

        Each run stays in its own set of positions.
        """
        came: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {start: (start, 0)}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            for after, mask in self._steps(state, within):
                if after == goal:
                    return self._text(came, state, start) + readable(mask)
                if after not in came:
                    came[after] = state, mask
                    waiting.append(after)
            if len(came) > STATES:
                raise NotUnderstood("too many states")
        return None

    def _steps(self, state: tuple[int, ...], within: tuple[set[int], ...]) -> list[tuple[tuple[int, ...], int]]:
        found: list[tuple[tuple[int, ...], int]] = [((), _ANY)]
        for place, allowed in zip(state, within, strict=True):
            following = self.follow[place] & allowed
            found = [
                ((*places, after), both)
                for places, mask in found
                for after in following
                if (both := mask & self.masks[after])
            ]
        return found

    @staticmethod
    def _text(
        came: dict[tuple[int, ...], tuple[tuple[int, ...], int]], state: tuple[int, ...], start: tuple[int, ...]
    ) -> str:
        signs: list[str] = []
        while state != start:
            state, mask = came[state]
            signs.append(readable(mask))
        return "".join(reversed(signs))

    def beginning(self, place: int) -> str:
        """A text that leads to a position and ends with it."""
        every = set(range(len(self.masks)))
        for start in sorted(self.starts, key=lambda one: one != place):
            text = "" if start == place else self.path((start,), (place,), (every,))
            if text is not None:
                return readable(self.masks[start]) + text
        return ""


def readable(mask: int) -> str:
    """One of the characters of a mask, a readable one if there is one."""
    preferred = "a1 0Ax:.,-/'\"[]()=_"
    return next((sign for sign in preferred if mask >> ord(sign) & 1), ALPHABET[(mask & -mask).bit_length() - 1])
