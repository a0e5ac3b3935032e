"""What a text must begin with to match a regular expression: reads the literal start of an expression.

`(?:Init|Destroy) (?:START|COMPLETE)? comm` gives `Init ` and `Destroy ` followed by what comes next, up to a length. Reading
stops at the first part that can be many texts (`\\d`, `.`, a range, a repetition). A part that this reader does not know counts as
such a part, so that an opening is never wrong, only shorter than it could be.
"""

_MOST = 200  # openings of one expression; with more of them the start counts as unknown
_ZERO_WIDTH = "bBAZ"  # escapes that take no character
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_REPETITION = "*+{"
_ASSERTIONS = ("?=", "?!", "?<=", "?<!")
_GROUPS = (*_ASSERTIONS, "?:", "?P<", "?P=", "?(", "?")

Starts = set[tuple[str, bool]]  # literal text, and whether what follows it is known too
_EMPTY: Starts = {("", True)}
_UNKNOWN: Starts = {("", False)}


def openings(regex: str, length: int) -> set[str]:
    """The texts with which a match can begin, of up to `length` characters or a few more; an empty one where it is not known."""
    if "(?i" in regex or "(?x" in regex:  # letters of both cases, blanks that do not count
        return {""}
    return {text for text, _ in _Expression(regex, length).alternatives()}


class _Expression:
    """A regular expression that is read from left to right."""

    def __init__(self, regex: str, length: int) -> None:
        self._regex = regex
        self._at = 0
        self._length = length

    def alternatives(self) -> Starts:
        """What `a|b|c` starts with, up to its end or a closing parenthesis."""
        starts = self._sequence()
        while self._takes("|"):
            starts = starts | self._sequence()
        return starts

    def _sequence(self) -> Starts:
        starts = _EMPTY
        while self._at < len(self._regex) and self._regex[self._at] not in "|)":
            step = self._quantified(self._part())
            starts = self._joined(starts, step)
        return starts

    def _joined(self, starts: Starts, step: Starts) -> Starts:
        """Each start that is still open, followed by each text of the next part."""
        joined: Starts = set()
        for text, is_open in starts:
            if is_open:
                joined |= {(text + more, go_on and len(text + more) < self._length) for more, go_on in step}
            else:
                joined.add((text, False))
        return joined if len(joined) <= _MOST else _UNKNOWN

    def _quantified(self, step: Starts) -> Starts:
        """The start of a part with the quantifier behind it."""
        regex = self._regex
        if self._at >= len(regex) or regex[self._at] not in "?" + _REPETITION:
            return step
        quantifier = regex[self._at]
        self._at = regex.index("}", self._at) + 1 if quantifier == "{" else self._at + 1
        if self._at < len(regex) and regex[self._at] in "?+":  # lazy or possessive
            self._at += 1
        if quantifier == "?":
            return step | _EMPTY
        return {(text, False) for text, _ in step} if quantifier == "+" else _UNKNOWN

    def _part(self) -> Starts:
        """The start of one character, class or group."""
        if self._takes("("):
            return self._group()
        if self._takes("["):
            return self._class()
        character = self._next()
        if character == "\\":
            return self._escape()
        if character in "^$":
            return _EMPTY
        return _UNKNOWN if character == "." else {(character, True)}

    def _escape(self) -> Starts:
        character = self._next()
        if character in _ZERO_WIDTH:
            return _EMPTY
        if character in _CONTROL:
            return {(_CONTROL[character], True)}
        return _UNKNOWN if character.isalnum() else {(character, True)}

    def _group(self) -> Starts:
        """A group behind its opening parenthesis; an assertion takes no character."""
        kind = next((kind for kind in _GROUPS if self._takes(kind)), "")
        if kind in ("?P<", "?P=", "?(", "?"):  # up to the end of a name, or of flags
            self._at = self._regex.index({"?P<": ">", "?": ":"}.get(kind, ")"), self._at) + 1
        if kind == "?P=":  # the text of a group before
            return _UNKNOWN
        starts = self.alternatives()
        self._at += 1
        if kind == "?(":  # one of two, depending on a group before
            return _UNKNOWN
        return _EMPTY if kind in _ASSERTIONS else starts

    def _class(self) -> Starts:
        """`[abc]`, of which each character is a start; unknown where it has ranges, kinds of characters, or is negated."""
        starts: Starts = set()
        known = not self._takes("^")
        first = self._at
        while (character := self._next()) != "]" or self._at == first + 1:
            is_range = character == "-" and self._at > first + 1 and self._regex[self._at] != "]"
            step = self._escape() if character == "\\" else {(character, True)}
            known = known and not is_range and step not in (_EMPTY, _UNKNOWN)
            starts |= step
        return starts if known else _UNKNOWN

    def _takes(self, text: str) -> bool:
        """Step over a text if it comes next."""
        found = self._regex.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _next(self) -> str:
        self._at += 1
        return self._regex[self._at - 1]
