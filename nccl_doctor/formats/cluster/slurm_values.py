"""Elements and values in the JSON of Slurm, which each version of its `data_parser` writes in its own way."""

import json
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.inputs.json_depth import Shallow
from nccl_doctor.inputs.json_items import BrokenJson, array_items
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import read_head

_GPUS = re.compile(r"gres/gpu=(\d{1,4})|gpu:(?:[\w.-]{1,40}:)?(\d{1,4})")
_LONGEST = 400  # characters of a text
_LARGEST = 8 << 20  # bytes of a single object


class Elements:
    """The objects in the first array of a name, each with the number of its first line. Raises as `array_items` and `Shallow` do."""

    def __init__(self, stream: Readable, key: str) -> None:
        self.lines = 0  # line ends that were read
        self._stream = stream
        self._key = key
        self._starts: list[int] = []

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the stream, whose lines are counted."""
        data = self._stream.read(size) or b""
        self.lines += data.count(b"\n")
        return data

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for item in array_items(Shallow(self), self._key, self._see):
            if isinstance(item, dict):
                yield self._starts[-1], item

    def only(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The object that the whole stream is, in place of those of an array. Raises BrokenJson where it is none."""
        data = read_head(Shallow(self), _LARGEST)
        try:
            item = json.loads(data)
        except ValueError as error:
            raise BrokenJson(f"is no complete JSON: {str(error)[:100]}") from error
        if isinstance(item, dict):
            yield 1, item

    def _see(self, read: str, at: int) -> int:
        """Note the line of an element, which the caller then reads."""
        self._starts.append(self.lines - read.count("\n", at) + 1)
        return at


def inner(value: dict[str, Any], key: str) -> dict[str, Any]:
    """An object inside another one; empty where there is none."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def number(value: object) -> int | None:
    """An integer, or that of `{"set": true, "infinite": false, "number": 3}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) is True and value.get("infinite") is not True else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def text(value: object) -> str | None:
    """A text that is not empty."""
    return value[:_LONGEST] if isinstance(value, str) and value else None


def state(value: object) -> str:
    """`FAILED`, or the first word of `["FAILED"]`."""
    first = value[0] if isinstance(value, list) and value else value
    return first.split()[0][:40] if isinstance(first, str) and first.strip() else ""


def gpus(resources: str) -> int | None:
    """The GPUs in `cpu=64,gres/gpu=8` or in `gpu:h100:8(S:0-1)`."""
    found = _GPUS.search(resources) if "gpu" in resources else None
    return int(found[1] or found[2]) if found is not None else None
