"""Tables of cProfile: what is spent in collectives, also where the table shows a part of the functions only."""

from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Measure, ProfileShare
from nccl_doctor.formats.profiles.function_profile import kind_of

TABLE = FIXTURES / "torch" / "cprofile.txt"


def shares(path: Path) -> dict[str, float]:
    _, facts, _ = analyze.analyze([str(path)])
    return {row.kind: round(row.total_ms) for row in facts.rows(ProfileShare)}


def test_share_of_collectives_and_what_is_not_listed_is_of_others() -> None:
    report, facts, _ = analyze.analyze([str(TABLE)])
    kinds = shares(TABLE)
    assert (31_204, 3_411, 2_918) == tuple(
        kinds[kind] for kind in ("communication", "waiting for the GPU", "waiting for others")
    )
    assert 62_418 == pytest.approx(sum(kinds.values()), abs=2)
    assert {"communication": pytest.approx(49.99, abs=0.01), "profiled": 62.418} == {
        row.name: row.value for row in facts.rows(Measure)
    }
    assert ["profile-python-in-collectives"] == [finding.name for finding in report.findings]


def test_inside_a_log_and_cut(tmp_path: Path) -> None:
    text = TABLE.read_text()
    (tmp_path / "job.log").write_text("[rank0]: step 1 loss 2.0\n" + text + "[rank0]: done\n")
    assert shares(TABLE) == shares(tmp_path / "job.log")
    (tmp_path / "cut.log").write_text(text[: text.find("960")])
    assert {"communication", "other"} == set(shares(tmp_path / "cut.log"))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("{built-in method torch._C._distributed_c10d.all_reduce}", "communication"),
        ("distributed_c10d.py:2806(barrier)", "communication"),
        ("{method 'allreduce' of 'mpi4py.MPI.Comm' objects}", "communication"),
        ("{built-in method torch._C._cuda_synchronize}", "waiting for the GPU"),
        ("{method 'item' of 'torch._C.TensorBase' objects}", "waiting for the GPU"),
        ("{method 'acquire' of '_thread.lock' objects}", "waiting for others"),
        ("numpy/lib/stride_tricks.py:349(broadcast_to)", "other"),
        ("functional.py:62(broadcast_tensors)", "other"),
        ("train.py:88(main)", "other"),
    ],
)
def test_what_a_function_does_with_its_time(function: str, kind: str) -> None:
    assert kind == kind_of(function)
