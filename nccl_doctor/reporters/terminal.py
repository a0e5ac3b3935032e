"""Reports for the terminal: verdict, why, next. The first line is the answer; a usual report fits on one screen."""

from dataclasses import dataclass, replace
from io import StringIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Span, Text

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.report import JOBS, Finding, Place, Report
from nccl_doctor.reporters import Options, short, words
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.measured import SHOWN, aligned, measure_tables
from nccl_doctor.reporters.words import clean, clean_block

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
    "healthy": "bold green",
    "nothing-found": "bold blue",
    "inconclusive": "bold magenta",
}
LABEL = 9  # width of the column with the section names, in columns of the terminal
ASCII = str.maketrans({"·": "-", "…": "~", "→": ">"})
NCCL = " NCCL "  # separates the header of an NCCL line from its text
UNLIMITED = 10**6
MORE = " … (-v)"  # marks cut text
_FAR = 4  # times the width of a row, within which a word ends that may fit
_WORDS = compiled(r"[^\s`]*`[^`\s][^`]*`\S*|\S+")  # short code in backticks is not broken


@dataclass(frozen=True)
class Caps:
    """The maximum number of lines of each section."""

    below: int = 1  # of the title and of its hosts, if they do not fit beside the verdict
    why: int = 4
    evidence: int = 3  # places
    evidence_rows: int = 2  # of one place
    fix: int = 14
    follows: int = 4
    also: int = 4
    job: int = 5
    unread: int = 3
    read: int = 2
    note: int = 4  # of one input
    notes: int = 4  # inputs with one
    coverage: int = 2
    missing: int = 2
    gaps: int = 1  # blank lines between sections


ALL = Caps(*[UNLIMITED] * 14)
# The order in which sections give way until the report fits on the screen.
SQUEEZE = (
    {"evidence": 2},
    {"gaps": 0},
    {"also": 3, "follows": 3, "missing": 1},
    {"coverage": 1, "note": 2, "notes": 2},
    {"evidence": 1},
    {"job": 4},
    {"also": 2, "follows": 2},
    {"job": 3},
    {"evidence_rows": 1},
    {"fix": 10, "coverage": 0, "missing": 0, "notes": 1},
    {"fix": 8},
    {"also": 1, "follows": 1},
    {"why": 3},
    {"fix": 6},
    {"why": 2, "job": 2, "fix": 4},
)


def render(report: Report, options: Options) -> str:
    """Returns the report for `options.width` columns, cut to `options.height` lines unless `options.verbose`.

    Of several jobs it shows one line each, and the worst one or, with `verbose`, all in full.
    """
    if report.jobs:
        shown = report.jobs if options.verbose else [] if words.is_answer(report) else report.jobs[:1]
        whole = [f"{clean(job.name)}\n{render(job, options)}" for job in shown]
        return "\n".join([_printed(_Screen(report, options, ALL).overview(), options), *whole])
    if options.verbose:
        return _printed(_Screen(report, options, ALL).lines(), options)
    caps = Caps()
    lines = _Screen(report, options, caps).lines()
    for smaller in SQUEEZE:
        if len(lines) < options.height:  # one line stays free for the prompt
            break
        caps = replace(caps, **smaller)
        lines = _Screen(report, options, caps).lines()
    return _printed(lines, options)


class _Screen:
    """Lays the report out within some caps."""

    def __init__(self, report: Report, options: Options, caps: Caps) -> None:
        self.report = report
        self.width = max(options.width, 30)
        self.body = self.width - LABEL
        self.verbose = options.verbose
        self.caps = caps
        self.top = report.findings[0] if report.findings and report.verdict in SEVERITIES else None

    def lines(self) -> list[Text]:
        """The whole screen, no line wider than it."""
        answer = self._finding(self.top) if self.top else []
        blocks = [[*self._verdict(), *self._job()], *answer, self._unread(), *self._others(), self._read()]
        gap = [Text("")] * self.caps.gaps
        if self.verbose:
            blocks.append(self._measured())
        return [line for block in blocks if block for line in [*block, *gap]][: -self.caps.gaps or None]

    def overview(self) -> list[Text]:
        """One line for each of several jobs, and what was found by comparing them, which comes first where it is the answer."""
        width = min(max(cell_len(clean(job.name)) for job in self.report.jobs), self.width // 3)
        lines = []
        for job in self.report.jobs:
            name = words.shortened(clean(job.name), width)
            verdict = words.HEADLINES[job.verdict]
            text = f"{name}{' ' * (width - cell_len(name))}  {short.row(job)}"
            line = Text(
                text
                if self.verbose
                else set_cell_size(text, self.width - 1).rstrip() + "…" * (cell_len(text) >= self.width)
            )
            line.stylize(STYLES[job.verdict], line.plain.find(verdict), line.plain.find(verdict) + len(verdict))
            lines.append(line)
        shown = words.not_read(self.report)[: self.caps.notes]
        lines += [row for text in shown for row in self._paragraph("Not read", text, self.caps.note)]
        head = Text(clean(self.report.basis), style="bold")
        if self.top is not None and words.is_answer(self.report):
            answer = [self._verdict(), *self._finding(self.top), *self._others(), self._measured(), [head, *lines]]
            return [line for block in answer if block for line in [*block, Text("")]][:-1]
        return [head, *lines, *self._list("Across", words.nested(self.report.findings), UNLIMITED), *self._measured()]

    def _measured(self) -> list[Text]:
        """The measures by host, pair, GPU and rank."""
        most = None if self.verbose else SHOWN
        tables = [(_by(table.scope), aligned(table, most)) for table in measure_tables(self.report)]
        return [
            line
            for label, rows in tables
            for line in self._labelled(label, [Text(self._cut(row) if not self.verbose else row) for row in rows])
        ]

    def _verdict(self) -> list[Text]:
        word = words.HEADLINES[self.report.verdict]
        answer = f"{word}: {words.headline(self.report)}"
        tail = words.title_suffix(self.top) if self.top else ""
        whole = f"{answer} · {tail}" if tail else answer
        if cell_len(whole) <= self.width:
            rows = [whole]
        else:
            head, *rest = self._wrap(answer, self.width)
            below = [row for part in (" ".join(rest), tail) for row in self._capped(part, self.caps.below) if row]
            rows = [head, *(" " * LABEL + row for row in below)]
        first = Text(rows[0], style="bold")
        first.stylize(STYLES[self.report.verdict], 0, len(word))
        return [first, *map(Text, rows[1:])]

    def _finding(self, finding: Finding) -> list[list[Text]]:
        """Returns the sections Why and Next of a finding."""
        why = self._paragraph("Why", finding.message, self.caps.why)
        for place in finding.evidence[: self.caps.evidence]:
            why += self._evidence(place)
        fix = self._advice(finding.fix)
        if self.verbose:
            why += self._paragraph("", finding.why, UNLIMITED)
            fix += [line for one in finding.references for line in self._paragraph("", f"see {one}", UNLIMITED)]
        return [why, fix]

    def _advice(self, text: str) -> list[Text]:
        """Returns the section Next: sentences, and commands alone on their lines; the last is marked if some are left out."""
        rows: list[tuple[str, bool]] = []
        for step in steps(clean_block(text)):
            indent = "  " if step.is_command else ""
            fits = cell_len(step.text) + len(indent) <= self.body
            shown = [step.text] if step.is_command and fits else self._wrap(step.text, self.body - len(indent))
            rows += [(indent + row, step.is_command) for row in shown]
        if len(rows) > self.caps.fix:
            rows = [
                *rows[: self.caps.fix - 1],
                (self._cut(rows[self.caps.fix - 1][0].ljust(self.body + 1), MORE), False),
            ]
        return self._labelled("Next", [Text(row, style="bold" if command else "") for row, command in rows])

    def _others(self) -> list[list[Text]]:
        """Returns the findings below the first: those it explains, then the others; with `verbose` in full.

        A finding that another one explains is indented under it, as `explained_by` says.
        """
        nested = words.nested(self.report.findings)
        last = 0
        if self.top is not None:
            nested = nested[1:]
            last = next((at for at, (depth, _) in enumerate(nested) if depth == 0), len(nested))
        follows = [(depth - 1, finding) for depth, finding in nested[:last]]
        also = nested[last:]
        if not self.verbose:
            return [self._list("Follows", follows, self.caps.follows) + self._list("Also", also, self.caps.also)]
        blocks = [self._list("Follows", follows, self.caps.follows)]
        for depth, finding in also:
            blocks += [
                self._list("" if depth else "Also", [(depth, finding)], 1),
                *(self._finding(finding) if not depth else []),
            ]
        return blocks

    def _list(self, label: str, findings: list[tuple[int, Finding]], cap: int) -> list[Text]:
        if not findings:
            return []
        groups = words.equal(findings) if not self.verbose else [(depth, [finding]) for depth, finding in findings]
        shown = groups if len(groups) <= cap else groups[: max(cap - 1, 1)]
        left = len(findings) - sum(len(group) for _, group in shown)
        more = f"{counted(left, 'more finding')}: -v" if left else ""
        lines = []
        for depth, group in shown:
            finding = group[0]
            mark = "  " * depth + f"{finding.severity} {finding.rule} {finding.name}"
            line = Text(mark, end="")
            line.stylize(STYLES[finding.severity], 2 * depth, 2 * depth + len(finding.severity))
            where = words.scopes(group, self.top)
            # Another finding of the rule of the first one: its title was said, its message not.
            said = finding.message if self.top is not None and finding.rule == self.top.rule else finding.title
            parts = (where, said) if JOBS in finding.values else (said, where)
            title = " · ".join(filter(None, parts))
            line.append(clean(f", and {more}" if more and cap == 1 else f"  {title}"))
            lines.append(line)
        if more and cap > 1:
            lines.append(Text(more))
        return self._labelled(label, [part for line in lines for part in self._fitted(line)])

    def _evidence(self, place: Place) -> list[Text]:
        file, text = clean(place.file), clean(place.text)
        if not self.verbose:
            file = words.shortened(file, self.body // 3)
        where = f"{file}:{place.line}: "
        rows = self._wrap(where + text, self.body)
        if len(rows) > self.caps.evidence_rows == 1 and (token := text.find(NCCL)) > 0:
            rows = self._wrap(f"{where}…{text[token:]}", self.body)  # the header is less important than the text
        if len(rows) > self.caps.evidence_rows:
            rows = [*rows[: self.caps.evidence_rows - 1], self._cut(" ".join(rows[self.caps.evidence_rows - 1 :]))]
        styled = [Text(row, style="dim") for row in rows]
        styled[0].stylize("not dim cyan", 0, len(where))
        return self._labelled("", styled)

    def _job(self) -> list[Text]:
        """The job in three lines, one row each unless there is room; the first one, which ends with names, gets it last."""
        lines = words.job_lines(self.report)
        wrapped = [self._wrap(line, self.body) for line in lines]
        room = self.caps.job - len(lines)
        for number, line in reversed(list(enumerate(lines))):
            room -= len(wrapped[number]) - 1
            if room < 0:
                room += len(wrapped[number]) - 1
                wrapped[number] = [self._cut(line)]
        rows = [row for line in wrapped for row in line]
        return self._labelled("Job", [Text(row) for row in rows[: self.caps.job]])

    def _unread(self) -> list[Text]:
        """Lines that look like an error and that nothing here knows; they come before any harmless note."""
        if self.top is not None and self.top.severity != "note":
            return []
        rows = [line for place in self.report.unread[: self.caps.unread] for line in self._evidence(place)]
        if rows and self.report.unread_count > len(self.report.unread[: self.caps.unread]):
            rows += self._labelled("", [Text(f"{self.report.unread_count} such lines in all")])
        if rows:
            rows[0] = Text.assemble(Text("Unread".ljust(LABEL), style="bold", end=""), rows[0][LABEL:])
        return rows

    def _read(self) -> list[Text]:
        """What was read, what broke, what is not visible and how to see it."""
        report = self.report
        lines = []
        hints = "\n".join(report.missing)
        if self.top is None and report.verdict in ("inconclusive", "nothing-found"):
            lines += self._paragraph("Next", hints, self.caps.fix)
            hints = ""
        lines += self._paragraph("Read", words.read(report), self.caps.read)
        lines += self._notes()
        broken = [f"{c.rule} {c.name}: {c.reason}" for c in report.checks if c.outcome == "broken"]
        for text in broken if self.verbose else broken[:1]:
            lines += self._paragraph("Broken", text, 2)
        lines += self._paragraph("Visible", "; ".join(words.coverage(report)), self.caps.coverage)
        lines += self._paragraph("Resumed", clean("; ".join(report.resumed)), self.caps.coverage)
        captures = words.captures(report)
        for number, text in enumerate(captures if self.verbose else []):
            lines += self._paragraph("Missing" if number == 0 else "", text, UNLIMITED)
        return lines + self._paragraph("" if self.verbose and captures else "Missing", hints, self.caps.missing)

    def _notes(self) -> list[Text]:
        """What is to be said of single inputs: read in part, or not at all and why; with `verbose` of each input."""
        inputs = sorted(self.report.inputs, key=lambda one: (one.kind in words.UNREAD, one.kind == "unread"))
        noted = [one for one in inputs if one.note or (self.verbose and one.kind not in words.UNREAD)]
        lines = []
        for one in noted[: self.caps.notes]:
            path = clean(one.path) if self.verbose else words.shortened(clean(one.path), self.body // 3)
            if one.kind in words.UNREAD:
                lines += self._paragraph("Not read", f"{path}: {one.note}", self.caps.note)
            else:
                of = f"{one.kind}, {counted(one.lines, 'line')}. " if self.verbose else ""
                lines += self._paragraph("", f"{path}: {of}{one.note}", self.caps.note)
        if left := noted[self.caps.notes :]:
            how = "not read" if all(one.kind in words.UNREAD for one in left) else "not read, or in part"
            lines += self._labelled("", [Text(f"{counted(len(left), 'more input')} {how}: -v")])
        return lines

    def _paragraph(self, label: str, text: str, cap: int) -> list[Text]:
        if not text or not cap:
            return []
        return self._labelled(label, [Text(row) for row in self._capped(clean_block(text), cap)])

    def _capped(self, block: str, cap: int) -> list[str]:
        """Returns the rows of a text in the width of the body; if there are more than `cap`, the last is marked."""
        rows = [row for line in block.split("\n") for row in self._wrap(line, self.body)]
        if len(rows) <= cap:
            return rows
        return [*rows[: cap - 1], self._cut(rows[cap - 1].ljust(self.body + 1), tail=MORE)]

    def _labelled(self, label: str, rows: list[Text]) -> list[Text]:
        lines = []
        for number, row in enumerate(rows):
            head = Text((label if number == 0 else "").ljust(LABEL), style="bold", end="")
            lines.append(Text.assemble(head, row))
        return lines

    def _wrap(self, text: str, width: int) -> list[str]:
        """Returns rows of at most `width` columns; words that are too long are broken, leading blanks are kept."""
        indent = text[: len(text) - len(text.lstrip())][: width // 2]
        rows, row = [], indent
        code = _WORDS.findall(text)
        for word in [one for part in code for one in ([part] if cell_len(part) <= width // 2 else part.split())]:
            while word:
                glue = " " if row.strip() else ""
                head = word[: _FAR * width]  # a list of hosts may be a word of 100,000 characters
                if len(head) == len(word) and cell_len(row) + len(glue) + cell_len(word) <= width:
                    row, word = row + glue + word, ""
                elif row.strip():
                    rows.append(row)
                    row = indent
                else:
                    part = set_cell_size(head, width - len(indent)).rstrip()
                    rows.append(indent + part)
                    word = word[len(part) :]
        return [*rows, row] if row.strip() or not rows else rows

    def _cut(self, row: str, tail: str = "…") -> str:
        """Returns the row, cut with `tail` if it is wider than the body."""
        if cell_len(row) <= self.body:
            return row
        return set_cell_size(row, self.body - cell_len(tail)).rstrip() + tail

    def _fitted(self, line: Text) -> list[Text]:
        """Returns a styled line in the width of the body: cut, or wrapped with `verbose`."""
        if cell_len(line.plain) <= self.body:
            return [line]
        if self.verbose:
            return [Text(row) for row in self._wrap(line.plain, self.body)]
        plain = self._cut(line.plain)
        return [Text(plain, spans=[Span(s.start, min(s.end, len(plain)), s.style) for s in line.spans])]


def _by(scope: str) -> str:
    """The label of a table, whose first column has the scope as its title; short where it would not fit."""
    label = f"By {scope}"
    return label if cell_len(label) < LABEL else "By"


def _printed(lines: list[Text], options: Options) -> str:
    out = StringIO()
    console = Console(
        file=out,
        width=UNLIMITED,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        no_color=False,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for line in lines:
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n")[:-1]) + "\n"
    if options.ascii:
        text = text.translate(ASCII).encode("ascii", "replace").decode("ascii")
    return text
