"""Samples of GPUs: every shape read, numbers checked against pandas and json, damage reported, healthy is healthy."""

import json
import re
import statistics
import tracemalloc
from pathlib import Path

import pandas
import pytest
from helpers.gpu_rows import read, rows
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Captured
from nccl_doctor.facts.tables.gpu import GpuProcess, GpuSample, GpuThrottle, GpuUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import samples as gpu_samples
from nccl_doctor.reporters import render

FIXTURES = FIXTURES / "gpu"


def found(path: Path) -> set[tuple[str, str]]:
    report, _, _ = analyze.analyze([str(path)])
    return {(finding.name, finding.severity) for finding in report.findings}


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("busy70.csv", {("gpu-underused", "warning")}),
        ("busy85.csv", set()),
        ("rare_dips.csv", set()),
        ("frequent_dips.csv", {("gpu-frequent-dips", "warning")}),
        ("spinning.csv", {("gpu-spinning", "warning")}),
        ("hot_gpu2.csv", {("gpu-thermal-throttle", "warning"), ("gpu-straggler", "warning")}),
        ("restarted.csv", {("gpu-unreadable-during-samples", "error")}),
        ("dmon.txt", {("gpu-underused", "warning")}),
        ("pmon_all_on_0.txt", {("processes-share-gpu", "warning")}),
        ("dcgmi_dmon.txt", {("gpu-thermal-throttle", "warning"), ("gpu-straggler", "warning")}),
        ("gpustat.json", set()),
        ("superbench.jsonl", set()),
        (
            "jobstats.json",
            {("gpu-underused", "warning"), ("gpu-straggler", "warning"), ("gpu-memory-far-from-full", "note")},
        ),
    ],
)
def test_a_set_of_samples_gets_its_verdict(name: str, findings: set[tuple[str, str]]) -> None:
    assert findings == found(FIXTURES / name)


@pytest.mark.parametrize("name", ["busy70.csv", "busy85.csv", "rare_dips.csv", "spinning.csv", "hot_gpu2.csv"])
def test_numbers_agree_with_pandas(name: str) -> None:
    frame = pandas.read_csv(FIXTURES / name, skipinitialspace=True)
    frame.columns = [re.sub(r" \[.*", "", column).strip() for column in frame.columns]
    for column in ("utilization.gpu", "memory.used", "power.draw", "clocks.current.sm"):
        frame[column] = frame[column].astype(str).str.extract(r"([\d.]+)")[0].astype(float)
    facts, reading = read((FIXTURES / name).read_bytes())
    assert Reading(len(frame) + 1, len(frame) + 1, None) == reading
    uses = {use.gpu: use for use in facts.rows(GpuUse)}
    for gpu, group in frame.groupby("index"):
        use, util = uses[int(str(gpu))], group["utilization.gpu"]
        assert len(group) == use.samples
        assert (util >= 80).mean() == pytest.approx(use.busy_share)
        assert util.mean() == pytest.approx(use.util_mean)
        assert util.median() == use.util_median
        assert util.between(10, 25).mean() == pytest.approx(use.dip_share)
        assert int((util.between(10, 25) & ~util.between(10, 25).shift(fill_value=False)).sum()) == use.dips
        assert group["memory.used"].max() == use.memory_max
        assert group[util >= 80]["power.draw"].median() == pytest.approx(use.power_median, abs=1.01)
        assert group[util >= 80]["clocks.current.sm"].median() == use.clock_median
        times = pandas.to_datetime(frame["timestamp"])
        assert (times.max() - times.min()).total_seconds() == pytest.approx(use.seconds)
        assert times.min().timestamp() == pytest.approx(use.first)
    for start, samples, busy in facts.query(
        "SELECT start, sum(samples), avg(busy_share) FROM gpu_sample GROUP BY start"
    ):
        inside = frame[
            (times >= pandas.to_datetime(start, unit="s")) & (times < pandas.to_datetime(start + 60, unit="s"))
        ]
        assert len(inside) == pytest.approx(samples, abs=1)
        assert (inside["utilization.gpu"] >= 80).mean() == pytest.approx(busy, abs=0.02)


def test_the_order_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FIXTURES / "frequent_dips.csv").read_bytes()
    whole, _ = read(data)
    monkeypatch.setattr(gpu_samples, "_BLOCK", 997)
    pieces, reading = read(data)
    assert 801 == reading.understood
    assert whole.rows(GpuUse) == pieces.rows(GpuUse)


def test_json_agrees_with_json() -> None:
    records = [json.loads(line) for line in (FIXTURES / "superbench.jsonl").read_text().splitlines()]
    facts, reading = read((FIXTURES / "superbench.jsonl").read_bytes(), "monitor.jsonl")
    assert len(records) == reading.understood
    for use in facts.rows(GpuUse):
        assert statistics.median(record[f"gpu_usage:{use.gpu}"] for record in records) == use.util_median
        assert records[0][f"gpu_mem_used:{use.gpu}"] / 2**20 == use.memory_max
    facts, reading = read((FIXTURES / "gpustat.json").read_bytes(), "gpustat.json")
    assert 25 == reading.understood
    assert [("node01", 0, 25), ("node01", 1, 25)] == facts.query(
        "SELECT host, gpu, samples FROM gpu_use ORDER BY gpu LIMIT 2"
    )
    assert 4 == len(facts.rows(GpuProcess))


@pytest.mark.parametrize("comma", [",", ", "])
@pytest.mark.parametrize("front", ["", "the job starts\n"])
def test_dmon_with_commas_says_the_same(comma: str, front: str) -> None:
    blanks = (FIXTURES / "dmon.txt").read_text()
    commas = "".join(
        ("#" if line.startswith("#") else "") + comma.join(line.lstrip("# ").split()) + "\n"
        for line in blanks.splitlines()
    )
    expected, got = read(blanks.encode(), "d")[0], read((front + commas).encode(), "d")[0]
    assert expected.rows(GpuUse)
    assert [use._replace(ref=0) for use in expected.rows(GpuUse)] == [use._replace(ref=0) for use in got.rows(GpuUse)]


def test_pmon_with_commas_names_the_processes() -> None:
    text = b"#gpu, pid, type, sm, mem, command\n#Idx, #, C/G, %, %, name\n0, 70211, C, 98, 40, python\n1, -, -, -, -, -\n1, 70"
    facts, _ = read(text, "pmon.csv")
    assert [(0, 70211, "C", "python")] == [(row.gpu, row.pid, row.kind, row.name) for row in facts.rows(GpuProcess)]


def test_tables_of_columns_agree_with_the_csv_of_the_same_run() -> None:
    csv, _ = read((FIXTURES / "busy70.csv").read_bytes())
    dmon, _ = read((FIXTURES / "dmon.txt").read_bytes(), "dmon.txt")
    columns = "gpu, samples, busy_share, util_mean, util_median, dips, clock_median, memory_max"
    assert csv.query(f"SELECT {columns} FROM gpu_use") == dmon.query(f"SELECT {columns} FROM gpu_use")
    dcgm, _ = read((FIXTURES / "dcgmi_dmon.txt").read_bytes(), "dcgm.txt")
    hot, _ = read((FIXTURES / "hot_gpu2.csv").read_bytes())
    reasons = "SELECT gpu, reason, samples FROM gpu_throttle"
    assert hot.query(reasons) == dcgm.query(reasons)


def test_values_that_are_not_there_and_tables_without_units() -> None:
    facts, reading = read(
        rows(
            [
                "index, uuid, utilization.gpu [%], power.draw [W], ecc.errors.uncorrected.volatile.total,"
                " clocks_throttle_reasons.hw_slowdown",
                *["0, GPU-1, 97, [N/A], 0, Not Active", "1, GPU-2, [Not Supported], 80.5, [N/A], Active"] * 30,
                "1, GPU-2, [GPU requires reset], [Unknown Error], 2, Not Active",
            ]
        )
    )
    assert 62 == reading.understood
    first, second = facts.rows(GpuUse)
    assert (1.0, None, "GPU-1") == (first.busy_share, first.power_median, first.uuid)
    assert (None, 80.0) == (second.busy_share, second.power_median)
    assert [(1, "hw-slowdown", 30)] == [(row.gpu, row.reason, row.samples) for row in facts.rows(GpuThrottle)]
    assert [(1, "ecc-uncorrected", 2.0, 62), (1, "unreadable", 1.0, 62)] == facts.query(
        "SELECT c.gpu, c.name, c.last, e.line FROM gpu_counter c JOIN evidence e ON e.id = c.ref WHERE c.last > 0 ORDER BY c.name"
    )


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [("[Unknown Error], 97", []), ("40, ERR!", [("node3", 2)]), ("40, [Unknown Error]", [("node3", 2)])],
)
def test_which_gpu_could_not_be_read(cells: str, gpus: list[tuple[str, int]]) -> None:
    data = rows(["hostname, index, fan.speed [%], utilization.gpu [%]", *[f"node3, {n}, 40, 97" for n in range(3)]])
    facts, _ = read(data + f"node3, 2, {cells}\n" * 3)
    assert gpus == facts.query("SELECT host, gpu FROM gpu_counter WHERE name = 'unreadable'")


def test_time_before_and_after_the_job_does_not_count() -> None:
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    for number in range(300):
        working = 100 <= number < 200
        lines.append(
            f"2024/09/08 13:{number // 60:02d}:{number % 60:02d}.000, 0, {95 if working else 0} %, {30000 if working else 3} MiB"
        )
    facts, _ = read(rows(lines))
    assert [(100, 1.0, 99.0)] == facts.query("SELECT samples, busy_share, seconds FROM gpu_use")
    hanging = [line.replace(", 3 MiB", ", 30000 MiB") if number > 200 else line for number, line in enumerate(lines)]
    facts, _ = read(rows(hanging))
    assert [(200, 0.5)] == facts.query("SELECT samples, busy_share FROM gpu_use"), (
        "memory in use: the job is still there"
    )


def test_inside_the_log_of_several_hosts() -> None:
    lines = [
        "node01: timestamp, index, utilization.gpu [%]",
        "node02: timestamp, index, utilization.gpu [%]",
        "Epoch 1: loss 2.1",
    ]
    for number in range(40):
        for host, util in (("node01", 98), ("node02", 40)):
            lines.append(f"{host}: 2024/09/08 13:00:{number:02d}.000, 0, {util} %")
        lines.append(f"step {number}, loss 1.5, 3")
    facts, reading = read(rows(lines), "job.log")
    assert 82 == reading.understood
    assert [("node01", 40, 1.0), ("node02", 40, 0.0)] == facts.query(
        "SELECT host, samples, busy_share FROM gpu_use ORDER BY host"
    )


def test_processes_of_compute_apps_and_pmon() -> None:
    facts, _ = read(
        "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n4100, python, 30412 MiB, GPU-1\n4101, python, 30412 MiB, GPU-1\n"
    )
    assert [(4100, "GPU-1", 30412.0), (4101, "GPU-1", 30412.0)] == facts.query(
        "SELECT pid, uuid, memory FROM gpu_process"
    )
    facts, _ = read((FIXTURES / "pmon_all_on_0.txt").read_bytes())
    assert [(0, pid, "C", "python", 20) for pid in (4100, 4101, 4102, 4103)] == facts.query(
        "SELECT gpu, pid, kind, name, n FROM gpu_process"
    )


def test_all_ranks_on_gpu_zero_needs_processes_and_samples(tmp_path: Path) -> None:
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    lines += [
        f"2024/09/08 13:00:{n:02d}.000, {gpu}, {0 if gpu else 99} %, {3 if gpu else 70000} MiB"
        for n in range(60)
        for gpu in range(4)
    ]
    (tmp_path / "gpu.csv").write_text(rows(lines))
    (tmp_path / "pmon.txt").write_bytes((FIXTURES / "pmon_all_on_0.txt").read_bytes())
    assert ("all-ranks-on-gpu-zero", "warning") in found(tmp_path)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"timestamp, index, utilization.gpu [%]\n2024/09/08 13:00:00.000, 0, 9", None),
        (b"timestamp, index, utilization.gpu [%]\n2024/09/08 13:00:00.000, 0", "ends in the middle of line 2"),
        (
            b"timestamp, index, utilization.gpu [%]\n" + b"x" * (2 << 20),
            "line 2 is longer than 1,048,576 bytes; reading ended there",
        ),
        (
            b"timestamp, index, utilization.gpu [%]\n\x00\xff,,,\n,,\n\n1,2,3,4,5,6\n2024/09/08 13:00:00.000, 0, 97 %\n",
            None,
        ),
        (
            b'{"time": "2021-12-06 04:19:35", "gpu_usage:0": 5}\n{"time": "2021',
            "ends in the middle of the object that starts in line 2",
        ),
        (b"# gpu    pwr     sm\n# Idx      W      %\n    0    100     97\n    0    1", None),
        (b"#Entity   GPUTL\nID\nGPU 0     97\nGPU", None),
        (b'{"gpus": [[[[{"index": 0', "ends in the middle of the object that starts in line 1"),
        (b"index, utilization.gpu [%]\n99999999999999999999, 5 %\n-1, 5 %\nnan, 5 %\n0.5, 5 %\n1e400, inf %\n", None),
    ],
)
def test_damage_is_survived_and_named(data: bytes, note: str | None) -> None:
    _, reading = read(data)
    assert note == reading.note


@pytest.mark.parametrize("damage", [b"\x00" * 4096, b"\x00\x01garbage,,,\n"])
def test_zero_bytes_of_a_crashed_node_do_not_make_it_binary(damage: bytes, tmp_path: Path) -> None:
    text = (FIXTURES / "busy70.csv").read_bytes()
    half = text.index(b"\n", len(text) // 2) + 1
    (tmp_path / "gpu.csv").write_bytes(text[:half] + damage + (b"" if len(damage) > 99 else text[half:]))
    assert ("gpu-underused", "warning") in found(tmp_path / "gpu.csv")


def test_a_file_that_names_too_many_gpus_stays_small() -> None:
    lines = ["index, utilization.gpu [%]", *(f"{n % 1024}, 97 %" for n in range(5000))]
    facts, _ = read(rows(lines))
    assert 1024 == facts.counts()["gpu_use"]
    lines = ["uuid, utilization.gpu [%]", *(f"GPU-{n}, 97 %" for n in range(9000))]
    facts, reading = read(rows(lines))
    assert 1024 == facts.counts()["gpu_use"]
    assert "names more than 1,024 GPUs; the others were left out" == reading.note


def test_windows_stay_few_for_a_long_file() -> None:
    lines = ["timestamp, index, utilization.gpu [%]", *(f"{1725800000 + 600 * n}, 0, 97 %" for n in range(5000))]
    facts, _ = read(rows(lines))
    windows = facts.rows(GpuSample)
    assert len(windows) <= 1000
    assert 5000 == sum(window.samples for window in windows)


@pytest.mark.parametrize(
    ("samples", "names"),
    [
        ([97] * 70 + [40] * 30, {"gpu-underused"}),
        ([97] * 79 + [40] * 21, {"gpu-underused"}),
        ([97] * 80 + [40] * 20, set()),
        ([97] * 85 + [40] * 15, set()),
        ([80] * 100, set()),
        ([79] * 100, {"gpu-underused"}),
        ([18, *[97] * 24], set()),  # 4 % of the samples
        ([18, *[97] * 19], {"gpu-frequent-dips"}),  # 5 %
        ([*[25] * 4, *[97] * 96], set()),  # short stays, and seldom
        ([26, *[97] * 9], set()),
        ([9, *[97] * 9], set()),
    ],
)
def test_the_boundaries_are_where_the_rules_say(samples: list[int], names: set[str], tmp_path: Path) -> None:
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    lines += [
        f"2024/09/16 10:{second // 60:02d}:{second % 60:02d}.000, 0, {util} %, 60000 MiB"
        for second, util in enumerate([*samples * 1000][:1200])
    ]
    (tmp_path / "gpu.csv").write_text("\n".join(lines) + "\n")
    assert names == {name for name, _ in found(tmp_path / "gpu.csv")}


@pytest.mark.parametrize("header", [True, False])
def test_a_row_of_a_million_columns_does_not_take_the_memory(header: bool) -> None:
    """With 8 MiB of columns, pandas once took 7 GB."""
    title = b"timestamp, index, utilization.gpu [%]" + b", x" * 1_000_000 + b"\n"
    row = b"2026/05/07 12:00:01.000, 0, 97 %" + b", 1" * 1_000_000 + b"\n"
    tracemalloc.start()
    try:
        facts, reading = read((title if header else b"") + row)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (
        "holds a table of more than 4,096 columns, which was left out; raise the limit with --limit columns=40960"
        == reading.note
    )
    assert [] == facts.rows(GpuUse)
    assert peak < 10 * len(title + row)


def test_without_utilisation_the_activity_of_the_sms_is_compared(tmp_path: Path) -> None:
    title = ["#Entity   SMCLK    POWER    SMACT", "ID        MHz      W"]
    rows = [
        f"GPU {gpu}     1965     {330 if gpu == 5 else 640}.0    {0.41 if gpu == 5 else 0.93}"
        for _ in range(30)
        for gpu in range(8)
    ]
    path = tmp_path / "dmon.txt"
    path.write_text("\n".join([*title, *rows]) + "\n")
    assert {("gpu-straggler", "warning")} == found(path)


def test_a_title_that_comes_twice_is_one_column() -> None:
    row = "2026/05/07 12:00:01.000, 0, 97 %, 50 %, 40 %\n"
    facts, reading = read("timestamp, index" + ", utilization.gpu [%]" * 3 + "\n" + row * 20)
    assert (21, None) == (reading.lines, reading.note)
    assert [97.0] == [use.util_mean for use in facts.rows(GpuUse)]


def test_a_number_of_more_than_64_bits_in_a_record_of_superbench() -> None:
    record = '{"time": "2024-09-08 13:03:31", "gpu_usage:0": 98, "gpu_uncorrected_ecc:0": 1208925819614629174706176}\n'
    _, reading = read((record * 3).encode(), "monitor.jsonl")
    assert 3 == reading.lines


@pytest.mark.parametrize("processes", ["null", "7", '"x"', "{}", "[7, [], {}]", '[{"pid": "x"}]'])
def test_processes_of_another_type_are_none(processes: str) -> None:
    facts, reading = read(
        f'{{"hostname": "node01", "gpus": [{{"index": 0, "utilization.gpu": 97, "processes": {processes}}}]}}\n'.encode(),
        "samples.json",
    )
    assert (1, None) == (reading.lines, reading.note)
    assert [(0, 97.0)] == facts.query("SELECT gpu, util_mean FROM gpu_use")
    assert [] == facts.rows(GpuProcess)


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 300, "9" * 24, "1" + "0" * 18])
def test_a_time_that_no_clock_shows_ends_no_reading(digits: str) -> None:
    record = '{{"hostname": "node01", "query_time": "{}", "gpus": [{{"index": 0, "utilization.gpu": 97, "memory.used": 70000}}]}}\n'
    text = record.format(digits) + record.format("2026-05-07T12:00:01") + record.format("0")
    facts, _ = read(text.encode(), "samples.json")
    assert [(0, 97.0)] == facts.query("SELECT gpu, util_mean FROM gpu_use")
    table = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    facts, _ = read(
        (table + f"{digits}, 0, 97 %, 70000 MiB\n" + "1778155201, 0, 97 %, 70000 MiB\n").encode(), "samples.csv"
    )
    assert [(0, 97.0)] == facts.query("SELECT gpu, util_mean FROM gpu_use")


def test_pmon_tells_which_process_computes_least(tmp_path: Path) -> None:
    titles = "# gpu         pid   type     sm    mem    enc    dec    command\n"
    titles += "# Idx           #    C/G      %      %      %      %    name\n"
    rows = "".join(
        f"    {gpu}      {4100 + gpu}     C     {(95 if gpu != 2 else 20) + look}     40      -      -    python\n"
        for look in range(3)
        for gpu in range(4)
    )
    path = tmp_path / "pmon.txt"
    path.write_text(titles + rows + "    3      4103     C      -      -      -      -    python\n")
    _, facts, _ = analyze.analyze([str(path)])
    assert [(0, 96.0), (1, 96.0), (2, 21.0), (3, 96.0)] == facts.query("SELECT gpu, sm FROM gpu_process ORDER BY gpu")
    assert ["4 processes on 4 GPUs, SMs in use 96 % of the time, least 21 % by pid 4102 on GPU 2"] == [
        row.shows for row in facts.rows(Captured) if row.kind == "gpu-processes"
    ]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e308", "9" * 400])
def test_numbers_that_no_tool_measures_are_unknown(number: str, tmp_path: Path) -> None:
    """The picture of a GPU's use is drawn of what is known."""
    rows = [f"2024/09/08 13:03:3{at}.000, 0, {used} %, 568 W" for at, used in enumerate((90, number, 92, number, 94))]
    path = tmp_path / "gpu.csv"
    path.write_text("timestamp, index, utilization.gpu [%], power.draw [W]\n" + "\n".join(rows) + "\n")
    report, facts, _ = analyze.analyze([str(path)], drawn=True)
    assert [92] == [sample.util_mean for sample in facts.rows(GpuSample)]
    assert "92 %" in render("html", report)


def test_every_column_that_nvidia_smi_knows_and_a_host_that_it_does_not_tell() -> None:
    unused = [f"someOther.thing{number}" for number in range(230)]
    head = ["timestamp", *unused, "index", "utilization.gpu [%]", "power.draw [W]", "hostname"]
    rows = [
        ", ".join(["2026/05/07 12:00:00.000", *("[N/A]" for _ in unused), str(gpu), "97 %", "612.50 W", "[N/A]"])
        for gpu in range(2)
    ]
    data = "\n".join([", ".join(head), *rows, ""])
    known = registry.recognise(data.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, reading = read(data)
    assert None is reading.note
    assert [(None, 0, 97.0), (None, 1, 97.0)] == [(use.host, use.gpu, use.util_mean) for use in facts.rows(GpuUse)]


def test_a_table_of_ones_own_with_clocks_limits_and_shares_of_memory() -> None:
    data = "timestamp,gpu_utilization,memory_percent,memory_used_mb,memory_total_mb,temperature_c,power_draw_w,power_limit_w,sm_clock_mhz\n"
    data += "".join(f"{1790000000 + at}.25,90,12.5,6144.5,49152.0,70,250.5,300.0,2505\n" for at in range(20))
    known = registry.recognise(data.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, _ = read(data)
    assert [90.0] == [use.util_mean for use in facts.rows(GpuUse)]


def test_titles_of_ones_own_with_units_in_parentheses() -> None:
    data = (
        "timestamp,gpu_util(%),memory_used(MB),memory_total(MB),temperature(C)\n1790000000.5,97,4851.00,46068.00,40.0\n"
    )
    known = registry.recognise(data.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    assert [97.0] == [use.util_mean for use in read(data)[0].rows(GpuUse)]


def test_an_object_of_gpus_by_name(tmp_path: Path) -> None:
    lines = []
    for second in range(60):
        gpus = {
            f"gpu_{at}": {"utilization": 97.0 - 90 * at, "memory_used_mb": 21000.0, "memory_total_mb": 24564.0}
            for at in (0, 1)
        }
        lines.append(
            json.dumps({"timestamp": f"2026-03-31T13:56:{second:02}.6", "phase": "run", "gpus": gpus | {"sum": 5}})
        )
    (tmp_path / "monitor.jsonl").write_text("\n".join([*lines, '{"timestamp": "2026', '{"gpus": {"gpu_0": 7}}']))
    _, facts, _ = analyze.analyze([str(tmp_path / "monitor.jsonl")])
    assert [(0, 97.0, 21000.0), (1, 7.0, 21000.0)] == [
        (row.gpu, row.util_median, row.memory_max) for row in facts.rows(GpuUse)
    ]
