"""How the processes of the job are to be started: variables of the task, and the arguments of the torchrun above it."""

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import Launch
from nccl_doctor.node.host import task
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software.environment import gpus

_OPTIONS = ("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_endpoint", "standalone")
_ANCESTORS = 8
_CONNECT = 1.0  # seconds
_RESOLVE = 1.5


def torchrun(arguments: Sequence[str]) -> dict[str, str] | None:
    """The options of a torchrun command line that say how many processes run where; None for any other program."""
    if not any(re.search(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$", word) for word in arguments[:6]):
        return None
    rows: dict[str, str] = {}
    for place, word in enumerate(arguments):
        name, mark, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.startswith("--") and name in _OPTIONS:
            following = arguments[place + 1] if place + 1 < len(arguments) else ""
            rows.setdefault(name, value if mark else "" if name == "standalone" else following)
    return rows


def _above() -> dict[str, Any]:
    """The options of the nearest torchrun among the processes that started this one. Nothing else of command lines is kept."""
    pid = os.getppid()
    for _ in range(_ANCESTORS):
        if pid <= 1:
            break
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(1 << 16).decode("utf-8", "replace").split("\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read(4096).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if (options := torchrun(words)) is not None:
            return {"torchrun": options}
    return {}


def _whole(text: str | None) -> int | None:
    """A number; of a range `2:4` its lower end."""
    match = re.fullmatch(r"(\d{1,9})(?::\d+)?", text or "")
    return int(match[1]) if match else None


def launches(root: Root, environment: Mapping[str, str]) -> Iterator[Launch]:
    """One row for the variables, one for a torchrun."""
    get = environment.get
    world = _whole(get("WORLD_SIZE")) or _whole(get("OMPI_COMM_WORLD_SIZE"))
    local = _whole(get("LOCAL_WORLD_SIZE")) or _whole(get("OMPI_COMM_WORLD_LOCAL_SIZE"))
    granted = _whole(get("SLURM_JOB_NUM_NODES"))
    if world is not None or local is not None or get("MASTER_ADDR"):
        rank = next(
            (v for n in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") if (v := _whole(get(n))) is not None), None
        )
        nodes = granted or (-(-world // local) if world and local else None)
        names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS")
        parsed = " ".join(f"{name}={environment[name]}" for name in names if name in environment)
        row = Launch(
            host=None, source="environment", world=world, local=local, rank=rank, nodes=nodes, gpus=gpus(root),
            tasks=_whole(get("SLURM_NTASKS")), master=get("MASTER_ADDR"), port=_whole(get("MASTER_PORT")),
            address=None, loopback=None, answer=None, ref=Seen("environment", parsed),
        )  # fmt: skip
        first = None if rank is None and get("SLURM_NODEID") is None else rank == 0 or get("SLURM_NODEID") == "0"
        yield _answered(root, row, first, "TORCHELASTIC_RUN_ID" in environment)
    options = (root.asked("launchers", _above) or {}).get("torchrun")
    if isinstance(options, dict):
        yield _of_torchrun(root, environment, {str(k): str(v) for k, v in options.items()}, granted)


def _of_torchrun(root: Root, environment: Mapping[str, str], options: dict[str, str], granted: int | None) -> Launch:
    devices = gpus(root)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and devices is not None:
        devices = min(devices, len([part for part in visible.split(",") if part]))
    asked = options.get("nproc_per_node", "1")
    local = devices if asked in ("gpu", "auto") else _whole(asked)
    nodes = 1 if "standalone" in options else _whole(options.get("nnodes")) or 1
    endpoint, _, port = options.get("rdzv_endpoint", "").rpartition(":")
    master = endpoint or options.get("master_addr") or None
    rank = _whole(options.get("node_rank"))
    parsed = "torchrun " + " ".join(f"--{name}={value}" for name, value in options.items())
    row = Launch(
        host=None, source="torchrun", world=local * nodes if local else None, local=local, rank=rank,
        nodes=max(nodes, granted or 0), gpus=devices, tasks=_whole(environment.get("SLURM_NTASKS")), master=master,
        port=_whole(port) or _whole(options.get("master_port")), address=None, loopback=None, answer=None,
        ref=Seen("torchrun", parsed),
    )  # fmt: skip
    node = environment.get("SLURM_NODEID")
    first = rank == 0 if rank is not None else node == "0" if node is not None else None
    return _answered(root, row, first)


def _answered(root: Root, row: Launch, first: bool | None, started: bool = False) -> Launch:
    """With the address of the rendezvous, and whether it answers where another node is to hold it.

    Where this node is to hold it and torchrun has not started it yet, whether its port is free.
    """
    if row.master is None or row.master.startswith("-"):
        return row
    if re.fullmatch(r"[\d.]+|[\da-fA-F:]{0,40}:[\da-fA-F:.]{0,40}", row.master):
        address = row.master
    else:
        try:
            out = root.run("getent", "ahosts", row.master, seconds=_RESOLVE)
        except TimeoutError:
            return row._replace(answer="unresolved")
        if out is None:
            return row
        if out.status != 0 or not out.text.split():
            return row._replace(answer="unresolved")
        address = out.text.split()[0]
    row = row._replace(address=address, loopback=int(address.startswith("127.") or address == "::1"))
    port = row.port
    if first and port is not None and row.source == "environment" and not started:
        return row._replace(answer=_taken(root, port))
    if first is not False or port is None or row.loopback:
        return row
    kept = root.asked("rendezvous", lambda: {f"{address} {port}": connect(address, port)}) or {}
    return row._replace(answer=kept.get(f"{address} {port}"))


def _taken(root: Root, port: int) -> str | None:
    """Who listens on a port of this node already, by user."""
    uid = task.user(root)
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for owner in listeners(root.text(path) or "", port):
            return "taken-own" if owner == uid else "taken"
    return None


def listeners(text: str, port: int) -> list[int]:
    """Users whose sockets listen on a port, from /proc/net/tcp."""
    return [
        int(owner)
        for owner in re.findall(
            rf"^\s*\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A(?: \S+){{3}}\s+(\d{{1,10}})\b", text, re.M
        )
    ]


def connect(address: str, port: int, seconds: float = _CONNECT) -> str:
    """accepted, refused, timeout or unreachable; a number that is not a port is unreachable."""
    if not 0 < port < 65536:
        return "unreachable"
    try:
        with socket.create_connection((address, port), timeout=seconds):
            return "accepted"
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "timeout"
    except OSError:
        return "unreachable"
