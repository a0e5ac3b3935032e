"""Draws the screen: the bars, the table of the tab, and what fills the rest."""

from collections.abc import Hashable
from typing import Any

from nccl_doctor.watch.view import bars, detail, overview, ports
from nccl_doctor.watch.view.cells import Line
from nccl_doctor.watch.view.findings import Group
from nccl_doctor.watch.view.headline import headline
from nccl_doctor.watch.view.nodes import bad_first
from nccl_doctor.watch.view.screens import FilterBar
from nccl_doctor.watch.view.widgets import Grid, Lines

TABS = ("overview", "GPUs", "network", "processes", "findings", "nodes")
DETAIL_EVERY = 5.0  # seconds for which a detail is kept
TALL = 40  # lines of a screen that shows single ports beside their sums


class Painter:
    """Draws the state of the application into its widgets; `app` is the `Watch`."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.alert_groups: list[Group | None] = []  # the finding of each line of the alerts
        self._detail: tuple[Any, float, list[Line]] | None = None  # subject, time and lines of the last detail

    def _lines(self, name: str) -> Lines:
        return self._app.screen_stack[0].query_one(f"#{name}", Lines)  # type: ignore[no-any-return]

    @property
    def grid(self) -> Grid:
        return self._app.screen_stack[0].query_one(Grid)  # type: ignore[no-any-return]

    def bars(self) -> None:
        """Draw the status, the tabs and the keys."""
        app, width = self._app, self._app.size.width
        self._lines("head").show([bars.status_line(app, width)])
        tabs = self._lines("tabs")
        line, tabs.click_areas = bars.tab_line(TABS, app.active, self.grid.visible_range, width)
        tabs.show([line])
        keys = self._lines("keys")
        line, keys.click_areas = bars.key_line(app.disabled(), app.replay is not None, app.message(), app.look, width)
        keys.show([] if self._app.screen_stack[0].query_one(FilterBar).display else [line])

    def body(self) -> None:
        """Draw the headline, the table and everything below it."""
        app = self._app
        width, height = app.size
        groups, now = app.tables.groups(), app.now()
        head = headline(app.state, groups, app.look, width, now, app.rules_problem)
        times = bars.time_line(app, width)
        self._lines("headline").show(head)
        self._lines("time").show(times)
        drawing = app.tables.draw(app.active, app.look, width, self.grid.waits_for_letter)
        free = max(height - 3 - len(head) - len(times) - 2, 0)  # without the title and one row of the table
        below = (
            self._overview(groups, now, free, len(drawing.rows)) if app.active == "overview" else self._sums(now, free)
        )
        self.alert_groups = [group for _, group in below["alerts"]]
        for name, lines in below.items():
            self._lines(name).show([line for line, _ in lines])
        self._lines("alerts").click_lines = [
            f"open_alert({number})" if group else "" for number, group in enumerate(self.alert_groups)
        ]
        free -= sum(map(len, below.values())) + max(len(drawing.rows), 1) - 1
        self.grid.click_areas = drawing.areas
        self.grid.styles.height = max(len(drawing.rows), 1) + 1 if free >= detail.LEAST else "1fr"
        self.grid.show(drawing.title, drawing.rows, drawing.keys, drawing.empty)
        self._lines("detail").show(self._draw_detail(drawing.keys, now, free) if free >= detail.LEAST else [])

    def _draw_detail(self, keys: list[Hashable], now: float, height: int) -> list[Line]:
        """Returns the lines below the table; charts that show minutes are drawn anew every few seconds only."""
        app, cursor = self._app, self.grid.cursor
        subject = app.active, app.size, height, keys[cursor] if cursor < len(keys) else None, id(app.state)
        if self._detail is None or subject != self._detail[0] or not 0 <= now - self._detail[1] < DETAIL_EVERY:
            lines = detail.draw(app.active, app.selected(), app.state, app.look, now, app.size.width, height)
            self._detail = subject, now, lines
        return self._detail[2]

    def _sums(self, now: float, free: int) -> dict[str, list[tuple[Line, Group | None]]]:
        """Returns the sums of the ports of each node, on the tab of the network."""
        app = self._app
        found = [node for node in app.state.nodes.values() if node.ports] if app.active == "network" else []
        lines = [ports.sum_line(node, app.look, app.size.width, now) for node in found[: max(free // 4, 1)]]
        return {"hosts": [(line, None) for line in lines], "ports": [], "alerts": []}

    def _overview(
        self, groups: list[Group], now: float, free: int, gpus: int
    ) -> dict[str, list[tuple[Line, Group | None]]]:
        """Returns the lines below the GPUs: hosts, ports and alerts, each at most a part of the screen."""
        app, width = self._app, self._app.size.width
        found = overview.alerts(app.state, groups, now, app.replay.problems if app.replay is not None else [])
        hosts = [
            overview.host_line(node, app.look, width, now)
            for node in bad_first(app.state, now)[: min(max(free // 8, 1), 8)] if node.host.now
        ]  # fmt: skip
        traffic = [ports.traffic_line(app.state, app.look, width, now)] if app.state.nodes else []
        tall = app.size.height >= TALL
        most = min(max(free // 4, 2), 10)
        single = overview.port_lines(app.state, app.look, width, max(free // 8, 1), now, bad_only=not tall)
        spare = free - len(hosts) - len(traffic) - len(single) - gpus + 1
        most = max(most, min(spare, 14) if spare < most + detail.LEAST else min(spare - detail.LEAST - 6, 14))
        lines, owners = overview.alert_lines(found, app.look, width, most)
        return {
            "hosts": [(line, None) for line in hosts], "ports": [(line, None) for line in [*traffic, *single]],
            "alerts": list(zip(lines, owners, strict=True)),
        }  # fmt: skip
