"""Time and order: merges the lines of many sources into one text, as a pipe or a terminal shows them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

from nccl_doctor.simulate.cluster import Host, Rank

Source = Rank | Host | None
"""Who prints a line: a rank, a host (its launcher agent or its kernel), or None for the launcher of the job."""


class Phase:
    """A period of the job in which sources print at the same time; phases follow each other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.records: dict[Source, list[str]] = {}

    def add(self, source: Source, *texts: str) -> None:
        """Add records of a source in order; a record may have several lines that stay together."""
        if source in self.records:
            self.records[source].extend(texts)
        else:
            self.records[source] = list(texts)


def merge_sources(phase: Phase, start: float, rng: Random, interleave: bool) -> Iterator[tuple[float, Source, str]]:
    """Yields (time, source, record) of a phase, interleaved over the sources or one source after the other."""
    timed: list[tuple[float, int, int, Source, str]] = []
    total = len(phase.records) or 1
    random = rng.random
    for number, (source, texts) in enumerate(phase.records.items()):
        # a rank starts up to a third of the phase late, so that some are ahead of others
        late = random() / 3 if interleave else number / total
        share = 1 - late if interleave else 1 / total
        begin = start + phase.seconds * late
        step = phase.seconds * share / len(texts)
        for position, text in enumerate(texts):
            timed.append((begin + (position + random()) * step, number, position, source, text))
    timed.sort(key=lambda record: record[:3])
    for when, _, _, source, text in timed:
        yield when, source, text


KERNEL_STAMP = "\x00k"  # what lines of the kernel begin with
_CODE = re.compile("\x00([a-z])")
_FORMATS = {
    "t": "%Y-%m-%d %H:%M:%S",
    "f": "%Y-%m-%d %H:%M:%S.%f",
    "k": "%b %d %H:%M:%S",
    "s": "%Y-%m-%dT%H:%M:%S",
    "u": "%Y-%m-%d_%H:%M:%S",
}


def fill_times(text: str, when: float, all_stamped: bool) -> str:
    """Replace the time codes of a record; `all_stamped` = NCCL prints a time on every line, in its ISO form.

    Codes after a NUL: n NCCL WARN, i NCCL INFO, c PyTorch's C++ logger, e torchelastic, t f k s u plain forms.
    """
    if "\x00" not in text:
        return text
    now = datetime.fromtimestamp(when, UTC)

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code == "i":
            return f"{now:%Y-%m-%d %H:%M:%S.%f} " if all_stamped else ""
        if code == "n":
            return f"{now:%Y-%m-%d %H:%M:%S.%f} " if all_stamped else f"[{now:%Y-%m-%d %H:%M:%S}] "
        if code == "c":
            # the nine digits belong to another clock than the seconds before them
            return f"{now.month}{now:%d %H:%M:%S}.{(now.microsecond * 7919 + 314159) % 1_000_000_000:09d}"
        if code == "e":
            return f"{now:%m%d %H:%M:%S}.{now.microsecond // 1000:03d}000"
        return now.strftime(_FORMATS[code])

    return _CODE.sub(one, text)
