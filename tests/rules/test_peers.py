"""Mistakes that other log analysers and node tools make, and complaints of their users: one test for each."""

import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.peer_logs import FAULTY, HEALTHY, life, run, told
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.simulate import Spec, write_log


def alarms(report: Report) -> list[str]:
    return [finding.name for finding in report.findings if finding.severity != "note"]


def found(report: Report, name: str) -> Finding:
    return next(finding for finding in report.findings if finding.name == name)


# --- what is said ----------------------------------------------------------------------------------------------------


def test_a_healthy_log_is_healthy_and_not_inconclusive() -> None:
    report = told(HEALTHY)
    assert ([], True) == (alarms(report), report.verdict in ("healthy", "note"))


def test_a_file_that_was_not_understood_is_not_healthy(tmp_path: Path) -> None:
    assert "inconclusive" == told("lorem ipsum\ndolor sit amet\n").verdict
    (tmp_path / "empty.log").write_text("")
    with pytest.raises(UsageProblem):
        analyze.analyze([str(tmp_path / "empty.log")])
    assert 2 == run("analyze", "no-such-file", folder=tmp_path).returncode


def test_an_alarm_is_seen_in_the_exit_status(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(FAULTY)
    assert 1 == run("analyze", "job.log", folder=tmp_path).returncode
    assert 0 == run("analyze", "job.log", "--fail-on", "never", folder=tmp_path).returncode


def test_sockets_on_one_node_are_no_finding() -> None:
    text = "\n".join(write_log(Spec(nodes=1, gpus=4, network="socket", steps=4))) + "\n"
    assert "Using network Socket" in text
    names = [finding.name for finding in told(text).findings]
    assert not {"tcp-fallback", "slow-ethernet", "no-ib-device"} & set(names)


def test_equal_findings_of_many_hosts_are_one() -> None:
    text = "\n".join(write_log(Spec(nodes=64, gpus=1, steps=2, fault="libibverbs-missing"))) + "\n"
    said = [finding for finding in told(text).findings if finding.name == "libibverbs-missing"]
    assert (1, 64) == (len(said), said[0].count)
    assert "[" in said[0].hosts


def test_all_versions_are_named_not_the_last_one() -> None:
    text = (
        "node01:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "node02:201:201 [0] NCCL INFO NCCL version 2.18.3+cuda12.2\n"
    )
    report = told(text)
    assert {"2.18.3", "2.21.5"} == set(report.job["nccl_versions"])
    assert "2.18.3" in found(report, "nccl-version-mismatch").message
    assert "2.21.5" in found(report, "nccl-version-mismatch").message


def test_settings_that_differ_between_nodes_are_compared() -> None:
    text = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4, fault="env-differs-between-nodes"))) + "\n"
    assert "env-differs-between-nodes" in [finding.name for finding in told(text).findings]


def test_the_number_of_the_device_in_a_proxy_line_is_not_the_rank() -> None:
    text = life("node01", 4, 8, pid=1104) + life("node02", 5, 8, pid=2105)
    text += (
        "\nnode02:2105:2199 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.1.0.4<33927> with "
        "status=12 opcode=32612 len=0 vendor err 129 (Send)\n"
    )
    assert ("node02", "5") == tuple(
        getattr(found(told(text), "ib-peer-unreachable"), name) for name in ("hosts", "ranks")
    )


def test_the_time_limit_is_not_the_cause_of_what_failed_before_it() -> None:
    text = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4, fault="ib-link-flapping"))) + "\n"
    text += "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-05-07T12:00:00 DUE TO TIME LIMIT ***\n"
    names = [finding.name for finding in told(text).findings]
    assert names.index("ib-link-flapping") < names.index("scheduler-time-limit")


def test_the_first_pattern_that_matches_is_not_the_diagnosis() -> None:
    text = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4, fault="python-exception"))) + "\n"
    assert "python-exception" == alarms(told(text))[0]


def watchdog(rank: int, seq: int, enqueued: int, completed: int) -> str:
    head = (
        f"[rank{rank}]:[E513 03:35:20.399015003 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    )
    return (
        f"{head}Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the "
        f"debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.\n"
    )


def test_the_counters_of_the_watchdog_name_the_rank_that_is_behind() -> None:
    text = watchdog(0, 27, 27, 26) + watchdog(1, 27, 26, 26) + watchdog(2, 27, 27, 26)
    assert "1" == found(told(text), "missing-rank-in-collective").ranks


def test_counters_that_were_never_set_prove_nothing() -> None:
    text = watchdog(0, 27, 27, 26) + watchdog(1, 27, 3, 140_234_567_890_123) + watchdog(2, 27, 27, 26)
    assert "missing-rank-in-collective" not in alarms(told(text))


def test_the_undefined_fields_of_a_failed_completion_are_not_shown_as_facts() -> None:
    text = (
        "node01:101:150 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<33927> with status=12 "
        "opcode=32612 len=32701 vendor err 129 (Send)\n"
    )
    finding = found(told(text), "ib-peer-unreachable")
    assert not [number for number in ("32612", "32701") if number in finding.message + finding.why]


@pytest.mark.parametrize(
    ("status", "own", "others"),
    [(4, "protection", ("flush", "retry")), (5, "flush", ("protection",)), (12, "retr", ("protection", "flush"))],
)
def test_the_words_for_one_completion_status_do_not_run_on_into_the_next(
    status: int, own: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    answer = run(
        "explain",
        f"NET/IB: Got completion from peer 10.1.0.5<33927> with status={status} opcode=1 len=0 vendor err 129 (Send)",
        folder=tmp_path,
    )
    assert 0 == answer.returncode
    line = next(line for line in answer.stdout.lower().splitlines() if own in line)
    assert not [word for word in others if word in line]


def test_advice_on_the_timeout_of_infiniband_names_the_default_of_each_release() -> None:
    text = (
        "node01:101:150 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<33927> with status=12 "
        "opcode=32612 len=0 vendor err 129 (Send)\n"
    )
    fix = found(told(text), "ib-peer-unreachable").fix
    assert "NCCL_IB_TIMEOUT" in fix
    assert "default 18)" not in fix


def test_ras_that_finds_nothing_does_not_overrule_the_watchdog(tmp_path: Path) -> None:
    (tmp_path / "ras.json").write_bytes((FIXTURES / "topology" / "ras_healthy.json").read_bytes())
    stuck = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4, fault="unknown-collective-timeout"))) + "\n"
    (tmp_path / "job.log").write_text(stuck)
    assert "error" == analyze.analyze([str(tmp_path)])[0].verdict


def test_our_own_report_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(FAULTY)
    for form, name in (("json", "report.json"), ("markdown", "report.md"), ("html", "report.html")):
        run("analyze", "job.log", "--format", form, "-o", name, folder=tmp_path)
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert {str(tmp_path / "job.log")} == {
        place.file for finding in report.findings if finding.severity == "error" for place in finding.evidence
    }


def test_an_error_without_a_clue_says_what_to_record_next_time() -> None:
    text = (
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error, "
        "NCCL version 2.14.3\n"
    )
    report = told(text)
    assert "NCCL_DEBUG=INFO" in " ".join(report.missing)
    assert not [f.name for f in report.findings if f.role == "cause" and f.confidence == "certain"]


def test_the_lines_that_every_process_repeats_are_no_list_of_findings() -> None:
    text = "".join(f"node01:{pid}:{pid} [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" for pid in range(100, 700))
    assert 3 >= len(told(text).findings)


def test_a_log_whose_beginning_was_rotated_away_is_no_alarm() -> None:
    lines = HEALTHY.splitlines(keepends=True)
    assert [[]] * 4 == [alarms(told("".join(lines[len(lines) * part // 5 :]))) for part in range(1, 5)]


def test_a_log_that_floods_the_disk_is_named() -> None:
    text = "node01:101:101 [0] NCCL INFO NCCL_DEBUG_SUBSYS set by environment to ALL\n"
    assert "env-log-volume" in [finding.name for finding in told(text).findings]


# --- other files -----------------------------------------------------------------------------------------------------


class Trap:
    """A pickle that would run a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (os.system, (f"touch {self.path}",))


def test_a_dump_of_the_flight_recorder_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"version": "2.4", "entries": [], "trap": Trap(mark)}))
    with suppress(UsageProblem):
        analyze.analyze([str(tmp_path / "nccl_trace_rank_0")])
    assert not mark.exists()


def test_ranks_that_are_equally_fast_have_no_straggler() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "torch" / "gpu_healthy")])
    assert not [name for name in alarms(report) if "straggler" in name]


def test_a_gpu_that_stands_out_of_few_is_found_though_its_z_score_cannot_be_large() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "gpu" / "hot_gpu2.csv")])
    assert [finding for finding in report.findings if finding.severity != "note"]


def test_no_port_of_another_exporter_is_taken() -> None:
    from nccl_doctor.watch.exporter import PORT

    assert PORT not in {9090, 9091, 9093, 9100, 9115, 9232, 9315, 9400, 9401, 9445, 9500, 9683, 9835, 28028, 5555}


def test_a_counter_at_its_end_is_no_measure(tmp_path: Path) -> None:
    from nccl_doctor.app.sample import Ports

    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    for name, value in (("symbol_error", 65535), ("link_downed", 255), ("port_rcv_errors", 7)):
        (port / "counters" / name).write_text(f"{value}\n")
    assert {"port_rcv_errors": 7} == Ports(tmp_path).read()["ports"][0]["errors"]


def test_errors_since_the_boot_are_not_errors_of_the_job(tmp_path: Path) -> None:
    from nccl_doctor.app.sample import Ports
    from nccl_doctor.watch.state import State

    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "counters" / "symbol_error").write_text("4000\n")
    state = State()
    for second in range(3):
        stamp = f"2026-03-01T10:00:0{second}+00:00"
        state.add_record({"kind": "port", "hostname": "node01", "query_time": stamp, **Ports(tmp_path).read()})
    assert {} == state.nodes["node01"].ports["mlx5_0/1"].errors


def test_a_screen_without_a_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from nccl_doctor.app.sample import Gpus

    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = Gpus().read()
    assert [] == found["gpus"]
    assert found["error"]


def test_a_gpu_that_answers_err_is_not_idle(tmp_path: Path) -> None:
    file = tmp_path / "gpu.csv"
    head = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
    rows = [
        f"2026/03/01 10:00:{s:02}.000, {g}, {'[Unknown Error], ERR!' if g else '97 %, 600.00 W'}\n"
        for s in range(30)
        for g in (0, 1)
    ]
    file.write_text(head + "".join(rows))
    _, facts, _ = analyze.analyze([str(file)])
    assert {0: 97.0} == dict(facts.query("SELECT gpu, util_mean FROM gpu_use"))
    assert ["unreadable"] == [name for (name,) in facts.query("SELECT DISTINCT name FROM gpu_counter")]
