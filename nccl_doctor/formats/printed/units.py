"""Which words are units of rates and of times, and which names say that a number is one."""

from functools import lru_cache

from nccl_doctor.common.expressions import compiled

_QUANTITIES = (
    "images", "image", "imgs", "img", "samples", "sample", "sequences", "seqs", "seq", "sentences", "sents",
    "tokens", "token", "toks", "tok", "tks",
    "words", "word",
    "frames", "items", "examples", "example", "it", "iter", "iters", "iterations", "steps", "step", "batches", "req", "reqs", "requests",
    "queries", "ops", "messages", "msgs", "pairs", "records", "events", "b", "kb", "mb", "gb", "tb", "kib", "mib", "gib",
    "tib", "bit", "kbit", "mbit", "gbit", "bits", "kbits", "mbits", "gbits", "bytes", "flop", "gflop", "tflop", "pflop", "flops",
    "gflops", "tflops",
)  # fmt: skip
_RATES = frozenset(
    {f"{quantity}/{second}" for quantity in _QUANTITIES for second in ("s", "sec", "second")}
    | {
        "fps",
        "qps",
        "rps",
        "wps",
        "sps",
        "tps",
        "iops",
        "gbps",
        "mbps",
        "flops",
        "mflops",
        "gflops",
        "tflops",
        "pflops",
        "timesteps/s",
        "ns/day",
        "mf/s",
        "gf/s",
        "tf/s",
        "pf/s",
        "mib/s/rank",
        "gb/s/gpu",
        "tflops/gpu",
    }
    | {"tokens/s/gpu", "tokens/sec/gpu", "tok/s/gpu", "samples/s/gpu", "tflop/s/gpu", "images/sec/gpu"}
)
_WORK = frozenset(_QUANTITIES[: _QUANTITIES.index("it")]) - {"items"}
_SECONDS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "usec": 1e-6, "usecs": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nsec": 1e-9,
}  # fmt: skip
_MORE = frozenset({"s/it", "ms/it", "s/iter", "ms/iter", "s/step", "ms/step", "s/batch", "ms/batch", "s/epoch"})
_RATE_NAME = compiled(
    r"(?i)throughput|bandwidth|(?<![a-z])(?:fom|figure of merit)(?![a-z])|(?:alg|bus)_?bw|"
    r"(?<![a-z])(?:fps|qps|iops|speed|ips|[kmgtp]?flops)(?![a-z])|(?:per|/)[_ ]?(?:s(?:ec(?:ond)?)?|min(?:ute)?)(?![a-z])|"
    r"(?<![a-z])(?:req(?:uest)?|tok(?:en)?|ima?ge?|sample|seq(?:uence)?|querie|frame|[kmgt]i?b(?:it|yte)?)s?_s(?:ec)?\Z"
)
_TIME_NAME = compiled(
    r"(?i)latenc|elapsed|duration|(?<![a-z])(?:time|times|ttft|tpot|itl|runtime|wall[ _-]?(?:time|clock))(?![a-z])|"
    r"_(?:ms|us|ns|s|sec|secs|seconds)(?:_(?:mean|avg|average|median|min|max|std(?:dev)?|total|(?:quantiles_)?p\d\d?))?\Z"
)
_CLOCK_NAME = compiled(
    r"(?i)time[ _-]?stamp|date|timeout|time[ _-]?(?:limit|zone|step|constant)s?\b|\bstart(?:ed)?\b|\bend(?:ed)?\b|\beta\b|\bmax_time\b|"
    r"(?:wait|send|retry|repeat)_times\b|max[ _]runtime\b"  # and names of settings
)
_SUFFIX = compiled(
    r"(?i)[_ (\[](ms|us|ns|s|sec|secs|seconds)[)\]]?(?:_(?:mean|avg|average|median|min|max|std(?:dev)?|total|(?:quantiles_)?p\d\d?))?\Z"
)


_SPELT = compiled(
    r"(?i)(?:\A|[^a-z])(?:(?P<work>[a-z]{1,12})[_ ]per[_ ]s(?:ec(?:ond)?)?|(?:train|eval|test|predict)_runtime"
    r"|(?P<unit>percent|pct|[kmgt]b|[kmgt]ib|watts?|celsius|[mg]hz|joules?))\Z"
)
_IN_BRACKETS = compiled(r"[(\[] ?([A-Za-z]{1,12}/[A-Za-z/]{1,12}) ?[)\]]\Z")
_SPELT_UNITS = {
    "percent": "%", "pct": "%", "watt": "W", "watts": "W", "celsius": "C", "mhz": "MHz", "ghz": "GHz", "joule": "J", "joules": "J",
    "kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB",
}  # fmt: skip
_MERIT = compiled(r"(?i)figure of merit|fom(?:_\w{1,20})?")
_RESULT = compiled(r"(?i)[kmgtp]?(?:flops?|f)(?:/s|s)|[gtp]?flops|ns/day|timesteps/s")


def is_rate(unit: str) -> bool:
    """Whether a word is the unit of a rate: `images/s`, `GB/sec`, `FPS`."""
    return unit.lower() in _RATES


def is_work_rate(unit: str) -> bool:
    """Whether a unit counts what a job works on in a second: `images/s`, `tokens/sec/gpu`; not bytes, and not what hardware can do."""
    return is_rate(unit) and unit.lower().partition("/")[0] in _WORK and "/" in unit


def is_result(name: str, unit: str) -> bool:
    """Whether a number is what a program of high-performance computing is run for: a figure of merit, flops, simulated time."""
    return _MERIT.fullmatch(name) is not None or (unit.lower() in _RATES and _RESULT.match(unit) is not None)


def is_time(unit: str) -> bool:
    """Whether a word is a unit of time, or of the time of a step: `ms`, `s/it`."""
    return unit.lower() in _SECONDS or unit.lower() in _MORE


@lru_cache(4096)
def kind_of(name: str, unit: str) -> str | None:
    """`rate`, `time`, or None for a number that is neither; the unit says most, then the name."""
    if _CLOCK_NAME.search(name):
        return None
    if unit:
        return "rate" if is_rate(unit) else "time" if is_time(unit) else None
    return "rate" if _RATE_NAME.search(name) else "time" if _TIME_NAME.search(name) else None


def unit_in(name: str) -> str:
    """The unit of time with which a name ends: `latency_s`, `step time (ms)`."""
    found = _SUFFIX.search(name)
    return found[1].lower() if found is not None and _RATE_NAME.search(name) is None else ""


@lru_cache(4096)
def rate_in(name: str) -> str:
    """The unit of a rate with which a name ends: `gen throughput (token/s)`; else empty."""
    found = _IN_BRACKETS.search(name)
    return found[1] if found is not None and is_rate(found[1]) else ""


@lru_cache(4096)
def unit_of(name: str) -> str:
    """The unit that a name of somebody's own spells out: `samples_per_second`, `cpu_percent`, `used_gb`, `train_runtime`; else empty."""
    if time := unit_in(name):
        return time
    found = _SPELT.search(name)
    if found is None:
        return ""
    if found["work"]:
        rate = f"{found['work'].lower()}/s"
        return rate if is_rate(rate) else ""
    if not found["unit"]:
        return "s"  # Trainer.save_metrics of Hugging Face: train_results.json, all_results.json
    return _SPELT_UNITS.get(found["unit"].lower(), found["unit"].upper())
