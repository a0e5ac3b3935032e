"""What every report says of the job itself: a dictionary of facts, and three lines for people."""

from typing import Any

from nccl_doctor.diagnosis.report import MeasureRow
from nccl_doctor.facts.store import Facts

SHARES = {  # measure -> a clause around its value
    "negotiate": "{} % negotiating",
    "collective": "{} % in collectives",
    "idle": "{} % idle",
    "exposed_communication": "{} % exposed communication",
    "gpu_busy": "GPUs busy {} % of the time",
}


def job(facts: Facts, fold: Any) -> dict[str, Any]:
    """What is known of the job; a key without a value is left out. `fold` makes one node set of host names."""
    rows = facts.query("SELECT hosts, ranks, processes, has_info FROM job")
    hosts, ranks, processes, info = rows[0] if rows else (None, None, None, 0)
    names = [name for (name,) in facts.query("SELECT name FROM host ORDER BY name")]
    known: dict[str, Any] = {
        "hosts": hosts, "ranks": ranks, "processes": processes, "host_names": fold(names),
        "nccl_versions": [v for (v,) in facts.query("SELECT DISTINCT version FROM library WHERE name IN ('nccl', 'rccl') ORDER BY 1")],
        "network": [n for (n,) in facts.query("SELECT DISTINCT name FROM network ORDER BY 1")],
        "nccl_debug_info": bool(info),
    }  # fmt: skip
    for name, value in facts.query("SELECT name, value FROM job_fact"):
        if name == "framework":
            known.setdefault("frameworks", []).append(value)
        elif name in ("gpus", "channels"):
            known[name] = int(value)
        elif name == "driver":
            known["driver_cuda"] = f"{int(value) // 1000}.{int(value) % 1000 // 10}" if value.isdigit() else value
        else:
            known[name] = value
    return known


def lines(job: dict[str, Any], measures: list[MeasureRow]) -> list[str]:
    """At most three lines: what ran where, over what it talked, how fast it was and how it ended."""
    return [" · ".join(parts) for parts in (_what(job), _paths(job), _speed(job, measures)) if parts]


def _what(job: dict[str, Any]) -> list[str]:
    parts = []
    hosts, ranks, gpus = job.get("hosts"), job.get("ranks"), job.get("gpus")
    if hosts:
        names = job.get("host_names")
        parts.append(f"{hosts} {'host' if hosts == 1 else 'hosts'}" + (f" {names}" if names else ""))
    if gpus or job.get("gpu"):
        model = str(job.get("gpu") or "").removeprefix("NVIDIA ")
        parts.append(f"{gpus} x {model}" if gpus and model else model or f"{gpus} {'GPU' if gpus == 1 else 'GPUs'}")
    if ranks:
        parts.append(f"{ranks} {'rank' if ranks == 1 else 'ranks'}")
    parts += [str(job[key]) for key in ("launcher",) if job.get(key)]
    parts += job.get("frameworks", []) or ([job["program"]] if job.get("program") else [])
    if versions := job.get("nccl_versions"):
        parts.append(f"NCCL {', '.join(versions)}")
    if job.get("cuda"):
        parts.append(f"CUDA {job['cuda']}")
    return parts


def _paths(job: dict[str, Any]) -> list[str]:
    ways = [f"{job['inside']} inside nodes"] if job.get("inside") else []
    if job.get("between"):
        direct = {"yes": "+GPUDirect", "no": " without GPUDirect", "partly": ", partly GPUDirect,"}
        ways.append(f"{job['between']}{direct.get(job.get('gpudirect', ''), '')} between")
    elif job.get("network"):
        ways.append(f"network {', '.join(job['network'])}")
    parts = [", ".join(ways)] if ways else []
    if job.get("nics"):
        parts.append(f"{job['nics']} NICs")
    if job.get("channels"):
        parts.append(f"{job['channels']} channels")
    return parts


def _speed(job: dict[str, Any], measures: list[MeasureRow]) -> list[str]:
    parts = []
    by_name: dict[str, list[MeasureRow]] = {}
    for measure in measures:
        by_name.setdefault(measure.name, []).append(measure)
    if start := by_name.get("startup"):
        parts.append(f"up in {start[0].value:.3g} s")
    if steps := by_name.get("steps"):
        parts.append(f"{sum(row.value for row in steps):,.0f} steps")
    for name in ("step_time", "throughput", "busbw", "latency"):
        if rows := by_name.get(name):
            parts.append(_range(name, rows))
        if name == "step_time" and len(spread := by_name.get("step_spread", [])) == 1:
            parts[-1] += f" (spread {spread[0].value * 1000:.3g} ms)"
    if "busbw" not in by_name and (peak := by_name.get("busbw_peak")):
        parts.append(_range("busbw", peak))
    for name, clause in SHARES.items():
        if rows := by_name.get(name):
            parts.append(clause.format(_spread([float(f"{row.value:.3g}") for row in rows])))
    if job.get("end"):
        parts.append(job["end"])
    return parts


def _range(name: str, rows: list[MeasureRow]) -> str:
    unit = rows[0].unit
    same = [row.value for row in rows if row.unit == unit]
    if name == "step_time":
        return (
            f"{_spread([value * 1000 for value in same])} ms a step" if max(same) < 10 else f"{_spread(same)} s a step"
        )
    if name == "busbw":
        of = {row.of for row in rows}
        return f"{_spread(same)} {unit} busbw" + (f" {of.pop()}" if len(of) == 1 else "")
    if name == "latency":
        return f"{_spread(same)} {unit} latency"
    return f"{_spread(same)} {unit}"


def _spread(values: list[float]) -> str:
    """`412`, or `380 to 412` where several rows differ by more than a hundredth."""
    low, high = min(values), max(values)
    if high - low <= abs(high) / 100:
        return f"{high:.4g}"
    return f"{low:.4g} to {high:.4g}"
