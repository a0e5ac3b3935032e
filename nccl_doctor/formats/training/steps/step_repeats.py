"""Step lines that say nothing new: those of other ranks without a label, and progress bars that were drawn again."""

from collections import defaultdict

import numpy as np

from nccl_doctor.common.text_keys import Flags
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.steps.step_columns import Steps

_BACK = 64  # a step so far behind the last one is a line of another rank, not a new pass
_BARS = 50_000  # steps of bars remembered


class StepRepeats:
    """The steps of one series so far."""

    def __init__(self, is_bar: bool) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self._is_bar = is_bar
        self._bars: dict[tuple[float, float], dict[float, float]] = defaultdict(
            dict
        )  # bar -> step -> when it was drawn
        self._count = 0

    def new(self, steps: Steps) -> Flags | None:
        """Which lines say something new; None for all of them. Numbers the steps of lines that end an epoch and tell how many it had."""
        if "total" in steps:
            ends = np.isnan(steps["step"]) & np.isnan(steps["elapsed"]) & ~np.isnan(steps["total"])
            if ends.any():
                steps.put("step", ends, (self.last or 0) + np.cumsum(steps["total"][ends]))
        if "since" in steps:
            self._divide(steps)
        kept = self._new_bars(steps) if self._is_bar else None
        step = steps["step"] if kept is None else steps["step"][kept]
        known = step[~np.isnan(step)]
        if not len(known):
            return kept
        last = self.last
        self.first = int(known[0]) if self.first is None else self.first
        if self._is_bar or ((known[1:] > known[:-1]).all() and (last is None or known[0] > last)):
            self.last = int(known[-1])
            return kept
        flags = []
        before = float(known[0]) - 1 if last is None else float(last)
        for one in step.tolist():
            is_new = not before - _BACK < one <= before  # also where it is not known
            flags.append(is_new)
            before = one if is_new and one == one else before
        self.last = int(before)
        return np.array(flags)

    def _divide(self, steps: Steps) -> None:
        """The seconds of a step, of lines with the seconds since the one before; the first takes the distance of the others."""
        count = np.diff(steps["step"], prepend=np.nan if self.last is None else self.last)
        ahead = count[count > 0]
        if len(ahead):
            with np.errstate(invalid="ignore"):
                count = np.where(count > 0, count, np.median(ahead))
            steps.put("seconds", np.ones(steps.count, bool), steps["since"] / count)

    def _new_bars(self, steps: Steps) -> Flags | None:
        """Bars of another step, or of the same at another time: that is another epoch."""
        kept = np.ones(steps.count, bool)
        label, total, step, elapsed = steps["label"], steps["total"], steps["step"], steps["elapsed"]
        for bar in set(zip(label.tolist(), total.tolist(), strict=True)):
            of_bar = np.flatnonzero((label == bar[0]) & (total == bar[1]))
            kept[of_bar] = self._drawn(self._bars[bar], step[of_bar].tolist(), elapsed[of_bar])
        return None if kept.all() else kept

    def _drawn(self, known: dict[float, float], steps: list[float], elapsed: Floats) -> Flags:
        times = elapsed.tolist()
        if self._count + len(steps) < _BARS and len(set(steps)) == len(steps) and known.keys().isdisjoint(steps):
            known.update(zip(steps, times, strict=True))
            self._count += len(steps)
            return np.ones(len(steps), bool)
        flags = []
        for step, when in zip(steps, times, strict=True):
            before = known.get(step)
            is_new = before is None or abs(before - when) > max(2, before // 50)
            flags.append(is_new)
            if is_new and self._count < _BARS:
                self._count += before is None
                known[step] = when
        return np.array(flags, bool)
