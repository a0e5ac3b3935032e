"""The tables of the tabs: which rows they have, and how these are sorted, filtered and drawn."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psutil

from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.state import Device, Node, State
from nccl_doctor.watch.view import panes
from nccl_doctor.watch.view.cells import DIM, Cell, Column, Line, Look, choose, row_line, title_line


class Drawing(NamedTuple):
    """A table as lines: the title, a line and a key for each row, and the text shown when there is no row."""

    title: Line
    rows: list[Line]
    keys: list[Hashable]
    empty: str


@dataclass
class Table:
    """One table: its columns, its rows, the key that identifies a row, and the text shown when there is no row."""

    columns: Callable[[], tuple[Column, ...]]
    rows: Callable[[], list[Any]]
    key: Callable[[Any], Hashable]
    empty: str
    age: Callable[[Any], float | None] = lambda _: None  # seconds of a row that is out of date
    dated: str = ""  # key of the column that shows the age in place of its value
    sort: str | None = None  # key of a column; None keeps the order of `rows`
    reverse: bool = False
    shown: list[Any] = field(default_factory=list)  # the rows of the last drawing

    def sort_by_next(self) -> str:
        """Sort by the next column; returns its title."""
        keys = [None, *(column.key for column in self.columns())]
        self.sort = keys[(keys.index(self.sort) + 1) % len(keys)]
        return next((column.title for column in self.columns() if column.key == self.sort), "nothing")

    def draw(self, look: Look, width: int, filter_text: str, with_node: bool) -> Drawing:
        """Sort, filter and draw the rows in this width; without `with_node` the column of node names is left out."""
        columns = [column for column in self.columns() if column.key != "node" or with_node]
        rows = self._sorted(self.rows(), columns)
        fitted = choose(columns, width, rows, look)
        drawn = [self._cells(row, [column for column, _ in fitted], look) for row in rows]
        if filter_text:
            kept = [n for n, cells in enumerate(drawn) if _contains(cells, filter_text)]
            rows, drawn = [rows[n] for n in kept], [drawn[n] for n in kept]
        self.shown = rows
        rights = [cell.right for cell in drawn[0]] if drawn else [False] * len(fitted)
        empty = f"no row contains {filter_text}; press / to change the filter" if filter_text else self.empty
        lines = [row_line(cells, fitted, look) for cells in drawn]
        return Drawing(title_line(fitted, look, rights), lines, [self.key(row) for row in rows], empty)

    def _cells(self, row: Any, columns: Sequence[Column], look: Look) -> list[Cell]:
        """The cells of a row; one that is out of date is dim and shows its age."""
        cells = [column.cell(row, look) for column in columns]
        age = self.age(row)
        if age is None:
            return cells
        return [
            Cell(f"-{panes.short_time(age)}" if column.key == self.dated else one.plain, DIM, one.right)
            for column, one in zip(columns, cells, strict=True)
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
        self, state: Callable[[], State], episodes: Callable[[], list[Episode]], now: Callable[[], float]
    ) -> None:
        self._state = state
        self.own_only = False  # processes of this user only
        self.grouped = False  # processes sorted by node and job
        gpus = "no GPU was found"

        def age(kind: str) -> Callable[[Any], float | None]:
            return lambda row: row[0].age(kind, now())

        self.by_tab = {
            "overview": Table(lambda: panes.GPUS, self._gpus, _device_key, gpus, age("gpu"), "util"),
            "GPUs": Table(lambda: panes.GPUS, self._gpus, _device_key, gpus, age("gpu"), "util"),
            "network": Table(lambda: panes.PORTS, self._ports, _device_key, "no network port was found", age("port"), "state"),
            "processes": Table(lambda: panes.PROCESSES, self._processes, lambda row: (row[0].name, row[1].get("pid")),
                               "no rank of a job was found (a process with RANK or the like in its environment)",
                               age("process"), "state"),
            "findings": Table(lambda: panes.FINDINGS, lambda: panes.episodes(episodes()), id, "no finding so far"),
            "nodes": Table(lambda: panes.node_columns(now()), lambda: panes.worst_first(state(), now()),
                           lambda node: node.name, "no node has answered"),
        }  # fmt: skip

    def draw(self, tab: str, look: Look, width: int, filter_text: str) -> Drawing:
        """Draw the table of a tab; node names are shown where there are several nodes."""
        with_node = tab == "nodes" or len(self._state().nodes) > 1
        return self.by_tab[tab].draw(look, width, filter_text, with_node)

    def _gpus(self) -> list[tuple[Node, Device]]:
        return list(self._state().gpus())

    def _ports(self) -> list[tuple[Node, Device]]:
        return [(node, port) for node in self._state().nodes.values() for port in node.ports.values()]

    def _processes(self) -> list[tuple[Node, dict[str, Any]]]:
        rows = [(node, rank) for node in self._state().nodes.values() for rank in node.ranks]
        if self.own_only:
            user = psutil.Process().username()
            rows = [row for row in rows if row[1].get("user") == user]
        if self.grouped:
            rows.sort(key=lambda row: (row[0].name, str(row[1].get("job")), _sortable(row[1].get("rank"))))
        return rows


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
