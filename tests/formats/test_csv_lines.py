"""Lines that are no CSV in files of CSV: a line end inside a line, a quote that is never closed, a cell of more than 128 kB."""

import io
from contextlib import suppress

import pytest
from helpers.places import FIXTURES

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats import registry
from nccl_doctor.inputs.streams import InputProblem
from nccl_doctor.inputs.text_lines import cells_of

TABLES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and path.stat().st_size < 100_000 and path.read_bytes()[:4000].count(b",") > 20
)
TEXTS = {
    "panel.csv": b'"Time","n1, eth0",n2,n3\n' + b"1795510800000,900,905,17\n" * 3,
    "dstat.csv": b'"Dstat 0.7.3 CSV output"\n"Host:","n1",,,,"User:","root"\n"total cpu usage",,,,,\n"usr","sys","idl","wai","stl"\n'
    + b"12.5,0.1,87.2,0.2,0\n" * 9,
    "rocprof.csv": b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'
    + b'"gemm(float, int)",64,81000000,1265625,41.5\n' * 3,
    "nsys.csv": b"Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    + b'60.0,6000000,60,100000.0,99000.0,90000,120000,1000.0,"ncclDevKernel_AllReduce(int, float)"\n' * 3,
}
ODD = {"return": b"1,2\r3,4", "quote": b'1,"2', "wide": b"7" * 140_000, "quoted return": b'"\r",1', "nul": b"\0"}


@pytest.mark.parametrize("odd", ODD)
def test_a_line_that_is_no_csv_ends_no_reader(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")
    asked = 0
    tables = TEXTS | {path.name: path.read_bytes() for path in TABLES}
    for name, table in tables.items():
        lines = table.splitlines(keepends=True)[:40]
        known = registry.recognise(b"".join(lines))
        for number in sorted({0, 1, 2, len(lines) // 2} & set(range(len(lines)))) if known is not None else ():
            half = len(lines[number]) // 2
            line = lines[number][:half] + ODD[odd] + lines[number][half:]
            asked += 1
            with suppress(UsageProblem, InputProblem):
                data = b"".join([*lines[:number], line, *lines[number + 1 :]])
                registry.read_file(known, io.BytesIO(data), name, Facts())
    assert asked > 100
    assert all(registry.recognise(text) is not None for text in TEXTS.values())


@pytest.mark.parametrize(
    ("line", "cells"),
    [("a,b", ["a", "b"]), ('"a,b",c', ["a,b", "c"]), ("", []), ("a\rb", []), ('"a', ["a"]), ("7" * 140_000, [])],
)
def test_cells_of_a_line(line: str, cells: list[str]) -> None:
    assert cells == cells_of(line)
