"""Dumps of PyTorch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_FR_BUFFER_SIZE): pickle or JSON, of all versions.

A pickle can run any code when it is loaded. These dumps hold plain data only, so a pickle that asks for anything else is
refused with the name of what it asks for, and nothing of it runs.
"""

import contextlib
import io
import json
import os
import pickle
import re
from collections.abc import Iterator
from typing import Any

import ijson

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Recorder, RecorderCall, RecorderGroup
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.json_depth import Shallow, TooDeep
from nccl_doctor.inputs.sources import ForeignInput, InputProblem
from nccl_doctor.inputs.streams import Readable

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

MOST_BYTES = 512 << 20
MOST_ENTRIES = 200_000  # the buffer holds 2000 by default
# Bytes that unpickling may ask for, at least and for each byte of the pickle; one of some bytes can ask for 64 GB.
_MEMORY = 192 << 20
_MEMORY_EACH = 64
_RANK = re.compile(r"rank[-_ ]*(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,7})(?!\d)")
_EXTENSION = re.compile(r"\.(?:pkl|pickle|json|bin|dump|gz|xz|zst|bz2|\d{4}-\d\d-\d\d\S{0,40})$", re.IGNORECASE)
_LIBRARY_CODE = ("/site-packages/", "/dist-packages/", "<frozen", "/torch/")


class _Refused(Exception):
    """A pickle asked for something other than plain data."""


class _Plain(pickle.Unpickler):
    """Builds dicts, lists, tuples, strings, numbers and None, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise _Refused(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a persistent object")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one dump. Raises InputProblem for a pickle that is not a dump, or that asks for more than plain data.

    Source: torch/csrc/distributed/c10d/FlightRecorder.cpp (TraceUtils.h at first), PyTorch 2.2 and newer; as JSON::

        {"version": "2.5", "pg_status": {"0": {"last_completed_collective": 41}}, "entries": [
          {"collective_seq_id": 42, "profiling_name": "nccl:all_reduce", "state": "started", "input_sizes": [[1024]], ...}]}
    """
    facts.mark_covered("recorder", "recorder_group", "recorder_call")
    data = _whole(stream, name)
    form = "pickle" if data[:1] == b"\x80" else "json"
    note = None
    if form == "pickle":
        dump = _unpickle(data, name)
    else:
        dump, note = _parse(data, name)
    if isinstance(dump, list):  # the first releases
        dump = {"entries": dump}
    if not isinstance(dump, dict) or not ({"entries", "pg_config", "pg_status"} & set(dump)):
        raise ForeignInput(name, f"is {form} data, but not a dump of PyTorch's flight recorder")
    entries = dump.get("entries")
    entries = entries if isinstance(entries, list) else []
    rank = rank_of(name)
    rows = list(_calls(name, rank, dump, entries[:MOST_ENTRIES]))
    version, library = (_text(dump.get(key)) for key in ("version", "comm_lib_version"))
    library = library or _text(dump.get("nccl_version"))
    text = f"{len(entries)} entries, version {version or 'before 1'}, rank {'?' if rank is None else rank}"
    ref = facts.evidence(name, 0, text)
    facts.add([Recorder(name, series_of(name), rank, version, library, len(entries), form, ref)])
    facts.add(_groups(name, rank, dump, ref))
    facts.add(rows)
    if rank is None:
        note = note or "has no rank in its name (as in nccl_trace_rank_7), so it is not compared with the others"
    return Reading(len(entries), len(rows), note)


def rank_of(name: str) -> int | None:
    """The rank in the name of a dump: `nccl_trace_rank_12`, `fr-3.pkl`, `dump00007`."""
    match = _number(_last(name))
    return int(match[1]) if match else None


def series_of(name: str) -> str:
    """What dumps of one moment have in common: the name without the rank."""
    last = _last(name)
    match = _number(last)
    if match is None:
        return name
    start = len(name) - len(re.split(r"[/!]", name)[-1])
    return f"{name[: start + match.start(1)]}*{name[start + match.end(1) :]}"


def _number(last: str) -> re.Match[str] | None:
    return _RANK.search(last) or next(reversed(list(_NUMBER.finditer(last))), None)


def _last(name: str) -> str:
    """The name without folders and extensions, which may hold other numbers."""
    last = re.split(r"[/!]", name)[-1]
    while (shorter := _EXTENSION.sub("", last)) != last:
        last = shorter
    return last


def _whole(stream: Readable, name: str) -> bytes:
    parts, size = [], 0
    while data := stream.read(1 << 20):
        size += len(data)
        if size > MOST_BYTES:
            raise InputProblem(name, f"is larger than {MOST_BYTES >> 20} MiB, which no dump of the flight recorder is")
        parts.append(data)
    return b"".join(parts)


def _unpickle(data: bytes, name: str) -> Any:
    try:
        with _bounded_memory(_MEMORY + _MEMORY_EACH * len(data)):
            return _Plain(io.BytesIO(data)).load()
    except _Refused as refused:
        why = f"is a pickle that asks for `{refused}`; a dump of the flight recorder holds plain data only. Nothing of it was run"
        ours = any(key in data for key in (b"pg_config", b"pg_status", b"collective_seq_id"))
        raise (InputProblem if ours else ForeignInput)(name, why) from None
    except MemoryError:
        raise InputProblem(name, "is a pickle that asks for more memory than any dump needs") from None
    except RecursionError:
        raise InputProblem(name, "is a pickle that is nested deeper than any dump") from None
    except EOFError:
        raise InputProblem(name, "is a pickle that is cut before its end") from None
    except Exception as error:  # the unpickler of broken data raises nearly anything
        cut = "truncated" in str(error) or "ran out of input" in str(error)
        why = "is a pickle that is cut before its end" if cut else f"is a broken pickle: {error}"
        raise InputProblem(name, why) from None


@contextlib.contextmanager
def _bounded_memory(most: int) -> Iterator[None]:
    """Let an allocation beyond so many bytes fail instead of the machine; only where the system tells how much is in use."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = used + most
        if soft != resource.RLIM_INFINITY and soft <= wanted:
            raise ValueError
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    except (OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _parse(data: bytes, name: str) -> tuple[Any, str | None]:
    try:
        # A saved HTTP answer can have more behind it.
        return json.JSONDecoder().raw_decode(data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))[0], None
    except RecursionError:
        raise InputProblem(name, "is nested deeper than any dump") from None
    except ValueError:
        pass
    entries: list[Any] = []
    try:
        for entry in ijson.items(Shallow(io.BytesIO(data)), "entries.item", use_float=True):
            entries.append(entry)
    except (ijson.JSONError, TooDeep):
        pass
    return {"entries": entries}, f"is cut or not valid JSON, behind entry {len(entries)}; its groups are unknown"


def _groups(file: str, rank: int | None, dump: dict[str, Any], ref: int) -> Iterator[RecorderGroup]:
    status = dump.get("pg_status")
    status = status if isinstance(status, dict) else {}
    config = dump.get("pg_config")
    config = config if isinstance(config, dict) else {}
    # The default group has an empty name where another backend than NCCL records.
    if set(config) == {""}:
        config = {"0": config[""]}
    for pg in {**config, **status}:
        said, counts = config.get(pg), status.get(pg)
        said = said if isinstance(said, dict) else {}
        counts = counts if isinstance(counts, dict) else {}
        members = said.get("ranks")
        ranks = re.findall(r"\d{1,7}", members if isinstance(members, str) else _shape(members, 1 << 20))
        enqueued, started, done = (
            _int(counts.get(f"last_{k}_collective")) for k in ("enqueued", "started", "completed")
        )
        listed, said_of = ",".join(ranks) or None, _text(said.get("desc"))
        yield RecorderGroup(
            file=file, rank=rank, pg=_plain(pg), description=said_of, ranks=listed, enqueued=enqueued,
            started=started, completed=done, ref=ref,
        )  # fmt: skip


def _calls(file: str, rank: int | None, dump: dict[str, Any], entries: list[Any]) -> Iterator[RecorderCall]:
    done = {}
    status = dump.get("pg_status")
    for pg, counts in status.items() if isinstance(status, dict) else ():
        done[_plain(pg)] = _int(counts.get("last_completed_collective")) if isinstance(counts, dict) else None
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            continue
        group = entry.get("process_group")
        pg = _plain(group[0] if isinstance(group, (list, tuple)) and group else entry.get("pg_id", 0))
        op = _plain(entry.get("profiling_name")) or "?"
        p2p = int(bool(entry.get("is_p2p")) or " " in op)
        seq = _int(entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id")))
        if seq is None:
            continue
        state = _plain(entry.get("state")) or "scheduled"
        finished = state == "completed" or bool(entry.get("retired")) or (not p2p and seq <= (done.get(pg) or -1))
        created = _int(entry.get("time_created_ns"))
        yield RecorderCall(
            file=file, rank=rank, pg=pg, seq=seq, p2p=p2p, op=op.split(":", 1)[-1],
            sizes=_shape(entry.get("input_sizes")), out_sizes=_shape(entry.get("output_sizes")),
            dtypes=_shape(entry.get("input_dtypes")), state=state, finished=int(finished),
            created=created / 1e9 if created else None, entry=number, frame=_frame(entry.get("frames")),
        )  # fmt: skip


def _frame(frames: Any) -> str | None:
    """The innermost line that belongs to the program and not to a library."""
    for frame in frames[:200] if isinstance(frames, (list, tuple)) else ():
        if isinstance(frame, dict):
            file = _plain(frame.get("filename"))
            if file and not any(part in file for part in _LIBRARY_CODE):
                return f"{_plain(frame.get('name'))} ({file}:{_plain(frame.get('line'))})"
    return None


def _shape(value: Any, most: int = 32) -> str:
    """`[[2, 3], [4]]`, two levels deep: a list can hold itself or one list a thousand times."""
    if not isinstance(value, (list, tuple)):
        return ""
    parts = []
    for part in value[:most]:
        inner = part[:16] if isinstance(part, (list, tuple)) else None
        parts.append(_plain(part) if inner is None else "[" + ", ".join(_plain(number) for number in inner) + "]")
    return "[" + ", ".join(parts) + "]"


def _plain(value: Any) -> str:
    return str(value)[:200] if isinstance(value, (str, int, float)) else ""


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _int(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
