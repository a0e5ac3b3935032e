"""The file that nccl-tests writes with `-J` (since 2025). A run that was killed leaves it unclosed; its rows still count."""

import json
import re
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.nccl.nccl_tests_run import Bench
from nccl_doctor.formats.nccl.nccl_tests_usual import UsualRuns

LARGEST = 256 << 20


def read_json(data: bytes, name: str, facts: Facts, run: int) -> Reading:
    """Read one file. Fills bench_run and bench_row."""
    text = data[:LARGEST].decode("utf-8", "replace")
    lines = text.count("\n") + (not text.endswith("\n"))
    top, note = _load(text)
    config = top.get("config")
    devices = top.get("devices") or (config.get("devices") if isinstance(config, dict) else None)
    args = top.get("args")
    bench = Bench(
        _operation(args, top), _string(top.get("version")), _nccl(top.get("nccl_version")), 1, text[:300].encode()
    )
    for device in _dicts(devices):
        rank, host = device.get("rank"), _string(device.get("hostname")) or "?"
        if isinstance(rank, int):
            number = device.get("device")
            bus = _string(device.get("device_hex")) or ""
            bench.device(
                rank, host, number if isinstance(number, int) else -1, bus, _string(device.get("device_info")) or "?"
            )
    rows = _dicts(top.get("results"))
    understood = sum(_row(bench, row, text) for row in rows)
    bounds, average = top.get("out_of_bounds"), top.get("average_bus_bandwidth")
    if isinstance(bounds, dict) and isinstance(bounds.get("count"), int):
        bench.bounds(
            bounds["count"], "OK" if bounds.get("okay") in (True, "true", "OK") else "FAILED", _line(bounds), 1
        )
    if isinstance(average, dict) and (bandwidth := finite(average.get("bandwidth"))) is not None:
        bench.average, bench.finished = bandwidth, True
        if average.get("okay") in (False, "false", "FAILED") and bench.verdict != "FAILED":
            bench.verdict = "SLOW"
    if bench.worth:
        facts.add(bench.facts(facts, name, run, UsualRuns()))
    return Reading(lines, understood, note)


def _line(value: Any) -> bytes:
    return json.dumps(value).encode()[:600]


def _row(bench: Bench, row: dict[str, Any], text: str) -> int:
    try:
        size, count = int(row["size"]), int(row.get("count") or 0)
        root = int(row["root"]) if isinstance(row.get("root"), (int, str)) else None
        places = [_numbers(row[key]) for key in ("out_of_place", "in_place") if isinstance(row.get(key), dict)]
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0
    if not (0 <= size < 1 << 63 and 0 <= count < 1 << 63):
        return 0
    bench.head(size, count, str(row.get("type")), str(row.get("redop")), root)
    at = re.search(rf'"size"\s*:\s*{size}\b', text)
    bench.numbers(places, text.count("\n", 0, at.start()) + 1 if at else 1, _line(row))
    return 1


def _numbers(place: dict[str, Any]) -> tuple[float, float, float, bytes]:
    time = place.get("time", place.get("cpu_time"))
    wrong = finite(place.get("nwrong"))  # printed with %lf
    return (
        float(time or 0.0), float(place["alg_bw"]), float(place["bus_bw"]),
        b"N/A" if wrong is None else b"%d" % wrong,
    )  # fmt: skip


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _nccl(value: Any) -> str | None:
    """`22807`, 22807 or `2.28.7`."""
    text = str(value) if isinstance(value, (int, str)) else ""
    if text.isdecimal() and len(text) < 10 and int(text) >= 10_000:
        return f"{int(text) // 10_000}.{int(text) // 100 % 100}.{int(text) % 100}"
    match = re.match(r"\d+\.\d+\.\d+", text)
    return match[0] if match else None


def _operation(args: Any, top: dict[str, Any]) -> str | None:
    words = args if isinstance(args, list) else [args, top.get("test"), top.get("name")]
    for word in words:
        match = re.search(r"(\w{1,60})_perf\b", word) if isinstance(word, str) else None
        if match:
            return match[1]
    return None


def _load(text: str) -> tuple[dict[str, Any], str | None]:
    """The object and None; of a cut one the values that are complete, and a sentence that says so."""
    try:
        whole = json.loads(text)
        return (whole, None) if isinstance(whole, dict) else ({}, "is JSON, but no object")
    except (ValueError, RecursionError):
        pass
    decoder, top, position = json.JSONDecoder(), {}, text.find("{") + 1
    note = f"the JSON ends in the middle of line {text.count(chr(10)) + 1}; the rows before it were read"
    key = re.compile(r'[\s,]*"([^"\\]{1,100})"\s*:\s*')
    while match := key.match(text, position):
        position = match.end()
        try:
            top[match[1]], position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            if text[position : position + 1] == "[":
                top[match[1]] = _items(decoder, text, position + 1)
            break
    return top, note


def _items(decoder: json.JSONDecoder, text: str, position: int) -> list[Any]:
    """The complete elements of an array that is not closed."""
    items: list[Any] = []
    while True:
        position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n,"))
        try:
            item, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return items
        items.append(item)
