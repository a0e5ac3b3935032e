"""What benchmarks of servers of language models print: `vllm bench serve`, `benchmark_serving.py`, `sglang.bench_serving`, `trtllm-bench`,
and the results of `vllm bench latency` and `throughput` with `--output-json`."""

import json
import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_HEADS = re.compile(rb"={3,40} Serving Benchmark Result ={3,40}|^= PERFORMANCE OVERVIEW", re.MULTILINE)
_ROW = re.compile(r"(?:[#>|] {0,3})?([A-Z][\w .,()/%\[\]-]{3,60}?): +(\d{1,15}(?:\.\d{1,9})?)\s*$")
_NAMES = {
    "Successful requests": ("requests", ""),
    "Failed requests": ("failed requests", ""),
    "Request throughput (req/s)": ("request rate", "requests/s"),
    "Input token throughput (tok/s)": ("input rate", "tokens/s"),
    "Output token throughput (tok/s)": ("output rate", "tokens/s"),
    "Total Token throughput (tok/s)": ("total rate", "tokens/s"),
    "Total token throughput (tok/s)": ("total rate", "tokens/s"),
    "Total throughput (tok/s)": ("total rate", "tokens/s"),
    **{
        f"{kind} {what} (ms)": (f"{kind.lower()} {what}", "ms")
        for kind in ("Mean", "Median", "P99")
        for what in ("TTFT", "TPOT", "ITL", "E2EL")
    },
    **{f"{kind} E2E Latency (ms)": (f"{kind.lower()} E2EL", "ms") for kind in ("Mean", "Median", "P99")},
}
_TENSORRT = {
    "Number of requests": ("requests", ""),
    "Request Throughput (req/sec)": ("request rate", "requests/s"),
    "Token Throughput (tokens/sec)": ("output rate", "tokens/s"),
    "Total Output Throughput (tokens/sec)": ("output rate", "tokens/s"),
    "Total Token Throughput (tokens/sec)": ("total rate", "tokens/s"),
    "Per GPU Output Throughput (tokens/sec/gpu)": ("output rate a GPU", "tokens/s"),
    "Total Latency (ms)": ("duration", "ms"),
    "Average request latency (ms)": ("mean E2EL", "ms"),
    "Average time-to-first-token [TTFT] (ms)": ("mean TTFT", "ms"),
    "Average time-per-output-token [TPOT] (ms)": ("mean TPOT", "ms"),
}
_NAMES |= _TENSORRT
_KEYS = {
    "completed": ("requests", ""),
    "failed": ("failed requests", ""),
    "request_throughput": ("request rate", "requests/s"),
    "output_throughput": ("output rate", "tokens/s"),
    "total_token_throughput": ("total rate", "tokens/s"),
    **{
        f"{kind}_{what}_ms": (f"{kind} {what.upper()}", "ms")
        for kind in ("mean", "median", "p99")
        for what in ("ttft", "tpot", "itl", "e2el")
    },
    # of `vllm bench latency` and `vllm bench throughput`, which time batches
    "avg_latency": ("mean latency", "s"),
    "requests_per_second": ("request rate", "requests/s"),
    "tokens_per_second": ("total rate", "tokens/s"),
}
_PERCENTILES = {"50": ("median latency", "s"), "99": ("p99 latency", "s")}
_KEEP = 12
_MOST = 20_000
_LARGEST = 16 << 20  # bytes of a line of JSON, which may hold all answers


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the rates and waiting times of each run, numbered as they come; TTFT is the time to the first token, TPOT that of each other.

    Source: vLLM `benchmarks/benchmark_serving.py` (0.4 to 0.11), SGLang `bench_serving.py`, both also with their result as JSON;
    TensorRT-LLM `bench/dataclasses/reporting.py` (0.13 to 1.0), with other titles::

        ============ Serving Benchmark Result ============
        Output token throughput (tok/s):         412.25
        Mean TTFT (ms):                          188.20
        = PERFORMANCE OVERVIEW
        Total Output Throughput (tokens/sec):             5530.7382
    """
    facts.mark_covered("active_test")
    head = read_head(stream, 256)
    stream = Joined(head, stream)
    if head.lstrip()[:1] == b"{":
        return _read_json(stream, name, facts)
    sections = Sections(stream, _HEADS, _KEEP)
    rows: list[ActiveTest] = []
    used = run = 0
    note = None
    for first, label, texts in sections.batches():
        last = 0
        for number, text in enumerate(texts, first):
            if "Serving Benchmark Result" in text or "= PERFORMANCE OVERVIEW" in text:
                run += 1
            elif run and (row := _ROW.match(text.strip())) is not None and row[1] in _NAMES:
                rows.append(_row(facts, name, label.host, run, _NAMES[row[1]], float(row[2]), number, text.strip()))
            else:
                continue
            used, last = used + 1, number
        if last:
            sections.used(last)
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _read_json(stream: Readable, name: str, facts: Facts) -> Reading:
    """Results of runs, one JSON object a line."""
    content = read_head(stream, _LARGEST)
    rows: list[ActiveTest] = []
    note = None
    lines = content.split(b"\n")
    for number, line in enumerate([content] if _is_one(content) else lines, 1):
        if not line.strip():
            continue
        try:
            result = json.loads(line)
        except (ValueError, RecursionError) as error:
            note = f"line {number} is no complete JSON: {str(error)[:100]}"
            continue
        if not isinstance(result, dict):
            continue
        shares = result.get("percentiles")
        for names, told in ((_KEYS, result), (_PERCENTILES, shares if isinstance(shares, dict) else {})):
            for key, named in names.items():
                if (value := finite(told.get(key))) is not None:
                    rows.append(_row(facts, name, None, number, named, value, number, f'"{key}": {value:.6g}'))
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    facts.add(rows)
    return Reading(len(lines) - (not lines[-1]), len(rows), note)


def _is_one(content: bytes) -> bool:
    """Whether the file is one object in several lines."""
    return content.lstrip()[:2] in (b"{\n", b"{\r")


def _row(
    facts: Facts, file: str, host: str | None, run: int, named: tuple[str, str], value: float, number: int, text: str
) -> ActiveTest:
    return ActiveTest(
        host=host, tool="serving", test=named[0], device=f"run {run}", outcome="other", value=value, unit=named[1] or None, text=None,
        ref=facts.evidence(file, number, text),
    )  # fmt: skip
