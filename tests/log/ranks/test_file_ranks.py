"""Files that are of one rank each: their lines without a label are its lines."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze

WAITS = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45, "
    "OpType=ALLREDUCE, NumelIn=100, NumelOut=100, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\nValueError: a bad sample\n'
)


def errors(folder: Path, files: dict[str, str]) -> list[tuple[str | None, int | None]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    _, facts, _ = analyze.analyze([str(folder)])
    return sorted(facts.query("SELECT host, rank FROM python_error WHERE type = 'ValueError'"), key=repr)


def init(host: str, rank: int, nranks: int) -> str:
    return f"{host}:{100 + rank}:{100 + rank} [0] NCCL INFO comm 0x5{rank} rank {rank} nranks {nranks} cudaDev 0 busId 1b000 - Init START\n"


@pytest.mark.parametrize(
    "name",
    ["1/rank.03/stderr", "out/rank.3/stdout", "run_rank3.log", "RANK-3.txt", "log.rank_3", "rank0-logs/rank3.log"],
)
def test_a_name_says_whose_file_it_is(name: str, tmp_path: Path) -> None:
    assert [(None, 3)] == errors(tmp_path, {name: TRACEBACK})


@pytest.mark.parametrize("name", ["local_rank3.log", "node_rank.3.log", "franky3.log", "ranking3.log", "3.log"])
def test_other_names_say_nothing(name: str, tmp_path: Path) -> None:
    assert [(None, None)] == errors(tmp_path, {name: TRACEBACK})


def test_a_name_that_its_lines_contradict_counts_for_no_file(tmp_path: Path) -> None:
    files = {"rank0.log": WAITS.format(rank=8), "rank1.log": TRACEBACK}
    assert [(None, None)] == errors(tmp_path, files)


def test_folders_of_torchrun_count_on_from_the_first_rank_of_the_node(tmp_path: Path) -> None:
    first = {"none_a/attempt_0/0/stderr.log": WAITS.format(rank=0), "none_a/attempt_0/1/stderr.log": TRACEBACK}
    second = {"none_b/attempt_0/2/stderr.log": WAITS.format(rank=10), "none_b/attempt_0/3/stderr.log": TRACEBACK}
    third = {"none_c/attempt_0/0/stderr.log": TRACEBACK}
    assert [(None, 1), (None, 11), (None, None)] == errors(tmp_path, {**first, **second, **third})


def test_a_file_for_each_rank_of_a_job(tmp_path: Path) -> None:
    files = {"a.out": init("node01", 0, 2), "b.out": init("node02", 1, 2) + TRACEBACK}
    assert [("node02", 1)] == errors(tmp_path, files)


@pytest.mark.parametrize("nranks", [3, 16])
def test_files_of_some_ranks_may_hold_lines_of_others(nranks: int, tmp_path: Path) -> None:
    files = {"a.out": init("node01", 0, nranks), "b.out": init("node02", 1, nranks) + TRACEBACK}
    assert [(None, None)] == errors(tmp_path, files)


def test_the_rank_that_is_absent_is_shown_with_its_last_line(tmp_path: Path) -> None:
    files = {f"rank.{rank}/stderr": WAITS.format(rank=rank) for rank in (0, 1, 3)}
    errors(tmp_path, files | {"rank.2/stdout": "step 4\nwaiting for the lock of the cache\n"})
    (found,) = [one for one in analyze.analyze([str(tmp_path)])[0].findings if one.name == "missing-rank-in-collective"]
    assert "waiting for the lock of the cache" in found.message
