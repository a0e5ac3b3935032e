"""Files of `nccl-doctor record`: the command, how it ended, and samples of GPUs, ports, the host and the ranks.

They may be read while they are still written: a torn last line is not a fault.
"""

import json
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Protocol

from nccl_doctor.common.process_identity import boot_id, start_ticks
from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env, ProcessEnd
from nccl_doctor.facts.tables.recorded import HostUse, PortError, PortUse, RankUse, RecordedRun
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import monitor_json
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.recording.hang_records import HangReader
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, lines

GIGABIT = 1e9 / 8  # bytes
SPAN = 10.0  # seconds over which waiting for a processor is measured
_LONGEST = 1 << 20  # bytes of run.json and end.json


class _Reader(Protocol):
    def take(self, record: dict[str, Any], time: float | None, number: int) -> None:
        """Count one line."""

    def write(self, facts: Facts) -> None:
        """Add the rows of all lines."""


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file of a recording.

    Source: nccl_doctor/app/record.py and app/sample.py of this version::

        {"kind":"port","hostname":"node01","query_time":"2026-05-07T12:00:01+00:00","ports":[{"device":"mlx5_0","port":1,...}]}
        {"kind":"host","hostname":"node01","query_time":"2026-05-07T12:00:01+00:00","host":{"cpu":12.5,"memory_used":81023,...}}
    """
    head = stream.read(1 << 12)
    joined = Joined(head, stream)
    if b'"schema"' in head[:200]:
        return _run(joined, name, facts)
    kind = next(
        (k for k in (b"gpu", b"port", b"host", b"process", b"hang") if head.startswith(b'{"kind":"' + k + b'"')), b""
    )
    if kind == b"gpu":
        return monitor_json.read_format(joined, name, facts)
    makers: dict[bytes, Callable[[str], _Reader]] = {
        b"port": _Ports,
        b"host": _Hosts,
        b"process": _Ranks,
        b"hang": HangReader,
    }
    reader = makers[kind](name)
    number = used = 0
    for number, record in _records(joined):
        used += 1
        reader.take(record, _time(record), number)
    reader.write(facts)
    return Reading(number, used, None)


def _records(stream: Readable) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, text in lines(stream):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield number, record


def _time(record: dict[str, Any]) -> float | None:
    return iso_seconds(str(record.get("query_time")), local=True)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _run(stream: Readable, name: str, facts: Facts) -> Reading:
    content = bytearray()
    while len(content) < _LONGEST and (piece := stream.read(1 << 16)):
        content += piece
    try:
        run = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Reading(content.count(b"\n"), 0, "is not a whole JSON document")
    if not isinstance(run, dict):
        return Reading(content.count(b"\n"), 0, "holds no run")
    command = run.get("command")
    words = " ".join(map(str, command)) if isinstance(command, list) else None
    text = f"exit status {run.get('status')}" if words is None else f"ran: {words}"
    signal = _word(run.get("signal"))
    row = _row(run, name, words, facts.evidence(name, 1, f"{text}{f', {signal}' if signal else ''}"))
    facts.add([row])
    facts.mark_covered("recorded_run")
    if row.status and not (row.sent and signal and signal in row.sent):  # else the recorder passed on what ended it
        facts.add([ProcessEnd(
            host=row.host, rank=None, local_rank=None, pid=None, exitcode=row.status, signal=signal, reporter="record",
            first=None, job=None, n=1, stamp=row.ended, ref=row.ref,
        )])  # fmt: skip
    environment = run.get("environment")
    if isinstance(environment, dict):
        facts.add(_settings(row.host, environment, facts, name))
    return Reading(content.count(b"\n"), 1, None)


def _row(run: dict[str, Any], name: str, words: str | None, ref: int) -> RecordedRun:
    """The row of a start (with a command) or an end."""
    status, started = run.get("status"), finite(run.get("started"))
    sent = [one for one in _listed(run.get("signals")) if isinstance(one, dict) and _word(one.get("signal"))]
    sent_at = finite(sent[0].get("time")) if sent else None
    lacking = run.get("lacking")
    lost = [one for one in (lacking.values() if isinstance(lacking, dict) else ()) if isinstance(one, dict)]
    return RecordedRun(
        host=_word(run.get("host")), file=name, command=words, status=status if isinstance(status, int) else None,
        signal=_word(run.get("signal")), started=started, ended=finite(run.get("ended")),
        running=_running(run) if words is not None else None,
        sent=", ".join(dict.fromkeys(one["signal"] for one in sent)) or None,
        sent_by=_whole(sent[0].get("pid")) if sent else None,
        sent_after=sent_at - started if sent_at is not None and started is not None else None,
        lost=sum(_whole(one.get("dropped")) or 0 for one in lost) or None,
        lost_why=next((why for one in lost if (why := _word(one.get("why")))), None), ref=ref,
    )  # fmt: skip


def _running(run: dict[str, Any]) -> int | None:
    """Whether the recorder that wrote this start still runs; None where it ran on another machine or before a boot."""
    pid, ticks = _whole(run.get("pid")), _whole(run.get("start_ticks"))
    if pid is None or ticks is None or run.get("boot") is None or run["boot"] != boot_id():
        return None
    return int(start_ticks(pid) == ticks)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _settings(host: str | None, environment: dict[str, Any], facts: Facts, file: str) -> Iterator[Env]:
    for number, (variable, value) in enumerate(environment.items(), 2):
        if variable.startswith(("NCCL_", "FI_", "UCX_", "OMPI_MCA_", "TORCH_", "HOROVOD_")) and isinstance(value, str):
            yield Env(host, None, None, variable, value, 1, facts.evidence(file, number, f"{variable}={value}"))


class _Ports:
    def __init__(self, file: str) -> None:
        self._file = file
        self._uses: dict[tuple[str | None, str], dict[str, Any]] = {}
        self._errors: dict[tuple[str | None, str, str, str], list[Any]] = {}

    def take(self, record: dict[str, Any], time: float | None, number: int) -> None:
        host = _word(record.get("hostname"))
        for port in _listed(record.get("ports")):
            if not isinstance(port, dict) or not isinstance(port.get("name"), str):
                continue
            key = (host, port["name"])
            use = self._uses.setdefault(key, {"n": 0, "rx": [], "tx": [], "downs": 0, "up": False, "line": number})
            use["kind"] = _word(port.get("kind")) or "ethernet"
            use["speed"] = finite(port.get("speed")) or use.get("speed")
            use["n"] += 1
            use.setdefault("first", time)
            self._rate(use, port, time)
            active = port.get("state") in ("ACTIVE", "UP", None)
            use["downs"] += int(use["up"] and not active)
            use["up"] |= active
            if use["downs"] == 1 and not active:
                use["line"] = number
            use["state"], use["time"] = _word(port.get("state")), time
            errors = port.get("errors")
            for name, value in errors.items() if isinstance(errors, dict) else ():
                if isinstance(value, int):
                    self._error((*key, use["kind"], str(name)), value, time, number)

    def _rate(self, use: dict[str, Any], port: dict[str, Any], time: float | None) -> None:
        passed = time - use["time"] if time is not None and use.get("time") is not None else 0
        for way in ("rx", "tx"):
            now, then = port.get(way), use.get(f"last_{way}")
            if isinstance(now, int) and isinstance(then, int) and now >= then and passed > 0:
                total = use[way]
                rate = (now - then) / passed / GIGABIT
                use[way] = [rate, rate, 1] if not total else [total[0] + rate, max(total[1], rate), total[2] + 1]
            use[f"last_{way}"] = now

    def _error(self, key: tuple[str | None, str, str, str], value: int, time: float | None, number: int) -> None:
        old = self._errors.get(key)
        if old is None:
            self._errors[key] = [value, 0, None, number]
        elif value > old[0]:
            old[2] = old[2] if old[1] else time
            old[3] = old[3] if old[1] else number
            old[0], old[1] = value, old[1] + value - old[0]

    def write(self, facts: Facts) -> None:
        facts.mark_covered("port_use", "port_error")
        for (host, port), use in self._uses.items():
            rx, tx = use["rx"] or [0, None, 0], use["tx"] or [0, None, 0]
            ref = facts.evidence(self._file, use["line"], f"{port} {use['state'] or ''}")
            first, last = use.get("first"), use["time"]
            facts.add([PortUse(
                host=host, port=port, kind=use["kind"], speed=use["speed"], samples=use["n"], first=first,
                seconds=last - first if first is not None and last is not None else None,
                rx_mean=rx[0] / rx[2] if rx[2] else None, tx_mean=tx[0] / tx[2] if tx[2] else None, rx_max=rx[1],
                tx_max=tx[1], downs=use["downs"], last_state=use["state"], ref=ref,
            )])  # fmt: skip
        for (host, port, kind, name), (_, growth, time, number) in self._errors.items():
            if growth:
                ref = facts.evidence(self._file, number, f"{port} {name} +{growth}")
                facts.add([PortError(host, port, kind, name, growth, time, ref)])


class _Hosts:
    def __init__(self, file: str) -> None:
        self._file = file
        self._uses: dict[str | None, dict[str, Any]] = {}

    def take(self, record: dict[str, Any], time: float | None, number: int) -> None:
        found = record.get("host")
        if not isinstance(found, dict):
            return
        use = self._uses.setdefault(
            _word(record.get("hostname")), {"n": 0, "cpu": 0.0, "high": 0, "first": time, "line": number}
        )
        cpu = finite(found.get("cpu")) or 0.0
        use["n"] += 1
        use["cpu"] += cpu
        use["high"] += cpu >= 95
        use["time"] = time
        for name in ("memory_used", "swap_used", "shm_used"):
            value = finite(found.get(name))
            if value is not None and value >= use.get(name, -1):
                use[name] = value
                if name == "shm_used":
                    use["line"] = number
        for name in ("memory_total", "shm_total", "cpus"):
            use[name] = finite(found.get(name)) or use.get(name)
        for name in ("tcp_sent", "tcp_repeated"):
            if (count := _whole(found.get(name))) is not None:
                use.setdefault(f"{name} first", count)
                use[name] = count

    def write(self, facts: Facts) -> None:
        facts.mark_covered("host_use")
        for host, use in self._uses.items():
            text = f"{host}: memory {use.get('memory_used')} MiB, /dev/shm {use.get('shm_used')} MiB"
            ref = facts.evidence(self._file, use["line"], text)
            first, last = use["first"], use["time"]
            facts.add([HostUse(
                host=host, samples=use["n"], first=first,
                seconds=last - first if first is not None and last is not None else None,
                cpus=int(use["cpus"]) if use["cpus"] else None, cpu_mean=use["cpu"] / use["n"],
                cpu_high_share=use["high"] / use["n"], cpu_wait=None, memory_max=use.get("memory_used"),
                memory_total=use["memory_total"], swap_max=use.get("swap_used"), shm_max=use.get("shm_used"),
                shm_total=use["shm_total"], tcp_sent=_growth(use, "tcp_sent"),
                tcp_repeated=_growth(use, "tcp_repeated"), ref=ref,
            )])  # fmt: skip


def _growth(use: dict[str, Any], name: str) -> int | None:
    """Returns by how much a counter grew; None where it is unknown or was reset."""
    return use[name] - use[f"{name} first"] if use.get(name, -1) >= use.get(f"{name} first", 0) else None


class _Ranks:
    def __init__(self, file: str) -> None:
        self._file = file
        self._uses: dict[tuple[str | None, int, int], dict[str, Any]] = {}
        self._spans: dict[str | None, float] = {}  # when the span of a host began

    def take(self, record: dict[str, Any], time: float | None, number: int) -> None:
        host = _word(record.get("hostname"))
        for one in _listed(record.get("processes")):
            if not isinstance(one, dict) or not isinstance(one.get("rank"), int) or not isinstance(one.get("pid"), int):
                continue
            key = (host, one["rank"], one["pid"])
            use = self._uses.setdefault(
                key, {"n": 0, "cpu": 0.0, "blocked": 0, "first": time, "memory": None, "line": number}
            )
            use["n"] += 1
            use["cpu"] += finite(one.get("cpu")) or 0.0
            use["blocked"] += one.get("state") == "disk-sleep"
            use["memory"] = max(use["memory"] or 0.0, finite(one.get("memory")) or 0.0) or None
            use |= {"time": time, "job": _word(one.get("job")), "cpus": _word(one.get("cpus"))}
            if (waited := finite(one.get("waited"))) is not None and time is not None:
                use["waited"] = waited
                use.setdefault("waits", (time, waited))
        if time is not None and time - self._spans.setdefault(host, time) >= SPAN:
            self._spans[host] = time
            self._end_span(host, time)

    def _end_span(self, host: str | None, time: float) -> None:
        """Compare how long each rank of a host waited for a processor in the last span, and keep the worst span of each."""
        shares = {}
        for key, use in self._uses.items():
            if key[0] == host and use.get("time") == time and (begun := use.get("waits")) is not None:
                if time - begun[0] >= SPAN / 2:
                    shares[key] = min(max((use["waited"] - begun[1]) / (time - begun[0]), 0.0), 1.0)
                use["waits"] = time, use["waited"]
        for key, share in shares.items():
            others = [value for other, value in shares.items() if other != key]
            usual = median(others) if others else None
            worst = self._uses[key].get("starved")
            if worst is None or share - (usual or 0.0) > worst[0] - (worst[1] or 0.0):
                self._uses[key]["starved"] = share, usual

    def write(self, facts: Facts) -> None:
        facts.mark_covered("rank_use")
        facts.add(
            RankUse(
                host=host, rank=rank, pid=pid, job=use["job"], samples=use["n"], first=use["first"],
                last=use["time"], cpu_mean=use["cpu"] / use["n"], memory_max=use["memory"], cpus=use["cpus"],
                blocked=use["blocked"], starved=use.get("starved", (None, None))[0],
                starved_others=use.get("starved", (None, None))[1],
                ref=facts.evidence(f"{self._file}: process {pid}", use["line"], f"rank {rank}, process {pid}"),
            )
            for (host, rank, pid), use in self._uses.items()
        )  # fmt: skip
