"""Looks of the hang monitor at the ranks of a job that seems to stand still: `hang.jsonl` of a recording, and live records.

One record is one look at one job on one node; `text` is what `py-spy dump --locals` printed, without the values of variables::

    {"kind": "hang", "hostname": "node01", "query_time": "…", "job": "81234", "look": 1, "world": 4, "ranks": [
      {"rank": 0, "pid": 4001, "gpu": 0, "state": "sleeping", "since": 1780000120.5, "switches": 9120, "cpu": 31.2,
       "counter": "step", "step": 120, "site": "train (train.py:40)", "op": "all_reduce", "text": "Process 4001: …"}],
     "sockets": [{"rank": 0, "pid": 4001, "local": "10.0.0.1:29500", "peer": "10.0.0.2:41002", "queued": 65536, "retransmits": 6}]}

A record with `"over": true` says that the job moves again; it withdraws the looks before it.
"""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.stacks import RankState, StuckSocket
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.profiles import pyspy
from nccl_doctor.inputs.prefixes import NOTHING

_SWITCHES = 2  # voluntary ones between two looks up to which a thread is blocked: the look itself costs some
_BUSY = 20.0  # % of a processor from which a rank outside a collective moves
_ASKS = (120.0, 210.0)  # wake-ups a second of a thread that asks for the interpreter's lock every 5 ms
_WAITING_FILES = ("threading.py", "queue.py", "selectors.py", "connection.py", "asyncio/base_events.py", "thread.py")
_SILENT = 10.0  # seconds without output and traffic after which a rank that polls counts as waiting


class Looks:
    """The looks at all jobs that stand still, newest last; keeps the first and the last two of each job and node."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._states: dict[tuple[str, str], list[RankState]] = {}  # of the newest record of each, once somebody asked

    def add(self, record: dict[str, Any]) -> str | None:
        """Add a record; returns the name of its job, None where it is not a look."""
        job, host = record.get("job"), record.get("hostname")
        if not isinstance(job, str):
            return None
        key = job, str(host)
        if record.get("over"):
            for other in [one for one in self.records if one[0] == job]:
                del self.records[other]
                self._states.pop(other, None)
            return job
        if isinstance(record.get("ranks"), list):
            kept = self.records.setdefault(key, [])
            kept.append(record)
            del kept[:-2]
            self._states.pop(key, None)
        return job

    def ranks(self, job: str) -> list[RankState]:
        """Returns the newest state of each rank of a job."""
        states: list[RankState] = []
        for key, records in self.records.items():
            if key[0] == job:
                if key not in self._states:
                    before = records[-2] if len(records) > 1 else None
                    self._states[key] = [state for state, _ in parse_ranks(records[-1], before)]
                states += self._states[key]
        return states

    def sockets(self, job: str) -> list[StuckSocket]:
        """Returns the connections of a job that are stuck."""
        return [
            socket
            for (name, _), records in self.records.items() if name == job
            for socket in parse_sockets(records[-1])
        ]  # fmt: skip


def parse_ranks(record: dict[str, Any], before: dict[str, Any] | None) -> Iterator[tuple[RankState, str]]:
    """Yields the state of each rank of a look, compared with the look before, and its stack as text."""
    earlier = {_whole(one.get("pid")): one for one in _dicts((before or {}).get("ranks"))}
    at, then = _time(record), _time(before or {})
    for one in _dicts(record.get("ranks")):
        pid = _whole(one.get("pid"))
        if pid is None:
            continue
        text = _word(one.get("text")) or ""
        dumps = list(pyspy.parse_text([(1, NOTHING, text.splitlines())]))
        old = earlier.get(pid)
        busy = _busy(one, old, at, then)
        locked = _asks_for_lock(one, old, busy, (at or 0.0) - (then or 0.0))
        doing, holder = _activity(dumps, pid, locked)
        doing = _word(one.get("doing")) or doing  # the source line says more than the frames
        yield RankState(
            host=_word(record.get("hostname")), job=_word(record.get("job")), rank=_whole(one.get("rank")), pid=pid,
            gpu=_whole(one.get("gpu")), world=_whole(record.get("world")), look=_whole(record.get("look")) or 1, at=at or 0.0,
            since=finite(one.get("since")), state=_word(one.get("state")), doing=doing,
            op=_word(one.get("op")), site=_word(one.get("site")), worker=_word(one.get("worker")), holder=holder,
            counter=_word(one.get("counter")), step=_whole(one.get("step")), moved=0 if locked else _moved(one, old, busy, doing),
            busy=busy, ref=0,
        ), text  # fmt: skip


def _activity(dumps: list[pyspy.Dump], pid: int, locked: bool) -> tuple[str, str | None]:
    """Returns what the main thread does, and the thread that holds the interpreter's lock where the main thread waits for it."""
    own = next((dump for dump in dumps if dump.pid == pid), None)
    main = pyspy.main_thread(own) if own is not None else None
    if own is None or main is None:
        return "other", None
    others = [one for one in own.threads if one is not main and (one.gil or (locked and not _waits(one)))]
    holder = next((one for one in others if one.gil), others[0] if len(others) == 1 else None)
    inner = pyspy.leaf(holder) if holder is not None else None
    return pyspy.doing(main)[0], f"{holder.name or holder.number} at {inner}" if holder is not None and inner else None


def _waits(thread: pyspy.Thread) -> bool:
    """Returns whether a thread waits in the standard library, which gives the lock back."""
    inner = pyspy.leaf(thread)
    return inner is None or inner.file.endswith(_WAITING_FILES)


def _asks_for_lock(one: dict[str, Any], old: dict[str, Any] | None, busy: float | None, passed: float) -> bool:
    """Returns whether a main thread only asks for the interpreter's lock: it wakes every 5 ms (sys.getswitchinterval) and stays."""
    new, before = _whole(one.get("switches")), _whole((old or {}).get("switches"))
    if old is None or new is None or before is None or passed <= 0 or one.get("place") != old.get("place"):
        return False
    return _ASKS[0] <= (new - before) / passed <= _ASKS[1] and (busy or 0.0) < _BUSY


def _busy(one: dict[str, Any], old: dict[str, Any] | None, at: float | None, then: float | None) -> float | None:
    new_cpu, old_cpu = finite(one.get("cpu")), finite((old or {}).get("cpu"))
    if new_cpu is None or old_cpu is None or at is None or then is None or at <= then:
        return None
    return max(100 * (new_cpu - old_cpu) / (at - then), 0.0)


def _moved(one: dict[str, Any], old: dict[str, Any] | None, busy: float | None, doing: str) -> int | None:
    """Returns 1 where a rank moved since the look before: another place or step, or its main thread ran meanwhile.

    A thread that waits by polling wakes often and stays where it is: it counts as waiting where its step is known to be the same,
    else once its output has been silent.
    """
    if old is None:
        return None
    if any(one.get(name) != old.get(name) for name in ("place", "counter", "step", "state")):
        return 1
    switches, before = _whole(one.get("switches")), _whole(old.get("switches"))
    woke = switches is not None and before is not None and switches - before > _SWITCHES
    if doing in ("other", "dataloader", "checkpoint", "compiling", "loader-worker"):
        return int(woke or (busy or 0.0) > _BUSY)
    same_step = one.get("counter") is not None and one.get("step") is not None
    return int(woke and not same_step and not (finite(one.get("quiet")) or 0.0) >= _SILENT)


def parse_sockets(record: dict[str, Any]) -> Iterator[StuckSocket]:
    """Yields the connections of a look whose data is not acknowledged."""
    for one in _dicts(record.get("sockets")):
        pid, queued = _whole(one.get("pid")), _whole(one.get("queued"))
        if pid is not None and queued is not None:
            yield StuckSocket(
                host=_word(record.get("hostname")), job=_word(record.get("job")), rank=_whole(one.get("rank")), pid=pid,
                local=_word(one.get("local")) or "?", peer=_word(one.get("peer")) or "?", queued=queued,
                retransmits=_whole(one.get("retransmits")) or 0, ref=0,
            )  # fmt: skip


class HangReader:
    """Reads the looks of one file and writes those that were not withdrawn."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._looks = Looks()
        self._lines: dict[int, int] = {}

    def take(self, record: dict[str, Any], time: float | None, number: int) -> None:
        """Count one line."""
        self._lines[id(record)] = number
        self._looks.add(record)

    def write(self, facts: Facts) -> None:
        """Add the rows of all lines."""
        for records in self._looks.records.values():
            numbers = [self._lines.get(id(record), 1) for record in records]
            add_looks(facts, self._file, records, numbers)


def add_looks(facts: Facts, file: str, records: list[dict[str, Any]], numbers: list[int]) -> None:
    """Add one or two looks at one job on one node: its ranks, their stacks of the last look, and stuck connections."""
    facts.mark_covered("rank_state", "stuck_socket", "stack")
    last = records[-1]
    before = records[-2] if len(records) > 1 else None
    for state, text in parse_ranks(last, before):
        what = f"rank {state.rank}, process {state.pid}, look {state.look}: {state.state or '?'}, {state.doing}"
        place = f"{file}: process {state.pid}"
        ref = facts.evidence(f"{place}, look", numbers[-1], f"{what}{f' in {state.site}' if state.site else ''}")
        facts.add([state._replace(ref=ref)])
        dumps = list(pyspy.parse_text([(1, NOTHING, text.splitlines())]))
        ranks = {state.pid: state.rank} if state.rank is not None else {}
        pyspy.rows(facts, place, dumps, state.host, ranks, state.job)
    for number, socket in enumerate(parse_sockets(last)):
        text = f"{socket.local} -> {socket.peer}: {socket.queued} bytes queued, {socket.retransmits} retransmissions"
        facts.add([socket._replace(ref=facts.evidence(f"{file}: connection {number}", numbers[-1], text))])


def _time(record: dict[str, Any]) -> float | None:
    return iso_seconds(str(record.get("query_time")), local=True)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
