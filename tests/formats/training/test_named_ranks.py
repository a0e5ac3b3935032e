"""Step lines in which each rank names itself: its steps are a run of its own."""

import io
import statistics
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.steps import step_lines

FORMS = (
    "[rank {r}] step {s} time {d:.3f} s",
    "[rank{r}]: step {s} loss 2.31 time {d:.3f}s",
    "(rank {r}) iteration {s}: {d:.3f} sec",
    "rank {r} step {s} took {m:.1f} ms",
    "rank={r} step={s} step_time={d:.4f}",
    "step {s} rank={r} loss=2.3 dt: {m:.1f}ms",
    "2026-11-02 10:00:00 INFO step {s} | global_rank: {r} | batch_time: {d:.3f}",
    "[Rank {r}] Step {s}/900 | iter_ms={m:.1f} | loss: 2.1",
    "Rank {r}/4: iter {s}, iter_duration_s: {d:.4f}",
)


def log(form: str, slow: int | None = 2, ranks: int = 4) -> str:
    """Lines of some ranks, of which one takes 1.8 times as long."""
    times = [(s, r, (0.5 + s % 5 / 500) * (1.8 if r == slow else 1)) for s in range(1, 31) for r in range(ranks)]
    return "".join(form.format(s=s, r=r, d=d, m=1000 * d) + "\n" for s, r, d in times)


def read(text: str) -> tuple[list[ThroughputRun], list[Step]]:
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts.rows(ThroughputRun), facts.rows(Step)


@pytest.mark.parametrize("form", FORMS)
def test_each_rank_is_a_run(form: str) -> None:
    runs, steps = read(log(form))
    assert [0, 1, 2, 3] == [run.rank for run in runs]
    assert {30} == {run.points for run in runs}
    of_slow = [step.seconds or 0 for step in steps if step.run == runs[2].run]
    assert 0.9072 == pytest.approx(statistics.median(of_slow), rel=2e-3)


def test_the_host_in_front_of_the_rank_is_kept() -> None:
    runs, _ = read(log("node{r:02d} rank {r}: step {s} step_time_ms={m:.1f}"))
    assert [(f"node{rank:02d}", rank) for rank in range(4)] == [(run.host, run.rank) for run in runs]


def test_a_local_rank_and_a_rank_of_a_matrix_name_nobody() -> None:
    for form in ("step {s} local rank {r} {d:.3f} s/it", "step {s} lora_rank=16.0 {d:.3f} s/it"):
        assert {None} == {run.rank for run in read(log(form, ranks=1))[0]}


NODES = (
    "node{n:02d}: [default{r}]:step {s} time {d:.3f} s",
    "{n}: [default{r}]:step {s} time {d:.3f} s",
    "node{n:02d}: step {s} local_rank={r} time={d:.3f}",
)


def nodes(form: str, ranks: int = 4) -> str:
    """Lines of the ranks of two nodes, of which the third of the second node takes 1.8 times as long."""
    times = [
        (s, n, r, (0.5 + s % 5 / 500) * (1.8 if (n, r) == (1, 2) else 1))
        for s in range(1, 31) for n in range(2) for r in range(ranks)
    ]  # fmt: skip
    return "".join(form.format(s=s, n=n, r=r, d=d) + "\n" for s, n, r, d in times)


@pytest.mark.parametrize("form", NODES)
def test_each_local_rank_of_each_node_is_a_run(form: str) -> None:
    runs, _ = read(nodes(form))
    assert sorted(2 * [0, 1, 2, 3]) == sorted(run.local_rank for run in runs if run.local_rank is not None)
    assert {(30, None)} == {(run.points, run.rank) for run in runs}
    assert 2 == len({(run.host, run.task) for run in runs})


@pytest.mark.parametrize(
    ("form", "who"),
    list(zip(NODES, ("node01 local rank 2", "local rank 2 of task 1", "node01 local rank 2"), strict=True)),
)
def test_a_slow_local_rank_is_named_with_its_node(tmp_path: Path, form: str, who: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(nodes(form))
    assert [who] == [finding.values["who"] for finding in analyze.analyze([str(path)])[0].findings]


@pytest.mark.parametrize("ranks_of_other", [4, 3])
def test_the_rank_in_the_job_is_told_where_hosts_have_their_ranks_in_order(tmp_path: Path, ranks_of_other: int) -> None:
    world = 4 + ranks_of_other
    nccl = "".join(
        f"node{r // 4:02d}:{900 + r}:{900 + r} [{r % 4}] NCCL INFO ncclCommInitRank comm 0x55f{r} rank {r} nranks {world}"
        f" cudaDev {r % 4} nvmlDev {r % 4} busId {r + 1}000 commId 0x7a - Init COMPLETE\n"
        for r in range(world)
    )
    path = tmp_path / "train.log"
    path.write_text(nccl + nodes(NODES[0]))
    named = [f.values["who"] for f in analyze.analyze([str(path)])[0].findings if f.name == "worker-steps-slower"]
    assert ["node01 rank 6" if ranks_of_other == 4 else "node01 local rank 2"] == named


def test_a_rate_and_the_time_of_its_step_are_both_read() -> None:
    _, steps = read("".join(f"step {n} | dt: {500 + n % 3:.1f}ms | tok/sec: {1000 + n % 3:,}\n" for n in range(12)))
    assert {(0.5, 1000.0), (0.501, 1001.0), (0.502, 1002.0)} == {(step.seconds, step.rate) for step in steps}


@pytest.mark.parametrize(("slow", "ranks"), [(2, ["2"]), (None, [])])
def test_the_slow_rank_is_named_and_equal_ranks_are_healthy(tmp_path: Path, slow: int | None, ranks: list[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(log(FORMS[0], slow))
    findings = analyze.analyze([str(path)])[0].findings
    assert ranks == [finding.ranks for finding in findings]
