"""Output of `fio`: how fast a file system or disk reads and writes, as text and as JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_HEADS = re.compile(rb": \(groupid=\d{1,6}, jobs=\d{1,7}\): err=")
_JOB = re.compile(r"(\S.{0,100}?): \(groupid=\d{1,6}, jobs=\d{1,7}\): err= ?(\d{1,5})(?: \((.{1,200}?)\))?: pid=")
_RATE = re.compile(r"\s{2,3}(read|write|trim): IOPS=\S{1,16}, BW=\S{1,20} ?\((\d{1,9}(?:\.\d{1,6})?)([kMGT]?)B/s\)")
_OLD_RATE = re.compile(r"\s{2}(read |write|trim): ?io=\S{1,20}, bw=(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)B/s, iops=\d")
_OF_OLD_UNIT = {"": 1e-6, "K": 2**10 / 1e6, "M": 2**20 / 1e6, "G": 2**30 / 1e6, "T": 2**40 / 1e6}
_OF_UNIT = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}
_LARGEST = 64 << 20  # bytes of JSON
_MOST = 20_000
_PARTS = 1000  # of a document that are searched for results
_DEEP = 4


class _Job(NamedTuple):
    name: str
    error: str | None  # number and text, where it failed
    number: int
    text: str


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read what each job, or each group that is reported as one, read and wrote.

    Source: `stat.c` of axboe/fio (2.0 to 3.38)::

        seqread: (groupid=0, jobs=1): err= 0: pid=4711: Mon May  6 10:12:13 2024
          read: IOPS=467, BW=467MiB/s (490MB/s)(64.0MiB/137msec)
          read : io=19412MB, bw=661966KB/s, iops=165491, runt= 30029msec
        {"fio version": "fio-3.33", "jobs": [{"jobname": "seqread", "error": 0, "read": {"bw_bytes": 489684992, …}}]}
    """
    facts.mark_covered("active_test")
    head = read_head(stream, 256)
    stream = Joined(head, stream)
    return (_read_json if begins_json(head) else _read_text)(stream, name, facts)


def _read_text(stream: Readable, name: str, facts: Facts) -> Reading:
    sections = Sections(stream, _HEADS)
    jobs: dict[str | None, _Job] = {}
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for first, label, texts in sections.batches():
        job, last = jobs.get(label.host), 0
        for number, text in enumerate(texts, first):
            if label.host is not None and text.startswith(
                "(groupid="
            ):  # what looked like a host is the name of the job
                label, text = label._replace(host=None), f"{label.host}: {text}"
            if "(groupid=" in text and (begin := _JOB.match(text)) is not None:
                error = None if begin[2] == "0" else f"error {begin[2]}{f' ({begin[3]})' if begin[3] else ''}"
                jobs[label.host] = job = _Job(begin[1], error, number, text.strip())
                if error is not None:
                    rows.append(_row(facts, name, label.host, job, job.name, None, number, job.text))
            elif job is not None and "BW=" in text and (rate := _RATE.match(text)) is not None:
                value = float(rate[2]) * _OF_UNIT[rate[3]]
                what = f"{job.name} {rate[1]}"
                rows.append(_row(facts, name, label.host, job, what, value, number, f"{job.name} {text.strip()}"))
            elif job is not None and ", bw=" in text and (rate := _OLD_RATE.match(text)) is not None:
                value = float(rate[2]) * _OF_OLD_UNIT[rate[3]]
                what = f"{job.name} {rate[1].strip()}"
                rows.append(_row(facts, name, label.host, job, what, value, number, f"{job.name} {text.strip()}"))
            else:
                continue
            used, last = used + 1, number
        if last:
            sections.used(last)
        if len(rows) > _MOST or len(jobs) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _read_json(stream: Readable, name: str, facts: Facts) -> Reading:
    content = read_head(stream, _LARGEST)
    note = None
    run: Any = None
    try:
        run, _ = json.JSONDecoder().raw_decode(content.decode("utf-8-sig", "replace").lstrip())
    except (ValueError, RecursionError) as error:
        note = f"is no complete JSON: {str(error)[:100]}"
    jobs = [job for one in _runs(run) for job in one.get("jobs") or one.get("client_stats") or ()]
    rows: list[ActiveTest] = []
    at, number = 0, 1  # where the job before is named, and its line
    for one in jobs[:_MOST]:
        if not isinstance(one, dict) or not isinstance(one.get("jobname"), str):
            continue
        named = content.find(json.dumps(one["jobname"]).encode(), at)
        if named > 0:
            at, number = named + 1, number + content.count(b"\n", at, named)
        host = one.get("hostname")  # of `fio --client`
        failed = finite(one.get("error"))
        job = _Job(one["jobname"][:100], f"error {failed:.0f}" if failed else None, number, one["jobname"][:100])
        place = host[:200] if isinstance(host, str) and re.fullmatch(r"[\w.-]{1,200}", host) else None
        if job.error is not None:
            rows.append(_row(facts, name, place, job, job.name, None, number, f"{job.name}: {job.error}"))
        for way in ("read", "write", "trim"):
            said = one.get(way)
            rate = finite(said.get("bw_bytes")) if isinstance(said, dict) else None
            if rate:
                text = f"{job.name} {way}: {rate / 1e6:.4g} MB/s"
                rows.append(_row(facts, name, place, job, f"{job.name} {way}", rate / 1e6, number, text))
    facts.add(rows)
    return Reading(content.count(b"\n") + (not content.endswith(b"\n")), len(rows), note)


def _runs(document: Any) -> Iterator[dict[str, Any]]:
    """The results of fio in a document: itself, or those that a harness put into objects or lists of its own."""
    waiting = [(document, 0)]
    for _ in range(_PARTS):
        if not waiting:
            return
        part, depth = waiting.pop()
        if isinstance(part, dict) and any(isinstance(part.get(of), list) for of in ("jobs", "client_stats")):
            yield part
        elif isinstance(part, dict | list) and depth < _DEEP:
            inner = list(part.values() if isinstance(part, dict) else part)
            waiting += [(one, depth + 1) for one in inner[::-1]]


def _row(
    facts: Facts, file: str, host: str | None, job: _Job, test: str, value: float | None, number: int, text: str
) -> ActiveTest:
    return ActiveTest(
        host=host, tool="fio", test=test, device=None, outcome="pass" if job.error is None else "fail", value=value,
        unit="MB/s" if value is not None else None, text=job.error, ref=facts.evidence(file, number, text),
    )  # fmt: skip
