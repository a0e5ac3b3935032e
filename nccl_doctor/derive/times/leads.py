"""Which event came before which symptom: an Xid before a time-out, a lost link before failed RDMA operations.

Kernel logs, schedulers and monitors write files of their own, and only the clock says how they lie to the lines of the job.
Within one file the order of the lines says it already, and is told for slow steps only, which no other line shows. A lag is
stated only where the symptom is the first of its kind after the event and none came shortly before it. Clocks of which one
names UTC and the other no zone may be whole hours apart: a lag that then depends on the number of hours is kept short and never
counts as proof.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nccl_doctor.common.timestamps import Moment, moment
from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.derive.times.slow_stretches import Stretch, slow_stretches
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    IbError,
    IbEvent,
    Interface,
    KnownMessage,
    Lead,
    Message,
    Process,
    ProcessEnd,
    Progress,
    PythonError,
    Regime,
    SocketError,
    Steady,
    Step,
    ThroughputRun,
    VerbsError,
    Watchdog,
    Xid,
)  # fmt: skip

_HOUR = 3600.0
_RESOLUTION = 1.0  # seconds: what is closer was written in any order
_SOON = 600.0  # seconds within which a failed operation or the end of a process follows its cause
_ACROSS = 900.0  # the longest lag that is stated between clocks that may be whole hours apart
_ZONES = 14  # hours
_LEAP_YEAR = 2000  # for dates without a year, where no line of the job names one

EVENTS = (
    ("gpu", "SELECT host, ref FROM xid WHERE code <> 45"),
    ("gpu", "SELECT host, ref FROM message WHERE kind IN ('gpu-off-bus', 'gpu-off-bus-block', 'gpu-requires-reset', 'pcie-surprise-down')"),
    ("link", "SELECT host, ref FROM message WHERE kind = 'link-down' OR (kind = 'mlx5-link' AND field(fields, 'state') = 'down')"),
    ("link", "SELECT host, ref FROM ib_event WHERE event LIKE 'port error%'"),
    ("slowed", "SELECT host, ref FROM message WHERE kind IN ('aer-error', 'pcie-bus-error', 'ib-modify-qp-retry')"),
    ("slowed", "SELECT host, ref FROM socket_error WHERE retrying = 1"),
    ("slowed", "SELECT host, ref FROM known_message WHERE kind = 'hardware' AND program IN"
     " ('linux', 'linux-faults', 'mlx5', 'nics', 'drivers', 'bmc', 'nvidia-driver', 'nvidia-rm')"),
    ("process", "SELECT host, ref FROM message WHERE kind IN ('oom-killed-process', 'oom-kill-constraint', 'oom-invoked',"
     " 'slurm-oom-kill', 'k8s-oom-killed', 'systemd-oom-killed', 'kernel-segfault', 'nccl-segfault')"),
    ("node", "SELECT NULL, ref FROM message WHERE kind IN ('slurm-node-failure', 'slurm-time-limit', 'slurm-cancelled',"
     " 'slurm-preempted', 'pbs-killed', 'lsf-killed', 'k8s-evicted', 'k8s-deadline', 'cloud-preempted', 'mpi-lost-daemon')"),
    ("storage", "SELECT host, ref FROM message WHERE kind IN ('nfs-not-responding', 'lustre-error', 'cifs-not-responding')"),
)  # fmt: skip
# Where a symptom may be: on any host of the job, on the host of the event, or there or on a peer of it.
FOLLOWS = {
    "gpu": {"timeout": "job", "rdma": "job", "connection": "job", "end": "host", "slow-step": "job"},
    "slowed": {"slow-step": "job"},
    "link": {"timeout": "job", "rdma": "peer", "connection": "peer", "slow-step": "job"},
    "process": {"timeout": "job", "rdma": "job", "connection": "job", "end": "host"},
    "node": {"timeout": "job", "rdma": "job", "connection": "job", "end": "job"},
    "storage": {"timeout": "job", "slow-step": "job"},
}


class _Place(NamedTuple):
    file: str
    when: Moment


class _Symptom(NamedTuple):
    """One line that shows that something is wrong."""

    place: _Place
    ref: int
    shows: str
    window: float  # seconds that it may come after its cause
    waited: float | None = None  # seconds that the operation had run by then
    lasting: bool = False  # a stretch of time that ends with the line: others before it do not matter


class _Series:
    """The symptoms of one kind in the order of their times, on the clocks that can be compared."""

    def __init__(self) -> None:
        self._scales: dict[str, list[tuple[float, int, _Symptom]]] = {"local": [], "absolute": [], "naive": []}

    def add(self, symptom: _Symptom) -> None:
        for scale, seconds in _on_scales(symptom.place.when).items():
            self._scales[scale].append((seconds, symptom.ref, symptom))

    def sort(self) -> None:
        for entries in self._scales.values():
            entries.sort(key=lambda entry: entry[:2])

    def after(self, event: _Place) -> Iterator[tuple[float, int | None, _Symptom]]:
        """(lag, hours, symptom) of the first symptom after an event; nothing where symptoms had begun before it."""
        scales = _on_scales(event.when)
        for scale in ("absolute", "local"):
            if scale in scales and self._scales[scale]:
                found = _next(self._scales[scale], scales[scale])
                if found is not None:
                    yield found[0], None, found[1]
        if event.when.clock == "utc":
            yield from _shifted(self._scales["naive"], event.when.seconds)
        elif event.when.zone is None:
            utc = [entry for entry in self._scales["absolute"] if entry[2].place.when.clock == "utc"]
            yield from _shifted(utc, event.when.seconds)


def _on_scales(when: Moment) -> dict[str, float]:
    """Scale -> seconds of a moment on it: wall time of the site, time since the epoch, wall time of an unknown zone."""
    scales = {} if when.zone is None else {"absolute": when.seconds - when.zone}
    if when.clock == "local":
        scales["local"] = when.seconds
    if when.zone is None:
        scales["naive"] = when.seconds
    return scales


def _next(entries: list[tuple[float, int, _Symptom]], at: float) -> tuple[float, _Symptom] | None:
    index = bisect_left(entries, at + _RESOLUTION, key=lambda entry: entry[0])
    if index == len(entries):
        return None
    seconds, _, symptom = entries[index]
    if seconds - at > symptom.window:
        return None
    if index and not symptom.lasting and at - entries[index - 1][0] < symptom.window:
        return None  # it had begun before the event
    return seconds - at, symptom


def _shifted(entries: list[tuple[float, int, _Symptom]], at: float) -> Iterator[tuple[float, int | None, _Symptom]]:
    """The closest symptom after an event for any number of whole hours between the clocks."""
    tries = ((hours, _next(entries, at + hours * _HOUR)) for hours in range(-_ZONES, _ZONES + 1))
    close = [(found[0], hours, found[1]) for hours, found in tries if found is not None and found[0] <= _ACROSS]
    if close:
        yield min(close, key=lambda entry: (entry[0], abs(entry[1])))


@derivation(
    fills=[Lead],
    needs=[Xid, Message, IbEvent, KnownMessage, SocketError],
    reads=[
        Communicator, IbError, Interface, Process, ProcessEnd, Progress, PythonError, Regime, Steady, Step, ThroughputRun,
        VerbsError, Watchdog,
    ],
)  # fmt: skip
def leads(facts: Facts) -> Rows:
    """Events before the first symptoms in another file, or before slow steps in any."""
    known: dict[tuple[str | None, int], str] = {}  # two patterns may know one line
    for kind, query in EVENTS:
        for host, ref in facts.query(query):
            known.setdefault((host, ref), kind)
    events = [(kind, host, ref) for (host, ref), kind in known.items()]
    if not events:
        return None
    files = facts.query("SELECT count(*) FROM (SELECT DISTINCT file FROM evidence LIMIT 2)")[0][0]
    stretches = list(slow_stretches(facts, job_year(facts)))
    return _leads(facts, events, stretches) if files > 1 or stretches else None


def _leads(facts: Facts, events: list[tuple[str, str | None, int]], stretches: list[Stretch]) -> Iterator[Lead]:
    year = job_year(facts) or _LEAP_YEAR
    hosts = hosts_of_job(facts)
    refs = {ref for _, _, ref in events}
    places = _places(facts, refs, year)
    series = _symptoms(facts, year, stretches)
    lines = {place.id: (place.file, place.line) for place in facts.evidence_rows(refs - places.keys())}
    for kind, host, ref in events:
        if host is not None and hosts and host not in hosts:
            continue
        if ref in places:
            for symptom, where in FOLLOWS[kind].items():
                yield from _lead(kind, host, ref, places[ref], symptom, _of(series, symptom, where, host))
        elif "slow-step" in FOLLOWS[kind]:
            yield from _by_lines(kind, host, ref, *lines[ref], stretches)


def _by_lines(kind: str, host: str | None, ref: int, file: str, line: int, stretches: list[Stretch]) -> Iterator[Lead]:
    """The slow steps that begin behind a line without a date, in the same file."""
    for one in stretches:
        if one.file == file and one.before < line < one.line:
            yield Lead(kind, host, "slow-step", one.shows, None, None, None, ref, one.ref)
            return


def _lead(kind: str, host: str | None, ref: int, event: _Place, name: str, series: Iterable[_Series]) -> Iterator[Lead]:
    found = [one for each in series for one in each.after(event)]
    if not found:
        return
    lag, hours, symptom = min(found, key=lambda one: (one[1] is not None, one[0]))
    if symptom.place.file != event.file or name == "slow-step":
        waited = symptom.waited - lag if symptom.waited is not None and symptom.waited > lag else None
        yield Lead(kind, host, name, symptom.shows, round(lag, 3), hours, waited, ref, symptom.ref)


_Key = tuple[str, str, str | None]  # symptom, where, host


def _of(series: dict[_Key, _Series], symptom: str, where: str, host: str | None) -> Iterator[_Series]:
    """The symptoms that an event of a host may have caused."""
    keys: list[_Key] = [(symptom, where, host), (symptom, where, None)]
    if where == "job" or host is None:
        keys = [(symptom, "job", None)]
    yield from (series[key] for key in keys if key in series)


def hosts_of_job(facts: Facts) -> set[str]:
    """Hosts on which the job itself printed or of which a launcher speaks."""
    parts = [
        f"SELECT host FROM {table}"
        for table in (
            "process", "progress", "communicator", "watchdog", "ib_error", "socket_error", "python_error", "throughput_run",
        )
    ]  # fmt: skip
    parts.append("SELECT host FROM process_end WHERE reporter <> 'kernel'")
    return {host for (host,) in facts.query(f"SELECT DISTINCT host FROM ({' UNION ALL '.join(parts)})") if host}


def _places(facts: Facts, refs: Iterable[int], year: int) -> dict[int, _Place]:
    """File and moment of evidence whose line shows one."""
    return {
        place.id: _Place(place.file, when)
        for place in facts.evidence_rows(refs)
        if (when := moment(place.text, year)) is not None
    }


def _symptoms(facts: Facts, year: int, stretches: list[Stretch]) -> dict[_Key, _Series]:
    """The symptoms by kind; of those that concern single hosts also by host, and by host or peer."""
    rows = [(name, *row) for name, query in _SYMPTOMS.items() for row in facts.query(query)]
    places = _places(facts, (row[3] for row in rows), year)
    series: dict[_Key, _Series] = defaultdict(_Series)
    for name, host, peer, ref, *more in rows:
        if ref not in places:
            continue
        symptom = _SHOWN[name](places[ref], ref, *more)
        for key in {(name, "job", None), (name, "host", host), (name, "peer", host), (name, "peer", peer or host)}:
            series[key].add(symptom)
    of_steps = _places(facts, (one.ref for one in stretches), year)
    for stretch in stretches:
        if stretch.ref in of_steps and stretch.seconds is not None:
            window = stretch.seconds + stretch.usual
            symptom = _Symptom(of_steps[stretch.ref], stretch.ref, stretch.shows, window, lasting=True)
            series["slow-step", "job", None].add(symptom)
    for one in series.values():
        one.sort()
    return dict(series)


_ADDRESS = "LEFT JOIN host_address a ON a.address = substr(t.peer, 1, instr(t.peer || '<', '<') - 1)"
_SYMPTOMS = {  # name -> query for host, host of the peer, ref, and what its line shows
    "timeout": "SELECT host, NULL, ref, elapsed_ms, timeout_ms FROM watchdog WHERE event = 'timeout'",
    "rdma": f"SELECT t.host, a.host, t.ref FROM ib_error t {_ADDRESS} UNION ALL"
    " SELECT host, NULL, ref FROM verbs_error WHERE call = 'ibv_modify_qp'",
    "connection": f"SELECT t.host, a.host, t.ref FROM socket_error t {_ADDRESS} WHERE t.retrying = 0",
    "end": "SELECT host, NULL, ref, rank, 'end' FROM process_end WHERE reporter <> 'kernel' AND coalesce(exitcode, 1) <> 0"
    " UNION ALL SELECT host, NULL, ref, rank, 'exception' FROM python_error",
}


def _timeout(place: _Place, ref: int, elapsed: Any, limit: Any) -> _Symptom:
    window = (limit or 0) / 1000 + 2 * _SOON if limit else _HOUR
    return _Symptom(place, ref, "the first watchdog timeout", window, elapsed / 1000 if elapsed else None)


def _end(place: _Place, ref: int, rank: Any, what: str) -> _Symptom:
    return _Symptom(place, ref, f"the {what} of {'a process' if rank is None else f'rank {rank}'}", _SOON)


_SHOWN: dict[str, Callable[..., _Symptom]] = {
    "timeout": _timeout,
    "rdma": lambda place, ref: _Symptom(place, ref, "the first failed RDMA operation", _SOON),
    "connection": lambda place, ref: _Symptom(place, ref, "the first failed connection", _SOON),
    "end": _end,
}
