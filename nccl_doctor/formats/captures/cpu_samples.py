"""How busy the processors of a host were, as `sar -u`, `mpstat`, `iostat` and `vmstat` print it, in files of their own or in a log."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

HIGH = 95.0  # % busy
_MOST_HOSTS = 10_000
_BANNER = re.compile(r"Linux \S{1,80} \((\S{1,253})\)\s.{0,80}?\((\d{1,5}) CPU\)")
_CLOCK = re.compile(r"(?:\d{1,2}:\d\d:\d\d\s+)?(?:[AP]M\s+)?")
_PERCENT = re.compile(r"\d{1,3}(?:[.,]\d{1,2})?")


class _Use:
    """The samples of one host."""

    def __init__(self, number: int, text: str) -> None:
        self.place = number, text
        self.samples = self.high = 0
        self.busy = 0.0


class _Reader:
    """One capture, or the lines of one host, while it is read."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.cpus: int | None = None
        self.use: _Use | None = None
        self._titles: list[str] = []
        self._cpu: int | None = None  # which column names the processor
        self._since_boot = False  # the first report of iostat and vmstat is not of the moment
        self._average = False  # titles of `avg-cpu:`, below which is one row
        self._reports: set[str] = set()

    def take(self, line: str, number: int) -> bool:
        """Use a line; False where it is none of a table."""
        if (banner := _BANNER.match(line)) is not None:
            self.host, self.cpus = self.host or banner[1], int(banner[2])
            self._reports.clear()
            return True
        words = _CLOCK.sub("", line, count=1).split()
        if "%idle" in words or ("id" in words and "swpd" in words):
            self._head(words)
            return True
        if not self._titles or len(words) != len(self._titles):
            return False
        if self._cpu is not None and words[self._cpu] != "all":
            return words[self._cpu].isdecimal()
        return self._sample(words, line, number)

    def _head(self, words: list[str]) -> None:
        kind = words[0]
        self._average = kind == "avg-cpu:"
        # in front of the means at the end is `Average:`, in the language of the user
        self._titles = words[1:] if self._average else words if kind in ("CPU", "r") else []
        self._cpu = words.index("CPU") if "CPU" in words else None
        first = kind not in self._reports
        # vmstat repeats its titles after each screen, iostat before each report
        self._since_boot = first and (self._average or "swpd" in words)
        self._reports.add(kind)

    def _sample(self, words: list[str], line: str, number: int) -> bool:
        if self._since_boot:
            self._since_boot = False
            return True
        values = dict(zip(self._titles, words, strict=True))
        idle = _percent(values.get("%idle", values.get("id", "")))
        waiting = _percent(values.get("%iowait", values.get("wa", "0"))) or 0.0
        if idle is None or not 0 <= (busy := 100 - idle - waiting) <= 100:
            return False
        if self.use is None:
            self.use = _Use(number, line.strip()[:600])
        self.use.samples += 1
        self.use.busy += busy
        if busy >= HIGH:
            if not self.use.high:
                self.use.place = number, line.strip()[:600]
            self.use.high += 1
        if self._average:
            self._titles = []
        return True


def _percent(text: str) -> float | None:
    return float(text.replace(",", ".")) if _PERCENT.fullmatch(text) else None


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file. A host counts once, in whichever of the tables it has most samples.

    Source: sar.c, pr_stats.c, mpstat.c and iostat.c of sysstat 12, vmstat.c of procps-ng 4::

        Linux 6.1.0-18-amd64 (node01)   03/04/26        _x86_64_        (96 CPU)
        08:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle
        08:00:11        all     70.94      5.91     11.33      0.00      0.00     11.82
    """
    readers: dict[str | None, _Reader] = {}
    number = used = 0
    for first, label, texts in plain_batches(stream):
        reader = readers.get(label.host)
        if reader is None:
            if len(readers) >= _MOST_HOSTS:
                continue
            reader = readers[label.host] = _Reader()
            reader.host = label.host
        for number, line in enumerate(texts, first):
            used += reader.take(line, number)
    facts.mark_covered("host_use")
    facts.add(
        HostUse(
            host=reader.host, samples=reader.use.samples, first=None, seconds=None, cpus=reader.cpus,
            cpu_mean=reader.use.busy / reader.use.samples, cpu_high_share=reader.use.high / reader.use.samples,
            memory_max=None, memory_total=None, swap_max=None, shm_max=None, shm_total=None, tcp_sent=None, tcp_repeated=None,
            ref=facts.evidence(name, *reader.use.place),
        )
        for reader in readers.values()
        if reader.use is not None
    )  # fmt: skip
    return Reading(number, used)
