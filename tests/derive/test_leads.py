"""An event of one file and the symptom of another are joined by the clock, and only where the clocks can be compared."""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.times.leads import leads
from nccl_doctor.diagnosis.lags import duration
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.facts.tables import Lead, ThrottledSteps
from nccl_doctor.simulate import Spec, fit, write_files
from tests.helpers.scaling import traced_lines

T0 = datetime(2024, 5, 6, 10, 12, 20)
UPPER = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4321, name=python, GPU has fallen off the bus."
OOM = "Out of memory: Killed process 4321 (python) total-vm:1234kB, anon-rss:1234kB, file-rss:0kB"
LINK = "mlx5_core 0000:5d:00.0 ib0: Link down"
NFS = "nfs: server fs01 not responding, still trying"


def dmesg(when: datetime, text: str) -> str:
    return f"[{when:%a %b} {when.day:2d} {when:%H:%M:%S %Y}] {text}"


def syslog(when: datetime, text: str, host: str = "node01") -> str:
    return f"{when:%b %d %H:%M:%S} {host} kernel: {text}"


def journal(when: datetime, text: str, zone: str, host: str = "node01") -> str:
    return f"{when.isoformat()}{zone} {host} kernel: {text}"


def timeout(when: datetime, rank: int = 0, elapsed: int = 600_035) -> str:
    return (
        f"[rank{rank}]:[E{when.month}{when:%d %H:%M:%S}.399015003 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=304640, NumelOut=304640, Timeout(ms)=600000) ran for "
        f"{elapsed} milliseconds before timing out."
    )


def started(host: str, when: datetime = T0 - timedelta(hours=1)) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S},000 {host}:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.1.0.{int(host[-2:])}<0>"


def retry(when: datetime, host: str, peer: str) -> str:
    return (
        f"[{when:%Y-%m-%d %H:%M:%S}] {host}:101:140 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB: Got completion from peer {peer}<38512> "
        "with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0"
    )


def failed(when: datetime, host: str, rank: int) -> str:
    return (
        f"E{when:%m%d %H:%M:%S}.000000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
        f"local_rank: {rank} (pid: 4321) of binary: /usr/bin/python"
    )


def analyzed(folder: Path, **files: list[str]) -> tuple[Report, list[Lead]]:
    for name, lines in files.items():
        (folder / name.replace("_", ".", 1)).write_text("".join(f"{line}\n" for line in lines))
    report, facts, _ = analyze.analyze([str(folder)])
    return report, facts.rows(Lead)


def leads_of(**files: list[str]) -> list[Lead]:
    with tempfile.TemporaryDirectory() as folder:
        return analyzed(Path(folder), **files)[1]


def finding(report: Report, name: str) -> Finding:
    return next(one for one in report.findings if one.name == name)


@pytest.mark.parametrize("line", [dmesg, syslog])
def test_an_xid_tells_how_long_it_came_before_the_time_out(tmp_path: Path, line: object) -> None:
    event = line(T0 - timedelta(seconds=41), XID)  # type: ignore[operator]
    report, rows = analyzed(tmp_path, job_log=[started("node01"), timeout(T0, 3), timeout(T0, 1)], dmesg_txt=[event])
    assert [("gpu", "timeout", 41.399, None)] == [(lead.event, lead.symptom, lead.seconds, lead.hours) for lead in rows]
    first = report.findings[0]
    assert "xid-79-off-bus" == first.name
    assert "; 41 s before the first watchdog timeout (job.log:2)" in first.message
    assert "already waited for 9 min 19 s" in first.message


def test_a_lost_link_explains_the_retries_of_its_peer(tmp_path: Path) -> None:
    job = [started("node01"), started("node02"), started("node03"), retry(T0, "node02", "10.1.0.1")]
    events = [syslog(T0 - timedelta(seconds=20), LINK), syslog(T0 - timedelta(seconds=12), LINK.replace("down", "up"))]
    report, rows = analyzed(tmp_path, job_log=job, journal_txt=events)
    assert [("link", "rdma", 20.0)] == [(lead.event, lead.symptom, lead.seconds) for lead in rows]
    first = report.findings[0]
    assert ("ib-link-flapping", "error", "likely") == (first.name, first.severity, first.confidence)
    assert "20 s before the first failed RDMA operation" in first.message
    assert first.rule in finding(report, "ib-fabric-unreachable").explained_by


def test_the_link_of_another_node_is_not_joined() -> None:
    job = [started("node01"), started("node02"), started("node03"), retry(T0, "node02", "10.1.0.1")]
    assert [] == leads_of(job_log=job, journal_txt=[syslog(T0 - timedelta(seconds=20), LINK, "node03")])
    assert [] == leads_of(job_log=job, journal_txt=[syslog(T0 - timedelta(seconds=20), LINK, "login01")])


def test_the_oom_killer_came_before_the_end_of_its_process(tmp_path: Path) -> None:
    job = [started("node01"), failed(T0, "node01", 3)]
    report, rows = analyzed(tmp_path, job_log=job, dmesg_txt=[dmesg(T0 - timedelta(seconds=2), OOM)])
    assert [("process", "end", 2.0)] == [(lead.event, lead.symptom, lead.seconds) for lead in rows]
    assert "host-memory-oom" == report.findings[0].name
    assert "2 s before the end of a process (job.log:2)" in report.findings[0].message


def test_a_file_server_that_does_not_answer_explains_a_slow_step(tmp_path: Path) -> None:
    when, job = T0, [started("node01")]
    for step in range(40):
        seconds = 95.0 if step == 30 else 1.0
        when += timedelta(seconds=seconds)
        job.append(
            f"[{when:%Y-%m-%d %H:%M:%S}] iteration {step}/40 | elapsed time per iteration (ms): {1000 * seconds:.1f} |"
        )
        if step == 29:
            stalled = when
    report, rows = analyzed(tmp_path, job_log=job, dmesg_txt=[dmesg(stalled + timedelta(seconds=5), NFS)])
    assert [("storage", "slow-step", 90.0)] == [(lead.event, lead.symptom, lead.seconds) for lead in rows]
    server = finding(report, "filesystem-not-responding")
    assert "1 min 30 s before the end of step 30 that took 95 s" in server.message
    assert server.rule in finding(report, "throughput-stalls").explained_by
    assert [] == analyzed(tmp_path, dmesg_txt=[dmesg(stalled - timedelta(seconds=3), NFS)])[1]


@UPPER
@given(st.integers(-4000, 4000))
def test_an_event_after_the_symptom_is_not_its_cause(offset: int) -> None:
    rows = leads_of(job_log=[started("node01"), timeout(T0)], dmesg_txt=[dmesg(T0 + timedelta(seconds=offset), XID)])
    assert (0 > offset >= -1799) == bool(rows)
    assert all(lead.seconds == pytest.approx(0.399 - offset) for lead in rows)


@UPPER
@given(st.integers(-(10**8), 10**8), st.integers(1, 1700))
def test_shifting_all_stamps_changes_no_lag(shift: int, lag: int) -> None:
    now = T0.replace(year=2020) + timedelta(seconds=shift)
    rows = leads_of(
        job_log=[started("node01", now - timedelta(hours=1)), timeout(now)],
        dmesg_txt=[dmesg(now - timedelta(seconds=lag), XID)],
    )
    assert [pytest.approx(lag + 0.399)] == [lead.seconds for lead in rows]


@UPPER
@given(st.integers(-12, 14), st.integers(1, 800))
def test_a_clock_of_utc_and_one_without_a_zone_are_never_proof(hours: int, lag: int) -> None:
    there = T0 - timedelta(seconds=lag) + timedelta(hours=hours)
    rows = leads_of(job_log=[started("node01"), timeout(T0)], journal_txt=[journal(there, XID, "Z")])
    assert [-hours] == [lead.hours for lead in rows]
    assert [pytest.approx(lag + 0.399)] == [lead.seconds for lead in rows]


def test_what_depends_on_the_zone_says_so_and_explains_nothing_more(tmp_path: Path) -> None:
    event = journal(T0 - timedelta(hours=2, seconds=41), XID, "Z")
    report, _ = analyzed(tmp_path, job_log=[started("node01"), timeout(T0)], journal_txt=[event])
    message = finding(report, "xid-79-off-bus").message
    assert "if the times of the file that names no time zone are 2 h away from UTC; the other file is in UTC" in message


def test_times_without_a_zone_may_be_those_of_utc(tmp_path: Path) -> None:
    event = journal(T0 - timedelta(seconds=41), XID, "Z")
    report, _ = analyzed(tmp_path, job_log=[started("node01"), timeout(T0)], journal_txt=[event])
    assert (
        "if the times of the file that names no time zone are UTC; the other"
        in finding(report, "xid-79-off-bus").message
    )


@UPPER
@given(st.sampled_from(["+02:00", "-0700", "+05:30"]), st.integers(1, 500))
def test_clocks_that_name_their_zones_are_compared_exactly(zone: str, lag: int) -> None:
    sign = -1 if zone[0] == "-" else 1
    ahead = sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    job = [started("node01"), f"{T0.isoformat()}Z {failed(T0, 'node01', 3)}"]
    there = T0 + ahead - timedelta(seconds=lag)
    rows = leads_of(job_log=job, journal_txt=[journal(there, OOM, zone)])
    assert [(float(lag), None)] == [(lead.seconds, lead.hours) for lead in rows]


def test_a_time_out_that_came_before_is_no_consequence() -> None:
    job = [started("node01"), timeout(T0 - timedelta(seconds=100)), timeout(T0, 1)]
    assert [] == leads_of(job_log=job, dmesg_txt=[dmesg(T0 - timedelta(seconds=41), XID)])


def test_an_error_of_last_week_does_not_hide_that_of_the_job() -> None:
    events = [dmesg(T0 - timedelta(days=7), OOM), dmesg(T0 - timedelta(seconds=2), OOM)]
    rows = leads_of(job_log=[started("node01"), failed(T0, "node01", 3)], dmesg_txt=events)
    assert [2.0] == [lead.seconds for lead in rows]


@pytest.mark.parametrize(
    ("fault", "event"), [("xid-79-off-bus", "gpu"), ("xid-119-gsp-timeout", "gpu"), ("host-memory-oom", "process")]
)
def test_the_kernel_logs_of_a_job_are_joined_with_its_log(tmp_path: Path, fault: str, event: str) -> None:
    files = write_files(fit(Spec(nodes=2, gpus=2, fault=fault, seed=4)))
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    report, facts, _ = analyze.analyze([str(tmp_path)])
    assert {event} == {lead.event for lead in facts.rows(Lead)}
    assert fault == report.findings[0].name
    assert " before the " in report.findings[0].message
    whole = analyze.analyze([str(tmp_path / "job.log")])[1]
    assert [] == whole.rows(Lead)


def test_the_cost_grows_with_events_and_symptoms() -> None:
    def cost(count: int) -> int:
        job = [started(f"node{at % 90 + 10}") for at in range(count)]
        job += [
            retry(T0 + timedelta(seconds=20 * at), f"node{at % 90 + 10}", f"10.1.0.{at % 90 + 11}")
            for at in range(count)
        ]
        events = [syslog(T0 + timedelta(seconds=20 * at - 9), LINK, f"node{at % 90 + 10}") for at in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "job.log").write_text("\n".join(job))
            (Path(folder) / "journal.txt").write_text("\n".join(events))
            facts = analyze.read_facts([folder])[0]
        with traced_lines("/derive/times/") as lines:
            assert leads.rows(facts)
            list(leads.rows(facts) or ())
        return lines["line"]

    small, large = cost(60), cost(240)
    assert 500 < small
    assert large < 4.5 * small


HEADER = "timestamp, index, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], clocks_event_reasons.active"


def samples(begin: datetime, hot: set[int], count: int = 300) -> list[str]:
    """One GPU a second; throttled by heat in these seconds."""
    return [HEADER] + [
        f"{begin + timedelta(seconds=at):%Y/%m/%d %H:%M:%S}.000, 0, 99 %, 600.00 W, 1700 MHz, {0x20 if at in hot else 0:#018x}"
        for at in range(count)
    ]


@UPPER
@given(st.integers(0, 10**7), st.sampled_from([0, 40]))
def test_throttling_is_told_where_it_falls_on_the_slow_steps(shift: int, moved: int) -> None:
    begin = T0 + timedelta(seconds=shift)
    when, hot, job = begin + timedelta(seconds=10), set(), [started("node01", begin)]
    for step in range(100):
        seconds = 6 if step in (30, 31, 60) else 2
        if seconds == 6:
            start = int((when - begin).total_seconds())
            hot |= {at + moved for at in range(start + 1, start + seconds)}
        when += timedelta(seconds=seconds)
        job.append(
            f"[{when:%Y-%m-%d %H:%M:%S}] iteration {step}/100 | elapsed time per iteration (ms): {1000 * seconds:.1f} |"
        )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.log").write_text("\n".join(job))
        (Path(folder) / "gpu_node01.csv").write_text("\n".join(samples(begin, hot)))
        report, facts, _ = analyze.analyze([folder])
    rows = facts.rows(ThrottledSteps)
    if moved:
        assert [] == rows
    else:
        assert [(3, 3, 97)] == [(row.slow, row.slow_held, row.others) for row in rows]
        assert "in 3 of 3 slow steps and in" in finding(report, "gpu-thermal-throttle").message


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (3.0, "3 s"), (41.2, "41 s"), (60, "1 min"), (545, "9 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert words == duration(seconds)


AER = "pcieport 0000:4a:01.0: AER: Corrected error received: 0000:4b:00.0"


def loop(
    times: list[float],
    first: datetime = T0,
    form: str = "[{when:%Y-%m-%d %H:%M:%S}] step {step} loss 2.1 {ms:.1f} ms/step",
) -> list[str]:
    """Step lines of a loop, each printed when its step ends."""
    lines, when = [], first
    for step, seconds in enumerate(times):
        when += timedelta(seconds=seconds)
        lines.append(form.format(when=when, step=step, ms=1000 * seconds, rate=8192 / seconds))
    return lines


@pytest.mark.parametrize(
    "form",
    [
        "[{when:%Y-%m-%d %H:%M:%S}] step {step} loss 2.1 {ms:.1f} ms/step",
        "{when:%m/%d/%Y %H:%M:%S} - INFO - step {step} loss 2.1 {ms:.1f} ms/step",
        "{when:%Y-%m-%d %H:%M:%S} step: {step:2d}  loss:  7.1  tps: {rate:,.0f}  mfu: 41.2%",
    ],
)
def test_an_error_that_goes_on_begins_the_slow_steps(tmp_path: Path, form: str) -> None:
    times = [4.0 if step < 60 else 8.0 for step in range(100)]
    event = dmesg(T0 + timedelta(seconds=4 * 60 + 2), AER)
    report, rows = analyzed(tmp_path, job_log=loop(times, form=form), dmesg_txt=[event])
    assert [("slowed", "slow-step", 6.0)] == [(lead.event, lead.symptom, lead.seconds) for lead in rows]
    drop = finding(report, "throughput-drop")
    assert "step 60 ended 6 s after an error of hardware that goes on (dmesg.txt:1)" in drop.message


def test_without_clocks_the_order_of_the_lines_tells(tmp_path: Path) -> None:
    lines = loop([0.8] * 60 + [1.5] * 60, form="iter {step} loss 3.1 time {ms:.2f}ms")
    report, rows = analyzed(tmp_path, job_log=[*lines[:60], f"[ 9123.551201] {XID}", *lines[60:]])
    assert [("gpu", "slow-step", None)] == [(lead.event, lead.symptom, lead.seconds) for lead in rows]
    assert "just before the end of step 60, the first of 60 that took 1.9 times as long" in report.findings[0].message


@pytest.mark.parametrize("apart", [0, 3])
def test_events_in_each_slow_step_are_told_and_others_not(tmp_path: Path, apart: int) -> None:
    slow = (30, 60, 90)
    times = [5.0 if step in slow else 2.0 for step in range(120)]
    begins = [sum(times[: step - apart]) + 1.5 for step in slow]
    hot = "mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = {n})"
    events = [dmesg(T0 + timedelta(seconds=begin), hot.format(n=n)) for n, begin in enumerate(begins)]
    report, _ = analyzed(tmp_path, job_log=loop(times), dmesg_txt=events)
    told = "In 3 of 3 slow steps and in 0 of 117 others" in finding(report, "device-fault-reported").message
    assert (apart == 0) == told
