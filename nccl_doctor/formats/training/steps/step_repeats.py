"""Step lines that say nothing new: those of other ranks without a label, and progress bars that were drawn again."""

from collections import defaultdict

import numpy as np

from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.steps.step_columns import Steps

_BACK = 64  # a step so far behind the last one is a line of another rank, not a new pass
_BARS = 50_000  # steps of bars remembered
_ADVANCED = 3  # lines of a bar between two bars inside it from which on it is the loop, and those are its evaluations
_PAUSE = 10  # seconds between two lines of a bar from which on its clock is exact enough
_PASS = 1e9  # more than a bar has steps
_SHORT = 0.7  # part of that time below which what a bar shows is a mean over faster steps


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
        self._shown: dict[
            tuple[float, float], tuple[float, float, float]
        ] = {}  # bar -> step, clock, epoch of its last line
        self._clock = np.nan, np.nan  # of the last line, and its step
        self._inner: set[tuple[float, float]] = set()  # bars that ran while another stood still

    def new(self, steps: Steps) -> Flags | None:
        """Which lines say something new; None for all of them. Numbers the steps of lines that end an epoch and tell how many it had."""
        if "total" in steps:
            ends = np.isnan(steps["step"]) & np.isnan(steps["elapsed"]) & ~np.isnan(steps["total"])
            if ends.any():
                steps.put("step", ends, (self.last or 0) + np.cumsum(steps["total"][ends]))
        if "since" in steps:
            self._divide(steps)
        if "clock" in steps:
            self._by_clock(steps)
        kept = self._new_bars(steps) if self._is_bar else None
        if "pass" in steps:
            numbered = ~np.isnan(steps["pass"]) & ~np.isnan(steps["total"])
            steps.put("step", numbered, (steps["pass"] * steps["total"] + steps["step"])[numbered])
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

    def _by_clock(self, steps: Steps) -> None:
        """The seconds of a step by a clock that runs while the job trains; a line that starts it again keeps what it says itself."""
        clock, step = steps["clock"], steps["step"]
        before, at = self._clock
        count = np.diff(step, prepend=at)
        with np.errstate(divide="ignore", invalid="ignore"):
            took = np.diff(clock, prepend=before) / count
        by_clock = (count > 0) & (took > 0)
        steps.put("seconds", by_clock, took[by_clock])
        self._clock = float(clock[-1]), float(step[-1])

    def _new_bars(self, steps: Steps) -> Flags | None:
        """Bars of another step, or of the same at another time: that is another epoch."""
        kept = np.ones(steps.count, bool)
        label, total, elapsed = steps["label"], np.nan_to_num(steps["total"]), steps["elapsed"]
        step = steps["step"] + _PASS * np.nan_to_num(steps["pass"])
        self._find_inner(steps)
        for bar in set(zip(label.tolist(), total.tolist(), strict=True)):
            if bar in self._inner:
                kept[(label == bar[0]) & (total == bar[1])] = False
                continue
            of_bar = np.flatnonzero((label == bar[0]) & (total == bar[1]))
            kept[of_bar] = self._drawn(self._bars[bar], step[of_bar].tolist(), elapsed[of_bar])
            self._unsmooth(bar, steps, of_bar, kept)
        return None if kept.all() else kept

    def _unsmooth(self, bar: tuple[float, float], steps: Steps, of_bar: Numbers, kept: Flags) -> None:
        """Correct what a bar shows after a pause, because tqdm shows a moving mean that goes down in ten lines.

        The clock of the bar, in whole seconds, tells the longest and the shortest time that the steps since the line before took.
        """
        which = of_bar[kept[of_bar]]
        if not len(which):
            return
        at, when, epoch = steps["step"][which], steps["elapsed"][which], np.nan_to_num(steps["pass"][which])
        before = self._shown.get(bar, (np.nan, np.nan, np.nan))
        self._shown[bar] = float(at[-1]), float(when[-1]), float(epoch[-1])
        count, passed = np.diff(at, prepend=before[0]), np.diff(when, prepend=before[1])
        passed[np.diff(epoch, prepend=before[2]) != 0] = np.nan  # each epoch has a clock of its own
        kept[which[(count == 0) & (passed > 0)]] = False  # drawn again after a pause
        seconds = steps["seconds"][which]
        with np.errstate(divide="ignore", invalid="ignore"):
            known = (count > 0) & (passed >= 0)
            too_long = known & (seconds > (passed + 1) / count)
            too_short = known & (passed >= _PAUSE) & (seconds < _SHORT * (passed - 1) / count)
            measured = np.where(passed >= _PAUSE, passed / count, np.nan)
            steps.put("seconds", which, np.where(too_long | too_short, measured, seconds))

    def _find_inner(self, steps: Steps) -> None:
        """Find the bars of evaluations: each was drawn from its start while the bar of the steps, which had advanced, stood still.

        The bar of an epoch inside a bar of epochs is none: the outer one advances once for each.
        """
        label, total, step, elapsed = (steps[name] for name in ("label", "total", "step", "elapsed"))
        total = np.nan_to_num(total)  # of a bar whose length is not known
        starts = np.flatnonzero((np.diff(label, prepend=np.nan) != 0) | (np.diff(total, prepend=np.nan) != 0))
        if len(starts) < 3:  # a bar, one inside it, and the first again
            return
        ends = np.append(starts[1:], steps.count) - 1
        bars = list(zip(label[starts].tolist(), total[starts].tolist(), strict=True))
        for at in range(1, len(bars) - 1):
            before, after = int(ends[at - 1]), int(starts[at + 1])
            if (
                bars[at - 1] == bars[at + 1]
                and step[before] - step[starts[at - 1]] >= _ADVANCED
                and 0 <= step[after] - step[before] <= 1
                and elapsed[after] >= elapsed[before]
                and step[starts[at]] <= 2  # tqdm draws the first ones at once
            ):
                self._inner.add(bars[at])
        resumed = [int(start) for start, bar in zip(starts[1:], bars, strict=False) if bar in self._inner]
        steps.put("seconds", np.array(resumed, int), np.nan)  # the evaluation is no part of a step

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
