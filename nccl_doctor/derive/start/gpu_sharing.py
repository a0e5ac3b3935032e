"""GPUs that several processes use: ranks with one address, contexts of ranks that work elsewhere, programs that hold memory.

Equal addresses prove nothing where the host name is that of several machines (containers), where a GPU is divided (MIG), and
between two starts of a job. A context alone takes some hundred MiB.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.start.numbers import ranges
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Env, GpuProcess, GpuSharing, Message, NodeCount

CONTEXT = 1_600.0  # MiB: more than a context and the buffers of communication take
_SHOWN = 4
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_ITSELF = "this process has "
_HELD = re.compile(r"Process (\d{1,10}) has (\d{1,9}(?:\.\d{1,4})?) ([KMGT])iB memory in use")

_MEMBERS = """
WITH shared AS (
  SELECT comm_id, host, bus_id FROM communicator
  WHERE comm_id IS NOT NULL AND host IS NOT NULL AND rank IS NOT NULL AND length(bus_id) > 2
    AND NOT EXISTS (SELECT 1 FROM message m WHERE m.kind = 'ranks-share-gpu-allowed')
  GROUP BY 1, 2, 3 HAVING min(rank) < max(rank)
)
SELECT comm_id, host, bus_id, rank, min(ref) FROM communicator
WHERE rank IS NOT NULL AND (comm_id, host, bus_id) IN shared GROUP BY 1, 2, 3, 4
"""
_ON_NAME = """
SELECT host, count(DISTINCT rank) FROM communicator
WHERE rank IS NOT NULL AND nranks = (SELECT max(nranks) FROM communicator) GROUP BY host
"""
_COUNTED = "SELECT host, max(local_ranks) FROM node_count GROUP BY host"
_DIVIDED = "SELECT DISTINCT host FROM env WHERE name = 'CUDA_VISIBLE_DEVICES' AND value LIKE '%MIG-%'"
_PROCESSES = """
SELECT host, coalesce(CAST(gpu AS TEXT), uuid), pid, max(memory), min(ref) FROM gpu_process
WHERE coalesce(kind, 'C') LIKE '%C%' AND coalesce(name, '') NOT LIKE 'nvidia-cuda-mps%' GROUP BY 1, 2, 3
"""
_OUT_OF_MEMORY = """
SELECT host, rank, coalesce(field(fields, 'gpu'), 'it ran out on'), text, ref FROM message
WHERE kind = 'cuda-oom-torch' AND text LIKE '%memory in use%'
"""


@derivation(fills=[GpuSharing], reads=[Env, NodeCount], needs=[Communicator, GpuProcess, Message])
def gpu_sharing(facts: Facts) -> Iterator[GpuSharing]:
    """One row for each GPU and source that shows several processes on it."""
    yield from _of_ranks(facts)
    yield from _of_processes(facts)
    yield from _of_failures(facts)


def _of_ranks(facts: Facts) -> Iterator[GpuSharing]:
    """Ranks of one communicator with one address on a host name that NCCL itself counts as one machine."""
    counted = {host: ranks for host, ranks in facts.query(_COUNTED) if ranks is not None}
    divided = {host for (host,) in facts.query(_DIVIDED)}
    of_host = facts.query(_ON_NAME) if counted else ()
    alone = {host for host, ranks in of_host if ranks <= counted.get(host, -1)} - divided
    if not alone:
        return
    users: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for comm, host, bus, rank, ref in facts.query(_MEMBERS):
        if host in alone:
            users[comm, host, bus][rank] = ref
    shown: set[tuple[str, str]] = set()
    for (_, host, bus), ranks in users.items():
        if len(ranks) > 1 and (host, bus) not in shown:
            shown.add((host, bus))
            yield _row(
                "communicator", host, min(ranks), bus, "ranks", ranges(ranks), len(ranks), None, list(ranks.values())
            )


def _of_processes(facts: Facts) -> Iterator[GpuSharing]:
    """Contexts on a GPU of processes that hold more on another one of the same host."""
    held: dict[tuple[str | None, int], dict[str, tuple[float, int]]] = defaultdict(dict)
    for host, gpu, pid, memory, ref in facts.query(_PROCESSES):
        if gpu is not None and memory is not None:
            held[host, pid][gpu] = memory, ref
    guests: dict[tuple[str | None, str], list[tuple[int, float, int]]] = defaultdict(list)
    for (host, pid), gpus in held.items():
        most = max(memory for memory, _ in gpus.values())
        for gpu, (memory, ref) in gpus.items():
            if memory < CONTEXT and memory < most / 2:
                guests[host, gpu].append((pid, memory, ref))
    for (host, gpu), found in guests.items():
        yield _guests("processes", host, None, gpu, "contexts", found)


def _of_failures(facts: Facts) -> Iterator[GpuSharing]:
    """What PyTorch lists beside the process that ran out of memory. In a container it knows its own number no better than those of
    others: without `this process` it is one of several in the list, and one alone is itself.
    """
    for host, rank, gpu, text, ref in facts.query(_OUT_OF_MEMORY):
        listed = [(int(pid), float(size) * _UNITS[unit], ref) for pid, size, unit in _HELD.findall(text)]
        contexts = [one for one in listed if one[1] < CONTEXT]
        programs = [one for one in listed if one[1] >= CONTEXT]
        if contexts and (programs or _ITSELF in text):
            yield _guests("out-of-memory", host, rank, gpu, "contexts", contexts)
        if programs and _ITSELF in text:
            yield _guests("out-of-memory", host, rank, gpu, "program", programs)
        elif len(programs) > 1:
            yield _guests("out-of-memory", host, rank, gpu, "programs", programs)


def _guests(
    source: str, host: str | None, rank: int | None, gpu: str, kind: str, found: list[tuple[int, float, int]]
) -> GpuSharing:
    pids = ",".join(str(pid) for pid in sorted({pid for pid, _, _ in found}))
    memory = round(sum(size for _, size, _ in found), 1)
    return _row(source, host, rank, gpu, kind, pids, len(found), memory, [ref for _, _, ref in found])


def _row(
    source: str, host: str | None, rank: int | None, gpu: str, kind: str, others: str, count: int, memory: float | None,
    refs: list[int],
) -> GpuSharing:  # fmt: skip
    shown = ",".join(str(ref) for ref in list(dict.fromkeys(sorted(refs)))[:_SHOWN])
    return GpuSharing(
        source=source, host=host, rank=rank, gpu=gpu, kind=kind, others=others, processes=count, memory=memory, ref=min(refs),
        refs=shown,
    )  # fmt: skip
