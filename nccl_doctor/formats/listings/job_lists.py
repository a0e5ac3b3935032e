"""The jobs that schedulers other than Slurm list: `qstat` of Grid Engine and PBS, `bjobs` of LSF, `flux jobs`, `qstat -xml`."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import QueuedJob
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs import safe_xml
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_lines, read_head

_MOST = 100_000
_ELEMENT = 1_000  # characters of a line of XML; qstat writes one element on each
_WAITING, _RUNNING, _HELD, _FAILED = "PENDING", "RUNNING", "HELD", "FAILED"
_GRID_ENGINE = re.compile(
    r"\s{0,9}(?P<job>\d{1,9})\s+\d\.\d{2,5}\s+(?P<name>\S{1,60})\s+\S{1,40}\s+(?P<state>[a-zA-Z]{1,5})\s+\d\d/\d\d/\d{4}\s"
)
_PBS = re.compile(
    r"(?P<job>\d{1,9}(?:\[\d{0,6}\])?\.\S{1,60})\s+(?P<name>\S{1,60})\s+\S{1,40}\s+[\d:]{1,16}\s+(?P<state>[BEFHQRSTUWX])\s+\S{1,40}\s*$"
)
_PBS_LONG = re.compile(
    r"(?P<job>\d{1,9}(?:\[\d{0,6}\])?\.\S{1,60})\s+\S{1,40}\s+\S{1,40}\s+(?P<name>\S{1,60})\s+(?:--|\d{1,9})\s+(?P<nodes>--|\d{1,6})\s+(?:--|\d{1,7})"
    r"\s+\S{1,12}\s+[\d:-]{1,12}\s+(?P<state>[BEFHQRSTUWX])\s"
)
_LSF = re.compile(
    r"(?P<job>\d{1,9})\s+\S{1,40}\s+(?P<state>PEND|RUN|EXIT|DONE|SSUSP|USUSP|PSUSP|UNKWN|WAIT|ZOMBI|PROV)\s+\S{1,40}\s+\S{1,80}\s+(?P<more>\S.{0,200})$"
)
_FLUX = re.compile(
    r"\s{0,20}(?P<job>ƒ?[0-9A-Za-z]{5,20})\s+\S{1,40}\s+(?P<name>\S{1,60})\s+(?P<state>DEPEND|PRIORITY|SCHED|RUN|CLEANUP|INACTIVE|COMPLETED|FAILED|CANCELED|TIMEOUT"
    r"|D|P|S|R|C|I|CD|F|CA|TO)\s+\d{1,7}\s+(?P<nodes>-|\d{1,6})\s"
)
_HEADS = (
    ("gridengine", re.compile(r"\s{0,9}job-ID\s+prior\s+name\s+user\s+state\s"), (_GRID_ENGINE,)),
    ("pbs", re.compile(r"\s{0,9}Job (?:id|ID)\s+(?:Name|Username)\s"), (_PBS, _PBS_LONG)),
    ("lsf", re.compile(r"JOBID\s+USER\s+STAT\s+QUEUE\s+FROM_HOST"), (_LSF,)),
    ("flux", re.compile(r"\s{0,20}JOBID\s+USER\s+NAME\s+(?:ST|STATUS)\s+NTASKS\s+NNODES\s"), (_FLUX,)),
)
_STATES = {
    "pbs": dict.fromkeys("BERT", _RUNNING) | dict.fromkeys("QWT", _WAITING) | dict.fromkeys("SU", "SUSPENDED")
    | dict.fromkeys("FX", "COMPLETED") | {"H": _HELD},
    "lsf": {
        "PEND": _WAITING, "WAIT": _WAITING, "RUN": _RUNNING, "PROV": _RUNNING, "EXIT": _FAILED, "DONE": "COMPLETED", "PSUSP": _HELD,
        "SSUSP": "SUSPENDED", "USUSP": "SUSPENDED",
    },
    "flux": dict.fromkeys(("S", "D", "P", "SCHED", "DEPEND", "PRIORITY"), _WAITING)
    | {"R": _RUNNING, "RUN": _RUNNING, "F": _FAILED, "CD": "COMPLETED"},
}  # fmt: skip
_FIELDS = ("JB_job_number", "JB_name", "state")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the jobs below the titles of each list.

    Source: `qstat` of Grid Engine 8 and OpenPBS 23, `bjobs` of LSF 10, flux-core 0.60::

        job-ID     prior   name       user         state submit/start at     queue                          slots ja-task-ID
            88 0.75000 train-llm  ada          r     11/17/2026 14:37:16 gpu.q@node03                       8
        JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
    """
    facts.mark_covered("queued_job")
    head = read_head(stream, 1 << 12)
    stream = Joined(head, stream)
    if b"<job_info" in head:
        return _read_xml(stream, name, facts)
    jobs: dict[str, tuple[QueuedJob, int, str]] = {}
    forms: tuple[re.Pattern[str], ...] = ()
    of = ""
    number = used = 0
    for number, _, text in plain_lines(stream):
        found_head = next(((tool, rows) for tool, pattern, rows in _HEADS if pattern.match(text)), None)
        if found_head is not None:
            of, forms = found_head
            continue
        row = next((found for form in forms if (found := form.match(text)) is not None), None)
        if row is None or len(jobs) >= _MOST:
            continue
        used += 1
        told = row.groupdict()
        nodes = told.get("nodes") or ""
        state = _STATES.get(of, {}).get(row["state"]) or _grid_state(row["state"])
        job = QueuedJob(row["job"], name, told.get("name"), state, None, int(nodes) if nodes.isdecimal() else None, 0)
        jobs[row["job"]] = job, number, text.strip()
    facts.add(job._replace(ref=facts.evidence(name, line, shown[:600])) for job, line, shown in jobs.values())
    return Reading(
        number, used, f"lists more than {_MOST:,} jobs; the others were left out" if len(jobs) >= _MOST else None
    )


def _grid_state(letters: str) -> str:
    """The state of Grid Engine, of which each letter says a part: `Eqw`, `hqw`, `dr`."""
    if letters.isupper() and len(letters) > 1:
        return letters
    for sign, state in (
        ("E", "ERROR"),
        ("h", _HELD),
        ("q", _WAITING),
        ("s", "SUSPENDED"),
        ("S", "SUSPENDED"),
        ("T", "SUSPENDED"),
    ):
        if sign in letters:
            return state
    return _RUNNING


def _read_xml(stream: Readable, name: str, facts: Facts) -> Reading:
    """`qstat -xml`, also with `-r` and `-f`: an element `job_list` a job."""
    text = read_head(stream, 64 << 20)
    fields: dict[str, str] = {}
    rows: list[QueuedJob] = []
    lines = text.decode("utf-8", "replace").split("\n")
    place = 0

    def start(element: str, _: dict[str, str], line: int) -> None:
        nonlocal place
        if element == "job_list":
            fields.clear()
            place = line
        elif element in _FIELDS:
            shown = lines[line - 1][:_ELEMENT] if line <= len(lines) else ""
            found = re.search(rf"<{element}>([^<]{{1,80}})<", shown)
            if found is not None:
                fields.setdefault(element, found[1])

    def end(element: str) -> None:
        if element == "job_list" and {"JB_job_number", "state"} <= fields.keys() and len(rows) < _MOST:
            shown = ", ".join(f"{key}={value}" for key, value in fields.items())
            ref = facts.evidence(name, place, shown)
            rows.append(
                QueuedJob(
                    fields["JB_job_number"], name, fields.get("JB_name"), _grid_state(fields["state"]), None, None, ref
                )
            )

    last, note = safe_xml.parse(Joined(text, stream), start, end)
    facts.add(rows)
    return Reading(last, len(rows), note)
