"""Results of IOR, STREAM in its forms for CPUs and GPUs, HPCG and DLIO: rates of a file system, of memory, and of a whole job."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"access    bw\(MiB/s\)|Function    M(?:Bytes|iBytes)/sec|Function {1,12}(?:Best )?Rate \(?[MG]i?B/s|Final Summary::HPCG result is "
    rb"|\[METRIC\] "
)
_RATE_TITLE = re.compile(r"Function {1,12}(?:Best )?Rate \(?([MG]i?)B/s")
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?(?:e\+\d\d)?)"
_IOR_ROW = re.compile(r"(write|read) {1,12}" + _NUMBER + r" (?:[ \d.NA-]{10,200}) (\d{1,6}) *$")
_CPU_STREAM_ROW = re.compile(
    r"(Copy|Scale|Add|Triad): {1,20}" + _NUMBER + r" {1,12}[\d.]{1,12} {1,12}[\d.]{1,12}(?: |$)"
)
_STREAM_ROW = re.compile(r"(Copy|Mul|Add|Triad|Dot|Nstream) {1,12}" + _NUMBER + r" {1,12}[\d.]{1,12} ")
_HPCG = re.compile(r"Final Summary::HPCG result is (VALID|INVALID)(?:.{0,40}GFLOP/s rating of=" + _NUMBER + r")?")
_DLIO = re.compile(
    r"\[METRIC\] (Training|Eval) (Accelerator Utilization \[AU\]|Throughput|I/O Throughput) \((%|samples/second|MB/second)\): "
    + _NUMBER
)
_DLIO_CHECK = re.compile(r"\[METRIC\] (train|eval)_au_meet_expectation: (success|fail)\b")
_DLIO_UNITS = {"%": "%", "samples/second": "samples/s", "MB/second": "MB/s"}
_MIB = (1 << 20) / 1e6  # MB
_UNITS = {"M": 1.0, "Mi": _MIB, "G": 1e3, "Gi": (1 << 30) / 1e6}  # MB
_KEEP = 60
_MOST = 20_000


class _Result(NamedTuple):
    """What a line says."""

    tool: str
    test: str
    device: str | None
    outcome: str
    value: float | None
    unit: str | None


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each result.

    Source: IOR 3 and 4 `src/ior-output.c`, STREAM 5.10 `stream.c`, its ports to CUDA and NVIDIA's container, which name the unit in
    the title, BabelStream 3 to 5 `src/main.cpp`, HPCG 3 `src/ReportResults.cpp`, DLIO 1 and 2 `utils/statscounter.py`::

        write     41234      10312      0.006123    16777216   4096       0.012345   25.42      0.001234   25.43      0
        Triad:         363208.7     0.026599     0.026431     0.026855
        Triad       3052345.678 0.00026     0.00028     0.00027
        Final Summary::HPCG result is VALID with a GFLOP/s rating of=5123.45
        [METRIC] Training Accelerator Utilization [AU] (%): 81.2208 (0.0401)
        [METRIC] train_au_meet_expectation: fail
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    tables: dict[str | None, tuple[str, float]] = {}  # host -> whose table is open, and MB of a unit of it
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for number, label, text in sections:
        if text.startswith("Function "):
            title = _RATE_TITLE.match(text)
            babel = "babelstream", _MIB if "MiBytes" in text else 1.0
            tables[label.host] = babel if title is None else ("stream", _UNITS[title[1]])
        elif (found := _result(text.strip(), tables.get(label.host))) is not None:
            rows.append(ActiveTest(label.host, *found, text=None, ref=facts.evidence(name, number, text.strip())))
        elif "bw(MiB/s)" not in text:
            continue
        used += 1
        sections.used()
        if len(rows) >= _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _result(text: str, table: tuple[str, float] | None) -> _Result | None:
    if (row := _IOR_ROW.match(text)) is not None:
        return _Result("ior", row[1], f"iteration {row[3]}", "other", float(row[2]) * _MIB, "MB/s")
    if table is not None and table[0] == "babelstream" and (row := _STREAM_ROW.match(text)) is not None:
        return _Result("babelstream", row[1], None, "other", float(row[2]) * table[1] / 1e3, "GB/s")
    if (row := _CPU_STREAM_ROW.match(text)) is not None:
        unit = table[1] if table is not None and table[0] == "stream" else 1.0
        return _Result("stream", row[1], None, "other", float(row[2]) * unit / 1e3, "GB/s")
    if (row := _HPCG.match(text)) is not None:
        outcome = "pass" if row[1] == "VALID" else "fail"
        return _Result("hpcg", "HPCG", None, outcome, float(row[2]) if row[2] else None, "Gflop/s" if row[2] else None)
    if (row := _DLIO.search(text)) is not None:
        test = f"{row[1].lower()} {row[2].removesuffix(' [AU]').lower()}".replace("i/o", "I/O")
        return _Result("dlio", test, None, "other", float(row[4]), _DLIO_UNITS[row[3]])
    if (row := _DLIO_CHECK.search(text)) is not None:
        outcome = "pass" if row[2] == "success" else "fail"
        return _Result("dlio", f"{'training' if row[1] == 'train' else 'eval'} accelerators", None, outcome, None, None)
    return None
