"""Output of `netperf`: bandwidth of TCP or UDP between two hosts, and round trips of small requests."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb" TEST from \S{1,80} \([^)\n]{0,80}\) port \d")
_HEAD = re.compile(
    r"(?:MIGRATED )?(?P<protocol>TCP|UDP|SCTP) (?P<kind>[A-Z/]{4,20}) TEST from (?P<local>\S{1,80}) \((?P<local_address>[^)]{0,80})\)"
    r" port \d{1,5} \S{1,12} to (?P<remote>\S{1,80}) \((?P<remote_address>[^)]{0,80})\) port"
)
_UNIT = re.compile(r"\b(?:10\^(?P<power>[369])bits|(?P<bytes>[KMG]?)Bytes)/s(?:ec)?\b")
_GBITS = {"3": 1e-6, "6": 1e-3, "9": 1.0}
_GBITS_OF_BYTES = {"": 8e-9, "K": 8e-9 * 2**10, "M": 8e-9 * 2**20, "G": 8e-9 * 2**30}
_ROW = re.compile(r"\s{0,20}\d{1,12}(?:\s{1,20}\d{1,12}(?:\.\d{1,6})?){3,11}\s*$")
_MOST = 20_000  # runs
_LONG = 6  # columns of a row of UDP that tells what was sent, and of the first row of requests


class _Run(NamedTuple):
    """A run that has a head and no result yet."""

    head: re.Match[str]
    gbits: float | None = None  # one unit of its column

    @property
    def device(self) -> str:
        ends = [self.head[f"{end}_address"] or self.head[end] for end in ("local", "remote")]
        return " to ".join(reversed(ends) if self.head["kind"] == "MAERTS" else ends)  # which is STREAM the other way


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each run: the rate in Gb/s, of UDP that of what arrived; of requests and responses the mean round trip in microseconds.

    Source: `src/nettest_bsd.c` of HewlettPackard/netperf 2.5 to 2.7::

        MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to node02 (10.0.0.2) port 0 AF_INET : demo
        Size   Size    Size     Time     Throughput
        bytes  bytes   bytes    secs.    10^6bits/sec
        131072  16384  16384    10.00    9412.34
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, keep=40)
    runs: dict[str | None, _Run] = {}
    rows: list[ActiveTest] = []
    used = 0
    for number, label, text in sections:
        run = runs.get(label.host)
        if " TEST from " in text and (head := _HEAD.search(text)) is not None:
            if run is not None or len(runs) < _MOST:
                runs[label.host] = _Run(head)
        elif run is None:
            continue
        elif (unit := _UNIT.search(text)) is not None:
            gbits = _GBITS[unit["power"]] if unit["power"] else _GBITS_OF_BYTES[unit["bytes"]]
            runs[label.host] = run._replace(gbits=gbits)
        elif len(rows) < _MOST and _ROW.match(text) is not None and (value := _value(run, text.split())) is not None:
            requests = "REQUEST" in run.head["kind"]
            test, unit_ = run.head["protocol"].lower(), "us" if requests else "Gb/s"
            ref = facts.evidence(name, number, text.strip())
            if rows and rows[-1].host == label.host and rows[-1].text == "sent":
                rows.pop()
            is_sent = test == "udp" and not requests and len(text.split()) >= _LONG
            row = ActiveTest(
                host=label.host, tool="netperf", test=test, device=run.device, outcome="pass", value=value, unit=unit_,
                text="sent" if is_sent else None, ref=ref,
            )  # fmt: skip
            rows.append(row)
        else:
            continue
        used += 1
        sections.used(number)
    facts.add(rows)
    note = f"holds {_MOST:,} runs or more; the others were left out" if len(rows) >= _MOST else None
    return Reading(sections.lines, used, note)


def _value(run: _Run, cells: list[str]) -> float | None:
    """The result in a row below the titles; None of one that is none, such as the second row of requests."""
    if "REQUEST" in run.head["kind"]:
        rate = float(cells[5]) if len(cells) >= _LONG else 0.0
        return 1e6 / rate if rate > 0 else None
    if run.gbits is None:
        return None
    at = 4
    if run.head["protocol"] == "UDP":
        at = 5 if len(cells) >= _LONG else 3  # what was sent, and below it what arrived
    return float(cells[at]) * run.gbits if at < len(cells) else None
