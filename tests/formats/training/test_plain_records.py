"""Records of a history that are read as columns tell what each of them tells alone."""

import io
import json
from random import Random
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training import records
from nccl_doctor.formats.training.lines import plain_records
from nccl_doctor.formats.training.metrics import rank_of

NAMES = (
    "loss", "val/loss", "lr", "tokens_per_sec", "step_time", "mfu", "time", "timestamp", "epoch", "_hidden", "data_time",
    "grad_norm", "world_size", "rank", "it/s", "wall_clock",
)  # fmt: skip


def _value(chance: Random, *, is_odd: bool) -> Any:
    if is_odd and chance.random() < 0.2:
        return chance.choice((None, True, False, "", "12", "x", float("nan"), 10**400))
    return chance.choice((chance.uniform(-1e3, 1e5), chance.randrange(-5, 10**6)))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of one or two kinds, most of them one after the other, whose steps mostly grow."""
    kinds = draw(
        st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True), min_size=1, max_size=2)
    )
    key = draw(st.sampled_from(("step", "iteration", "global_step")))
    is_odd, clock, chance = draw(st.booleans()), draw(st.booleans()), Random(draw(st.integers(0, 10**6)))
    step, found, kind = 0, list[dict[str, Any]](), kinds[0]
    for at in range(draw(st.integers(2, 150))):
        step += chance.choice((1, 1, 1, 1, 10, 0, -3))
        if chance.random() < 0.05:
            kind = chance.choice(kinds)
        told = {name: _value(chance, is_odd=is_odd and at % 7 == 0) for name in kind}
        if clock:
            told["ts"] = 1_790_000_000 + at * 0.5
        found.append({key: step, **told})
    return found


def rows(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    facts = Facts()
    records.read_format(io.BytesIO("".join(f"{json.dumps(one)}\n" for one in history).encode()), "m.jsonl", facts)
    return {
        table: facts.query(f"SELECT * FROM {table}") for table in ("throughput_run", "step", "scalar", "run_setting")
    }


@given(histories())
def test_columns_or_each_alone(history: list[dict[str, Any]]) -> None:
    found = rows(history)
    with mock.patch.object(plain_records, "of_rows", return_value=None):
        assert repr(rows(history)) == repr(found)


def test_a_long_history_is_read_as_columns() -> None:
    history = [{"step": step, "loss": 2.0 + step % 7, "step_time": 0.5} for step in range(5_000)]
    with mock.patch.object(records.RecordReader, "average", side_effect=AssertionError):
        (run,) = rows(history)["throughput_run"]
    assert "own-records" in run


def test_a_rank_is_a_whole_number() -> None:
    assert rank_of({"rank": 3.0}, 8) == 3
    assert rank_of({"rank": 3.5}, 1_000_000) is None
    assert rank_of({"rank": 8}, 8) is None


def test_lines_behind_a_mark_of_utf_8_and_a_blank_one() -> None:
    text = "".join(f"{json.dumps({'step': at, 'loss': 2.5, 'step_time': 0.5})}\n" for at in range(1, 60))
    facts = Facts()
    reading = records.read_format(io.BytesIO(b"\xef\xbb\xbf\n" + text.encode()), "m.jsonl", facts)
    assert (60, None) == (reading.lines, reading.note)
    assert [(59, 0.5)] == facts.query("SELECT sum(n), avg(seconds) FROM step")
    assert [(2,)] == facts.query("SELECT min(line) FROM step")


def test_a_clock_of_the_run_tells_the_time_of_a_step() -> None:
    history = [{"step": 10 * at, "loss": 2.5, "wall_clock": 12.5 + 5.0 * at} for at in range(1, 60)]
    assert {0.5} == {row[4] for row in rows(history)["step"]}
