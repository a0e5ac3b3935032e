"""Jobs as `qstat -f` and `qstat -xf` of PBS Pro, OpenPBS and TORQUE print them, also as JSON."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.cluster import pbs_jobs
from nccl_doctor.formats.cluster.pbs_jobs import READ, PbsJob
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_batches, read_head

_MOST_JOBS = 50_000
_LARGEST = 64 << 20  # bytes of JSON
_LONGEST = 4_000  # characters of a value
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,100}\{")
_ID = r"\d[\w.\[\]-]{0,200}"
_KEY = re.compile(rf'"(?:({_ID})"\s{{0,4}}:\s{{0,4}}\{{|[Ee]xit_status")'.encode())
_JOB = re.compile(rf"Job Id: ?({_ID})\s*$")
_ATTRIBUTE = re.compile(r"\s{4}([A-Za-z_][\w.]{0,100})")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job of a file.

    Source: `qstat.c` of OpenPBS 20 to 23 and of TORQUE 6. Long values go on behind a tab; `-F json` has the same
    names in an object::

        Job Id: 4242.pbs01
            resources_used.walltime = 02:00:23
            Exit_status = -29
        {"timestamp": 1715068800, "pbs_version": "23.06.06", "Jobs": {"4242.pbs01": {"Exit_status": -29, "resources_used": {…}}}}
    """
    facts.mark_covered("accounted_job", "message", "process_end")
    head = read_head(stream, 1 << 10)
    stream = Joined(head, stream)
    return (_read_json if _JSON.match(head) else _read_text)(stream, name, facts)


def _read_text(stream: Readable, name: str, facts: Facts) -> Reading:
    job: PbsJob | None = None
    last = ""  # attribute whose value may go on
    rows: list[Any] = []
    jobs = lines = used = 0
    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, line in enumerate(texts, first):
            if line.startswith("Job Id:") and (start := _JOB.match(line)) is not None:
                _add(facts, name, job, rows)
                jobs, job, last = jobs + 1, PbsJob(start[1], number, {}), ""
            elif (
                job is not None and (said := line.partition(" = "))[1] and (name_of := _attribute(said[0])) is not None
            ):
                last = name_of
                if last:
                    job.said[last] = said[2].strip()[:_LONGEST], number
            elif last and job is not None and line.startswith("\t"):
                value, place = job.said[last]
                job.said[last] = (value + line.strip())[:_LONGEST], place
            else:
                last = ""
                continue
            used += 1
        if jobs > _MOST_JOBS:
            job = None
            break
        facts.add(rows)
        rows.clear()
    _add(facts, name, job, rows)
    facts.add(rows)
    return Reading(lines, used, _too_many(jobs))


@lru_cache(1 << 10)  # all jobs have the same
def _attribute(text: str) -> str | None:
    """The attribute that stands before ` = `, empty for one that is not read; None for another line."""
    found = _ATTRIBUTE.fullmatch(text)
    return None if found is None else found[1] if found[1] in READ else ""


def _read_json(stream: Readable, name: str, facts: Facts) -> Reading:
    content = read_head(stream, _LARGEST)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    note = None
    jobs: Any = None
    try:
        jobs = json.loads(content.decode("utf-8-sig", "replace")).get("Jobs")
    except (ValueError, RecursionError) as error:
        note = f"is no complete JSON: {str(error)[:100]}"
    known = jobs if isinstance(jobs, dict) else {}
    rows: list[Any] = []
    places = _places(content)
    for identity in islice(known, _MOST_JOBS):
        if isinstance(known[identity], dict) and re.fullmatch(_ID, identity):
            line, end = places.get(identity, (1, 1))
            said = {
                key: (value[:_LONGEST], end if key.lower() == "exit_status" else line)
                for key, value in _flat(known[identity])
                if key in READ
            }
            _add(facts, name, PbsJob(identity, line, said), rows)
    facts.add(rows)
    return Reading(lines, len(known), note or _too_many(len(known)))


def _places(content: bytes) -> dict[str, tuple[int, int]]:
    """The lines where each job begins and where it says its status."""
    places: dict[str, tuple[int, int]] = {}
    line, at, identity = 1, 0, ""
    for match in _KEY.finditer(content):
        line, at = line + content.count(b"\n", at, match.start()), match.start()
        if match[1]:
            identity = match[1].decode()
            places[identity] = line, line
        elif identity:
            places[identity] = places[identity][0], line
    return places


def _flat(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The attributes of a job as `qstat -f` prints them without JSON."""
    for key, value in job.items():
        if isinstance(value, dict):
            yield from (
                (f"{key}.{name}", str(one)) for name, one in value.items() if isinstance(one, str | int | float)
            )
        elif isinstance(value, str | int | float):
            yield key, str(value)


def _add(facts: Facts, file: str, job: PbsJob | None, rows: list[Any]) -> None:
    if job is not None:
        rows += pbs_jobs.rows(facts, file, job)


def _too_many(jobs: int) -> str | None:
    return f"holds more than {_MOST_JOBS:,} jobs; the others were left out" if jobs > _MOST_JOBS else None
