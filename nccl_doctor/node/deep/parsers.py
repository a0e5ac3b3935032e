"""What diagnostic programs print, as results: perftest, nvbandwidth, nccl-tests. Those of DCGM: nccl_doctor/formats/gpu/dcgm.py."""

import math
import re

from nccl_doctor.formats.gpu.dcgm import Result


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
