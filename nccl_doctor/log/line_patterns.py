"""Line grammars as data: `patterns/*.toml`, each with sample lines that are tests.

A pattern of ``where = "nccl"`` is matched from the start of the text behind `NCCL INFO` (or another level); of these the first
that matches wins. One of ``where = "text"`` is searched in lines without a launcher prefix; all that match count.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.parse_cache import remembered
from nccl_doctor.knowledge import catalogue as messages
from nccl_doctor.knowledge.templates import LINE, RECORD
from nccl_doctor.log import pattern_openings

FOLDER = Path(__file__).parent / "patterns"
LAST = "core"  # the general grammar: asked after the special ones
UNKNOWN = "unknown"  # what no other pattern knows: asked last
CATALOGUE = "catalogue"  # reader and name of the pattern that stands for all messages of the catalogue
LAST_ERROR = "last-error"  # reader of patterns that repeat a warning of NCCL
_CODE = __file__, pattern_openings.__file__, digit_shapes.__file__  # what is kept of patterns depends on
_KEY = 4  # characters of a message by which patterns are sorted
_LEAD = 2 * _KEY  # characters of a message that choose its candidates
_RARE = 6  # characters of a literal that most blocks of a log do not hold
_LEADS = 20_000  # beginnings remembered
_PRESENT = 1_000  # sets of rare literals remembered for the messages of a beginning


class PatternProblem(Exception):
    """A pattern file that breaks its own rules; the text names file and pattern."""


@dataclass
class Pattern:
    """One line shape."""

    name: str
    where: str
    means: str
    sample: list[str]
    regex: str = ""
    file: str = ""
    order: int = 0
    has: str = ""
    any: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)  # openings of the message, where the regex does not begin with text
    table: str = "message"
    set: dict[str, Any] = field(default_factory=dict)
    level: str = ""
    lines: int = 0  # behind its first one, at most
    least: int = 0  # of these lines: without a match of them no further ones give it a match
    reader: str = ""  # a function of `rows.READERS` that turns list-valued lines into rows
    harmless: bool = False
    nccl_too: bool = False
    any_number: bool = False  # matches a message whatever digits its numbers and addresses have
    fallback: bool = False  # matches only a line that no other pattern knows
    whole: bool = False  # no other pattern reads the further lines of its record
    since: str = ""
    until: str = ""
    miss: list[str] = field(default_factory=list)
    openings: tuple[str, ...] = ()  # of a message of NCCL: what it begins with; an empty one where that is not known
    digits: bool = False  # of a text: may match it and not another one of the same shape (`common.digit_shapes`)

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return compiled(self.regex)

    @cached_property
    def literals(self) -> list[str]:
        """Every matching line contains one of these."""
        return [self.has] if self.has else self.any

    @property
    def deciding(self) -> int:
        """How many lines behind the first one say whether it matches; where it has none, the one over which it may be torn."""
        return self.least or self.lines or 1

    @cached_property
    def rank_groups(self) -> list[str]:
        """Groups that name a rank: comm_rank, nranks and, where the pattern has it, cuda_dev; none where it tells none."""
        groups = [name for name in ("comm_rank", "nranks", "cuda_dev") if f"(?P<{name}>" in self.regex]
        return groups if groups[:2] == ["comm_rank", "nranks"] else []

    def fits(self, level: str) -> bool:
        """Whether lines of a level can have this shape; ATTN took over some of the WARN lines in 2.32."""
        return not self.level or not level or level == self.level or (self.level, level) == ("WARN", "ATTN")

    def may_match_shape(self, text: str) -> bool:
        """Whether a pattern that did not match a text may match another one of its shape."""
        if not self.digits:
            return False
        regex = digit_shapes.relaxed(self.regex)
        return regex is None or regex.search(text) is not None

    def match(self, text: str, level: str = "") -> dict[str, Any] | None:
        """Groups and constants where the text has this shape, else None."""
        if not self.fits(level):
            return None
        if self.reader == CATALOGUE:
            hit = messages.catalogue().find(text, RECORD if level else LINE)
            return None if hit is None else dict(hit.fields)
        if self.starts and not text.startswith(self.openings):
            return None
        match = self.compiled.match(text) if self.where == "nccl" else self.compiled.search(text)
        return None if match is None else {**match.groupdict(), **self.set}


class PatternMatch(NamedTuple):
    pattern: Pattern
    fields: dict[str, Any]


_REQUIRED: dict[str, Any] = {"name": "", "where": "", "means": "", "sample": []}
_PLAIN = Pattern(**_REQUIRED)
_FIELDS = {f.name for f in fields(Pattern)} - {"file", "order", "openings", "digits"}
_ASKS_GRAMMAR = ("headless", "last-error")  # readers that look for another pattern in the text


def _check(entry: dict[str, Any], file: str) -> Pattern:
    name = entry.get("name", "?")
    unknown = set(entry) - _FIELDS
    if unknown:
        raise PatternProblem(f"{file}: pattern {name}: unknown key {', '.join(sorted(unknown))}")
    try:
        pattern = Pattern(**entry, file=file)
    except TypeError as error:
        raise PatternProblem(f"{file}: pattern {name}: {error}") from None
    if pattern.where not in ("nccl", "text"):
        raise PatternProblem(f"{file}: pattern {name}: where must be nccl or text")
    if pattern.where == "text" and not pattern.literals:
        raise PatternProblem(f"{file}: pattern {name}: a text pattern needs `has` or `any`")
    if not pattern.regex and not pattern.starts:
        raise PatternProblem(f"{file}: pattern {name}: neither regex nor starts")
    if not pattern.sample:
        raise PatternProblem(f"{file}: pattern {name}: no sample")
    from nccl_doctor.facts.schema import by_name

    table = by_name().get(pattern.table)
    if table is None:
        raise PatternProblem(f"{file}: pattern {name}: no table {pattern.table}")
    try:
        re.compile(pattern.regex)
    except re.error as error:
        raise PatternProblem(f"{file}: pattern {name}: {error}") from None
    if pattern.where == "nccl":
        pattern.openings = tuple(pattern.starts or sorted(pattern_openings.openings(pattern.regex, _LEAD)))
    else:
        has_digits = any(any(map(str.isdigit, literal)) for literal in map(digit_shapes.zeroed, pattern.literals))
        asks = pattern.reader in _ASKS_GRAMMAR
        pattern.digits = has_digits or asks or digit_shapes.tells_digits_apart(pattern.regex)
    return pattern


def check_columns(pattern: Pattern) -> None:
    """Raise PatternProblem where a group or constant is not a column of the pattern's table."""
    if pattern.table == "message" or pattern.reader:
        return
    from nccl_doctor.facts.schema import by_name, column_types

    columns = set(column_types(by_name()[pattern.table]))
    wrong = (set(pattern.compiled.groupindex) | set(pattern.set)) - columns
    if wrong:
        raise PatternProblem(
            f"{pattern.file}: pattern {pattern.name}: {', '.join(wrong)} are no columns of {pattern.table}"
        )


def read_patterns(file: Path) -> list[Pattern]:
    """The patterns of one file. Raises PatternProblem."""
    import tomllib  # only where the patterns are not kept

    try:
        entries = tomllib.loads(file.read_text("utf-8")).get("pattern", [])
    except tomllib.TOMLDecodeError as error:
        raise PatternProblem(f"{file.name}: {error}") from None
    return [_check(entry, file.stem) for entry in entries]


@cache
def load() -> tuple[Pattern, ...]:
    """All patterns in the order in which they are asked. Raises PatternProblem on a broken file or a name used twice."""
    files = sorted(FOLDER.glob("*.toml"), key=lambda path: (path.stem == UNKNOWN, path.stem == LAST, path.stem))
    sources = [
        *files,
        *messages.catalogue_files(),
        *messages.CODE,
        *map(Path, _CODE),
    ]
    return _kept("patterns", files, sources)


@cache
def load_files(*names: str) -> tuple[Pattern, ...]:
    """The patterns of these files alone, in less time. Raises PatternProblem."""
    files = [FOLDER / f"{name}.toml" for name in names]
    return _kept(f"patterns-{'-'.join(names)}", files, [*files, *map(Path, _CODE)])


def _kept(name: str, files: Sequence[Path], sources: Sequence[Path]) -> tuple[Pattern, ...]:
    entries = remembered(name, sources, lambda: list(_entries(files)))
    return tuple(
        Pattern(**{**_REQUIRED, **entry, "openings": tuple(entry.get("openings", ()))}, order=order)
        for order, entry in enumerate(entries)
    )


def _catalogued(unknown: Sequence[Pattern]) -> Pattern:
    """The pattern of lines that the catalogue knows and no other pattern does; it is asked before those of unknown lines."""
    seen = [literal for pattern in unknown for literal in pattern.literals]
    literals = [*seen, *messages.catalogue().literals(seen)]
    return Pattern(CATALOGUE, "text", "", [], any=literals, reader=CATALOGUE, fallback=True, file=UNKNOWN)


def _entries(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """What the files say, checked, in a form that can be kept: without values that are the default."""
    names: set[str] = set()
    for file in files:
        patterns = read_patterns(file)
        if file.stem == UNKNOWN:
            patterns = [_catalogued(patterns), *patterns]
        for pattern in patterns:
            if pattern.name in names:
                raise PatternProblem(f"{file.name}: pattern {pattern.name} exists twice")
            names.add(pattern.name)
            values = {f.name: getattr(pattern, f.name) for f in fields(Pattern) if f.name != "order"}
            yield {name: value for name, value in values.items() if value != getattr(_PLAIN, name)}


class _Candidate(NamedTuple):
    """What decides whether a pattern matches a message, in the order in which it is asked."""

    has: str
    starts: tuple[str, ...]
    pattern: Pattern


class _Opened(NamedTuple):
    """A pattern by what its messages begin with."""

    leads: tuple[str, ...]  # its openings, of up to `_LEAD` characters
    candidate: _Candidate


class _Candidates:
    """The patterns that messages of one beginning may have; many beginnings share them."""

    def __init__(self, every: list[_Candidate]) -> None:
        self._every = every
        self._of: dict[frozenset[str] | None, list[_Candidate]] = {None: every}

    def of(self, present: frozenset[str] | None, rare: Set[str]) -> list[_Candidate]:
        """Those that need none of the rare literals but the present ones; all where these are not known."""
        found = self._of.get(present)
        if found is None:
            found = [one for one in self._every if one.has not in rare or one.has in (present or ())]
            if len(self._of) < _PRESENT:
                self._of[present] = found
        return found


class Grammar:
    """Finds the patterns of a text without trying them all: by level and by the first characters."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        every = list(patterns)
        self.text = [p for p in every if p.where == "text"]
        self.in_records = [literal for p in self.text if p.nccl_too for literal in p.literals]
        self._nccl = [p for p in every if p.where == "nccl"]
        self.catalogued = next((p for p in every if p.reader == CATALOGUE), None)
        self.rare = {p.has for p in self._nccl if len(p.has) >= _RARE}
        self._by_level: dict[str, tuple[dict[str, list[_Opened]], list[_Opened]]] = {}
        self._by_lead: dict[tuple[str, str], _Candidates] = {}
        self._of_orders: dict[tuple[int, ...], _Candidates] = {}

    @cached_property
    def literals(self) -> frozenset[bytes]:
        """The literals of text patterns."""
        return frozenset(literal.encode() for pattern in self.text for literal in pattern.literals)

    def _index(self, level: str) -> tuple[dict[str, list[_Opened]], list[_Opened]]:
        floating: list[_Opened] = []
        starts: dict[str, list[_Opened]] = {}
        for pattern in self._nccl:
            if not pattern.fits(level):
                continue
            leads = tuple({opening[:_LEAD] for opening in pattern.openings})
            opened = _Opened(leads, _Candidate(pattern.has, pattern.openings if pattern.starts else (), pattern))
            if any(len(lead) < _KEY for lead in leads):
                floating.append(opened)
            else:
                for key in {lead[:_KEY] for lead in leads}:
                    starts.setdefault(key, []).append(opened)
        for group in starts.values():
            group.extend(floating)
            group.sort(key=lambda opened: opened.candidate.pattern.order)
        self._by_level[level] = starts, floating
        return starts, floating

    def nccl(self, body: str, level: str, present: frozenset[str] | None = None) -> Pattern | None:
        """The pattern of the text behind `NCCL LEVEL`, or None.

        `present` are the `rare` literals that occur nearby; patterns that need another one are skipped.
        """
        lead = body[:_LEAD]
        candidates = self._by_lead.get((level, lead))
        if candidates is None:
            if len(self._by_lead) > _LEADS:
                self._by_lead.clear()
            candidates = self._by_lead[level, lead] = self._candidates(level, lead)
        for has, starts, pattern in candidates.of(present, self.rare):
            if (has and has not in body) or (starts and not body.startswith(starts)):
                continue
            if not pattern.regex or pattern.compiled.match(body) is not None:
                return pattern
        return None

    def _candidates(self, level: str, lead: str) -> _Candidates:
        """The patterns of a level that can match a message with this beginning."""
        starts, floating = self._by_level.get(level) or self._index(level)
        found = [
            candidate
            for leads, candidate in starts.get(lead[:_KEY], floating)
            if lead.startswith(leads) or (len(lead) < _LEAD and any(one.startswith(lead) for one in leads))
        ]
        return self._of_orders.setdefault(tuple([one.pattern.order for one in found]), _Candidates(found))

    def records(self, level: str) -> list[Pattern]:
        """The patterns of messages of a level, in the order in which they are asked."""
        return [pattern for pattern in self._nccl if pattern.fits(level)]

    def candidates(self, line: str) -> Iterator[Pattern]:
        """Text patterns of which a literal occurs in the line."""
        for pattern in self.text:
            for literal in pattern.literals:
                if literal in line:
                    yield pattern
                    break


@cache
def grammar() -> Grammar:
    return Grammar(load())


def classify(line: str) -> list[PatternMatch]:
    """The patterns that match one pasted line, with or without launcher prefix, the most specific first."""
    from nccl_doctor.inputs import prefixes
    from nccl_doctor.log import nccl_header

    text = prefixes.clean(line)
    record = nccl_header.split_record(text)
    if record is not None:
        _, level, text = record
        matches = _nccl(text.strip(), level)
    else:
        text = prefixes.split(text)[1]
        matches = _nccl(text, "")  # a pasted line often lacks its head
    for pattern in grammar().candidates(text):
        if record is None or pattern.nccl_too:
            match = pattern.match(text)
            if match is not None:
                matches.append(PatternMatch(pattern, match))
    return matches


def _nccl(text: str, level: str) -> list[PatternMatch]:
    pattern = grammar().nccl(text, level)
    return [PatternMatch(pattern, pattern.match(text, level) or {})] if pattern else []
