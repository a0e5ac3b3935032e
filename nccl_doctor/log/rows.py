"""From counted events of a log to rows of facts."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts import tables
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.knowledge import codes
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.knowledge.system_errors import sharpened, told
from nccl_doctor.knowledge.templates import LINE, RECORD
from nccl_doctor.log import nccl_header
from nccl_doctor.log.line_patterns import LAST_ERROR, UNKNOWN, Pattern

_COMM = compiled(r" comm 0x[0-9a-f]")
_NET = compiled(
    r"NET/(?P<network>[^/]{1,100})/(?P<device>\d{1,9})(?:\((?P<proxy>\d{1,9})\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?P<shared>/Shared)?(?:/flush=\w{1,40})?"
    r"(?=$|\s|[^/\w(])"
)
_STEPD = compiled(
    r"slurmstepd-([A-Za-z0-9][\w.-]{0,252}): "
).match  # a step on several nodes: Slurm names the one that writes
# The rank in the job; PyTorch's own `Rank n` behind it counts inside a process group.
_TORCH_RANK = compiled(r"\[rank(\d+)\]:")
_P2P = compiled(r"P2P/(?P<method>direct pointer|common device|indirect|IPC|CUMEM|MNNVL)")
_SHM = compiled(r"SHM/(?P<method>direct|CE)|direct shared memory")
# `[0]eth0:10.1.0.4<0>`; pasted logs lose the port (`<0>` is taken for a tag) or show `<ip>` for the address.
_INTERFACE = compiled(
    r"(?:\[(?P<position>\d{1,9})\])?(?P<name>[^\s:\[\]<>{}]{1,60}?)"
    r"(?::(?P<address>[^\s<>]{1,100})(?=<\d{1,9}>)"
    r"|:(?P<bare>[0-9a-fXx]{1,40}[.:*][0-9a-fXx.:*]{0,60}(?:%[\w.-]{1,40})?)(?=[\s,;]|$)"
    r"|[.:]<[A-Za-z][\w .-]{0,40}>)"
)
_DEVICE = compiled(r"\[(?P<position>\d+)\](?:=\{)?\s*(?P<name>[\w.+-]+):(?P<port>\d+)(?::\d+)*/(?P<link>IB|RoCE|OPA)")


class Context(NamedTuple):
    """What every row of an event shares."""

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    source: str | None
    level: str
    n: int
    last_line: int
    stamp: float | None
    ref: int
    text: str
    left: str = ""  # launcher prefixes of the line


class Medium(NamedTuple):
    """What carries an edge."""

    transport: str
    method: str | None
    network: str | None
    device: int | None
    proxy: int | None
    gdr: int | None
    shared: int


@lru_cache(10_000)
def parse_medium(via: str) -> Medium | None:
    """What carries an edge, from the text behind ` via `; None where it is torn."""
    if " comm 0x" in via and (comm := _COMM.search(via, 1)):
        via = via[: comm.start()]
    if "\n" in via:
        return None
    net = _NET.match(via)
    if net is not None:
        proxy = int(net["proxy"]) if net["proxy"] else None
        return Medium(
            "NET", None, net["network"], int(net["device"]), proxy, int(bool(net["gdr"])), int(bool(net["shared"]))
        )
    for transport, pattern in (("P2P", _P2P), ("SHM", _SHM)):
        match = pattern.match(via)
        if match is not None:
            return Medium(transport, match["method"] or "direct", None, None, None, None, 0)
    return None


def _interfaces(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    listed = fields["list"]
    for match in _INTERFACE.finditer(listed):
        position = int(match["position"]) if match["position"] else None
        yield tables.Interface(
            context.host, context.rank, context.pid, fields["purpose"], position, match["name"],
            match["address"] or match["bare"] or "",
            context.n, context.ref,
        )  # fmt: skip
    if fields["purpose"] == "sideband":
        name = str(listed).split(":")[0]
        yield tables.Interface(
            context.host, context.rank, context.pid, "sideband", None, name, "", context.n, context.ref
        )


def _ib_devices(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    listed = fields["list"]
    virtual = re.split(r"(?=\[\d+\]=\{)", listed)
    for part in virtual:
        outer = re.match(r"\[(\d+)\]=\{", part)
        for match in _DEVICE.finditer(part.split("={", 1)[-1] if outer else part):
            position = int(outer[1]) if outer else int(match["position"])
            yield tables.NetDevice(
                context.host, context.rank, context.pid, position, match["name"], int(match["port"]), match["link"], None,
                context.n, context.ref,
            )  # fmt: skip
    yield from _interfaces(context, {"list": fields["oob"] or "", "purpose": "oob"})


COMMUNICATOR = "communicator"  # reader of patterns whose rows `communicator` makes
_PHASES = {"": "plain", "COMPLETE": "complete", "START": "start"}


@cache
def _phase(text: str) -> str:
    """`Init START` -> start, `Destroy COMPLETE` -> destroy, nothing -> plain."""
    words = text.split()
    if words and words[0] in ("Destroy", "Abort", "Finalize", "Revoke"):
        return words[0].lower() + ("" if words[-1] == "COMPLETE" else "-start")
    return _PHASES.get(words[-1] if words else "", "plain")


def communicator(
    who: tuple[Any, ...], fields: dict[str, Any], n: int, stamp: float | None, ref: int
) -> tuple[Any, ...]:
    """The row of a step in the life of a communicator, of which there may be hundreds of thousands.

    `who` are host, rank, process and thread, and what else is known of the writer.
    """
    get = fields.get
    dev, nvml, color = get("cuda_dev"), get("nvml_dev"), get("color")
    host, rank, pid, tid, *_ = who
    return (
        host, rank, pid, tid, get("call"), _phase(get("phase") or ""), get("comm"), get("comm_id"),
        int(fields["comm_rank"]), int(fields["nranks"]), int(dev) if dev else None, int(nvml) if nvml else None,
        get("bus_id"), get("parent"), int(color) if color else None, n, stamp, ref,
    )  # fmt: skip


def _library(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    name = str(fields["name"]).lower()
    yield tables.Library(
        context.host,
        context.rank,
        context.pid,
        name,
        fields["version"],
        fields.get("built_for"),
        context.n,
        context.ref,
    )


def _ring(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    order = fields["order"].split()
    cut = order[-1] == "..." or len(order) == 20
    channels = int(fields["channels"]) if fields.get("channels") else None
    ranks = " ".join(rank for rank in order if rank != "...")
    yield tables.Ring(
        context.host, context.rank, int(fields["channel"]), channels, ranks, int(cut), context.n, context.ref
    )


def _collective(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    op = int(fields["first_op"], 16)
    integer = {k: int(fields[k]) for k in ("count", "datatype", "op", "root", "nranks") if fields.get(k)}
    yield tables.Collective(
        context.host, context.rank, context.pid, fields["comm"], fields["function"], integer.get("count"),
        integer.get("datatype"), integer.get("op"), integer.get("root"), integer.get("nranks"), op, op, context.n,
        context.ref,
    )  # fmt: skip


# How UCX (src/uct/ib/mlx5/ib_mlx5_log.c) and libibverbs (ibv_wc_status_str) call the statuses of verbs.
_STATUS = {
    "local length error": 1, "local qp operation error": 2, "local protection error": 4, "memory window bind error": 6,
    "memory management operation error": 6, "bad response": 7, "bad response error": 7, "local access error": 8,
    "invalid request": 9, "remote invalid request error": 9, "remote access error": 10, "remote operation error": 11,
    "transport retry count exceeded": 12, "transport retry counter exceeded": 12,
    "receive-no-ready retry count exceeded": 13, "rnr retry counter exceeded": 13, "work request flushed error": 5,
    "remote side aborted": 16, "aborted error": 16,
}  # fmt: skip
_GENERAL = 21


def _ucx_completion(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    gid = fields.get("remote_gid")
    yield tables.IbError(
        context.host, context.rank, context.pid, str(gid).rpartition(":")[2] if gid and "." in gid else None,
        _STATUS.get(str(fields["what"]).lower(), _GENERAL), None, _convert(fields["vendor_err"], int), None, None, gid,
        fields.get("hca"), context.n, context.stamp, context.ref,
    )  # fmt: skip


def _hip_error(context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    """A HIP error by its name: the numbers are those of CUDA, which rules ask for."""
    known = codes.cuda(fields["text"])
    code = int(fields["code"]) if fields.get("code") else known["code"] if known else None
    yield tables.CudaError(
        context.host,
        context.rank,
        context.pid,
        code,
        fields["text"],
        context.source,
        context.n,
        context.stamp,
        context.ref,
    )


READERS: dict[str, Callable[[Context, dict[str, Any]], Iterable[Any]]] = {
    "interfaces": _interfaces,
    "ib_devices": _ib_devices,
    "library": _library,
    "ring": _ring,
    "collective": _collective,
    "ucx-completion": _ucx_completion,
    "hip-error": _hip_error,
}


_SURE = 18  # digits that 64 bits hold whatever they are


def _convert(value: Any, type_: type) -> Any:
    if value is None or value == "":
        return None
    if type_ is str:
        return str(value)
    if type_ is float:
        try:
            return float(value)
        except ValueError:
            return None
    text = str(value)
    if text.isdecimal() and text[0] != "0" and len(text) <= _SURE:
        return int(text)
    return _whole(text.replace(",", ""))


def _whole(text: str) -> int | None:
    """The number in a text; None for no number and for garbage that needs more than 64 bits (uninitialised counters)."""
    for base in (0, 10):  # int('007', 0) is a ValueError
        try:
            number = int(text, base)
        except ValueError:
            continue
        return number if abs(number) < 1 << 63 else None
    return None


@cache
def _filling(name: str) -> tuple[Any, list[tuple[str, type, int | None]]]:
    """A table; and its columns, their types, and where a context has the value of those that an event shares."""
    places = {field: place for place, field in enumerate(Context._fields)}
    table = by_name()[name]
    return table, [(column, type_, places.get(column)) for column, type_ in column_types(table).items()]


def rows(pattern: Pattern | None, context: Context, fields: dict[str, Any]) -> Iterator[Any]:
    """The rows of one event: of its pattern's table, and of `message` where it has none or is a WARN."""
    if context.text.startswith("slurmstepd-") and (named := _STEPD(context.text)) is not None:
        context = context._replace(host=named[1])
    if pattern is not None and pattern.file == "pytorch" and "rank" in fields:
        label = _TORCH_RANK.search(context.left)
        fields = {**fields, "rank": label[1]} if label else fields
    if pattern is not None and pattern.reader:
        reader = READERS.get(pattern.reader)
        if reader is not None:
            yield from reader(context, fields)
    elif pattern is not None and pattern.table != "message":
        table, columns = _filling(pattern.table)
        values = []
        for name, type_, place in columns:
            given = fields.get(name)
            if given is not None:
                given = _convert(given, type_)
            values.append(given if given is not None or place is None else context[place])
        yield table._make(values)
    yield from _known_message(context, pattern)
    if pattern is None or context.level in nccl_header.SHOWN or (pattern.table == "message" and not pattern.reader):
        given_rank = _convert(fields.get("rank"), int)
        yield tables.Message(
            pattern.name if pattern else "warn", context.level or None, fields.get("host") or context.host,
            given_rank if given_rank is not None else context.rank, context.pid, context.source, context.text,
            json.dumps(fields, ensure_ascii=False), context.n, context.last_line, context.stamp, context.ref,
        )  # fmt: skip


def _where(context: Context, pattern: Pattern | None) -> str:
    """Where messages are searched that a text may be: all of them where another program repeats a warning of NCCL."""
    if context.level:
        return RECORD
    return "" if pattern is not None and (pattern.where == "nccl" or pattern.reader == LAST_ERROR) else LINE


def _known_message(context: Context, pattern: Pattern | None) -> Iterator[tables.KnownMessage]:
    """The row of a line that the catalogue knows, or that looks like an error and quotes a reason which means the same everywhere."""
    if context.level == "INFO":
        hit = catalogue().find_info(context.text)
    else:
        hit = catalogue().find(context.text, _where(context, pattern))
    if hit is not None:
        hit = sharpened(hit, context.text)
    elif pattern is not None and (pattern.file == UNKNOWN or pattern.table == "python_error"):
        hit = told(context.text)
    if hit is not None:
        known = hit.message
        yield tables.KnownMessage(
            known.program, known.id, known.kind, known.fault or None, known.role, known.grade(), known.confidence,
            known.title, known.means, "; ".join(known.causes) or None, known.command(), context.level or None, context.host,
            context.rank if context.rank is not None else _convert(hit.fields.get("rank"), int),
            context.pid, context.text, json.dumps(hit.fields, ensure_ascii=False), context.n, context.last_line,
            context.stamp, context.ref,
        )  # fmt: skip
