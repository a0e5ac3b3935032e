"""Widgets that draw lines: only changed lines are sent to the terminal, and no line is wider than the screen."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from nccl_doctor.watch.view.cells import ClickAreas, Line, Look
from nccl_doctor.watch.view.wrapping import wrap_text


@lru_cache(256)
def _style(name: str, over: str = "") -> Style:
    return Style.parse(name) + Style.parse(over)


@lru_cache(256)  # lines of a screen, most of which are asked for again although they did not change
def _strip(line: Line, width: int, look: Look, over: str = "") -> Strip:
    """Returns a line as a textual strip, exactly as wide as the widget."""
    segments = [
        Segment("".join([text for text, _ in parts]), _style(look.style(style), over))
        for style, parts in groupby(line, itemgetter(1))
    ]
    return Strip(segments).adjust_cell_length(width, _style(over))


def _refresh_changed(widget: Widget, old: Sequence[Line], new: Sequence[Line]) -> None:
    """Redraw the lines that differ; both have the same number of lines."""
    changed = [y for y, (before, after) in enumerate(zip(old, new, strict=True)) if before != after]
    if changed:
        widget.refresh(*(Region(0, y, widget.size.width, 1) for y in changed))


class Plain(Widget):
    """A widget without border, padding and colours of its own: its lines go to the screen as they are."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns the visible lines; the general way applies styles to each segment, which took as long as all of the drawing."""
        if self.get_line_filters():  # NO_COLOR
            return super().render_lines(crop)
        return [self.render_line(y).crop(crop.x, crop.right) for y in crop.line_range]


class Lines(Plain):
    """Lines that are replaced as a whole; only changed ones are drawn."""

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"

    def __init__(self, look: Look, id: str | None = None) -> None:
        super().__init__(id=id)
        self._look = look
        self.lines: list[Line] = []
        self.click_areas: ClickAreas = []  # columns of the first line that react to a click
        self.click_lines: list[str] = []  # actions of whole lines; empty where a line has none

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines and set the height to their number."""
        new = list(lines)
        if len(new) != len(self.lines) or self.display != bool(new):
            self.lines = new
            self.styles.height = len(new)
            self.display = bool(new)
            self.refresh()
            return
        old, self.lines = self.lines, new
        _refresh_changed(self, old, new)

    def render_line(self, y: int) -> Strip:
        return _strip(self.lines[y] if y < len(self.lines) else (), self.size.width, self._look)

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self.click_areas:
            if event.y == 0 and start <= event.x < end:
                await self.app.run_action(action)
        if event.y < len(self.click_lines) and self.click_lines[event.y]:
            await self.app.run_action(self.click_lines[event.y])


class Grid(Plain, can_focus=True):
    """A table with a title line and a cursor that stays on its row when the order changes."""

    DEFAULT_CSS = "Grid { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False), Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False), Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "first", show=False), Binding("end,G", "last", show=False),
        Binding("enter", "choose", show=False),
    ]  # fmt: skip

    class Chosen(Message):
        """Enter was pressed on a row, or the selected row was clicked."""

    class Moved(Message):
        """The cursor moved."""

    class Resized(Message):
        """The number of visible rows changed."""

    class Letter(Message):
        """A key was pressed while the grid waits for the letter of a column."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, look: Look, id: str | None = None) -> None:
        super().__init__(id=id)
        self._look = look
        self._title: Line = ()
        self._rows: Sequence[Line] = []
        self._keys: list[Hashable] = []
        self._empty = ""
        self._drawn: list[Line] = []
        self.cursor = 0
        self._top = 0
        self.waits_for_letter = False
        self.click_areas: ClickAreas = []  # of the title

    def show(self, title: Line, rows: Sequence[Line], keys: Sequence[Hashable], empty: str) -> None:
        """Show these rows, or the text `empty` if there are none.

        The cursor stays on the row with its key, unless it is on the first row: there it keeps showing what is on top.
        """
        selected = self._keys[self.cursor] if 0 < self.cursor < len(self._keys) else None
        self._title, self._rows, self._keys, self._empty = title, rows, list(keys), empty
        if selected is not None and selected in self._keys:
            self.cursor = self._keys.index(selected)
        self._scroll_to_cursor()

    def move_to(self, row: int) -> None:
        """Put the cursor on a row."""
        self.cursor = row
        self._scroll_to_cursor()
        self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        """Clamp the cursor to the rows, scroll until it is visible, and draw what changed."""
        height = max(self.size.height - 1, 1)
        self.cursor = min(max(self.cursor, 0), max(len(self._rows) - 1, 0))
        self._top = min(max(self._top, self.cursor - height + 1), self.cursor, max(len(self._rows) - height, 0))
        old, self._drawn = self._drawn, self._visible_lines(height)
        if len(old) != len(self._drawn):
            self.refresh()
        else:
            _refresh_changed(self, old, self._drawn)

    def _visible_lines(self, height: int) -> list[Line]:
        if not self._rows:
            return [self._title, ((self._look.fit(self._empty, max(self.size.width, 1)), "dim"),)]
        drawn = [self._title]
        for number in range(self._top, min(self._top + height, len(self._rows))):
            mark = (("", "reverse"),) if number == self.cursor else ()
            drawn.append((*self._rows[number], *mark))
        return drawn

    @property
    def visible_range(self) -> str:
        """`11-20/64`: the visible rows; empty if all rows are visible."""
        height = max(self.size.height - 1, 1)
        if len(self._rows) <= height:
            return ""
        return f"{self._top + 1}-{min(self._top + height, len(self._rows))}/{len(self._rows)}"

    def render_line(self, y: int) -> Strip:
        line = self._drawn[y] if y < len(self._drawn) else ()
        if line and line[-1] == ("", "reverse"):  # one colour, because others would become backgrounds
            return _strip(tuple((text, "") for text, _ in line), self.size.width, self._look, "reverse")
        return _strip(line, self.size.width, self._look)

    def on_key(self, event: events.Key) -> None:
        if self.waits_for_letter:
            event.stop()
            event.prevent_default()
            self.waits_for_letter = False
            self.post_message(self.Letter(event.key))

    def on_resize(self) -> None:
        self._drawn = []
        self._scroll_to_cursor()
        self.post_message(self.Resized())

    def action_move(self, step: int) -> None:
        self.move_to(self.cursor + step)

    def action_page(self, step: int) -> None:
        self.move_to(self.cursor + step * max(self.size.height - 2, 1))

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(len(self._rows) - 1)

    def action_choose(self) -> None:
        if self._rows:
            self.post_message(self.Chosen())

    async def on_click(self, event: events.Click) -> None:
        row = self._top + event.y - 1
        if event.y < 1:
            for start, end, action in self.click_areas:
                if start <= event.x < end:
                    await self.app.run_action(action)
        if event.y < 1 or row >= len(self._rows):
            return
        if row == self.cursor:
            self.action_choose()
        self.move_to(row)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)


class Pager(Plain, can_focus=True):
    """Text that can be scrolled."""

    DEFAULT_CSS = """
    Pager { height: 1fr; width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", show=False), Binding("down,j", "scroll(1)", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", show=False), Binding("pagedown,space,ctrl+f", "page(1)", show=False),
        Binding("home,g", "scroll(-1000000)", show=False), Binding("end,G", "scroll(1000000)", show=False),
    ]  # fmt: skip

    def __init__(self, look: Look, text: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._look = look
        self.text = text
        self._top = 0

    def show(self, text: str) -> None:
        """Replace the text."""
        if text != self.text:
            self.text = text
            self.refresh()

    @property
    def _wrapped(self) -> list[str]:
        return wrap_text(self._look.ascii, self.text, max(self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        lines = self._wrapped
        at = self._top + y
        return _strip(((lines[at], ""),) if at < len(lines) else (), self.size.width, self._look)

    def action_scroll(self, step: int) -> None:
        top = min(max(self._top + step, 0), max(len(self._wrapped) - self.size.height, 0))
        if top != self._top:
            self._top = top
            self.refresh()

    def action_page(self, step: int) -> None:
        self.action_scroll(step * max(self.size.height - 1, 1))

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)
