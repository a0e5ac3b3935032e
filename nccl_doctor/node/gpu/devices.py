"""GPUs as NVML shows them, else `nvidia-smi`."""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import (
    GpuHealth,
    GpuHolder,
    GpuLink,
    GpuPair,
    NodeCounter,
    NodeDriver,
    NodeGpu,
    NodeGpuError,
)
from nccl_doctor.node.gpu import pci
from nccl_doctor.node.gpu.nvml import CODES
from nccl_doctor.node.runtime.root import Absent, Root, fields
from nccl_doctor.node.software.variables import variables

TABLES = (NodeDriver, NodeGpu, GpuHealth, GpuLink, GpuPair, GpuHolder, NodeGpuError, NodeCounter)
MOST = 64  # GPUs of a node that are believed
_LIBRARY = {12}
_NO_DRIVER = {9}
_JOB = re.compile(
    r"(?:job_|slurm_|job)(\d{1,18})|/(?:pbs_jobs\.service/jobid|torque)/([\w.-]{1,60})|pod([0-9a-f_-]{36})"
)
_GRANTS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES")
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
_TYPES: dict[type, dict[str, type]] = {
    table: {name: str if "str" in str(hint) else float if "float" in str(hint) else int for name, hint in hints.items()}
    for table, hints in ((t, get_type_hints(t)) for t in (NodeGpu, GpuHealth))
}


def collect(root: Root) -> Iterator[Any]:
    devices = pci.devices(root)
    gpus = sum(device.kind == "gpu" for device in devices)
    switches = any(device.kind == "nvswitch" for device in devices)
    data = root.asked("nvml", lambda: ask(switches))
    codes = {error.get("code") for error in _dicts(data, "errors") if error.get("gpu") is None}
    if not gpus and not _dicts(data, "gpus") and (data is None or codes & (_LIBRARY | _NO_DRIVER)):
        raise Absent("no NVIDIA GPU on the PCI bus")
    if data is None or codes & _LIBRARY:
        data = _by_command(root) or data
    if data is None:
        raise Absent("no answer of NVML was kept")
    yield from rows(root, data)


def ask(switches: bool) -> dict[str, Any]:
    """Ask the library; imported here because a tree does not need it."""
    from nccl_doctor.node.gpu import nvml_inventory

    return nvml_inventory.ask(switches)


def _by_command(root: Root) -> dict[str, Any] | None:
    from nccl_doctor.formats.gpu import smi_xml

    started = time.monotonic()
    output = root.run(*smi_xml.COMMAND, seconds=4.0)
    if output is None or "<nvidia_smi_log>" not in output.text:
        return None
    return {**smi_xml.parse(output.text), "seconds": round(time.monotonic() - started, 4)}


def rows(root: Root, data: dict[str, Any]) -> Iterator[Any]:
    """The rows of an answer. Nothing is believed of its shape, because a tree may come from anywhere."""
    source = _string(data.get("source")) or "nvml"
    gpus = [gpu for gpu in _dicts(data, "gpus") if gpu.get("gpu") in range(MOST)]
    granted = parse_granted(variables(root), {gpu["gpu"]: _string(gpu.get("uuid")) for gpu in gpus})
    yield _driver(data, source, len(gpus))
    for gpu in gpus:
        if len(gpu) > 2:
            yield from _gpu_rows(gpu, source, granted.get(gpu["gpu"]))
            yield from _holders(root, gpu, granted.get(gpu["gpu"]))
    yield from _pairs(data.get("pairs"), source)
    for number, error in enumerate(_dicts(data, "errors")):
        code = _integer(error.get("code")) or 999
        call, text = (_string(error.get(key)) or "" for key in ("call", "text"))
        where = _integer(error.get("gpu"))
        shown = f"{call}: {code} {text}" + (f" (GPU {where})" if where is not None else "")
        yield NodeGpuError(
            None, where, _string(error.get("pci")), call, code, CODES.get(code, "unknown"), text,
            Seen(f"{source} errors", shown, number + 1),
        )  # fmt: skip


def _pairs(pairs: Any, source: str) -> Iterator[GpuPair]:
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, list) and len(pair) == 5 and pair[0] in range(MOST) and pair[1] in range(MOST):
            gpu, peer, level, read_, nvlink = (_integer(value) for value in pair)
            text = f"GPU {gpu} and {peer}: level {level}, P2P status {read_}, over NVLink {nvlink}"
            seen = Seen(f"{source} pairs", text, _line(gpu) * MOST + _line(peer))
            yield GpuPair(None, gpu or 0, peer or 0, level, read_, nvlink, seen)


def _driver(data: dict[str, Any], source: str, gpus: int) -> NodeDriver:
    system = data.get("system")
    parsed: dict[str, Any] = system if isinstance(system, dict) else {}
    driver, seconds = _string(parsed.get("driver")), _number(data.get("seconds"))
    text = f"driver {driver or '?'}, {gpus} GPUs, {seconds if seconds is not None else '?'} s"
    return NodeDriver(
        host=None, source=source, driver=driver, open_module=None, nvml=_string(parsed.get("nvml")),
        cuda=_integer(parsed.get("cuda")), gpus=gpus, confidential=_integer(parsed.get("confidential")),
        ready=_integer(parsed.get("ready")), fabric_manager=_integer(data.get("fabric_manager")), nouveau=None,
        whole=_integer(data.get("whole")), seconds=seconds, ref=Seen(source, text),
    )  # fmt: skip


def _gpu_rows(gpu: dict[str, Any], source: str, granted: int | None) -> Iterator[Any]:
    index = gpu["gpu"]
    line = _line(index)
    values = {**gpu, "granted": granted}
    yield _made(NodeGpu, values, f"{source} GPU", line)
    yield _made(GpuHealth, values, f"{source} health of GPU", line)
    for link in _dicts(gpu, "nvlinks"):
        number, active, speed = _integer(link.get("link")), _integer(link.get("active")), _number(link.get("speed"))
        if number is not None and active is not None:
            text = f"GPU {index} link {number}: {f'{speed} GB/s' if active else 'inactive'}"
            yield GpuLink(None, index, number, active, speed, Seen(f"{source} NVLink", text, line * MOST + number))
    counters = gpu.get("counters")
    device = _string(gpu.get("pci")) or f"GPU {index}"
    for number, (name, value) in enumerate(counters.items() if isinstance(counters, dict) else ()):
        if (count := _integer(value)) is not None and (kind := _string(name)) is not None:
            seen = Seen(f"{source} counters", f"{device} {kind} {count}", line * MOST + number)
            yield NodeCounter(None, device, kind, count, None, seen)


def _made(table: type, values: dict[str, Any], file: str, line: int) -> Any:
    """A row of columns that are looked up by name; evidence shows those that are known."""
    row: dict[str, Any] = {}
    for name, type_ in _TYPES[table].items():
        value = values.get(name)
        row[name] = _string(value) if type_ is str else _number(value) if type_ is float else _integer(value)
    shown = " ".join(f"{name}={_short(value)}" for name, value in row.items() if value is not None)
    row["host"], row["ref"] = None, Seen(file, shown, line)
    return table(**row)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _holders(root: Root, gpu: dict[str, Any], granted: int | None) -> Iterator[GpuHolder]:
    environ = variables(root)
    job = next((environ[name] for name in _JOB_VARIABLES if environ.get(name)), None)
    for task in _dicts(gpu, "tasks")[:256]:
        pid, used = _integer(task.get("pid")), _number(task.get("memory"))
        if pid is None:
            continue
        status = fields(root.text(f"/proc/{pid}/status") or "")
        theirs = _job(root.text(f"/proc/{pid}/cgroup") or "")
        own = int(theirs == job) if job is not None and status else None
        name, user = status.get("Name"), _user(root, status.get("Uid", ""))
        kind = "G" if task.get("kind") == "G" else "C"
        memory = used / 2**20 if used is not None else None
        text = f"GPU {gpu['gpu']}: {name or 'process'} {pid} of {user or '?'}, {f'{memory:.0f} MiB' if memory is not None else '? MiB'}"
        yield GpuHolder(
            host=None, gpu=gpu["gpu"], pid=pid, kind=kind, name=name, user=user, job=theirs, own=own,
            alive=int(bool(status)), memory=memory, granted=granted,
            ref=Seen(f"/proc/{pid}/status", text, _line(gpu["gpu"])),
        )  # fmt: skip


def _job(cgroup: str) -> str | None:
    """The scheduler's job in a control group: /slurm/uid_1000/job_4711/step_0, /pbs_jobs.service/jobid/12.pbs, pod<uid>."""
    match = _JOB.search(cgroup)
    return next((group for group in match.groups() if group), None) if match else None


def _user(root: Root, uids: str) -> str | None:
    uid = uids.split()[0] if uids.split() else None
    if uid is None:
        return None
    named = re.search(rf"^([^:\n]{{1,64}}):[^:\n]*:{re.escape(uid)}:", root.text("/etc/passwd") or "", re.MULTILINE)
    return named[1] if named else f"uid {uid}"


def parse_granted(environ: Mapping[str, str], uuids: Mapping[int, str | None]) -> dict[int, int]:
    """Which GPUs a scheduler gave to this job; empty where no variable says it, or where one names GPUs that are not here.

    Slurm names GPUs of the node for the Prolog (`SLURM_JOB_GPUS=0,2-3`); PBS, LSF and Grid Engine set CUDA_VISIBLE_DEVICES to
    numbers or UUIDs. As many as there are here: a control group hides the others, so all are of this job.
    """
    names = _GRANTS if any(environ.get(name) for name in _JOB_VARIABLES) else _GRANTS[:2]
    value = next((environ[name] for name in names if environ.get(name)), "")
    granted: set[int | None] = set()
    for part in value.split(","):
        if numbers := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part):
            granted.update(range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1))
        else:
            granted.add(next((gpu for gpu, uuid in uuids.items() if uuid == part), None))
    if len(granted) == len(uuids) and None not in granted:
        return dict.fromkeys(uuids, 1)
    return {gpu: int(gpu in granted) for gpu in uuids} if granted <= set(uuids) else {}


def _dicts(data: Any, key: str) -> list[dict[str, Any]]:
    parsed = data.get(key) if isinstance(data, dict) else None
    return [one for one in parsed if isinstance(one, dict)] if isinstance(parsed, list) else []


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and -(2**62) < value < 2**62 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and -(2**62) < value < 2**62 else None


def _string(value: Any) -> str | None:
    """A text that the fact base can hold: JSON may carry halves of surrogate pairs."""
    return value[:200].encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def _line(gpu: int | None) -> int:
    return min(max(gpu or 0, 0), MOST) + 1
