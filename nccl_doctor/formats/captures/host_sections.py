"""Parts of what commands about a host print, each a class that takes its lines: limits, memory, processors, counters of `perf stat`.

The reader is `host_commands`. A part begins with a line that `BEGINS` matches and ends with the first line that it does not take.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from nccl_doctor.facts.tables import HostMemory, HostNumber, TaskLimit

Add = Callable[[Any, int, str], None]
"""Takes a row without host, file and evidence, and the line that shows it."""
UNLIMITED = -1
HIGHEST_COUNTS = (
    "%",
    "ms",
    "B/s",
    "/s",
)  # units of numbers of which a command that runs in a loop has its highest as the worst
_KIB = 1024
_NAMES = 10_000  # numbers of a part that are remembered
_SIZES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"(\d{1,18}(?:[.,]\d{1,3})?)([BKMGTP]?)i?B?")


class Section:
    """One part of a capture."""

    BEGINS: ClassVar[re.Pattern[str]]

    def __init__(self, add: Add) -> None:
        self.add = add
        self._highest: dict[str, float] = {}  # name of a number -> what was added of it

    def take(self, text: str, number: int) -> bool:
        """Use a line; False where the part is over."""
        raise NotImplementedError

    def take_all(self, texts: Sequence[str], at: int, first: int) -> int:
        """Use lines from place `at` on, of which the first of all has number `first`: the place of the one that is not part of it."""
        for place in range(at, len(texts)):
            if not self.take(texts[place], first + place):
                return place
        return len(texts)

    def number(
        self, command: str, name: str, value: float, unit: str, at: tuple[int, str], host: str | None = None
    ) -> None:
        """Keep one number, unless it is no worse than the one of that name before."""
        if unit in HIGHEST_COUNTS:
            if value <= self._highest.get(name, -1.0):
                return
            if len(self._highest) < _NAMES:
                self._highest[name] = value
        self.add(HostNumber(host, "", command, name, value, unit, 0), *at)


def parse_size(text: str) -> float | None:
    """`1.9Ti`, `502G`, `0B`, `1,5T` as bytes; a number without a unit as it is; None for other words."""
    found = _SIZE.fullmatch(text)
    return None if found is None else float(found[1].replace(",", ".")) * _SIZES[found[2]]


class Limits(Section):
    """`ulimit -a` of bash and zsh: `max locked memory           (kbytes, -l) 64`; /proc/PID/limits."""

    BEGINS = re.compile(
        r"(?:[a-z][A-Za-z -]{2,30} +\((?:[\w ]{2,20}, )?-[a-zA-Z]\) +\S|-[a-zA-Z]: [a-z]|Max [a-z]{3,8} [a-z]|Limit +Soft)"
    )
    _BASH = re.compile(
        r"[a-z][A-Za-z -]{2,30}? +\((?:[\w ]{2,20}, )?-(?P<option>[a-zA-Z])\) +(?P<soft>unlimited|\d{1,19})\s*$"
    )
    _ZSH = re.compile(
        r"-(?P<option>[a-zA-Z]): [a-z][\w /-]{1,30}?(?: \([\w-]{1,20}\))?\s{2,}(?P<soft>unlimited|\d{1,19})\s*$"
    )
    _PROC = re.compile(
        r"Max (?P<title>[a-z ]{3,20}?)\s{2,}(?P<soft>unlimited|\d{1,19})\s{1,24}(?P<hard>unlimited|\d{1,19})"
    )
    _OPTIONS: ClassVar = {
        "l": ("memlock", "locked memory", _KIB, "B"), "n": ("nofile", "open files", 1, ""), "u": ("nproc", "processes", 1, ""),
        "s": ("stack", "stack", _KIB, "B"), "v": ("as", "virtual memory", _KIB, "B"),
    }  # fmt: skip
    _TITLES: ClassVar = {
        "locked memory": "l",
        "open files": "n",
        "processes": "u",
        "stack size": "s",
        "address space": "v",
    }

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        found = self._BASH.match(text) or self._ZSH.match(text)
        proc = None if found is not None else self._PROC.match(text)
        if found is None and proc is None:
            return self.BEGINS.match(text) is not None
        match = found or proc
        assert match is not None
        known = self._OPTIONS.get(match["option"] if found else self._TITLES.get(match["title"], ""))
        if known is None:
            return True
        name, title, factor, unit = known
        factor = factor if found else 1
        soft, hard = (
            self._amount(match[key], factor) if key in match.groupdict() else None for key in ("soft", "hard")
        )
        assert soft is not None
        self.add(TaskLimit(None, "shell", name, soft, hard, 0), number, text)
        self.number("ulimit", title, soft, unit, (number, text))
        return True

    @staticmethod
    def _amount(text: str, factor: int) -> int:
        return UNLIMITED if text == "unlimited" else min(int(text) * factor, (1 << 63) - 1)


class Free(Section):
    """`free`, in whatever unit and language: a line of titles, `Mem:`, `Swap:`; `-/+ buffers/cache:` of old versions."""

    BEGINS = re.compile(
        r"\s{4,24}[a-z]{3,12}\s+[a-zé]{2,12}\s.{0,80}(?:buff/cache|/[Cc]ache|tampons/cache|buffers\s+cached)(?:\s|$)"
    )
    _ROW = re.compile(r"(?P<title>[A-Z][\w.é]{2,12}:|-/\+ [\w/]{5,20}:)\s+(?P<cells>\d.*)$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._modern = True
        self._memory: HostMemory | None = None
        self._at = 0, ""
        self._unit = 1.0

    def take(self, text: str, number: int) -> bool:
        """Use a line; `free -s` prints the whole again and again."""
        if self.BEGINS.match(text):
            self._modern = "cached" not in text.split()
            self._memory = None
            return True
        row = self._ROW.match(text)
        if row is None:
            return not text.strip() and self._memory is not None
        cells = [parse_size(cell) for cell in row["cells"].split()]
        if any(cell is None for cell in cells) or len(cells) < 2:
            return False
        values = [cell for cell in cells if cell is not None]
        if self._memory is None and len(values) >= 3:
            self._unit = 1.0 if re.search(r"[A-Z]", row["cells"]) else _unit_of(values[0])
            available = values[5] if self._modern and len(values) > 5 else None
            self._at = number, text
            total, free = self._bytes(values[0], available)
            self._memory = HostMemory(None, total, free, None, None, 0)
        elif self._memory is None:
            return False
        elif row["title"].startswith("-/+"):
            self._memory = self._memory._replace(available=self._bytes(values[-1])[0])
        else:
            total, free = self._bytes(values[0], values[-1])
            self._memory = self._memory._replace(swap_total=total, swap_free=free)
            self._write()
        return True

    def _write(self) -> None:
        memory = self._memory
        if memory is None or not memory.total:
            return
        self.add(memory, *self._at)
        self.number("free", "memory", memory.total, "B", self._at)
        if memory.available is not None:
            self.number("free", "available", memory.available, "B", self._at)

    def _bytes(self, *values: float | None) -> Any:
        return tuple(None if value is None else int(value * self._unit) for value in values)


class MemInfo(Section):
    """/proc/meminfo (`man 5 proc`): `MemTotal:       2113461232 kB`; `MemAvailable` comes behind it."""

    BEGINS = re.compile(r"MemTotal: +\d{1,15} kB")
    _ROW = re.compile(r"(?P<name>[A-Z][\w()]{2,30}): +(?P<size>\d{1,15})(?: kB)?\s*$")
    _total = 0

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self._ROW.match(text)
        if row is None:
            return False
        size = int(row["size"]) * _KIB
        if row["name"] == "MemTotal":
            self._total = size
            self.number("meminfo", "memory", size, "B", (number, text))
        elif row["name"] == "MemAvailable" and self._total:
            self.add(HostMemory(None, self._total, size, None, None, 0), number, text)
            self.number("meminfo", "available", size, "B", (number, text))
        return True


def _unit_of(total: float) -> float:
    """Bytes of the unit in which a host of 8 GiB to 8 TiB has so much memory: `free` does not print it."""
    return 1.0 if total > 1e10 else 1 << 10 if total >= 8e6 else 1 << 20 if total >= 4096 else 1 << 30


class Lscpu(Section):
    """`lscpu`."""

    BEGINS = re.compile(r"(?:Architecture|CPU op-mode\(s\)|CPU\(s\)): {2,40}\S|NUMA:\s{0,40}$")
    # util-linux 2.37 puts rows below titles with blanks behind them
    _ROW = re.compile(r"\s{0,4}(?P<title>[A-Z][\w() -]{2,40}?):(?:\s{2,40}(?P<value>\S.*)|\s{0,60})$")
    _TITLES: ClassVar = {
        "CPU(s)": "CPUs", "Socket(s)": "sockets", "NUMA node(s)": "NUMA nodes", "Thread(s) per core": "threads a core",
    }  # fmt: skip

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        said = self._parse(text)
        if said is None:
            return False
        if said[0]:
            self.number("lscpu", *said, "", (number, text))
        return True

    @classmethod
    @lru_cache(1 << 10)  # most hosts print the same
    def _parse(cls, text: str) -> tuple[str, int] | None:
        """The name of a number and its value, an empty name for a line that is not kept; None for another line."""
        row = cls._ROW.match(text)
        if row is None:
            return None
        name, value = cls._TITLES.get(row["title"]), (row["value"] or "").strip()
        return (name, int(value)) if name is not None and value.isdecimal() and len(value) < 6 else ("", 0)


class Numactl(Section):
    """`numactl -H`: processors and memory of each NUMA node."""

    BEGINS = re.compile(r"available: (\d{1,4}) nodes? \(")
    _ROW = re.compile(
        r"node (?P<node>\d{1,4}) (?:cpus:|(?P<what>size|free): (?P<value>\d{1,12}) MB)|node distances:|node {2,}\d|\s{0,4}\d{1,4}: "
    )

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if (head := self.BEGINS.match(text)) is not None:
            self.number("numactl", "NUMA nodes", int(head[1]), "", (number, text))
            return True
        row = self._ROW.match(text)
        if row is None:
            return False
        if row["what"]:
            name = f"memory of node {row['node']}" if row["what"] == "size" else f"free on node {row['node']}"
            self.number("numactl", name, int(row["value"]) * (1 << 20), "B", (number, text))
        return True


class Top(Section):
    """The head of `top -b`: load, processors, memory. Later screens count, the first shows the mean since the boot in old versions."""

    BEGINS = re.compile(r"top - \d\d:\d\d:\d\d up .{0,120}load average: (?P<load>\d{1,6}[.,]\d\d)[ ,]")
    _CPU = re.compile(r"%?Cpu\(s\):.{0,100}?[ ,](?P<idle>\d{1,3}[.,]\d)[ %]{0,2}id")
    _MEMORY = re.compile(r"(?P<unit>[KMGT])iB Mem\s?:\s{0,20}(?P<total>[\d.,]{1,18})[ +]total")
    _AVAILABLE = re.compile(r"(?P<unit>[KMGT])iB Swap:.*?(?P<available>[\d.,]{1,18})[ +]avail Mem")
    _MORE = re.compile(r"(?:Tasks|Threads|\S{1,20}iB Mem|Mem|Swap|\S{1,20}iB Swap)\s?:|\s*$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._total: tuple[float, int, str] | None = None

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if (head := self.BEGINS.match(text)) is not None:
            self.number("top", "load", _decimal(head["load"]), "", (number, text))
        elif (cpu := self._CPU.match(text)) is not None:
            self.number("top", "CPUs busy", 100 - min(_decimal(cpu["idle"]), 100), "%", (number, text))
        elif (memory := self._MEMORY.match(text)) is not None:
            self._total = _decimal(memory["total"]) * _SIZES[memory["unit"]], number, text
        elif self._total is not None and (found := self._AVAILABLE.match(text)) is not None:
            available = int(_decimal(found["available"]) * _SIZES[found["unit"]])
            total, row, shown = self._total
            self.add(HostMemory(None, int(total), available, None, None, 0), row, shown)
            self.number("top", "memory", total, "B", (number, text))
            self.number("top", "available", available, "B", (number, text))
        else:
            return self._MORE.match(text) is not None
        return True


def _decimal(text: str) -> float:
    """`201.10`, `99,2`, `2063884.0`; 0 for what is no number."""
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return 0.0


class PerfStat(Section):
    """`perf stat`: a value, its unit or event, and what it comes to."""

    BEGINS = re.compile(r"\s{0,4}Performance counter stats for ")
    _ROW = re.compile(
        r"\s{1,24}(?P<value>[\d.,'\u202f]{1,24}|<not (?:supported|counted)>)\s+(?P<unit>msec |ns |seconds )?"
        r"\s{0,4}(?P<event>[a-zA-Z][\w.:/=-]{1,60}(?: elapsed)?)"
    )
    _EVENTS: ClassVar = {"context-switches", "cs", "cpu-migrations", "page-faults", "cycles", "instructions"}

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if self.BEGINS.match(text) or not text.strip():
            return True
        row = self._ROW.match(text)
        if row is None:
            return text.lstrip().startswith(("#", "("))
        digits = re.sub(r"[,'\u202f](?=\d{3}(?:\D|$))", "", row["value"])
        event = row["event"].partition(":")[0]
        if not re.match(r"\d", digits):
            return True
        if row["unit"] == "seconds " and event.startswith("time"):
            self.number("perf stat", "elapsed", _decimal(digits), "s", (number, text))
        elif row["unit"] == "msec " and event.startswith(("cpu-clock", "task-clock")):
            self.number("perf stat", "CPU time", _decimal(digits) / 1000, "s", (number, text))
        elif event in self._EVENTS:
            self.number("perf stat", event.replace("-", " "), _decimal(digits), "", (number, text))
        return True


SECTIONS: tuple[type[Section], ...] = (Limits, Free, MemInfo, Lscpu, Numactl, Top, PerfStat)
