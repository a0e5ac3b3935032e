"""What every report says of the job itself: a dictionary of facts, and three lines for people."""

from statistics import median
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.report import MeasureRow
from nccl_doctor.facts.store import Facts

SHARES = {  # measure -> a clause around its value
    "negotiate": "{} % negotiating",
    "collective": "{} % in collectives",
    "idle": "{} % idle",
    "exposed_communication": "{} % exposed communication",
    "gpu_busy": "GPUs busy {} % of the time",
    "gpu_sm_active": "SMs active {} %",
    "gpu_power": "{} W a GPU",
}
_EVALUATED = compiled(r"(?i)(?:^|[^a-z])(?:val|valid|validation|eval|test|dev)(?:[^a-z]|$)")
_APART = 1.15  # times that a mean differs from the median of the steady part where it is shown
_ENOUGH = 4  # clauses on speed, beside which there is no place for a loss
_OTHER_STORY = 15  # per cent between the mean utilisation of GPUs and the share of time in which they are busy
_PEERS = 3  # GPUs from which on one may stand out
_ALONE = 0.2  # of the highest value: how far one that stands out is from the next
_OPERATIONS = 8  # of nccl-tests that a line names
SHORT = 24  # characters of host names that may precede the rest of the line
_COUNTS = ("hosts", "ranks", "gpus", "channels", "restarts")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _is_count(text: str) -> bool:
    """Whether a text is a number; a saved base may hold any."""
    return text.isdecimal() and len(text) <= 18


def job(facts: Facts, fold: Any) -> dict[str, Any]:
    """What is known of the job; a key without a value is left out. `fold` makes one node set of host names."""
    rows = facts.query("SELECT hosts, ranks, processes, has_info FROM job")
    hosts, ranks, processes, info = rows[0] if rows else (None, None, None, 0)
    names = [name for (name,) in facts.query("SELECT name FROM host ORDER BY name")]
    known: dict[str, Any] = {
        "hosts": hosts, "ranks": ranks, "processes": processes, "host_names": fold(names),
        "named_hosts": len(names),
        "nccl_versions": [v for (v,) in facts.query("SELECT DISTINCT version FROM library WHERE name IN ('nccl', 'rccl') ORDER BY 1")],
        "network": [n for (n,) in facts.query("SELECT DISTINCT name FROM network ORDER BY 1")],
        "nccl_debug_info": bool(info),
    }  # fmt: skip
    for name, value in facts.query("SELECT name, value FROM job_fact"):
        if name == "framework":
            known.setdefault("frameworks", []).append(value)
        elif name == "cuda_driver":
            known["driver_cuda"] = f"{int(value) // 1000}.{int(value) % 1000 // 10}" if _is_count(value) else value
        elif name not in _COUNTS or _is_count(value):
            known[name] = int(value) if name in _COUNTS else value
    if captured := [shows for (shows,) in facts.query("SELECT shows FROM captured")]:
        known["captured"] = captured
    return known


def lines(job: dict[str, Any], measures: list[MeasureRow]) -> list[str]:
    """At most three lines: what ran where, over what it talked, how fast it was and how it ended.

    Captures other than logs come first, or in the place of the paths that they do not show.
    """
    what, paths, speed = _what(job), _paths(job), _speed(job, measures)
    captured = job.get("captured", [])
    if captured and not paths:
        paths = captured
    elif captured:
        what += captured
    return [" · ".join(parts) for parts in (what, paths, speed) if parts]


def _what(job: dict[str, Any]) -> list[str]:
    """Hosts, GPUs, ranks and software; long host names come last."""
    hosts, names = _hosts(job)
    return [*filter(None, [hosts, _gpus(job)]), *_software(job), *filter(None, [names])]


def _hosts(job: dict[str, Any]) -> tuple[str, str]:
    """The clause on hosts, and what is too long for it: `("2 hosts", "gpu-a-1.example.org,gpu-b-7.example.org")`."""
    number, names = int(job.get("hosts") or 0), str(job.get("host_names") or "")
    short = len(names) <= SHORT
    if not number:
        called = f"{'hosts' if ',' in names or '[' in names else 'host'} {names}" if names else ""
        return (called, "") if short else ("", called)
    if not names or not short:
        return counted(number, "host"), names
    unnamed = ", …" if number > int(job.get("named_hosts") or number) else ""
    return f"{counted(number, 'host')} {names}{unnamed}", ""


def _gpus(job: dict[str, Any]) -> str:
    number, model = int(job.get("gpus") or 0), str(job.get("gpu") or "").removeprefix("NVIDIA ")
    if number and model:
        return f"{number} x {model}"
    return model or (counted(number, "GPU") if number else "")


def _software(job: dict[str, Any]) -> list[str]:
    ranks, versions = int(job.get("ranks") or 0), job.get("nccl_versions")
    programs = dict.fromkeys([*job.get("frameworks", []), job.get("program")])
    parts = [
        counted(ranks, "rank") if ranks else None,
        job.get("launcher"),
        *programs,
        f"NCCL {', '.join(versions)}" if versions else None,
        f"CUDA {job['cuda']}" if job.get("cuda") else None,
        f"driver {job['driver']}" if job.get("driver") else None,
    ]
    return [str(part) for part in parts if part]


def _paths(job: dict[str, Any]) -> list[str]:
    ways = [f"{job['inside']} inside {'the node' if job.get('hosts') == 1 else 'nodes'}"] if job.get("inside") else []
    if job.get("between"):
        direct = {"yes": " with GPUDirect", "no": " without GPUDirect", "partly": " partly with GPUDirect"}
        ways.append(f"{job['between']}{direct.get(job.get('gpudirect', ''), '')} between")
    elif job.get("network"):
        ways.append(f"network {', '.join(job['network'])}")
    parts = [", ".join(ways)] if ways else []
    if job.get("nics"):
        parts.append(f"{job['nics']} {'NIC' if job['nics'] == '1' else 'NICs'}")
    if job.get("channels"):
        parts.append(counted(job["channels"], "channel"))
    if job.get("plugin"):
        parts.append(str(job["plugin"]))
    return parts


def _speed(job: dict[str, Any], measures: list[MeasureRow]) -> list[str]:
    parts = []
    by_name: dict[str, list[MeasureRow]] = {}
    for measure in measures:
        by_name.setdefault(measure.name, []).append(measure)
    if start := by_name.get("startup"):
        parts.append(f"up in {start[0].value:.3g} s")
    if steps := by_name.get("steps"):
        parts.append(counted(round(steps[0].value), "step"))
    elif epochs := by_name.get("epochs"):
        parts.append(f"{epochs[0].value:.0f} epochs")
    if epochs := by_name.get("epoch_time"):
        parts.append(f"{_spread([row.value for row in epochs])} s an epoch")
    if times := by_name.get("step_time"):
        parts.append(_step_time(times, by_name.get("step_spread", []), by_name.get("step_mean", [])))
    if rates := [row for row in by_name.get("throughput", []) if not times or row.unit != "steps/s"]:
        parts.append(f"{_spread([row.value for row in rates if row.unit == rates[0].unit])} {rates[0].unit}")
    parts += _use_of_gpus(by_name) + _result(by_name)
    if scaling := _scaling(by_name.get("scaling_efficiency", [])):
        parts.append(scaling)
    if busbw := [row for row in by_name.get("busbw", []) if row.scope == "run"]:
        parts += _busbw(busbw, by_name.get("busbw_size", []))
    elif inside := [row for row in by_name.get("busbw", []) if row.scope == "collective"]:
        parts.append(
            f"{inside[0].of.partition(' of ')[0]} {_digits(inside[0].value)} GB/s busbw at {_size_of(inside[0])}"
        )
    if alone := by_name.get("algbw_alone"):
        operation = alone[0].of if len({row.of for row in alone}) == 1 else ""
        parts.append(f"{operation} {_spread([row.value for row in alone])} GB/s in one GPU, none between GPUs".strip())
    if copies := by_name.get("copy_bandwidth"):
        parts += _copies([row for row in copies if row.scope == "run"])
    if latency := by_name.get("latency"):
        parts.append(f"{_spread([row.value for row in latency])} us for small messages")
    for name, clause in SHARES.items():
        if rows := by_name.get(name):
            parts.append(clause.format(_named_spread(rows)))
            parts += _mean_use(rows, by_name.get("gpu_utilisation", [])) if name == "gpu_busy" else []
    parts += _one_look(by_name)
    if job.get("restarts"):
        parts.append(f"restarted {'once' if job['restarts'] == 1 else counted(job['restarts'], 'time')}")
    if len(parts) < _ENOUGH:
        parts += _loss(by_name.get("loss", []))
    if job.get("end"):
        parts.append(job["end"])
    return parts


def _use_of_gpus(by_name: dict[str, list[MeasureRow]]) -> list[str]:
    """`MFU 41.2 %`, `398 TFLOP/s a GPU`, `55.4 GiB of GPU memory`, as step lines tell them."""
    parts = []
    for name, clause in (("mfu", "MFU {} %"), ("tflops", "{} {}"), ("gpu_memory", "{} GiB of GPU memory")):
        if rows := by_name.get(name):
            values = [float(f"{row.value:.3g}") for row in rows if row.unit == rows[0].unit]
            parts.append(clause.format(_spread(values), rows[0].unit))
    return parts


def _one_look(by_name: dict[str, list[MeasureRow]]) -> list[str]:
    """`GPUs 12 % used` of a capture without a loop, and heat or memory where nothing says more of the GPUs."""
    if "gpu_busy" in by_name:
        return []
    if used := by_name.get("gpu_utilisation"):
        return [f"GPUs {_named_spread(used)} % used"]
    if "gpu_power" in by_name or "gpu_sm_active" in by_name:
        return []
    for name, clause in (("gpu_temperature", "{} C a GPU"), ("gpu_memory_used", "{} MiB of memory used a GPU")):
        if rows := by_name.get(name):
            return [clause.format(_named_spread(rows))]
    return []


def _mean_use(busy: list[MeasureRow], used: list[MeasureRow]) -> list[str]:
    """`mean utilisation 64 %`, where the share of time above 80 % tells another story: GPUs at 64 % are never busy."""
    if not used or abs(median(row.value for row in used) - median(row.value for row in busy)) < _OTHER_STORY:
        return []
    return [f"mean utilisation {_named_spread(used)} %"]


def _result(by_name: dict[str, list[MeasureRow]]) -> list[str]:
    """`time to train 1,911 s`, `quality 0.712`."""
    parts = [
        f"time to train {_spread([row.value for row in rows])} s" for rows in [by_name.get("time_to_train")] if rows
    ]
    return parts + [f"quality {_spread([row.value for row in rows])}" for rows in [by_name.get("quality")] if rows]


def _loss(losses: list[MeasureRow]) -> list[str]:
    """`loss 2.31 at the end`: of several losses that of the training."""
    trained = [row for row in losses if not _EVALUATED.search(row.of)]
    rows = trained or losses
    if not rows:
        return []
    name = "loss" if trained else rows[0].of
    return [f"{name} {_spread([row.value for row in rows if row.of == rows[0].of])} at the end"]


def _scaling(rows: list[MeasureRow]) -> str:
    """`scaling 85 % at 32 GPUs`, of the largest run; nothing for the smallest alone, with which the others are compared."""
    counts = [(int(count), row.value) for row in rows if _is_count(count := row.of.partition(" ")[0])]
    if len({count for count, _ in counts}) < 2:
        return ""
    largest = max(count for count, _ in counts)
    values = [float(f"{value:.3g}") for count, value in counts if count == largest]
    return f"scaling {_spread(values)} % at {largest} GPUs"


def _step_time(times: list[MeasureRow], spreads: list[MeasureRow], means: list[MeasureRow]) -> str:
    """`2.74 s a step (spread 18 ms)`; the mean too where stalls or sections of other speed make it another number."""
    values = [row.value for row in times]
    shown = f"{_spread(values)} s a step" if max(values) >= 1 else f"{_spread([1000 * v for v in values])} ms a step"
    beside = []
    if len(times) == len(spreads) == 1 and spreads[0].value >= values[0] / 10_000:
        beside.append(f"spread {_time(spreads[0].value)}")
    if len(times) == len(means) == 1 and not 1 / _APART < means[0].value / values[0] < _APART:
        beside.append(f"mean {_time(means[0].value)}")
    return f"{shown} ({', '.join(beside)})" if beside else shown


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _copies(rows: list[MeasureRow]) -> list[str]:
    """The first test of each kind: `host_to_device_memcpy_ce 55.3 GB/s`, three at most."""
    first: dict[str, MeasureRow] = {}
    for row in rows:
        first.setdefault(row.of.partition("_memcpy")[0], row)
    shown = [f"{row.of} {_digits(row.value)} GB/s" for row in list(first.values())[:3]]
    return shown + ([f"{counted(len(rows) - len(shown), 'more test')} of copies"] if len(rows) > len(shown) else [])


def _busbw(rows: list[MeasureRow], sizes: list[MeasureRow]) -> list[str]:
    """`all_reduce 226 GB/s busbw at 8 GiB`, one for each operation; of several operations the unit and an equal size come once."""
    speeds = {of: _spread([row.value for row in rows if row.of == of]) for of in dict.fromkeys(row.of for row in rows)}
    largest = {of: max((row.value for row in sizes if row.of == of), default=0.0) for of in speeds}
    shown = list(speeds)[:_OPERATIONS]
    more = [counted(len(speeds) - len(shown), "more operation")] if len(speeds) > len(shown) else []
    if len(shown) > 1 and len({largest[of] for of in shown}) == 1:
        size = largest[shown[0]]
        each = ", ".join(f"{of} {speeds[of]}".strip() for of in shown)
        return [f"{each} GB/s busbw{f' at {_bytes(size)}' if size else ''}", *more]
    clauses = [
        " ".join(filter(None, [of, f"{speeds[of]} GB/s busbw", f"at {_bytes(largest[of])}" if largest[of] else ""]))
        for of in shown
    ]
    return clauses + more


def _size_of(measure: MeasureRow) -> str:
    """`256 MiB` of the measure of `AllReduce of 268435456 B`."""
    size = measure.of.rpartition(" of ")[2].removesuffix(" B")
    return _bytes(float(size)) if size.isdecimal() else size


def _bytes(size: float) -> str:
    """`8 GiB`; sizes of decimal programs keep three digits."""
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size /= 1024
        power += 1
    return f"{size:.3g} {_UNITS[power]}"


def _named_spread(rows: list[MeasureRow]) -> str:
    """`3 (GPU 5) to 100`: as `_spread`, with the name of a GPU that is alone at its end."""
    values = [float(f"{row.value:.3g}") for row in rows]
    order = sorted(range(len(rows)), key=values.__getitem__)
    shown = _spread(values)
    if len(rows) < _PEERS or " to " not in shown:
        return shown
    low, high = shown.split(" to ")
    far = _ALONE * values[order[-1]]
    if values[order[1]] - values[order[0]] > far and rows[order[0]].scope == "gpu":
        low += f" ({rows[order[0]].of})"
    elif values[order[-1]] - values[order[-2]] > far and rows[order[-1]].scope == "gpu":
        high += f" ({rows[order[-1]].of})"
    return f"{low} to {high}"


def _spread(values: list[float]) -> str:
    """`412`, or `380 to 412` where several rows differ by more than a hundredth; never `1e+04`."""
    low, high = min(values), max(values)
    if high - low <= abs(high) / 100:
        return _digits(high)
    return f"{_digits(low)} to {_digits(high)}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
