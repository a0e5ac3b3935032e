"""How fast a job makes steps, and whether that changed: from what samplers and logs say of its newest step."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from nccl_doctor.watch.series import HISTORY, Device, number

LATELY = 30.0  # seconds that are compared with the time before
FEWEST = 5  # values of each side
SLOWER = 1.25  # times longer than before
LEAST_SILENCE = 10.0  # seconds without a step that are worth a word
SILENT_STEPS = 10.0  # times the usual step


@dataclass
class Progress:
    """The steps of one job."""

    name: str
    step: int = 0
    at: float = 0.0  # when the newest step was seen
    device: Device = field(default_factory=lambda: Device("steps"))  # seconds of a step, as a series
    _before: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, record: dict[str, Any]) -> None:
        """Add what one sample says; a sample without a new step adds nothing."""
        step, seconds, at = number(record.get("step")), number(record.get("seconds")), number(record.get("at"))
        if step is None or at is None or at <= self.at:
            return
        self.step, self.at = int(step), at
        if seconds is not None and seconds > 0:
            self.device.add_sample({}, at, {"seconds": seconds})

    @property
    def seconds(self) -> float | None:
        """Seconds of a step in the last samples."""
        values = self.device.recent("seconds", self.at - LATELY)
        return median(values) if values else None

    @property
    def before(self) -> float | None:
        """Seconds of a step before the last samples; None where there were too few."""
        lately = self.device.recent("seconds", self.at - LATELY)
        values = self.device.recent("seconds", float("-inf"))[len(lately) :]
        return median(values) if len(values) >= FEWEST and len(lately) >= FEWEST else None

    def silence(self, now: float) -> float | None:
        """Returns for how long no step came, in seconds; None where that is not unusual."""
        usual = self.seconds
        if usual is None:
            return None
        waited = now - self.at
        return waited if waited > max(LEAST_SILENCE, SILENT_STEPS * usual) else None

    def sentence(self, now: float) -> tuple[str, bool]:
        """Returns `412 ms/step, step 1,234`, and whether that is worse than before."""
        seconds, before, silence = self.seconds, self.before, self.silence(now)
        if silence is not None and seconds is not None:
            return f"no step for {silence:.0f} s, {duration(seconds)}/step before, step {self.step:,}", True
        if seconds is None:
            return f"step {self.step:,}", False
        if before is not None and seconds >= SLOWER * before:
            return f"{duration(seconds)}/step, {duration(before)} before, step {self.step:,}", True
        return f"{duration(seconds)}/step, step {self.step:,}", False


def duration(seconds: float) -> str:
    """Returns `412 ms`, `1.8 s` or `35 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
