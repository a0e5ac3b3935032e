"""`sadf -d` and `-j`, dstat and `atop -P`: how busy each host was, and broken input."""

import io
import json

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.captures import cpu_exports

SADF = """# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle
node01;10;2026-11-20 08:00:10 UTC;-1;70.00;5.00;10.00;5.00;0.00;10.00
node01;10;2026-11-20 08:00:10 UTC;0;99.00;0.00;0.00;0.00;0.00;1.00
node01;10;2026-11-20 08:00:20 UTC;-1;90.00;5.00;5.00;0.00;0.00;0.00
"""
JSON = json.dumps(
    {
        "sysstat": {
            "hosts": [
                {
                    "nodename": "node01",
                    "number-of-cpus": 96,
                    "statistics": [
                        {"timestamp": {"time": "08:00:10"}, "cpu-load": [{"cpu": "all", "iowait": 5.0, "idle": 10.0}]},
                        {
                            "timestamp": {"time": "08:00:20"},
                            "cpu-load": [{"cpu": "0", "idle": 90.0}, {"cpu": "all", "idle": 0.0}],
                        },
                        {"timestamp": {"time": "08:00:30"}},
                    ],
                }
            ]
        }
    },
    indent=1,
)
DSTAT = """"Dstat 0.8.0 CSV output"
"Author:","Dag Wieers <dag@wieers.com>",,,,"URL:","http://dag.wieers.com/home-made/dstat/"
"Host:","node01",,,,"User:","root"

"system","total cpu usage",,,,
"time","usr","sys","idl","wai","stl"
20-11 08:00:00,75.0,10.0,10.0,5.0,0
20-11 08:00:01,90.0,10.0,0.0,0.0,0
"""
ATOP = """RESET
CPU node01 1795527152 2026/11/24 13:32:32 1216 100 2 18165 93480 59336 70109 946 0 192 397 0 5192 100 0 0
SEP
CPU node01 1795527153 2026/11/24 13:32:33 1 100 2 20 100 50 20 10 0 0 0 0 5192 100 0 0
SEP
CPU node01 1795527154 2026/11/24 13:32:34 1 100 2 50 100 50 0 0 0 0 0 0 5192 100 0 0
SEP
"""


def _uses(text: str) -> list[HostUse]:
    data = text.encode()
    known = registry.recognise(data)
    assert known is not None
    assert known.kind == "cpu-exports"
    facts = Facts()
    registry.read_file(known, io.BytesIO(data), "cpu", facts)
    return facts.rows(HostUse)


IOSTAT = json.dumps(
    {
        "sysstat": {
            "hosts": [
                {
                    "nodename": "node01",
                    "number-of-cpus": 96,
                    "statistics": [
                        {
                            "timestamp": "11/20/26 08:00:10",
                            "avg-cpu": {"user": 85.0, "iowait": 5.0, "idle": 10.0},
                            "disk": [],
                        },
                        {"timestamp": "11/20/26 08:00:20", "avg-cpu": {"user": 100.0, "iowait": 0.0, "idle": 0.0}},
                    ],
                }
            ]
        }
    }
)
MPSTAT = """{"sysstat": {"hosts": [{"nodename": "node01", "number-of-cpus": 2, "statistics": [
  {"timestamp": "08:00:10", "cpu-load": [
    {"cpu": "%s", "usr": 70.0, "sys": 15.0, "iowait": 5.0, "idle": 10.0}, {"cpu": "0", "usr": 0.0, "iowait": 0.0, "idle": 100.0}]},
  {"timestamp": "08:00:20", "cpu-load": [{"cpu": "%s", "usr": 100.0, "iowait": 0.0, "idle": 0.0}]}]}]}}
"""  # what stands for all processors is `-1` in sysstat 12.0


@pytest.mark.parametrize(
    "text",
    [SADF, JSON, IOSTAT, MPSTAT.replace("%s", "all"), MPSTAT.replace("%s", "-1"), DSTAT, ATOP],
    ids=["sadf -d", "sadf -j", "iostat -o JSON", "mpstat -o JSON", "mpstat 12.2", "dstat", "atop"],
)
def test_samples(text: str) -> None:
    (use,) = _uses(text)
    assert ("node01", 2, 92.5, 0.5) == (use.host, use.samples, use.cpu_mean, use.cpu_high_share)


@pytest.mark.parametrize(
    "text",
    [
        SADF[:90],
        SADF.replace("-1;70.00", "-1;x").replace("10.00\n", "-400.00\n").replace("0.00\n", "nan\n"),
        '{"sysstat": {"hosts": [7, {"statistics": [null, {"cpu-load": 5}]}]}}',
        DSTAT.replace("10.0,5.0", "x,y").replace("0.0,0.0", ","),
        ATOP.replace(" 1 100 2 ", " 0 0 0 "),
    ],
)
def test_hostile_values_give_nothing(text: str) -> None:
    assert [] == _uses(text)


def test_a_cut_answer_is_told() -> None:
    data = JSON[:-30].encode()
    known = registry.recognise(data)
    assert known is not None
    assert "is no complete JSON" in str(registry.read_file(known, io.BytesIO(data), "cpu", Facts()).note)


TITLES = "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle"
ATOP = "CPU n1 1795527153 2026/11/24 13:32:33 10 100 4 100 200 0 3600 100 0 0 0 0 2600 100 0 0"


@pytest.mark.parametrize(
    ("head", "row"),
    [(TITLES, "n1;10;2026-11-20 08:00:10 UTC;-1;9.00;0.00;1.00;0.00;0.00;90.00"), (f"{ATOP}\nSEP", ATOP)],
    ids=["sadf", "atop"],
)
def test_a_last_record_that_was_cut_is_told_and_not_counted(head: str, row: str) -> None:
    for last, samples, told in ((row, 2, None), (row[:-16], 1, "is cut")):
        facts = Facts()
        reading = cpu_exports.read_format(io.BytesIO(f"{head}\n{row}\n{last}".encode()), "c", facts)
        assert [(samples,)] == facts.query("SELECT samples FROM host_use")
        assert (told is None) == (reading.note is None)
        assert told is None or str(reading.note).endswith(told)
