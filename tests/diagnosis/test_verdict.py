"""Health is earned: what a log must show to be called healthy, and what makes that impossible."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.simulate import FRAMEWORKS, NETWORKS, PREFIXES, VERSIONS, Spec, write_log

LINES = tuple(write_log(Spec(nodes=2, gpus=2, steps=12)))
UP = max(number for number, line in enumerate(LINES) if "Init COMPLETE" in line)
STEPS = tuple(
    f" iteration {n}/ 40 | consumed samples: {n * 32} | elapsed time per iteration (ms): 425.{n} |" for n in range(1, 9)
)


def report(*lines: str) -> Report:
    return analyze.report_of(analyze.read_text("\n".join(lines) + "\n"))


def alarms(given: Report) -> list[str]:
    return [finding.name for finding in given.findings if finding.severity != "note"]


def test_a_whole_healthy_job_is_proven_by_start_progress_and_end() -> None:
    whole = report(*LINES)
    assert whole.verdict in ("healthy", "note")
    seen = {row.aspect: row.shows for row in whole.coverage if row.seen == "seen"}
    assert ("4 of 4 ranks came up", "12 step lines", "ended in order") == (
        seen["start-up"], seen["progress"], seen["end"],
    )  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(LINES) - 1))
def test_a_part_that_proves_nothing_is_never_healthy_and_never_an_alarm(cut: int) -> None:
    part = report(*LINES[:cut])
    assert [] == alarms(part)
    if cut <= UP:
        assert part.verdict != "healthy"


HEALTHY = tuple(
    "\n".join(write_log(spec))
    for spec in (
        Spec(nodes=2, gpus=2, steps=12),
        Spec(nodes=1, gpus=2, steps=12, seed=3),
        Spec(nodes=2, gpus=2, steps=12, network="socket", seed=4),
        Spec(nodes=2, gpus=1, steps=12, prefix="srun", seed=5),
    )
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(HEALTHY), st.floats(0, 1))
def test_a_log_cut_at_any_byte_is_healthy_only_by_what_it_shows(text: str, share: float) -> None:
    part = text[: int(share * len(text))]
    cut = report(part)
    assert [] == alarms(cut)
    if cut.verdict == "healthy":
        shown = {row.aspect for row in cut.coverage if row.seen == "seen"}
        assert len({"start-up", "progress", "end"} & shown) >= 2
    if part.count("Init COMPLETE") < text.count("Init COMPLETE") and "after training is done" not in part:
        assert cut.verdict != "healthy"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        Spec, nodes=st.integers(1, 3), gpus=st.sampled_from([2, 4]), version=st.sampled_from(VERSIONS), network=st.sampled_from(NETWORKS),
        framework=st.sampled_from(FRAMEWORKS), prefix=st.sampled_from(sorted(PREFIXES)), seed=st.integers(0, 99), steps=st.just(6),
    ),
    st.sampled_from([0.0, 0.0, 0.4, 0.9]),
    st.floats(0.01, 1),
)  # fmt: skip
def test_any_part_of_any_healthy_log_is_healthy_only_by_what_it_shows(spec: Spec, begin: float, share: float) -> None:
    text = "\n".join(write_log(spec))
    part = text[int(begin * len(text)) :][: max(int(share * len(text)), 1)]
    cut = report(part)
    assert [] == alarms(cut)
    came_up = len(re.findall("Init COMPLETE", part)) >= spec.nodes * spec.gpus
    moved = re.search(r"iteration |images/sec|\d +\d+ +float", part) is not None
    ended = any(
        mark in part for mark in ("after training is done", "Avg bus bandwidth", "total images/sec", "Destroy COMPLETE")
    )
    assert cut.verdict != "healthy" or came_up + moved + ended >= 2


def test_steps_alone_do_not_prove_that_all_ranks_came_up() -> None:
    part = report(*STEPS)
    assert "nothing-found" == part.verdict
    assert "start-up" in part.basis
    assert any(measure.name == "step_time" for measure in part.measures)
    assert "8 steps" in part.job_lines[-1]


def test_steps_and_an_orderly_end_are_healthy() -> None:
    assert "healthy" == report(*STEPS, "[after training is done] datetime: 2024-05-01 10:00:00").verdict


@pytest.mark.parametrize(
    "line",
    [
        "frobnicator: fatal: the ring has no bar left",
        "[ERROR] loader 3 went away",
        "chassis: Uncorrectable error on slot 3",
        "scratch: Permission denied",
    ],
)
def test_a_line_that_looks_like_an_error_makes_health_impossible_and_is_quoted(line: str) -> None:
    part = report(*STEPS, line)
    assert "inconclusive" == part.verdict
    assert [line] == [place.text for place in part.unread]
    assert 1 == part.unread_count


def test_an_orderly_end_after_such_a_line_is_nothing_found() -> None:
    part = report(*STEPS[:4], "[ERROR] loader 3 went away", *STEPS[4:], "Training complete.")
    assert "nothing-found" == part.verdict
    assert ["[ERROR] loader 3 went away"] == [place.text for place in part.unread]


@pytest.mark.parametrize(
    "line", ["Train error: 0.31", "errors: 0, failed: 0", "WARNING: could not load an optional plug-in"]
)
def test_metrics_and_warnings_do_not_look_like_errors(line: str) -> None:
    assert 0 == report(*STEPS, line).unread_count


def test_a_line_that_a_pattern_knows_is_not_unread() -> None:
    known = report(*STEPS, "RuntimeError: CUDA error: an illegal memory access was encountered")
    assert 0 == known.unread_count
    assert alarms(known)


def test_nothing_at_all_is_inconclusive() -> None:
    assert "inconclusive" == report("hello", "world").verdict


NCCL_TESTS = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid   4001 on     node01 device  0 [0000:17:00] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid   4001 on     node01 device  1 [0000:65:00] NVIDIA A100-SXM4-80GB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    17.08    0.00    0.00      0    16.76    0.00    0.00      0
          16             4     float     sum      -1    16.72    0.00    0.00      0    16.66    0.00    0.00      0
""".splitlines()


def test_a_remark_stands_below_the_verdict_of_a_log_that_proves_no_health() -> None:
    lines = [f"[1,0]<stdout>:{line}" for line in NCCL_TESTS[3:]]
    excerpt = report(*lines)
    assert ["nccl-tests-unfinished"] == [finding.name for finding in excerpt.findings]
    assert ("nothing-found", True) == (excerpt.verdict, excerpt.basis.startswith("no fault found"))


def test_a_run_that_stops_halfway_is_the_answer() -> None:
    cut = report(*NCCL_TESTS)
    assert (["nccl-tests-unfinished"], "note") == ([finding.name for finding in cut.findings], cut.verdict)


@pytest.mark.parametrize(
    "lines",
    [
        [
            "    Clocks Event Reasons",
            "        Idle                              : Not Active",
            "        SW Power Cap                      : Active",
            "        HW Slowdown                       : Not Active",
        ],
        ["Device=0 CAN Access Peer Device=1", "Device=0 CANNOT Access Peer Device=2"],
        [f"2024-06-11 04:27:33.{n}00: step {n}0, loss = 4.63 (5530.9 examples/sec; 0.023 sec/batch)" for n in range(6)],
    ],
    ids=["clock-reasons", "peer-access", "steps"],
)
def test_excerpts_without_fault_are_understood(lines: list[str]) -> None:
    part = report(*lines)
    assert ("nothing-found", []) == (part.verdict, part.findings)


def test_an_excerpt_with_a_fault_is_not_taken_for_one_without() -> None:
    part = report("    Clocks Event Reasons", "        HW Slowdown                       : Active")
    assert ["gpu-hardware-slowdown", "hw-slowdown"] == [finding.name for finding in part.findings]


def test_a_line_that_a_finding_shows_is_not_unread() -> None:
    """The Fabric Manager's own log: its reader knows the line that looks like an error to all others."""
    head = "[Feb 27 2025 15:10:02] [INFO] [tid 12727] Fabric Manager version 535.183.06 is running with the following configuration"
    error = "[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 0:86"
    known = report(head, error)
    assert ["fabric-manager-errors"] == [finding.name for finding in known.findings]
    assert (0, []) == (known.unread_count, known.unread)
    both = report(head, error, "[Feb 27 2025 15:10:03] frobnication ERROR: the flux capacitor failed")
    assert 1 == both.unread_count


def test_without_a_host_no_message_speaks_of_one() -> None:
    crashed = report("E1121 01:51:29.515000 29640 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11)"
                     " local_rank: 1 (pid: 29792) of binary: python", "RuntimeError: CUDA error: unspecified failure")  # fmt: skip
    assert crashed.findings
    assert [] == [finding.message for finding in crashed.findings if "a host" in finding.message]


def test_nothing_found_says_how_to_see_the_rest() -> None:
    part = report(*LINES[: UP + 1])
    assert "nothing-found" == part.verdict
    assert ["to see whether the job made progress", "to see how it ended"] == [
        one.partition(":")[0] for one in part.missing
    ]
    assert [] == report(*LINES).missing


def test_gpus_of_some_ranks_are_no_number_of_gpus() -> None:
    (one,) = [line for line in LINES if "Init COMPLETE" in line and " rank 0 " in line]
    assert "4 ranks" in report(one).job_lines[0]
    assert "GPU" not in report(one).job_lines[0]
    assert "4 GPUs" in report(*LINES).job_lines[0]
