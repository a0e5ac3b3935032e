"""Lists of Slurm in formats of anybody's own: `squeue -o "%i %j %T %R"`, `sinfo -N -o "%n %t %C %G"`, `sinfo -o "%P %C"`."""

from collections.abc import Mapping, Sequence

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, QueuedJob, SchedulerNode
from nccl_doctor.formats.cluster.slurm_values import gpus as gpus_of
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.listings.titled import cells_of
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_CPUS, _NODES = "CPUS(A/I/O/T)", "NODES(A/I/O/T)"
_JOBS = frozenset({"JOBID", "ARRAY_JOB_ID"})
_HOSTS = frozenset({"HOSTNAMES", "NODELIST", "NODE_ADDR", "HOST"})
_TITLES = _JOBS | _HOSTS | {
    _CPUS, _NODES, "NODES(A/I)", "ACCOUNT", "ACTIVE_FEATURES", "AVAIL", "AVAIL_FEATURES", "CLUSTER", "COMMAND", "CPUS", "CPU_LOAD",
    "END_TIME", "FEATURES", "FREE_MEM", "GRES", "GRES_USED", "GROUP", "GROUPS", "JOB_SIZE", "MAX_CPUS_PER_NODE", "MEMORY", "MIN_CPUS",
    "MIN_MEMORY", "NAME", "NODES", "NODELIST(REASON)", "OVERSUBSCRIBE", "PARTITION", "PREEMPT_MODE", "PRIORITY", "QOS", "REASON", "ROOT",
    "S:C:T", "SOCKETS", "CORES", "THREADS", "ST", "START_TIME", "STATE", "SUBMIT_TIME", "TIME", "TIMELIMIT", "TIMESTAMP", "TIME_LEFT",
    "TIME_LIMIT", "TMP_DISK", "TRES_PER_NODE", "TRES_ALLOC", "USER", "WEIGHT", "WORK_DIR", "EXEC_HOST", "DEPENDENCY",
}  # fmt: skip
"""As src/squeue/opts.c and src/sinfo/opts.c name the columns."""
_TITLE = compiled(r"\S+")
_SHARES = compiled(r"(\d{1,9})[A-Z]?/(\d{1,9})[A-Z]?/(\d{1,9})[A-Z]?/(\d{1,9})[A-Z]?")
# `sinfo -h -N -O NodeHost,Gres,GresUsed,StateLong`
_GRES_ROW = compiled(
    r"([A-Za-z][\w.-]{0,120})\s+((?:gpu:|\(null\))\S{0,400})\s+(gpu:\S{1,400})\s+([a-z]{2,14}[*~#!%$@^-]{0,2})\s*"
)
_GRES_TITLES = ("HOSTNAMES", "GRES", "GRES_USED", "STATE")
_COUNTED = ("allocated", "idle", "other", "total")
_STATE = compiled(r"[A-Za-z][A-Za-z_]{0,20}[*~#!%$@^+-]{0,2}")
_MOST = 100_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lists whose titles are all of Slurm; a file of which `slurm-state` knows jobs or nodes tells only how many are in use.

    Source: src/sinfo/print.c and src/squeue/print.c of Slurm, 20.11 and newer::

        HOSTNAMES   STATE  CPUS(A/I/O/T)  GRES
        gpu01       mix    48/48/0/96     gpu:h100:8
        5725/877/34/6636                              sinfo -h -o %C
    """
    facts.mark_covered("scheduler_node", "queued_job", "host_number")
    known = any(
        facts.query(f"SELECT 1 FROM {table} WHERE file = ? LIMIT 1", (name,))
        for table in ("scheduler_node", "queued_job")
    )
    rows: dict[tuple[str, ...], QueuedJob | SchedulerNode | HostNumber] = {}
    titles: list[str] = []
    spans: list[tuple[int, int]] = []
    number = used = 0
    for number, _, text in plain_lines(stream):
        words = [found[0] for found in _TITLE.finditer(text)]
        if words and _TITLES.issuperset(words) and not _TITLES.isdisjoint(words):
            titles, spans = words, [found.span() for found in _TITLE.finditer(text)]
        elif not titles and len(words) == 1 and _SHARES.fullmatch(words[0]):
            titles, spans = [_CPUS], [(0, len(text))]
        if not words:
            titles = []
        bare = _GRES_ROW.fullmatch(text) if not titles and "gpu:" in text else None
        if not (titles or bare) or words == titles or len(rows) >= _MOST:
            continue
        # a reason of several words is the last column
        parts = text.split(None, len(titles) - 1) if len(words) > len(titles) else cells_of(text, spans, words=True)
        cells = dict(zip(_GRES_TITLES, bare.groups(), strict=True) if bare else zip(titles, parts, strict=True))
        told: list[QueuedJob | SchedulerNode | HostNumber] = [*_shares(cells, name)]
        told += [] if known else [*_job(cells, name), *_node(cells, name)]
        for row in told:
            ref = facts.evidence(name, number, text.strip()[:600])
            rows.setdefault((type(row).__name__, *map(str, row[:-1])), row._replace(ref=ref))
        used += bool(told)
    facts.add(rows.values())
    return Reading(
        number, used, f"lists more than {_MOST:,} rows; the others were left out" if len(rows) >= _MOST else None
    )


def _shares(cells: Mapping[str, str], name: str) -> Sequence[HostNumber]:
    """How many CPUs and nodes of a partition, or of all, are in use."""
    rows = []
    for title, what in ((_CPUS, "CPUs"), (_NODES, "nodes")):
        found = _SHARES.fullmatch(cells.get(title, ""))
        if found is None or not _HOSTS.isdisjoint(cells):
            continue
        of = f" of {cells['PARTITION']}" if cells.get("PARTITION") else ""
        rows += [
            HostNumber(None, name, "sinfo", f"{what} {state}{of}", float(count), "", 0)
            for state, count in zip(_COUNTED, found.groups(), strict=True)
        ]
    return rows


def _job(cells: Mapping[str, str], name: str) -> Sequence[QueuedJob]:
    job, state = (
        next((cells[title] for title in _JOBS if title in cells), ""),
        cells.get("STATE") or cells.get("ST", ""),
    )
    if not job[:1].isdecimal() or not _STATE.fullmatch(state):
        return ()
    told = cells.get("REASON") or cells.get("NODELIST(REASON)", "")
    reason = told.strip("()") if "REASON" in cells or told.startswith("(") else None
    nodes = cells.get("NODES", "")
    count = int(nodes) if nodes.isdecimal() and len(nodes) < 8 else None
    return (QueuedJob(job[:80], name, cells.get("NAME"), state, None if reason in ("", "None") else reason, count, 0),)


def _node(cells: Mapping[str, str], name: str) -> Sequence[SchedulerNode]:
    host, state = next((cells[title] for title in _HOSTS if title in cells), ""), cells.get("STATE", "")
    if not host[:1].isalpha() or not _STATE.fullmatch(state) or not _JOBS.isdisjoint(cells):
        return ()
    reason, cpus = cells.get("REASON", "").strip(), _SHARES.fullmatch(cells.get(_CPUS, ""))
    return (
        SchedulerNode(
            host, name, state.upper(), None if reason in ("", "none", "N/A") else reason,
            int(cpus[4]) if cpus else None, int(cpus[1]) if cpus else None, _amount(cells.get("MEMORY")), _amount(cells.get("FREE_MEM")),
            _amount(cells.get("CPU_LOAD")), gpus_of(cells.get("GRES", "")), gpus_of(cells.get("GRES_USED", "")), 0,
        ),
    )  # fmt: skip


def _amount(text: str | None) -> float | None:
    found = compiled(r"\d{1,9}(?:\.\d{1,4})?").match(text or "")
    return float(found[0]) if found is not None else None
