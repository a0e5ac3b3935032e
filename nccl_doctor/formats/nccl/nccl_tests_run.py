"""One run of nccl-tests while it is read: devices, rows, verdict."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchMember, BenchRow, BenchRun, BenchSpread
from nccl_doctor.formats.nccl.nccl_tests_rows import Placement, WholeRow
from nccl_doctor.formats.nccl.nccl_tests_usual import Numbers, UsualRuns
from nccl_doctor.inputs import prefixes

_RIGHT = {b"0", b"N/A"}  # wrong elements of a row that is no reason to look at it


class Row:
    """One size; a placement that was not printed is missing."""

    def __init__(self, size: int, count: int, kind: str, redop: str | None, root: int | None) -> None:
        self.size = size
        self.count = count
        self.kind = kind
        self.redop = redop
        self.root = root
        self.places: list[tuple[Placement, int, bytes]] = []
        self.iterations: tuple[float, float] | None = None  # the shortest and the longest, microseconds


class Bench:
    """What is known of a run so far."""

    def __init__(self, operation: str | None, version: str | None, nccl: str | None, number: int, line: bytes) -> None:
        self.operation = operation
        self.version = version
        self.nccl = nccl
        self.devices: dict[int, tuple[str, int, str, str]] = {}  # rank -> host, device, bus id, model
        self.rows: list[Row] = []
        self.average: float | None = None
        self.out_of_bounds: int | None = None
        self.verdict: str | None = None
        self.finished = False
        self.headings = 0
        self.copies = 1
        self.graph: float | None = None
        self.place = number, line

    @property
    def worth(self) -> bool:
        """True where the run has rows, devices or a verdict."""
        return bool(self.rows or self.devices or self.finished)

    @property
    def torn(self) -> bool:
        """True while the last row lacks numbers."""
        return bool(self.rows) and len(self.rows[-1].places) < 2 and not self.finished

    def device(self, rank: int, host: str, device: int, bus: str, model: str) -> None:
        """A line of `# Using devices`."""
        self.devices[rank] = host, device, bus, model

    def head(self, size: int, count: int, kind: str, redop: str | None, root: int | None) -> None:
        """A new row begins."""
        self.rows.append(Row(size, count, kind, redop, root))

    def whole_rows(self, rows: Iterable[WholeRow], lines: Iterable[bytes], first: int) -> None:
        """Rows of the type, operation and root of the last one, from line `first` on."""
        kind, redop, root = self.rows[-1].kind, self.rows[-1].redop, self.rows[-1].root
        for number, ((size, count, out, in_place), line) in enumerate(zip(rows, lines, strict=True), first):
            row = Row(size, count, kind, redop, root)
            row.places = [(out, number, line), (in_place, number, line)]
            self.rows.append(row)

    def numbers(self, found: Iterable[Placement], number: int, line: bytes) -> None:
        """Numbers of the last row: out of place first, then in place."""
        places = self.rows[-1].places
        places += [(one, number, line) for one in found][: 2 - len(places)]

    def bounds(self, count: int, verdict: str, line: bytes, number: int) -> None:
        """`# Out of bounds values : 0 OK`."""
        self.out_of_bounds, self.verdict = count, verdict
        if verdict == "FAILED":
            self.place = number, line

    def facts(self, facts: Facts, file: str, run: int, usual: UsualRuns) -> Iterator[Any]:
        """The rows of the fact base; of a run that is as `usual` not all sizes."""
        models = {model for _, _, _, model in self.devices.values()}
        used = Counter((host, device, bus) for host, device, bus, _ in self.devices.values())
        number, line = self.place
        wrong = Counter([one[3] for row in self.rows for one, _, _ in row.places])
        checked = [int(text) * times for text, times in wrong.items() if text.isdigit()]
        operation = self.operation or self._operation()
        yield BenchRun(
            run=run, file=file, operation=operation, ranks=len(self.devices) or None,
            hosts=len({host for host, *_ in self.devices.values()}) or None,
            gpu=models.pop() if len(models) == 1 else None,
            shared_gpu=int(any(times > 1 for times in used.values())), version=self.version, nccl=self.nccl,
            rows=wrong.total(), avg_busbw=self.average, out_of_bounds=self.out_of_bounds, verdict=self.verdict,
            wrong=sum(checked) if checked else None, finished=int(self.finished), headings=self.headings,
            copies=self.copies, graph_bw=self.graph,
            ref=facts.evidence(file, number, _text(line)),
        )  # fmt: skip
        ranks = Counter(host for host, *_ in self.devices.values())
        for host, own in ranks.items():
            yield BenchMember(run, host, own, facts.evidence(file, number, _text(line)))
        shown = ref = 0
        printed = [
            (row, place, one) for row in self.rows for place, one in zip(("out", "in"), row.places, strict=False)
        ]
        kept = self._kept(operation, set(wrong), usual)
        for row, place, (one, number, line) in printed if kept is None else [printed[at] for at in kept]:
            if number != shown:  # both placements are mostly in one line
                shown, ref = number, facts.evidence(file, number, _text(line))
            if place == "out" and row.iterations is not None:
                yield BenchSpread(run, row.size, one[0], *row.iterations, ref)
            yield BenchRow(
                run, row.size, row.count, row.kind, row.redop, row.root, place, *one[:3], _wrong(one[3]),
                _error(one[3]), ref,
            )  # fmt: skip

    def _kept(self, operation: str | None, wrong: set[bytes], usual: UsualRuns) -> list[int] | None:
        """The placements that say something new of a run that is complete and as usual; None for all."""
        rows = self.rows
        if not self.finished or self.verdict not in (None, "OK") or not wrong <= _RIGHT:
            return None
        if any(len(row.places) != 2 or row.iterations is not None for row in rows):
            return None
        sizes = tuple([row.size for row in rows])
        kinds = {(row.kind, row.redop, row.root) for row in rows}
        if len(kinds) != 1 or any(size >= after for size, after in pairwise(sizes)):
            return None
        numbers = [one for row in rows for one, _, _ in row.places]
        run = Numbers(sizes, [one[0] for one in numbers], [one[2] for one in numbers])
        return usual.kept((operation, len(self.devices), sizes, kinds.pop()), run)

    def _operation(self) -> str | None:
        """all_reduce where the ratio of bus to algorithm bandwidth is the one that only it has; of no other one it is above 1."""
        ranks = len(self.devices)
        ratios = [one[2] / one[1] for row in self.rows for one, _, _ in row.places if one[1] > 5]
        if ranks > 2 and ratios and all(abs(r - 2 * (ranks - 1) / ranks) < 0.02 for r in ratios):
            return "all_reduce"
        if not ranks and ratios and min(ratios) > 1.05 and max(ratios) - min(ratios) < 0.02:
            return "all_reduce"
        return None


def _wrong(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _error(text: bytes) -> float | None:
    try:
        return float(text) if text and not text.isdigit() and text != b"N/A" else None
    except ValueError:
        return None


def _text(line: bytes) -> str:
    return prefixes.clean(line[:600].decode("utf-8", "replace"))
