"""Which processes were on a GPU at once: in `pmon`, `--query-compute-apps` and JSON, by time, by order, and by who comes again."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.formats.gpu.loops.process_looks import Looks

PMON = "# gpu         pid   type     fb    command \n# Idx           #    C/G     MB    name \n"


@pytest.mark.parametrize(
    ("came", "looks"),
    [
        ([(0, 1), (1, 2), (0, 1), (1, 2)], [0, 0, 1, 1]),
        ([(0, 1), (0, 2), (0, 1), (0, 2)], [0, 0, 1, 1]),
        ([(0, 1), (1, 2), (0, 3), (1, 4)], [0, 0, 1, 1]),  # other processes in the next look
        ([("GPU-b", 1), ("GPU-a", 2), ("GPU-b", 3)], [0, 0, 1]),
        ([(0, 1), (0, "-"), (0, 2)], [0, 0, 0]),  # nothing tells
    ],
)
def test_a_look_ends_where_the_next_one_begins(came: list[tuple[object, object]], looks: list[int]) -> None:
    seen = Looks()
    assert looks == [seen.at(("node01", gpu, process)) for gpu, process in came]
    assert seen.last(("node01", *came[-1])) == looks[-1]


def test_times_tell_looks_of_one_process_apart() -> None:
    seen = Looks()
    assert [0, 0, 1] == [
        seen.at((None, 0, pid), when) for pid, when in ((1, "10:00:00"), (2, "10:00:00"), (3, "10:00:05"))
    ]


def _shared(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "gpu.txt").write_text(text)
    report = analyze.analyze([str(tmp_path / "gpu.txt")])[0]
    return [finding.message for finding in report.findings if finding.name == "processes-share-gpu"]


def _pmon(*looks: dict[int, tuple[int, ...]]) -> str:
    rows = [
        f"    {gpu}     {pid}     C     30000    python         \n"
        for look in looks
        for gpu in look
        for pid in look[gpu]
    ]
    return PMON + "".join(rows)


def test_jobs_after_each_other_share_no_gpu(tmp_path: Path) -> None:
    assert not _shared(tmp_path, _pmon(*[{0: (100,), 1: (101,)}] * 5, *[{0: (200,), 1: (201,)}] * 5))
    assert not _shared(tmp_path, _pmon(*[{0: (100,)}] * 5, *[{0: (200,)}] * 5))


def test_a_job_that_comes_while_another_one_runs_shares_its_gpu(tmp_path: Path) -> None:
    assert 1 == len(
        _shared(tmp_path, _pmon(*[{0: (100,), 1: (101,)}] * 3, {0: (100,), 1: (101, 300)}, {0: (100,), 1: (101,)}))
    )
    assert 1 == len(_shared(tmp_path, _pmon({0: (100, 200)})))


def test_names_of_gpus_tell_no_gpu(tmp_path: Path) -> None:
    rows = "".join(f"NVIDIA H100 80GB HBM3, {pid}, python, 30000 MiB\n" for pid in range(100, 108))
    assert not _shared(tmp_path, f"gpu_name, pid, process_name, used_gpu_memory [MiB]\n{rows}")
