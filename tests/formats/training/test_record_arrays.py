"""Step records in an array of JSON, and what one record keeps of each rank."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.training import record_arrays
from nccl_doctor.formats.training.record_ranks import of_ranks
from tests.helpers.examples import examples

STEPS = [{"step": s, "loss": 2.5 - s / 100, "step_time": 0.5 + s % 3 / 100} for s in range(1, 31)]


def read(text: str) -> tuple[list[ThroughputRun], list[Step], str | None]:
    facts = Facts()
    reading = record_arrays.read_format(io.BytesIO(text.encode()), "steps.json", facts)
    return facts.rows(ThroughputRun), facts.rows(Step), reading.note


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("top", [STEPS, {"steps": STEPS}, {"config": {"batch": 8}, "history": STEPS}])
def test_an_array_gives_its_steps_with_their_lines(indent: int | None, top: Any) -> None:
    text = json.dumps(top, indent=indent)
    known = recognise(text.encode())
    assert known is not None
    assert "training-arrays" == known.kind
    (run,), steps, note = read(text)
    assert (None, 30, 1, 30) == (note, run.points, run.first_step, run.last_step)
    assert [record["step_time"] for record in STEPS] == [step.seconds for step in steps]
    lines = text.split("\n")
    assert all(f'"step": {step.step},' in " ".join(lines[step.line - 1 : step.line + 2]) for step in steps)


@pytest.mark.parametrize(
    "record",
    [
        {"gpus": [{"rank": r, "step_time": t} for r, t in enumerate((0.5, 0.9, 0.5, 0.51))]},
        {"ranks": {str(r): {"step_time_ms": t} for r, t in enumerate((500, 900, 500, 510))}},
        {"step_time_per_rank": [0.5, 0.9, 0.5, 0.51]},
        {"rank_times": {"rank0": 0.5, "rank1": 0.9, "rank2": 0.5, "rank3": 0.51}},
    ],
)
@pytest.mark.parametrize("lines", [True, False])
def test_the_slow_rank_of_records_of_all_ranks(tmp_path: Path, record: dict[str, Any], lines: bool) -> None:
    records = [{"step": s, "loss": 2.0, **record} for s in range(1, 21)]
    path = tmp_path / "steps.json"
    path.write_text("".join(json.dumps(one) + "\n" for one in records) if lines else json.dumps(records))
    (finding,) = analyze.analyze([str(path)])[0].findings
    assert ("worker-steps-slower", "1") == (finding.name, finding.ranks)


def test_other_lists_tell_of_no_ranks() -> None:
    assert [] == list(of_ranks({"step": 1, "gpus": 8, "losses": [1.0, 2.0], "gpu_names": ["a", "b"]}, ("step",)))
    assert [] == list(of_ranks({"step": 1, "ranks": {"first": {"step_time": 1.0}, "last": {}}}, ("step",)))


@pytest.mark.parametrize("end", [1, 40, 300, 900])
def test_a_cut_file_is_read_as_far_as_it_goes(end: int) -> None:
    runs, _, note = read(json.dumps(STEPS)[:-end])
    assert note is not None
    assert note.startswith("is no complete JSON")
    assert 30 - end // 40 <= runs[0].points <= 30


@examples(200)
@given(
    st.recursive(
        st.none() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["step", "gpus", "rank", "loss", "step_time"]), inner)
        ),
    )
)
def test_any_json_is_read_without_failing(value: Any) -> None:
    for top in ([value], {"steps": [value]}):
        runs, _, note = read(json.dumps(top))
        assert note is None or "is no complete JSON" in note
        assert all(run.points > 0 for run in runs)
