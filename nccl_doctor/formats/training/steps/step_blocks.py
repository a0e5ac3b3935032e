"""What one block of a log says of steps, whatever the blocks before it say."""

from typing import NamedTuple

from nccl_doctor.common.text_keys import Keys, Numbers
from nccl_doctor.formats.training.lines.line_layouts import Layouts
from nccl_doctor.formats.training.lines.line_numbers import Group
from nccl_doctor.formats.training.steps.step_columns import Form, Steps, form_of
from nccl_doctor.formats.training.steps.step_places import LOSSES, TOOL_OF, Batch, Places

_MEMO = 50_000  # forms remembered


class Written(NamedTuple):
    """Steps of one form, and a key for who wrote each."""

    key: int  # of the form
    form: Form
    rows: Numbers  # of the batch
    writers: Keys
    steps: Steps


class BlockSteps(NamedTuple):
    """Lines of a block that are taken together."""

    batch: Batch
    written: list[Written]
    losses: list[Group]  # lines of the Hugging Face Trainer, for `LossValues`


class Forms:
    """The forms and layouts of the lines so far."""

    def __init__(self) -> None:
        self.layouts = Layouts()
        self._forms: dict[int, Form | None] = {}  # by the key of the lines

    def clear(self) -> None:
        self._forms.clear()
        self.layouts.clear()

    def of(self, key: int, literals: tuple[int, ...], line: bytes) -> Form | None:
        """The form of lines like this one, which hold these literals; None where they are no steps."""
        if key not in self._forms:
            tools = [tool for which in dict.fromkeys(literals) if (tool := TOOL_OF[which]) is not None]
            tools.sort(key=lambda tool: (tool.is_guess, tool.is_later))
            self._forms[key] = form_of(line, tools)
        return self._forms[key]

    def read(self, places: Places) -> BlockSteps:
        """The steps at places of a block."""
        if len(self._forms) > _MEMO:
            self.clear()
        batch, groups = places.groups(self.layouts)
        written, losses = [], []
        for group, literals in groups:
            key, rows, numbers = group
            if LOSSES in literals:
                losses.append(group)
            form = self.of(key, literals, batch.text(int(rows[0])))
            if form is None:
                continue
            steps, none = form.read(numbers)
            writers = numbers.writers(form.who)
            if none.any():
                rows, writers = rows[~none], writers[~none]
                if not len(rows):
                    continue
                steps = steps.chosen(~none, len(rows))
            written.append(Written(key, form, rows, writers, steps))
        return BlockSteps(batch, written, losses)
