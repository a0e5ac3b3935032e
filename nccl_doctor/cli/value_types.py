"""Types of values of options: names of files and folders, and numbers within a range."""

import math
from pathlib import Path
from typing import Any

import click


class _PathType(click.ParamType[Path]):
    """A path. An empty one is refused: pathlib takes it for the current folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if isinstance(value, str) and not value:
            self.fail("the name is empty", param, ctx)
        return Path(value)


PATH = _PathType()


class NumberRange(click.FloatRange):
    """A number between two others. NaN is refused: it is neither below nor above them, and time-outs of it never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return float(number)
