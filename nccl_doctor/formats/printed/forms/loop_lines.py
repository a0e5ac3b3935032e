"""The lines of a block that tell a step and its loss, as columns, in the order in which they stand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nccl_doctor.formats.printed.forms.loop_columns import LoopColumns
from nccl_doctor.formats.printed.loop_marks import CLOCK_WITHIN, LoopLines
from nccl_doctor.formats.printed.progress_clocks import Stamp, stamp_in
from nccl_doctor.formats.printed.series import Place
from nccl_doctor.formats.training.lines.line_numbers import Floats, Texts

_ZERO, _NINE = b"09"
_SECONDS = 19  # bytes of a date and its time without fraction
_FIRST_YEAR = -62_135_596_800.0  # seconds since the epoch of the first year that Python counts
_ALONE = frozenset(("epoch", "step", "total", "loss", "own", "clock", "elapsed"))


def are_alone(loop: LoopColumns) -> bool:
    """Whether each line of a form tells a step and a loss, and what it means does not depend on other lines."""
    names = {name for name, _ in loop.numbers}
    return (
        {"step", "loss"} <= names <= _ALONE
        and not {"epoch", "total"} <= names
        and not loop.places.has_writer
        and not loop.places.counts_samples
    )


def loop_lines(loop: LoopColumns, lines: Sequence[bytes], places: Sequence[Place]) -> LoopLines | None:
    """The columns of lines of a form whose lines `are_alone`; `lines` have no codes.

    None where a number is too long for columns, or times do not stand at one place.
    """
    values, is_long = loop.values(Texts(lines))
    if is_long.any():
        return None
    count = len(places)
    unknown, texts = np.full(count, np.nan), [place.line for place in places]
    when, is_fine = values.get("elapsed", unknown), loop.places.is_fine
    if "elapsed" not in values and loop.places.is_stamped:
        stamp = stamp_in(texts[0])
        if stamp is not None:
            dates = _dates(texts, stamp)
            if dates is None:
                return None
            when, is_fine = dates, stamp.is_fine
        elif any(stamp_in(text) is not None for text in texts):
            return None
    return LoopLines(
        np.array([place.number for place in places]), texts, [loop.places.loss_name] * count, values.get("epoch", unknown),
        values["step"], values["loss"], values.get("own", unknown), values.get("clock", unknown),
        np.full(count, loop.places.has_fine_clock), when, np.full(count, is_fine),
    )  # fmt: skip


def in_order(parts: Sequence[LoopLines]) -> LoopLines:
    """The lines of all parts as they stand in the block."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.number for part in parts]), kind="stable")
    columns: list[Any] = []
    for every in zip(*parts, strict=True):
        if isinstance(every[0], list):
            joined = [one for column in every for one in column]
            columns.append([joined[at] for at in order.tolist()])
        else:
            columns.append(np.concatenate(every)[order])
    return LoopLines._make(columns)


def _dates(lines: Sequence[bytes], stamp: Stamp) -> Floats | None:
    """Seconds since the epoch of the dates of all lines, which stand where that of the first one does; None where one does not."""
    begin = lines[0][: stamp.start]
    if not stamp.text or any(_ZERO <= sign <= _NINE for sign in begin) or not lines[0][:CLOCK_WITHIN].isascii():
        return None
    width = stamp.end - stamp.start + 1  # and the sign behind it
    cut = b"".join([line[stamp.start : stamp.end + 1] for line in lines])
    if len(cut) != len(lines) * width:
        return None
    signs = np.frombuffer(cut, np.uint8).reshape(len(lines), width)
    is_digit = (signs >= _ZERO) & (signs <= _NINE)
    if (is_digit != is_digit[0]).any() or is_digit[0, -1] or (signs != signs[0])[:, ~is_digit[0]].any():
        return None
    dates = np.array(signs[:, :_SECONDS])
    dates[:, [4, 7]] = b"-"[0]
    dates[:, 10] = b"T"[0]
    try:
        seconds = dates.view(f"S{_SECONDS}")[:, 0].astype(str).astype("datetime64[s]").astype(np.int64)
    except ValueError:
        return None
    if (seconds < _FIRST_YEAR).any():
        return None
    fraction = signs[:, _SECONDS + 1 : -1].astype(np.int64) - _ZERO
    micros = fraction @ 10 ** np.arange(5, 5 - fraction.shape[1], -1) if fraction.shape[1] else 0
    found: Floats = (seconds * 1_000_000 + micros) / 1e6
    return found
