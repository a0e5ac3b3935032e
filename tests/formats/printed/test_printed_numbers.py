"""Numbers under names of their own: lines, JSON, tables; and that only text which no other reader knows is searched for them."""

import io
import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Measure, PrintedNumber
from nccl_doctor.formats.printed import printed_numbers
from nccl_doctor.formats.printed.named_numbers import numbers_of_line
from nccl_doctor.formats.printed.units import kind_of


def read(text: str) -> tuple[Facts, dict[str, PrintedNumber]]:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return facts, {row.name: row for row in facts.rows(PrintedNumber)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Throughput: 812.5 images/s, Batch size: 16, Average batch time: 0.019 s",
            [("Throughput", "images/s", 812.5), ("Average batch time", "s", 0.019)],
        ),
        (
            "[2] worker: Elapsed time per call of all_reduce : 0.00008)",
            [("Elapsed time per call of all_reduce", "", 0.00008)],
        ),
        (
            "Throughput (in TFLOP/s) for bmm (128x1024): 227.5",
            [("Throughput (in TFLOP/s) for bmm (128x1024)", "", 227.5)],
        ),
        ("Loading weights: 100%|####| 398/398 [00:00<00:00, 23954.1it/s]", []),
        ("    Total CG Mflops: 87654.3", [("Total CG Mflops", "", 87654.3)]),
        ("Throughput:    79.5 sps", [("Throughput", "sps", 79.5)]),
        ("GFLOP/s rate:   81234.5 GF/s", [("GFLOP/s rate", "GF/s", 81234.5)]),
        ("Seconds for a sweep of (64,64,64) x 2: time: 0.43 s", [("time", "s", 0.43)]),
        ("Time of one iteration of grid (64,64,64) x 2 x 4: 0.43 s", [("Time of one iteration of grid", "s", 0.43)]),
        ("Fetched 21.3 MB in 3s (7100 kB/s)", []),
        ("   12.5/12.5 MB 41.2 MB/s eta 0:00:00", []),
        ("MLP throughput (in TFLOP/s): 234.186", [("MLP throughput (in TFLOP/s)", "", 234.186)]),
        ("Latency of step 7: 1.25 ms", [("Latency of step", "ms", 1.25)]),
        ("[11/02/2026-09:17:09] [I] median: 0.75 ms", [("median", "ms", 0.75)]),
        ("Training perf is: 97.5 FPS", [("Training perf", "FPS", 97.5)]),
        ("sustained 1,250 GFLOPS on all nodes", [("sustained", "GFLOPS", 1250.0)]),
        ("bandwidth = 12.5 GiB/s", [("bandwidth", "GiB/s", 12.5)]),
        ("Tokens/s: 489.6K, total 12M", [("Tokens/s", "", 489_600.0)]),
        (
            "bwd FLOPS per GPU = 2 * fwd flops per GPU / bwd latency:                 116.27 TFLOPS",
            [("bwd FLOPS per GPU", "TFLOPS", 116.27)],
        ),
        ("throughput 1.25M tokens/s", [("throughput", "tokens/s", 1_250_000.0)]),
        ("Memory: 4000MHz x 8192-bit = 8192 GB/s PEAK", []),
        ("Prefix Length :192, inference time:0.00028s", [("inference time", "s", 0.00028)]),
        ("at 12:30:05 of localhost:8080", []),
        ("timeout: 30 s", []),
        ("memory: 512 MiB, epoch: 3, accuracy: 0.91", []),
        ("2026-11-02 10:00:31 started", []),
        ("it runs for 3 s and then ends", []),
        ("seed=1234 lr=0.001", []),
        ("Total training time: 3h 20m", [("Total training time", "s", 12_000.0)]),
        ("Setup duration: 2m 5.5s (125.5s)", [("Setup duration", "s", 125.5)]),
        ("wall time = 1.5 hours", [("wall time", "s", 5_400.0)]),
        ("Training took 2 minutes and 5 seconds", [("Training", "s", 125.0)]),
        ("distance of 5 m, time 3", []),
        ("using time 17.25 second, ips 812.5 word/sec.", [("using time", "second", 17.25), ("ips", "word/sec", 812.5)]),
        ("[3/40] Finished. Latency: 812 ms", [("Finished. Latency", "ms", 812.0)]),
        ("  Wall clock    31.912592887878418   ", [("Wall clock", "", 31.912592887878418)]),
        ("Solve Time    7.25    Its   33", [("Solve Time", "", 7.25)]),
        (" Step    29 time   4.3502757 control    dt      timestep   1.49E-03", []),
        ("ranks 2 ... compute=.25s  io=.005s  speedup=1.5x", [("compute", "s", 0.25), ("io", "s", 0.005)]),
        ("Dev: accuracy 68.5% 305 sents/s", [("", "sents/s", 305.0)]),
        ("Figure of Merit (FOM): nnz / (Setup + 3 * Solve) 2.5e+09", [("Figure of Merit", "", 2.5e9)]),
        ("Figure Of Merit    2.5e+08 [Num Segments / Time]", [("Figure Of Merit", "", 2.5e8)]),
        ("FOM_Solve: nnz * iterations / Solve Phase Time: 1.5e+10", [("FOM_Solve", "", 1.5e10)]),
        ("Performance:      123.5        0.194", [("Performance", "ns/day", 123.5)]),  # of GROMACS
        (
            "Performance: 12.5 ns/day, 1.9 hours/ns, 144.5 timesteps/s",
            [("Performance", "ns/day", 12.5), ("", "timesteps/s", 144.5)],
        ),
        ("Total time cost 133.5s", [("Total time cost", "s", 133.5)]),
        ("INFO:root:07:46:54 Time cost=183.25s", [("Time cost", "s", 183.25)]),
        ("send_wait_times: 5, scaling-time-constant = 4, max_time: 7", []),
        ("completed_requests_per_min: 21.5", [("completed_requests_per_min", "", 21.5)]),
    ],
)
def test_numbers_of_a_line(line: str, expected: list[tuple[str, str, float]]) -> None:
    assert expected == list(numbers_of_line(line.encode()))


@pytest.mark.parametrize(
    ("name", "unit", "kind"),
    [
        ("score", "", None),
        ("score", "images/sec", "rate"),
        ("tokens_per_second", "", "rate"),
        ("busbw", "", "rate"),
        ("ttft_s", "", "time"),
        ("p99 latency", "", "time"),
        ("max timestep", "", None),
        ("timestamp", "s", None),
        ("batch size", "", None),
    ],
)
def test_what_a_name_is(name: str, unit: str, kind: str | None) -> None:
    assert kind == kind_of(name, unit)


def test_values_of_a_name_and_where_the_worst_stands() -> None:
    times = [0.020, 0.021, 0.019, 0.160, 0.020]
    facts, rows = read("".join(f"round {n} took time: {t} s, rate 640 samples/s\n" for n, t in enumerate(times)))
    one = next(row for name, row in rows.items() if row.kind == "time")
    assert (5, 0.020, 0.019, 0.160, 0.020) == (one.n, one.median, one.lowest, one.highest, one.last)
    assert 4 == facts.query("SELECT line FROM evidence WHERE id = ?", (one.worst_ref,))[0][0]


def test_metrics_of_an_exporter_tell_gauges_and_means() -> None:
    text = (
        '# TYPE app:wait_seconds histogram\napp:wait_seconds_bucket{le="0.5",model="m"} 12.0\napp:wait_seconds_count{model="m"} 20.0\n'
        'app:wait_seconds_sum{model="m"} 8.5\napp:wait_seconds_created{model="m"} 1.79e+09\n'
        'app:idle_seconds_sum{model="m"} 0.0\napp:idle_seconds_count{model="m"} 0.0\n'
        'pci_link_transfers_per_second{bus="45",slot="1f.2"} 8e+09\npci_link_width{bus="45"} 8\n'
    )
    _, rows = read(text)
    assert {"mean app:wait_seconds": (0.425, "seconds"), "pci_link_transfers_per_second": (8e9, "")} == {
        name: (row.median, row.unit) for name, row in rows.items()
    }


def test_the_last_row_of_a_short_table_has_no_line_end() -> None:
    _, rows = read("nodes,Tokens/sec,epoch_time,wall_time\n1,100.5,9.5,1\n2,190.5,5.5,2\n4,370.5,3.5,3")
    assert {"nodes": 3, "Tokens/sec": 3, "epoch_time": 3} == {name: row.n for name, row in rows.items()}


def test_rates_in_the_log_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "node01:71:71 [0] NCCL INFO cudaDriverVersion 12040\nNCCL version 2.21.5+cuda12.4\n"
        "node01:71:71 [0] NCCL INFO NET/IB : throughput 200 tokens/s\n"
        + "".join(f"Throughput: {rate} images/s, Batch size: 16\n" for rate in (800.5, 812.5, 816.5))
    )
    report, facts, _ = analyze.analyze([str(tmp_path / "job.log")])
    assert "Throughput 812.5 images/s (800.5 to 816.5, 3 values)" in " ".join(report.job_lines)
    assert ["Throughput"] == [row.name for row in facts.rows(PrintedNumber)]


def test_a_table_with_units_in_the_log_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "libfabric:71:71:cxi:av:cxip_av_open_validate_args():839<warn> node01: Shared AVs not supported\n"
        "size    latency(us)    BW(MB/s)\n" + "".join(f"{2**n}    {n}.5    {2 * n}.25\n" for n in range(1, 9))
    )
    _, facts, _ = analyze.analyze([str(tmp_path / "job.log")])
    assert {"latency": 8, "BW": 8} == {row.name: row.n for row in facts.rows(PrintedNumber)}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("GFLOP/s rate:         81234.5 GF/s", "GFLOP/s rate 81,234 GF/s"),
        ("Figure of Merit (FOM): nnz / (Setup + 3 * Solve) 2.5e+09", "Figure of Merit 2,500,000,000"),
        ("Performance:      123.5        0.194", "Performance 123.5 ns/day"),
    ],
)
def test_the_result_of_a_program_in_the_log_of_a_job(tmp_path: Path, line: str, shown: str) -> None:
    (tmp_path / "job.log").write_text(
        f"srun: job 42 has been allocated resources\n                 (ns/day)    (hour/ns)\n{line}\n"
        "srun: error: node01: task 3: Exited with exit code 1\n"
    )
    report, _, _ = analyze.analyze([str(tmp_path / "job.log")])
    assert shown in " ".join(report.job_lines)


def test_a_table_of_a_benchmark_that_a_reader_knows_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "libfabric:71:71:cxi:av:cxip_av_open_validate_args():839<warn> node01: Shared AVs not supported\n"
        "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n"
        + "".join(f"{2**n}    {10 * n}.25\n" for n in range(1, 20))
    )
    _, facts, _ = analyze.analyze([str(tmp_path / "job.log")])
    assert not facts.rows(PrintedNumber)


def test_a_table_with_a_number_a_row() -> None:
    text = ",nodes,metric,value,unit\n" + "".join(
        f"{n},{2**n},bandwidth,{10.5 + n},GB/s\n{n + 1},{2**n},accuracy,0.{n},\n" for n in range(1, 6)
    )
    _, rows = read(text)
    assert ("GB/s", 5, "nodes 2", "nodes 32") == (
        rows["bandwidth"].unit,
        rows["bandwidth"].n,
        rows["bandwidth"].lowest_label,
        rows["bandwidth"].highest_label,
    )
    assert {"bandwidth", "accuracy"} == set(rows)


def test_a_report_shows_the_end_of_a_clock(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("".join(f" Step {n}\n Wall clock    {n}.125\n" for n in range(1, 9)))
    report, _, _ = analyze.analyze([str(tmp_path / "out.txt")])
    assert "Wall clock 8.125" in " ".join(report.job_lines)


def test_the_time_of_an_epoch_is_no_number_of_one() -> None:
    _, rows = read(
        "network,batch_size,time_per_epoch,last_epoch\n" + "".join(f"net{n},32,{n}.5,7\n" for n in range(1, 9))
    )
    assert {"batch_size", "time_per_epoch"} == set(rows)


def test_a_report_shows_means_before_their_statistics(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(
        json.dumps({"throughput_p50": 1.5, "throughput_stddev": 0.5, "throughput_mean": 2.5, "latency_s": 0.25})
    )
    report, _, _ = analyze.analyze([str(tmp_path / "result.json")])
    line = " ".join(report.job_lines)
    assert line.index("throughput_mean") < line.index("latency_s") < line.index("throughput_p50")


def test_a_report_shows_settings_last(tmp_path: Path) -> None:
    rows = "".join(f"A100,{n},{8 * n},{n}.5,{300 + n}.5\n" for n in range(1, 9))
    (tmp_path / "out.csv").write_text("Hardware,Num of Hardware,Batch Size,Latency,avg_power\n" + rows)
    report, _, _ = analyze.analyze([str(tmp_path / "out.csv")])
    line = " ".join(report.job_lines)
    assert line.index("Latency") < line.index("avg_power") < line.index("Num of Hardware")


def test_columns_without_titles() -> None:
    _, rows = read("".join(f"{n},0.5{n}\n" for n in range(1, 9)))
    assert {"column 2": ("1", "8")} == {row.name: (row.lowest_label, row.highest_label) for row in rows.values()}
    assert {} == read("3,0.5\n1,0.6\n2,0.7\n4,0.8\n")[1]


def test_a_dictionary_of_python() -> None:
    _, rows = read("{'eval_loss': 0.31, 'eval_runtime': 12.5, 'eval_samples_per_second': 69.5, 'epoch': 3.0}\n")
    assert {"eval_runtime": 12.5, "eval_samples_per_second": 69.5} == {row.name: row.last for row in rows.values()}


def test_a_table_with_a_column_of_units() -> None:
    head = "        test      atts      units    median   mean    min     max\n"
    body = "".join(f"  D2H_pinned  {2**n}kB  GB/sec  {n}.5  {n}.4  {n}.1  {n}.9\n" for n in range(1, 9))
    _, rows = read("Device: something\n" + head + body + "Note: no more\n")
    one = rows["D2H_pinned"]
    assert ("GB/sec", "rate", 8, 8.5, "256kB", 1.5) == (one.unit, one.kind, one.n, one.last, one.last_label, one.lowest)


def test_a_table_with_bars() -> None:
    line = "|  {:>20} |  {:>8} |  {:>8} |  {:>8} |  {:>12} |\n"
    text = line.format("Name", "Min", "Max", "Avg", "Units") + line.format("Ring (8 B)", 1.5, 9.5, 2.25, "usec")
    _, rows = read("Network Tests\n" + text)
    assert ("usec", "time", 2.25) == (rows["Ring (8 B)"].unit, rows["Ring (8 B)"].kind, rows["Ring (8 B)"].last)


def test_a_table_with_commas_names_the_lowest_and_the_highest_row() -> None:
    text = "system,images,bert\n" + "".join(f"node-{n},{100 + n},{50 - n}\n" for n in range(12))
    _, rows = read(text)
    assert ("node-0", "node-11", "node-11") == (
        rows["images"].lowest_label,
        rows["images"].highest_label,
        rows["bert"].lowest_label,
    )


def test_a_report_names_the_rows_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "systems.csv"
    table.write_text("system,images,bert\n" + "".join(f"node-{n},{100 + n},{50 - n}\n" for n in range(12)))
    report, _, _ = analyze.analyze([str(table)])
    assert "images 105.5 (100 of node-0 to 111 of node-11, 12 values)" in " ".join(report.job_lines)


def test_readings_without_titles() -> None:
    text = "".join(f"{40 + n}, {90 + n % 3} %, 38570 MiB\n" for n in range(20))
    _, rows = read(text)
    assert {("column 2", "%", 91.0), ("column 3", "MiB", 38570.0)} == {
        (row.name, row.unit, row.median) for row in rows.values()
    }


def test_a_report_shows_them(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text(
        "".join(f"Throughput: {800 + n} images/s, time: 0.5 s\n" for n in range(10)) + "{done}: rate 7 GB/s\n"
    )
    report, facts, problems = analyze.analyze([str(log)])
    assert ([], "nothing-found", ["printed-numbers"]) == (problems, report.verdict, [one.kind for one in report.inputs])
    assert "Throughput 804.5 images/s (800 to 809, 10 values)" in " ".join(report.job_lines)
    measured = {(row.name, row.of): row.value for row in facts.rows(Measure)}
    assert 804.5 == measured["printed_rate", "Throughput"]


def test_a_file_that_another_reader_knows_is_not_searched(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f"step {n} loss 2.0 step_time: 0.5 1820 tokens/s\n" for n in range(40)) + "Bandwidth: 12 GB/s\n"
    )
    _, facts, _ = analyze.analyze([str(log)])
    assert [] == facts.rows(PrintedNumber)


def test_moments_are_no_times_and_keys_have_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(
        '{\n  "boot_time": 1767225600,\n  "last_time": 1767225600123,\n  "step_time_ms": 512.5\n}\n', "utf-8"
    )
    facts = analyze.analyze([str(path)])[1]
    assert ["step_time_ms"] == [row.name for row in facts.rows(PrintedNumber)]


def test_many_names_are_bounded() -> None:
    text = "".join(f"{chr(97 + n % 26)}{chr(97 + n // 26)} latency: {n} ms\n" for n in range(400))
    _, rows = read(text)
    assert 100 == len(rows)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "{",
        '{"latency_s": }\n',
        "a,b\n",
        "x" * 5000,
        '{"a":' * 500,
        "| unit | avg |\n",
        "unit avg min max\nx\n",
    ],
)
def test_nothing_to_read(text: str) -> None:
    assert {} == read(text)[1]


def test_where_a_logger_stands_in_a_program_is_no_name() -> None:
    line = b"2026-08-31 14:02:21.463855: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1435] Adding visible gpu devices: 0"
    assert [] == list(numbers_of_line(line))
    assert [("step time", "ms", 12.5)] == list(numbers_of_line(b"trainer/runtime.py:88] step time: 12.5 ms"))


def test_cells_in_quotes_may_hold_commas(tmp_path: Path) -> None:
    rows = "".join(f'run{n}.log,all_reduce,"node[001,00{n}]",{10.5 + n}\n' for n in range(1, 7))
    path = tmp_path / "summary.csv"
    path.write_text("file,test,nodes,avg_bus_bw_GBs\n" + rows)
    (row,) = analyze.analyze([str(path)])[1].rows(PrintedNumber)
    assert ("avg_bus_bw_GBs", 6, 11.5, "run1.log") == (row.name, row.n, row.lowest, row.lowest_label)


def test_a_table_between_tabs_whose_rows_end_with_one() -> None:
    _, rows = read("total loss\tctc loss\t\n" + "".join(f"{9 - row}.5\t{row}.25\t\n" for row in range(5)))
    assert {"total loss": (5, 5.5), "ctc loss": (5, 4.25)} == {name: (row.n, row.last) for name, row in rows.items()}


def test_a_table_with_one_row_whose_titles_name_rates_and_times() -> None:
    _, rows = read("model,runtime_s,tokens_per_second\nnet-a,45.5,4810.25\n")
    assert {"runtime_s": 45.5, "tokens_per_second": 4810.25} == {name: row.last for name, row in rows.items()}
    assert {} == read("first, second\nthird, 4.5\n")[1]


def test_times_in_quotes_and_far_behind_their_name() -> None:
    assert {"epoch.duration": 32.5} == {
        name: row.last for name, row in read('{"epoch": {"duration": "32.50", "start": "a"}}')[1].items()
    }
    assert [("Throughput", "", 7.25e8)] == list(numbers_of_line(b"  Throughput:         7.25e+08 [unknowns/s]"))
    assert [("Performance", "ns/day", 0.5), ("", "timesteps/s", 6.5)] == list(
        numbers_of_line(b"Performance: 0.5 ns/day, 415.2 hours/ns, 6.5 timesteps/s")
    )


def test_a_table_with_commas_behind_other_text(tmp_path: Path) -> None:
    path = tmp_path / "live.txt"
    path.write_text(
        "OPERATION   RESULT TYPE\n=========== ===========\nISO Date,Label,Phase,MiB/s,IOPS,Lat IO us,\n"
        "2026-11-17T11:58:08,,READ,47127,94254,10549,\n2026-11-17T11:58:09,,READ,49122,98244,10380,\n"
    )
    facts = analyze.analyze([str(path)])[1]
    told = {row.name: (row.lowest, row.highest, row.unit, row.highest_label) for row in facts.rows(PrintedNumber)}
    assert (47127.0, 49122.0, "MiB/s", "READ") == told["MiB/s"]
    assert (10380.0, 10549.0, "us", "READ") == told["Lat IO us"]
