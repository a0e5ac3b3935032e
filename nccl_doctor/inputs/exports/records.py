"""One record of an exported log turned into the lines that the job wrote.

A record is an object of JSON or a row of a CSV table: structlog, loguru and python-json-logger, Fluent Bit, Loki, Cloud Logging,
CloudWatch, Elasticsearch, the journal, `kubectl get events` and `get pods`.
Time, pod and rank come in front of each line as launchers print them.
"""

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.timestamps import iso_seconds

MESSAGE = (
    "log", "message", "@message", "_raw", "msg", "MESSAGE", "textPayload", "text", "line", "event", "body", "content",
)  # fmt: skip
_INSIDE = ("jsonPayload", "_source", "attributes", "record", "data", "fields")  # objects that may hold the message
_TIMES = (
    "@timestamp", "timestamp", "time", "ts", "_time", "asctime", "datetime", "date", "__REALTIME_TIMESTAMP",
    "lastTimestamp", "eventTime", "receiveTimestamp", "ingestionTime",
)  # fmt: skip
_PODS = (
    "pod", "pod_name", "podName", "kubernetes.pod_name", "kubernetes.pod.name", "k8s.pod.name", "resource.labels.pod_name",
    "labels.pod", "labels.pod_name", "stream.pod",
)  # fmt: skip
_HOSTS = (
    "_HOSTNAME", "hostname", "host", "host.name", "host.hostname", "labels.hostname", "labels.host", "nodename",
    "stream.node_name", "stream.hostname", "stream.host", "labels.node_name",
)  # fmt: skip
_RANKS = ("rank", "global_rank", "extra.rank", "RANK")
_STACKS = (
    "exception", "exc_info", "exc_text", "traceback", "stack_trace", "stacktrace", "stack", "error", "err", "py_callstack",
    "extraInfo", "extra_info",
)  # fmt: skip
_STACK_KEYS = frozenset(_STACKS)
_REASONS = (
    "error",
    "err",
    "detail",
    "details",
)  # where loggers (zap, logrus, slog, klog, structlog) say more beside the message
_OF_KUBERNETES = frozenset(("involvedObject", "regarding", "kind"))
_NUMBERS = (int, float)
_SERIES = frozenset(("step", "global_step", "iteration", "iter", "loss", "train_loss"))
_NAME = compiled(r"[A-Za-z0-9][\w.-]{0,252}")
_ISO = compiled(r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")
_KIBANA = compiled(r"([A-Z][a-z]{2} \d{1,2}, \d{4}) @ (\d\d:\d\d:\d\d)(\.\d{1,9})?")
_DATED = compiled(r"\[?\d{4}[-/]\d\d[-/]\d\d")
_OBJECTS = 500  # bytes that Python takes for a record besides its text
_DEEPEST = 3  # records inside a message
_UNITS = (1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0)  # the least of a time in ns, us, ms and s, and its unit


class _Names(NamedTuple):
    """Which of the names above the keys of a record may hold, in their order: the records of a logger have the same keys."""

    messages: tuple[str, ...]
    inside: tuple[str, ...]
    times: tuple[str, ...]
    pods: tuple[str, ...]
    hosts: tuple[str, ...]
    ranks: tuple[str, ...]
    of_kubernetes: bool
    has_stacks: bool  # in the record itself
    reasons: tuple[str, ...]
    numbers: tuple[str, ...]  # that may be those of a training step


@lru_cache(1_000)
def _names(keys: tuple[str, ...]) -> _Names:
    def held(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in keys or ("." in name and name.partition(".")[0] in keys))

    return _Names(
        messages=held(MESSAGE),
        inside=held(_INSIDE),
        times=held(_TIMES),
        pods=held(_PODS),
        hosts=held(_HOSTS),
        ranks=held(_RANKS),
        of_kubernetes=not _OF_KUBERNETES.isdisjoint(keys),
        has_stacks=not _STACK_KEYS.isdisjoint(keys),
        reasons=held(_REASONS),
        numbers=() if _SERIES.isdisjoint(keys) else tuple(key for key in keys if key not in _TIMES),
    )


class Record(NamedTuple):
    """What one record says."""

    when: str | None  # its time as ISO text
    lines: list[str]

    @property
    def stamp(self) -> float | None:
        """Its time, seconds since the epoch."""
        return iso_seconds(self.when.replace(",", ".")) if self.when else None

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return _OBJECTS + sum(map(len, self.lines))


def read(row: dict[str, Any], depth: int = 0) -> Record | None:
    """The lines of a record; None for an object that is no record of a log."""
    row, names = _opened(row)
    message, stacks = _message(row, names), _stacks(row, names)
    if message is None or not (stacks or message.strip()):
        return None
    when = _time(row, names)
    if message.startswith("{") and depth < _DEEPEST and (inner := _object(message)) is not None:
        deeper = read({**_outer(row), **inner}, depth + 1)
        if deeper is not None:
            return Record(when if deeper.stamp is None else deeper.when, deeper.lines)
    lines = message.replace("\r\n", "\n").rstrip("\n").split("\n") if "\n" in message else [message]
    for stack in stacks:
        if stack.strip() not in message:
            lines += stack.strip("\n").split("\n")
    if names.reasons:
        lines[0] += "".join([f": {reason}" for reason in _reasons(row, names) if reason not in message])
    if names.numbers and "NCCL" not in lines[0]:
        lines[0] += "".join([f" {name}={row[name]}" for name in names.numbers if type(row[name]) in _NUMBERS])
    before = _before(row, names, when, lines[0])
    return Record(when, [before + line for line in lines])


def is_record(row: object) -> bool:
    """Whether an object of JSON is a record of a log."""
    if not isinstance(row, dict):
        return False
    row, names = _opened(row)
    message = _message(row, names)
    return message is not None and (bool(message.strip()) or bool(_stacks(row, names)))


def _opened(row: dict[str, Any]) -> tuple[dict[str, Any], _Names]:
    """A record, or the words of what Kubernetes says of a pod, and the names that it may hold."""
    names = _names(tuple(row))
    if names.of_kubernetes:
        row = _of_pod_event(_of_pod(row))
        names = _names(tuple(row))
    return row, names


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _outer(row: dict[str, Any]) -> dict[str, Any]:
    """What a record says about the message inside it."""
    return {key: value for key, value in row.items() if key not in MESSAGE}


def _of_pod_event(row: dict[str, Any]) -> dict[str, Any]:
    """An event of Kubernetes with the words that `kubectl get events` prints before its message."""
    what = row.get("involvedObject") or row.get("regarding")
    if not isinstance(what, dict) or not isinstance(row.get("reason"), str):
        return row
    note = row.get("message") or row.get("note") or ""
    thing = f"{str(what.get('kind', '')).lower()}/{what.get('name', '')}"
    return {
        "message": f"{row.get('type', 'Normal')}   {row['reason']}   {thing}   {note}",
        "time": row.get("lastTimestamp") or row.get("eventTime"),
    }


def _of_pod(row: dict[str, Any]) -> dict[str, Any]:
    """A pod of `kubectl get pods -o json` with the words of `kubectl get pods` and, where a container ended badly, of `describe`."""
    status, metadata = row.get("status"), row.get("metadata")
    if row.get("kind") != "Pod" or not isinstance(status, dict) or not isinstance(metadata, dict):
        return row
    known = status.get("containerStatuses")
    containers = [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []
    reason, lines = str(status.get("reason") or status.get("phase") or "Unknown"), list[str]()
    for container in containers:
        for state in ("state", "lastState"):
            inner = container.get(state)
            for name, how in inner.items() if isinstance(inner, dict) else ():
                if isinstance(how, dict) and isinstance(how.get("reason"), str) and name != "running":
                    reason = str(how["reason"]) if state == "state" else reason
                    lines += [
                        f"      Reason:       {how['reason']}",
                        *_lines_of(how.get("message"), "      Message:      "),
                    ]
                    lines += [f"      Exit Code:    {how['exitCode']}"] if isinstance(how.get("exitCode"), int) else []
    ready = sum(one.get("ready") is True for one in containers)
    restarts = sum(count for one in containers if isinstance(count := one.get("restartCount"), int))
    head = f"{metadata.get('name')}   {ready}/{len(containers)}   {reason}   {restarts}"
    lines += _unscheduled(status.get("conditions"), metadata.get("name"))
    return {
        "message": "\n".join([head, *_lines_of(status.get("message"), "Message:      "), *lines]),
        "time": status.get("startTime"),
        "pod": metadata.get("name"),
    }


def _unscheduled(conditions: object, name: object) -> list[str]:
    """Why a pod got no node, as an event says it."""
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("reason") == "Unschedulable" and one.get("status") == "False":
            return _lines_of(one.get("message"), f"Warning   FailedScheduling   pod/{name}   ")
    return []


def _lines_of(text: object, before: str) -> list[str]:
    return [before + line for line in text.split("\n")[:20]] if isinstance(text, str) and text else []


def _at(row: dict[str, Any], name: str) -> Any:
    """The value of a key; `a.b` is also the key `b` of the object `a`."""
    if name in row:
        return row[name]
    if "." not in name:
        return None
    for part in name.split("."):
        row = row.get(part) if isinstance(row, dict) else None  # type: ignore[assignment]
    return row


def message_of(row: dict[str, Any]) -> tuple[str, str] | None:
    """The message of a record and the name of the field that holds it; None where it is not a field of the record itself."""
    return _own_message(row, _names(tuple(row)))


def _own_message(row: dict[str, Any], names: _Names) -> tuple[str, str] | None:
    for name in names.messages:
        value = row.get(name)
        if isinstance(value, str):
            return name, value
        if name == "MESSAGE" and isinstance(value, list) and all(type(code) is int for code in value):
            return name, bytes(code & 255 for code in value).decode("utf-8", "replace")
        if name == "message" and isinstance(value, dict) and isinstance(value.get("message"), str):
            return name, str(value["message"])
    return None


def _message(row: dict[str, Any], names: _Names) -> str | None:
    found = _own_message(row, names)
    if found is not None:
        return found[1]
    for name in names.inside:
        inner = row.get(name)
        if isinstance(inner, dict) and (text := next((inner[key] for key in MESSAGE if _is_text(inner, key)), None)):
            return str(text)
    return None


def _is_text(row: dict[str, Any], key: str) -> bool:
    return isinstance(row.get(key), str)


def _stacks(row: dict[str, Any], names: _Names) -> list[str]:
    """Tracebacks beside the message."""
    found: list[str] = []
    if not (names.has_stacks or names.inside or isinstance(row.get("message"), dict)):
        return []
    places = [row] if names.has_stacks else []
    places += [row[name] for name in ("message", *names.inside) if isinstance(row.get(name), dict)]
    for place in places:
        for name in () if _STACK_KEYS.isdisjoint(place) else _STACKS:
            value = place.get(name)
            if isinstance(value, str) and ("\n" in value or "Traceback" in value):
                found.append(value)
            elif isinstance(value, dict):
                found += [text for key in _STACKS if isinstance(text := value.get(key), str) and "\n" in text]
            elif isinstance(value, list) and (text := _frames(value)):
                found.append(text)
    return found


def _reasons(row: dict[str, Any], names: _Names) -> list[str]:
    """Why something failed, in one line beside the message; a number or one word is a value of the program's own."""
    values = [value for name in names.reasons if isinstance(value := row.get(name), str)]
    return [value for value in values if " " in value.strip() and "\n" not in value and "Traceback" not in value]


def _frames(stacks: list[Any]) -> str:
    """The traceback of structlog's `dict_tracebacks` as Python prints it."""
    lines: list[str] = []
    for stack in stacks:
        if not isinstance(stack, dict) or "exc_type" not in stack:
            continue
        lines.append("Traceback (most recent call last):")
        for frame in stack.get("frames") or ():
            if isinstance(frame, dict):
                lines.append(f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}')
        lines.append(f"{stack['exc_type']}: {stack.get('exc_value', '')}")
    return "\n".join(lines)


def _before(row: dict[str, Any], names: _Names, when: str | None, first: str) -> str:
    """The prefixes that say when, where and which rank."""
    before = f"{when} " if when and not _DATED.match(first) else ""
    pod = _first_name(row, names.pods) if names.pods else None
    host = _first_name(row, names.hosts) if names.hosts and not pod else None
    if pod:
        before += f"[pod/{pod}/log] "
    elif host and "_HOSTNAME" in row and when:
        writer, pid = row.get("SYSLOG_IDENTIFIER") or row.get("_COMM") or "log", row.get("_PID")
        return f"{before}{host} {writer}{f'[{pid}]' if pid and writer != 'kernel' else ''}: "
    elif host:
        before += f"{host}: "
    for name in names.ranks:
        rank = _at(row, name)
        if type(rank) is int or (isinstance(rank, str) and rank.isdecimal()):
            return f"{before}[rank{int(rank)}]: " if 0 <= int(rank) < 10_000_000 else before
    return before


def first_pod(row: dict[str, Any]) -> str | None:
    """The pod that a record names."""
    return _first_name(row, _names(tuple(row)).pods)


def _first_name(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = _at(row, name)
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
    return None


def _time(row: dict[str, Any], names: _Names) -> str | None:
    """The time of a record as ISO text."""
    for name in names.times:
        text = _iso(row[name])
        if text is not None:
            return text
    return None


def _iso(value: Any) -> str | None:
    if isinstance(value, str):
        if found := _ISO.match(value):
            return found[0]
        if found := _KIBANA.match(value):
            try:
                return f"{datetime.strptime(found[1], '%b %d, %Y'):%Y-%m-%d}T{found[2]}{found[3] or ''}Z"
            except ValueError:
                return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
        unit = next((unit for least, unit in _UNITS if number >= least), None)
        return None if unit is None else datetime.fromtimestamp(number / unit, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
