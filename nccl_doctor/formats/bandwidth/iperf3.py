"""Output of `iperf3`, and of `iperf` 2: bandwidth of TCP or UDP between two hosts, as text and as JSON."""

import json
import re
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_HEADS = re.compile(rb"\] local \S{2,80} port \d{1,5} connected (?:to|with) \S{2,80} port \d")
_ENDS = re.compile(r".{0,40}\] local (\S{2,80}) port \d{1,5} connected (?:to|with) (\S{2,80}) port \d{1,5}")
_TOTAL = re.compile(
    r".{0,40}?\[ ?(?P<stream>SUM|[ \d]{1,6})\](?:\[(?P<role>[TR]X-[CS])\])?\s+[\d.]{1,12}-\s?[\d.]{1,12}\s+sec\s+[\d.]{1,12} [KMGT]?Bytes"
    r"\s+(?P<rate>\d{1,9}(?:\.\d{1,6})?) (?P<unit>[KMGT]?)bits/sec(?P<more>.{0,80}?)\s(?P<side>sender|receiver)\s*$"
)
_INTERVAL = re.compile(
    r".{0,40}?\[ ?(?P<stream>SUM|[ \d]{1,6})\]\s+(?P<start>\d{1,9}(?:\.\d{1,4})?)-\s?(?P<end>\d{1,9}(?:\.\d{1,4})?)\s+sec\s+"
    r"[\d.]{1,12} [KMGT]?Bytes\s+(?P<rate>\d{1,9}(?:\.\d{1,6})?) (?P<unit>[KMGT]?)bits/sec(?!.{0,120}(?:sender|receiver|omitted))"
)
_OF_UNIT = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
_LOST = re.compile(r"\((\d{1,3}(?:\.\d{1,6})?)%\)")
_GAP = re.compile(r"\s*")
_LARGEST = 64 << 20  # bytes of JSON
_MOST = 20_000
_HOSTS = 20_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every run: what the receiver got, of all streams together, and which segments had to be sent again.

    Source: `src/iperf_api.c` and `iperf_locale.c` of esnet/iperf (3.1 to 3.17)::

        [  5] local 10.0.0.1 port 40000 connected to 10.0.0.2 port 5201
        [  5]   0.00-10.00  sec  1.09 GBytes   940 Mbits/sec  322             sender
        {"start": {"connected": [{"local_host": …}]}, "end": {"sum_received": {"bits_per_second": 9.4e8}}}
    """
    facts.mark_covered("active_test")
    head = read_head(stream, 256)
    stream = Joined(head, stream)
    return (_read_json if begins_json(head) else _read_text)(stream, name, facts)


class _Rate(NamedTuple):
    """A row at the end of a run."""

    row: re.Match[str]
    number: int

    @property
    def gbits(self) -> float:
        return float(self.row["rate"]) * _OF_UNIT[self.row["unit"]]

    @property
    def detail(self) -> str | None:
        return _detail(self.row["more"], self.row["side"])


class _Run:
    """The run of one writer that did not end yet."""

    def __init__(self, local: str, remote: str) -> None:
        self.local = local
        self.remote = remote
        self.rates: dict[tuple[str, str], _Rate] = {}  # by direction and side: that of all streams, else the last one
        self._summed: set[tuple[str, str]] = set()  # of which that is the one of all streams
        self._intervals: dict[str, tuple[float, float]] = {}  # by stream: seconds, and gigabits in them
        self._last: tuple[int, str] | None = None  # of them

    def total(self, match: re.Match[str], number: int) -> None:
        """Take a row of the end."""
        stream, role, side = match.group("stream", "role", "side")
        key = role or "", side
        if stream == "SUM":
            self._summed.add(key)
        elif key in self._summed:
            return
        self.rates[key] = _Rate(match, number)

    def interval(self, match: re.Match[str], number: int) -> None:
        """Take a row of an interval."""
        seconds = max(float(match["end"]) - float(match["start"]), 0.0)
        before = self._intervals.get(match["stream"], (0.0, 0.0))
        gbits = float(match["rate"]) * _OF_UNIT[match["unit"]] * seconds
        if len(self._intervals) < _MOST or match["stream"] in self._intervals:
            self._intervals[match["stream"]] = before[0] + seconds, before[1] + gbits
            self._last = number, match.string.strip()

    def _by_intervals(self, facts: Facts, file: str, host: str | None) -> list[ActiveTest]:
        """The run by its intervals, where no end of it tells what arrived: it was stopped, or iperf 2 or an old server ran it."""
        summed = self._intervals.get("SUM")
        streams = [summed] if summed is not None else list(self._intervals.values())
        rate = sum(gbits / seconds for seconds, gbits in streams if seconds)
        if self._last is None or not rate:
            return []
        test = "udp" if self._last[1].endswith("%)") else "tcp"
        return [_row(host, test, self.local, self.remote, rate, "by its intervals", facts.evidence(file, *self._last))]

    def rows(self, facts: Facts, file: str, host: str | None) -> list[ActiveTest]:
        """The run in each direction."""
        if not any(rate.gbits for rate in self.rates.values()) and (found := self._by_intervals(facts, file, host)):
            return found
        rows = []
        for role in dict.fromkeys(role for role, _ in self.rates):
            sent, got = self.rates.get((role, "sender")), self.rates.get((role, "receiver"))
            rate = got or sent
            if rate is not None:
                ends = (self.remote, self.local) if role.startswith("RX") else (self.local, self.remote)
                detail = rate.detail or (sent.detail if sent else None)
                test = "udp" if detail and "lost" in detail else "tcp"
                ref = facts.evidence(file, rate.number, rate.row.string.strip())
                rows.append(_row(host, test, *ends, rate.gbits, detail, ref))
        return rows


def _read_text(stream: Readable, name: str, facts: Facts) -> Reading:
    sections = Sections(stream, _HEADS, keep=400)
    runs: dict[str | None, _Run] = {}
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for first, label, texts in sections.batches():
        run, last = runs.get(label.host), 0
        for number, text in enumerate(texts, first):
            if "] local " in text and (ends := _ENDS.match(text)) is not None:
                if run is None or run.rates:
                    rows += run.rows(facts, name, label.host) if run is not None else []
                    if run is not None or len(runs) < _HOSTS:
                        run = runs[label.host] = _Run(ends[1], ends[2])
            elif (
                run is not None
                and ("sender" in text or "receiver" in text)
                and (total := _TOTAL.match(text)) is not None
            ):
                run.total(total, number)
            elif run is not None and "bits/sec" in text and (interval := _INTERVAL.match(text)) is not None:
                run.interval(interval, number)
            else:
                continue
            used, last = used + 1, number
        if last:
            sections.used(last)
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} runs; the others were left out"
            break
    for host, run in runs.items():
        rows += run.rows(facts, name, host)
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _read_json(stream: Readable, name: str, facts: Facts) -> Reading:
    content = read_head(stream, _LARGEST)
    text = content.decode("utf-8-sig", "replace").lstrip()
    rows: list[ActiveTest] = []
    note = None
    at = line = 0
    while at < len(text) and len(rows) < _MOST:  # runs in a loop write one object behind another
        try:
            run, end = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            note = f"is no complete JSON: {str(error)[:100]}"
            break
        rows += _of_json(run, facts, name, line + 1) if isinstance(run, dict) else []
        gap = _GAP.match(text, end)
        behind = gap.end() if gap is not None else end
        line += text.count("\n", at, behind)
        at = behind
    facts.add(rows)
    return Reading(content.count(b"\n") + (not content.endswith(b"\n")), len(rows), note)


def _of_json(run: dict[str, Any], facts: Facts, file: str, line: int) -> list[ActiveTest]:
    start, end = _object(run.get("start")), _object(run.get("end"))
    connected = start.get("connected")
    first = _object(connected[0]) if isinstance(connected, list) and connected else {}
    about = _object(start.get("test_start"))
    local, remote = (str(first.get(key) or "")[:80] for key in ("local_host", "remote_host"))
    rows = []
    for suffix, turned in (("", about.get("reverse") == 1), ("_bidir_reverse", True)):
        got, sent, both = (_object(end.get(f"{key}{suffix}")) for key in ("sum_received", "sum_sent", "sum"))
        rate = (
            finite(got.get("bits_per_second"))
            or finite(sent.get("bits_per_second"))
            or finite(both.get("bits_per_second"))
        )
        if rate is None or not local or not remote:
            continue
        test = str(about.get("protocol") or "tcp").lower()[:8]
        retried, lost = finite(sent.get("retransmits")), finite(both.get("lost_percent"))
        detail = f"{retried:,.0f} segments sent again" if retried else f"{lost:.2g} % lost" if lost else None
        ends = (remote, local) if turned else (local, remote)
        text = f"{ends[0]} to {ends[1]}: {rate / 1e9:.4g} Gb/s{f', {detail}' if detail else ''}"
        rows.append(_row(None, test, *ends, rate / 1e9, detail, facts.evidence(file, line, text)))
    return rows


def _row(
    host: str | None, test: str, sender: str, receiver: str, gbits: float, detail: str | None, ref: int
) -> ActiveTest:
    return ActiveTest(
        host=host, tool="iperf3", test=test, device=f"{sender} to {receiver}", outcome="pass", value=gbits, unit="Gb/s",
        text=detail, ref=ref,
    )  # fmt: skip


def _detail(more: str, side: str) -> str | None:
    """What a row says behind the rate: segments that TCP sent again, datagrams that were lost."""
    if (lost := _LOST.search(more)) is not None:
        return f"{lost[1]} % lost"
    last = more.split()[-1:] if side == "sender" else []
    retried = int(last[0]) if last and re.fullmatch(r"\d{1,12}", last[0]) else 0
    return f"{retried:,} segments sent again" if retried else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
