"""Names of files and folders as values of options."""

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
