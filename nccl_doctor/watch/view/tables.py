"""The tables of the tabs: which rows they have, and how these are sorted, filtered and drawn."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import psutil

from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.series import Device
from nccl_doctor.watch.state import Node, State
from nccl_doctor.watch.view import gpus, nodes
from nccl_doctor.watch.view.cells import (
    DIM,
    Cell,
    ClickAreas,
    Column,
    Line,
    Look,
    choose,
    row_line,
    short_time,
    title_line,
)  # fmt: skip
from nccl_doctor.watch.view.findings import FINDINGS, Group, fold, group_key
from nccl_doctor.watch.view.ports import PORTS, is_bad
from nccl_doctor.watch.view.processes import PROCESSES, ProcessRow, in_tree

NAMES = frozenset(
    {"node", "gpu", "model", "port", "kind", "state", "rank", "pid", "user", "job", "container", "cpus", "command", "severity",
     "verdict", "hosts", "name", "message", "lowest"}
)  # fmt: skip  # columns that are sorted from the lowest value first; the others from the highest


class Drawing(NamedTuple):
    """A table as lines: the title, a line and a key for each row, and the text shown when there is no row."""

    title: Line
    areas: ClickAreas  # of the title
    rows: Sequence[Line]
    keys: list[Hashable]
    empty: str


class DrawnRows(Sequence[Line]):
    """The lines of rows, drawn when they are shown: of hundreds of GPUs a screen shows some dozens."""

    def __init__(self, rows: Sequence[Any], draw: Callable[[Any], Line]) -> None:
        self._rows, self._draw = rows, draw

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        if isinstance(index, slice):
            return [self._draw(row) for row in self._rows[index]]
        return self._draw(self._rows[index])


class Filter(NamedTuple):
    """Which rows the user wants to see."""

    text: str = ""  # that a row must contain
    gpus: frozenset[int] = frozenset()  # numbers of GPUs; empty for all
    user: str = ""  # whose processes
    job: str = ""  # whose processes


@dataclass
class Table:
    """One table: its columns, its rows, the key that identifies a row, and the text shown when there is no row."""

    columns: Callable[[], tuple[Column, ...]]
    rows: Callable[[], list[Any]]
    key: Callable[[Any], Hashable]
    empty: Callable[[], str]
    age: Callable[[Any], float | None] = lambda _: None  # seconds of a row that is out of date
    dated: str = ""  # key of the column that shows the age in place of its value
    sort: str | None = None  # key of a column; None keeps the order of `rows`
    reverse: bool = False
    shown: list[Any] = field(default_factory=list)  # the rows of the last drawing

    def sort_by(self, key: str | None) -> str:
        """Sort by a column, in the other direction if it already is; None for the usual order. Returns its title."""
        titles = {column.key: column.title for column in self.columns()}
        if key is None or key not in titles:
            self.sort, self.reverse = None, False
            return "the usual order"
        self.reverse = not self.reverse if key == self.sort else key not in NAMES
        self.sort = key
        return titles[key]

    def sort_by_letter(self, letter: str) -> str | None:
        """Sort by the column with this letter; returns its title, None if there is none."""
        key = next((column.key for column in self.columns() if column.letter == letter), None)
        return None if key is None else self.sort_by(key)

    def draw(self, look: Look, width: int, filter_text: str, with_node: bool, letters: bool = False) -> Drawing:
        """Sort, filter and draw the rows in this width; without `with_node` the column of node names is left out."""
        columns = [column for column in self.columns() if column.key != "node" or with_node]
        rows = self._sorted(self.rows(), columns)
        fitted = choose(columns, width, rows, look)
        shown = [column for column, _ in fitted]
        if filter_text:
            rows = [row for row in rows if _contains(self._cells(row, shown, look), filter_text)]
        self.shown = rows
        rights = [cell.right for cell in self._cells(rows[0], shown, look)] if rows else [False] * len(fitted)
        empty = f"no row contains {filter_text}; / changes the filter, Esc clears it" if filter_text else self.empty()
        lines = DrawnRows(rows, lambda row: row_line(self._cells(row, shown, look), fitted, look))
        title, areas = title_line(fitted, look, rights, self.sort, self.reverse, letters)
        return Drawing(title, areas, lines, [self.key(row) for row in rows], empty)

    def _cells(self, row: Any, columns: Sequence[Column], look: Look) -> list[Cell]:
        """The cells of a row; one that is out of date is dim and shows its age."""
        cells = [column.cell(row, look) for column in columns]
        age = self.age(row)
        if age is None:
            return cells
        old = {self.dated: f"-{short_time(age)}", "note": f"{short_time(age)} old"}
        return [
            Cell(old.get(column.key, one.plain), DIM, one.right) for column, one in zip(columns, cells, strict=True)
        ]

    def _sorted(self, rows: list[Any], columns: Sequence[Column]) -> list[Any]:
        column = next((column for column in columns if column.key == self.sort), None)
        if column is None:
            return rows
        order = column.order
        return sorted(rows, key=lambda row: _sortable(order(row)), reverse=self.reverse)


class Tables:
    """The tables of all tabs over the state and the findings that the screen has now."""

    def __init__(
        self, state: Callable[[], State], episodes: Callable[[], list[Episode]], now: Callable[[], float],
        problem: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        self._state, self._episodes, self._now = state, episodes, now
        self.filter = Filter()
        self.own_only = False  # processes of this user only
        self.tree = False  # each process below the one that started it

        def age(kind: str) -> Callable[[Any], float | None]:
            return lambda row: row[0].age(kind, now())

        def gpu_columns() -> tuple[Column, ...]:
            return gpus.gpu_columns(gpus.peers(state(), now()), now())

        def no_gpu() -> str:
            return next(
                (text for node in state().nodes.values() if (text := node.problems.get("gpu"))), "no GPU was found"
            )

        def no_finding() -> str:
            why = problem()
            return f"the rules failed, so nothing was judged: {why}" if why else "no finding so far"

        def gpu_table() -> Table:
            return Table(gpu_columns, self._gpus, _device_key, no_gpu, age("gpu"), "util")

        self.by_tab = {
            "overview": gpu_table(),
            "GPUs": gpu_table(),
            "network": Table(lambda: PORTS, self._ports, _device_key, lambda: "no network port was found", age("port"), "state"),
            "processes": Table(lambda: PROCESSES, self._processes, lambda row: (row[0].name, row[1].get("pid")),
                               lambda: "no rank of a job and no process on a GPU was found", age("process"), "state"),
            "findings": Table(lambda: FINDINGS, self.groups, group_key, no_finding),
            "nodes": Table(lambda: nodes.node_columns(now(), self.verdicts()), self._nodes, lambda node: node.name,
                           lambda: "no node has answered"),
        }  # fmt: skip

    def draw(self, tab: str, look: Look, width: int, letters: bool = False) -> Drawing:
        """Draw the table of a tab; node names are shown where there are several nodes."""
        with_node = tab == "nodes" or len(self._state().nodes) > 1
        return self.by_tab[tab].draw(look, width, self.filter.text, with_node, letters)

    def groups(self) -> list[Group]:
        """Returns the findings, folded."""
        return fold(self._episodes())

    def verdicts(self) -> nodes.Verdicts:
        return nodes.verdicts(self.groups())

    def _gpus(self) -> list[tuple[Node, Device]]:
        rows = gpus.odd_first(self._state(), self._now())
        return [row for row in rows if not self.filter.gpus or row[1].now.get("index") in self.filter.gpus]

    def _ports(self) -> list[tuple[Node, Device]]:
        rows = [(node, port) for node in self._state().nodes.values() for port in node.ports.values()]
        return sorted(rows, key=lambda row: not is_bad(row[1]))

    def _nodes(self) -> list[Node]:
        return nodes.worst_first(self._state(), self._now(), self.verdicts())

    def _processes(self) -> list[ProcessRow]:
        rows = [(node, process) for node in self._state().nodes.values() for process in node.processes]
        user = psutil.Process().username() if self.own_only else self.filter.user
        if user:
            rows = [row for row in rows if row[1].get("user") == user]
        if self.filter.job:
            rows = [row for row in rows if row[1].get("job") == self.filter.job]
        if self.tree:
            return in_tree(rows)
        return [row for row in rows if row[1].get("role") != "other"]


def _device_key(row: tuple[Node, Device]) -> Hashable:
    return row[0].name, row[1].name


def _contains(cells: Sequence[Cell], text: str) -> bool:
    return text.lower() in " ".join(cell.plain for cell in cells).lower()


def _sortable(value: Any) -> tuple[bool, Any, str]:
    """Returns a sort key for a value of any type: missing values first, then words, then numbers."""
    if isinstance(value, tuple):
        return True, float(value[0]), str(value[1:])
    known = isinstance(value, int | float)
    return value is not None, float(value) if known else 0.0, "" if known else str(value)
