"""What diagnostic programs print, as results: DCGM, perftest, nvbandwidth, nccl-tests."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_OUTCOMES = {"pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail", "warn": "warn", "warning": "warn",
             "skip": "skip", "skipped": "skip"}  # fmt: skip
_CELLS = re.compile(r"\|([^|]*)\|([^|]*)\|\s*")
_RESULT = re.compile(r"(Pass|Fail|Warn|Skip)\w*\b(?:\s*-\s*(?:GPUs?:?\s*)?([\d, ]+|All))?", re.IGNORECASE)
_GPU = re.compile(r"GPU\s?(\d{1,3}):\s*(Pass|Fail|Warn|Skip)\w*", re.IGNORECASE)


class Result(NamedTuple):
    """One result of one test."""

    test: str
    device: str | None  # GPU numbers, or the name of a card; None for the whole node
    outcome: str  # pass, fail, warn, skip, or other where the word is not known
    value: float | None = None
    text: str = ""


def parse_dcgm(text: str) -> list[Result]:
    """`dcgmi diag -r 1 -j`, or its table where it prints one. Empty where no test ran.

    {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]}]}}
    | Denylist                  | Pass                                           |

    DCGM 4 says "DCGM Diagnostic", and `entity_group` and `entity_id` in place of `gpu_ids`.
    """
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        try:
            return list(_of_json(json.loads(text[start : end + 1])))
        except (ValueError, RecursionError):
            return []
    return list(_of_table(text))


def _of_json(document: Any) -> Iterator[Result]:
    if not isinstance(document, dict):
        return
    inner = next((document[key] for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if key in document), document)
    for category in _dicts(inner, "test_categories"):
        for test in _dicts(category, "tests"):
            for result in _dicts(test, "results"):
                yield Result(
                    str(test.get("name"))[:80], _device(result), _outcome(result.get("status")), None,
                    " ".join([*_words(result.get("warnings")), *_words(result.get("info"))])[:500],
                )  # fmt: skip


def _device(result: dict[str, Any]) -> str | None:
    ids = result.get("gpu_ids", result.get("gpu_id"))
    if ids is None and str(result.get("entity_group", "GPU")).upper() == "GPU":
        ids = result.get("entity_id")
    return None if ids is None else str(ids)[:200]


def _words(found: Any) -> list[str]:
    entries = found if isinstance(found, list) else [found]
    return [str(one.get("warning") or one) if isinstance(one, dict) else str(one) for one in entries if one]


def _dicts(found: Any, key: str) -> list[dict[str, Any]]:
    entries = found.get(key) if isinstance(found, dict) else None
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def _outcome(word: Any) -> str:
    return _OUTCOMES.get(str(word).strip().lower(), "other")


def _of_table(text: str) -> Iterator[Result]:
    current: Result | None = None
    for line in text.splitlines():
        cells = _CELLS.fullmatch(line.strip())
        if cells is None:
            continue
        name, said = cells[1].strip(), cells[2].strip()
        if current is not None and name in ("Warning", "Error", "Info", ""):
            gpu = _GPU.match(said)
            if gpu is not None and _outcome(gpu[2]) == current.outcome and current.outcome != "pass":
                current = current._replace(device=",".join(filter(None, [current.device, gpu[1]])))
            elif gpu is None and said:
                current = current._replace(text=f"{current.text} {said}".strip()[:500])
        elif (match := _RESULT.match(said)) is not None and name:
            if current is not None:
                yield current
            device = (match[2] or "").strip(" ,")
            current = Result(name, None if device in ("", "All") else device, _outcome(match[1]))
    if current is not None:
        yield current


def parse_perftest(text: str) -> float | None:
    """Average bandwidth of `ib_write_bw --report_gbits` in Gb/s; of several sizes the highest.

    #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
    65536      1880200          0.00               197.16             0.376052
    """
    _, header, rows = text.partition("BW average[Gb/sec]")
    values = []
    for line in rows.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].isdigit() and words[1].isdigit():
            values += [value for value in [_number(words[3])] if value is not None]
    return max(values, default=None) if header else None


def parse_nvbandwidth(text: str) -> list[Result]:
    """Bandwidth of each GPU in GB/s, one result a test and GPU.

    Running host_to_device_memcpy_ce.
    memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
               0         1
     0     55.63     55.59
    """
    found: list[Result] = []
    test, columns = "", [""]
    for line in text.splitlines():
        words = line.split()
        if line.startswith("Running ") and len(words) == 2:
            test, columns = words[1].rstrip("."), []
        elif test and words and all(word.isdigit() for word in words) and not columns:
            columns = words
        elif test and columns and len(words) == len(columns) + 1 and words[0] == "0":
            values = zip(columns, map(_number, words[1:]), strict=True)
            found += [Result(test, column, "pass", value) for column, value in values if value is not None]
            test = ""
    return found


_ROW = re.compile(r"\s*(\d{1,15})\s+\d{1,15}\s+\w+\s+\w+\s+-?\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+(\d{1,15}|N/A)\b")


def parse_all_reduce(text: str) -> Result | None:
    """Bus bandwidth of the largest size of `all_reduce_perf` in GB/s, out of place; `fail` where data were wrong.

    #       size         count      type   redop    root     time   algbw   busbw #wrong
      1073741824     268435456     float     sum      -1   4260.1  252.05  441.08      0
    """
    rows = [match for match in map(_ROW.match, text.splitlines()) if match]
    if not rows:
        return None
    wrong = sum(int(row[3]) for row in rows if row[3] != "N/A")
    largest = max(rows, key=lambda row: int(row[1]))
    outcome = "fail" if wrong else "pass"
    return Result("all_reduce_perf", None, outcome, _number(largest[2]), f"{wrong} wrong values" if wrong else "")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
