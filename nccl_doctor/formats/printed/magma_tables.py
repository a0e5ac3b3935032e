"""Tables of the testers of MAGMA: for each size the speed and the time of a routine in MAGMA, in the library of the vendor and on the CPU.

%   M     N     K   MAGMA Gflop/s (ms)  cuBLAS Gflop/s (ms)   CPU Gflop/s (ms)  MAGMA error  cuBLAS error
 1088  1088  1088   1964.68 (   1.31)    1473.71 (   1.75)     ---   (  ---  )    2.12e-17        ---    ok
"""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place

_LONGEST = 400  # bytes of a line
_TITLE = compiled(rb"(\S{1,20}) G(?:flop/s|B/s) \((?:ms|sec)\)")
_ROW = compiled(rb"\s{0,9}\d{1,9}\s")
_CELL = compiled(rb"(?P<speed>\d{1,12}(?:\.\d{1,9})?|---) {1,9}\( {0,9}(?:\d{1,12}(?:\.\d{1,9})?|---) {0,9}\)")
_SIZES = compiled(rb"\s{0,9}(\d{1,9}(?:\s{1,9}\d{1,9}){0,3})\s")
_FAILED = compiled(rb"\bfailed\s{0,9}\Z")
_UNIT = compiled(rb"G(?:flop|B)/s")


class MagmaTables:
    """The tables of one file, one at a time."""

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._names: list[str] = []
        self._unit = ""

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a title or a row."""
        if len(line) > _LONGEST:
            return False
        if line[:1] == b"%":
            if names := titles_of(line):
                self._names = names
                self._unit = _UNIT.findall(line)[0].decode()
            return bool(names)
        if not self._names or _ROW.match(line) is None:
            return False
        cells, sizes = _CELL.findall(line), _SIZES.match(line)
        if len(cells) != len(self._names) or sizes is None:
            return False
        label = " x ".join(sizes[1].decode().split())
        failed = " (FAILED)" if _FAILED.search(line) is not None else ""
        took = False
        for name, speed in zip(self._names, cells, strict=True):
            if speed != b"---":
                took |= self._series.add(name + failed, self._unit, float(speed), Place(number, line, label))
        return took


def titles_of(line: bytes) -> list[str]:
    """The libraries that the titles of such a table name; none of another line."""
    return [name.decode("utf-8", "replace") for name in _TITLE.findall(line)] if line[:1] == b"%" else []
