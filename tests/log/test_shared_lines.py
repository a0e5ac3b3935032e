"""Records that share a line: each finding shows its own, in whichever parts a log is read."""

from pathlib import Path
from random import Random

import pytest
from helpers import same_report

from nccl_doctor.facts.store import Facts
from nccl_doctor.simulate import FAULTS, Spec, fit, write_log


@pytest.mark.parametrize("end", ["", "\r"])
@pytest.mark.parametrize("prefix", ["none", "mpirun", "torchrun"])
def test_records_glued_into_one_line_are_shown_the_same_in_all_parts(
    end: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_report, "PART", 3_000)
    rng = Random(f"{end} {prefix}")
    paths = []
    for number, fault in enumerate(rng.sample(sorted(FAULTS), 3)):
        lines = write_log(fit(Spec(nodes=2, gpus=2, fault=fault, prefix=prefix, seed=number, steps=2)))
        text = "".join(line + (end if rng.random() < 0.15 else "\n") for line in lines)
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_text(text + "\n", newline="")

    assert [[], [], []] == [same_report.differences([path]) for path in paths]


def test_records_of_one_line_have_evidence_of_their_own() -> None:
    facts = Facts()
    first = facts.evidence_of("a.log", [1, 2], ["host:1 NCCL INFO one", "host:1 NCCL WARN two"])
    again = facts.evidence_of("a.log", [2, 2, 3], ["host:2 NCCL WARN other", "NCCL WARN two", "host:3 NCCL INFO three"])

    assert first[1] == again[1]  # a part of the same record
    rows = {row.id: (row.line, row.text) for row in facts.evidence_rows([*first, *again])}
    assert [(2, "host:2 NCCL WARN other"), (2, "host:1 NCCL WARN two")] == [rows[number] for number in again[:2]]
    assert again[0] == facts.evidence_of("a.log", [2], ["host:2 NCCL WARN other"])[0]
