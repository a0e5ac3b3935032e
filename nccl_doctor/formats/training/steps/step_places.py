"""Where a log has step lines: the literals that find them, and which lines of a block are of one form."""

from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.formats.training import all_reduce_bench, layout, run_settings
from nccl_doctor.formats.training.lines.block_lines import LONGEST, BlockLines
from nccl_doctor.formats.training.lines.line_layouts import Alike, Layouts, without
from nccl_doctor.formats.training.lines.line_numbers import Group, Texts
from nccl_doctor.formats.training.steps import (
    epoch_lines,
    loss_values,
    own_steps,
    step_formats,
)
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.programs import metric_lines, research_lines, tensorflow_steps
from nccl_doctor.inputs.blocks import Cursor
from nccl_doctor.inputs.prefilter import Prefilter, prefilter

_EVENTS = (
    (b"aving checkpoint", "checkpoint"),
    (b"aved checkpoint", "checkpoint"),
    (b"aving model checkpoint", "checkpoint"),
    *(
        (literal, "checkpoint")
        for literal in (
            b"aving the checkpoint",  # TorchTitan
            b"aving model to ",  # Lightning, Keras
            b"o save checkpoint",  # fairseq
            b"aved a checkpoint",  # MaxText
            b"heckpoint of size ",  # torchtune
            b"heckpoint saved",
            b"heckpoint Save : ",  # NeMo
            b"aving current state to ",  # accelerate
            b"aving ckpt",  # MindFormers
            b"Writing model to ",  # llm.c
            b"[Torch] Saving ",  # DeepSpeed
        )
    ),
    (b"alidation loss at iteration", "evaluation"),
    (b"Running Evaluation", "evaluation"),
    (b" | valid | ", "evaluation"),
    (b", val loss ", "evaluation"),
)
STAMPS = b"BatchTimestamp<batch_index: "
NUMBERED = b"[step=", b"[batch="  # a line of OLMo-core and of Composer that numbers the step whose metrics follow
COMM = b"| comm op: "
REDUCED = b"ward_allreduce: ", b" bwd_allreduce: "
TOTAL = b"total images/sec: "
_TOOLS = {
    tool.literal: tool
    for tool in (
        *own_steps.TOOLS,
        *epoch_lines.TOOLS,
        *step_formats.TOOLS,
        *research_lines.TOOLS,
        *tensorflow_steps.TOOLS,
        *metric_lines.TOOLS,
    )
}
KINDS = dict(_EVENTS)
SETTINGS = frozenset((*run_settings.LITERALS, *layout.LITERALS))
_AGAIN = SETTINGS.union(REDUCED)  # of a line all of them are looked at
_BESIDE_STEPS = _AGAIN.union(Losses.LITERALS, NUMBERED, (STAMPS,))
_TOGETHER = 1 << 14  # lines whose forms are looked for together
_NCCL = compiled(rb"NCCL (?:INFO|TRACE|WARN) ")  # NCCL's `[0]` is a GPU, and what `took 3 ms` in its lines is no step
LITERALS = sorted(
    {
        *_TOOLS,
        *KINDS,
        *SETTINGS,
        STAMPS,
        COMM,
        *NUMBERED,
        *REDUCED,
        TOTAL,
        loss_values.LITERAL,
        *all_reduce_bench.LITERALS,
        *Losses.LITERALS,
    }
)
TOOL_OF = [_TOOLS.get(literal) for literal in LITERALS]
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_NUMBERED = [zeros for literal in LITERALS if b"0" in (zeros := literal.translate(_AS_ZEROS))]
LOSSES = LITERALS.index(loss_values.LITERAL)
_LONE = LITERALS.index(own_steps.LONE)
_LONE_SECONDS = LITERALS.index(own_steps.LONE_SECONDS)
_BARE = np.array([LITERALS.index(literal) for literal in own_steps.BARE])
_IS_TOOL = np.array([tool is not None or which == LOSSES for which, tool in enumerate(TOOL_OF)])
_IS_GUESS = np.array([tool is not None and tool.is_guess for tool in TOOL_OF])


@cache
def _gate(with_guesses: bool) -> tuple[Prefilter, Numbers]:
    """Finds literals; and what the index of each is among all."""
    wanted = [index for index, is_guess in enumerate(_IS_GUESS) if with_guesses or not is_guess]
    found = prefilter(frozenset(LITERALS[index] for index in wanted), name="steps" if with_guesses else "known-steps")
    return found, np.array(wanted)  # both in the order of their literals


def _places(block: bytes, with_guesses: bool) -> tuple[Numbers, Numbers]:
    """Where a block has literals, and which."""
    gate, indexes = _gate(with_guesses)
    at, which = gate.places(block)
    which = indexes[which]
    data = np.frombuffer(block, np.uint8)
    behind = np.flatnonzero((which == _LONE) & (at + 1 < len(block)))  # ` msg=` in each line of a log is no time
    none = [behind[(data[at[behind] + 1] | np.uint8(0x20)) - np.uint8(ord("a")) < 26]]
    for literals, distance in ((_BARE, 1), (_LONE_SECONDS, -len(own_steps.LONE_SECONDS))):  # ` time 0.9`, `0.9 sec`
        near = np.flatnonzero(np.isin(which, literals))
        none.append(near[data[np.clip(at[near] + distance, 0, len(block) - 1)] - np.uint8(ord("0")) >= 10])
    words = np.concatenate(none)
    if len(words):
        at, which = np.delete(at, words), np.delete(which, words)
    return at, which


class Batch(NamedTuple):
    """Lines of a block that are taken together."""

    block: bytes
    start: Numbers
    stop: Numbers
    numbers: Numbers  # of the lines

    def text(self, row: int) -> bytes:
        """A line, cut where it is too long."""
        start = int(self.start[row])
        return self.block[start : min(int(self.stop[row]), start + LONGEST)]


class Other(NamedTuple):
    """A line that is no step, and the first literal in it."""

    word: bytes
    line: bytes
    number: int
    place: int  # of the literal
    piece: int  # where the part of the line begins that a carriage return cuts
    end: int

    @property
    def is_taken(self) -> bool:
        """Whether a literal of steps in it means nothing."""
        return self.word not in _BESIDE_STEPS


class StepGroup(NamedTuple):
    """Lines that differ in their numbers only, and which literals they hold."""

    group: Group
    literals: tuple[int, ...]


class Places(NamedTuple):
    """Lines of a block that hold a literal of a step line: by their layout, and others by the places of literals."""

    lines: BlockLines
    number: int  # of the first line
    found: list[Alike]
    at: Numbers
    which: Numbers  # literal
    others: Numbers  # places of literals of other lines
    of_others: Numbers  # literal

    def other_lines(self) -> list[Other]:
        """The lines that are no steps; those with settings once for each literal."""
        found = []
        cursor = Cursor(self.lines.block, self.number)
        for place, literal in zip(self.others.tolist(), self.of_others.tolist(), strict=True):
            if place > cursor.used:
                word = LITERALS[literal]
                found.append(Other(word, *cursor.line(place), place, cursor.piece, cursor.end))
                if word not in _AGAIN:
                    cursor.done()
        return found

    def before(self, end: int) -> "tuple[Places, Places]":
        """Those before a place, and the others."""
        cut = int(np.searchsorted(self.at, end))
        part = int(np.searchsorted(self.lines.start, end))
        split = [alike.split(part) for alike in self.found]
        first, rest = ([pair[side] for pair in split if len(pair[side].parts)] for side in (0, 1))
        return (
            self._replace(found=first, at=self.at[:cut], which=self.which[:cut]),
            self._replace(found=rest, at=self.at[cut:], which=self.which[cut:]),
        )

    def with_guesses(self) -> "Places":
        """All places of steps in the block, also those of loops that nobody knows."""
        at, which = _places(self.lines.block, with_guesses=True)
        is_tool = _IS_TOOL[which]
        return self._replace(found=[], at=at[is_tool], which=which[is_tool])

    def known(self) -> "Places":
        """Without those of loops that nobody knows."""
        found = [alike for alike in self.found if not _IS_GUESS[list(alike.layout.literals)].all()]
        known = ~_IS_GUESS[self.which]
        return self._replace(found=found, at=self.at[known], which=self.which[known])

    def without(self, others: list[Other]) -> "Places":
        """Without the places in lines that mean something else."""
        taken = [(other.piece, other.end) for other in others if other.is_taken] if len(self.at) else []
        if not taken:
            return self
        start, stop = (np.array(column) for column in zip(*taken, strict=True))
        of = np.searchsorted(start, self.at, side="right") - 1
        free = (of < 0) | (self.at >= stop[of])
        return self._replace(at=self.at[free], which=self.which[free])

    def groups(self, layouts: Layouts) -> tuple[Batch, list[StepGroup]]:
        """All these lines, and what they are; `layouts` takes those that many have."""
        parts, first = np.unique(np.searchsorted(self.lines.stop, self.at), return_index=True)
        every = np.concatenate([parts, *(alike.parts for alike in self.found)])
        order = np.argsort(every, kind="stable")  # runs that ascend are merged
        rows = np.empty(len(every), np.int64)
        rows[order] = np.arange(len(every))
        groups = list[StepGroup]()
        start = len(parts)
        for known, of_layout, numbers in self.found:
            some = slice(start, start + len(of_layout))
            groups.append(StepGroup(Group(known.key, rows[some], numbers), known.literals))
            start += len(of_layout)
        last = np.append(first[1:], len(self.at))
        only_guess = np.logical_and.reduceat(_IS_GUESS[self.which], first) if len(first) else np.zeros(0, bool)
        for start in range(0, len(parts), _TOGETHER):
            these = np.arange(start, min(start + _TOGETHER, len(parts)))
            texts = self.lines.texts(parts[these])
            is_step = np.array(
                [
                    not guess or _NCCL.search(text) is None
                    for guess, text in zip(only_guess[these].tolist(), texts, strict=True)
                ],
                bool,
            )
            if not is_step.all():
                these, texts = these[is_step], list(compress(texts, is_step.tolist()))
            for group in Texts(texts).groups() if texts else ():
                of = these[group.rows]
                literals = tuple(self.which[first[of[0]] : last[of[0]]].tolist())
                self._learn(layouts, parts[of], group.key, literals)
                groups.append(StepGroup(group._replace(rows=rows[of]), literals))
        every = every[order]
        lines = self.lines
        return Batch(lines.block, lines.start[every], lines.stop[every], lines.numbers(every) + self.number), groups

    def _learn(self, layouts: Layouts, parts: Numbers, key: int, literals: tuple[int, ...]) -> None:
        """Take the layouts of lines that hold these literals and no others, whatever their numbers are."""
        start, stop = (np.searchsorted(self.others, at[parts]) for at in (self.lines.start, self.lines.stop))
        line = self.lines.text(int(parts[0])).translate(_AS_ZEROS)
        if (start == stop).all() and not any(literal in line for literal in _NUMBERED):
            layouts.learn(self.lines, parts, key, literals)


def places_of(block: bytes, number: int, layouts: Layouts, *, with_guesses: bool) -> Places | None:
    """Where a block, whose first line has a number, holds step lines; None where it has no literal."""
    lines, rest = None, block
    found = list[Alike]()
    if layouts:
        lines = BlockLines(block)
        found = layouts.find(lines)
    if lines is None or not found:
        at, which = _places(block, with_guesses)
    else:
        rest, begin, moved = without(lines, found)
        at, which = _places(rest, with_guesses)
        at += moved[np.searchsorted(begin, at, side="right") - 1] if len(at) else 0
    if not len(at) and not found:
        return None
    is_tool = _IS_TOOL[which]
    return Places(lines or BlockLines(block), number, found, at[is_tool], which[is_tool], at[~is_tool], which[~is_tool])
