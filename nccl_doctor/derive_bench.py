"""nccl-tests against the links: the plateau that a run reached, its latency floor, and what NVLink or PCIe allow."""

import statistics
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.facts import Facts
from nccl_doctor.knowledge import bandwidth
from nccl_doctor.tables import BenchLimit, BenchRow, BenchRun

LARGE = 32 << 20  # bytes from which bandwidth, not latency, decides
SMALL = 4 << 10  # bytes up to which latency decides
FULL = 8  # GPUs of a node from which all NVLinks carry a ring, with or without a switch


def derive_bench(facts: Facts) -> None:
    """Fill bench_limit."""
    if "bench_run" not in facts.looked():
        return
    facts.look("bench_limit")
    rows: dict[int, list[BenchRow]] = defaultdict(list)
    for row in facts.rows(BenchRow):
        rows[row.run].append(row)
    facts.add(_limits(facts.rows(BenchRun), rows))


def _limits(runs: list[BenchRun], rows: dict[int, list[BenchRow]]) -> Iterator[BenchLimit]:
    for run in runs:
        large = sorted({row.size for row in rows[run.run] if row.size >= LARGE})[-3:]
        reached = [row.busbw for row in rows[run.run] if row.size in large]
        small = [row.time_us for row in rows[run.run] if 0 < row.size <= SMALL and row.time_us > 0]
        limit, basis, why, known = _allowed(run)
        yield BenchLimit(
            run.run, statistics.median(reached) if reached else None, large[0] if large else None,
            statistics.median(small) if len(small) >= 3 else None, limit, basis, why, known, run.ref,
        )  # fmt: skip


def _allowed(run: BenchRun) -> tuple[float | None, str | None, str | None, int]:
    """(GB/s, basis, clause, 1 where the path is certain) for one run."""
    if run.graph_bw:
        return run.graph_bw, "graph", "NCCL computed this for its rings from the links it found", 1
    gpu = bandwidth.gpu(run.gpu) if run.gpu else None
    if gpu is None or run.hosts != 1 or run.shared_gpu or (run.ranks or 0) < 2:
        return None, None, None, 0
    if gpu.nvlink is not None and not gpu.optional:
        full = (run.ranks or 0) >= FULL
        doubt = "" if full else ", if all links lead to the GPUs of the test"
        return gpu.nvlink, "nvlink", f"NVLink {gpu.generation} of {gpu.name} carries this{doubt}", int(full)
    bridge = " without an NVLink bridge" if gpu.optional and gpu.nvlink else ""
    return gpu.pcie, "pcie", f"PCIe x16 of this card{bridge} carries this", 0
