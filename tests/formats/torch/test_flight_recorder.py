"""Dumps of the flight recorder: what is compared agrees with torch's own fields, hostile pickles are refused by name."""

import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Recorder, RecorderCall, RecorderGroup, RecorderMismatch
from nccl_doctor.formats import registry
from nccl_doctor.formats.torch import flight_recorder
from nccl_doctor.inputs.sources import InputProblem

FOLDER = FIXTURES / "torch"
sys.path.insert(0, str(FOLDER.parent / "make"))

import pytorch as make  # noqa: E402 - the script beside the fixtures


def read(data: bytes, name: str = "nccl_trace_rank_0") -> tuple[Facts, registry.Reading]:
    facts = Facts()
    return facts, flight_recorder.read_format(io.BytesIO(data), name, facts)


@pytest.mark.parametrize(
    ("name", "verdict", "expected", "ranks"),
    [
        ("fr_healthy", "nothing-found", set(), None),
        ("fr_recorded_fr", "nothing-found", set(), None),
        ("fr_recorded_fr_json", "nothing-found", set(), None),
        ("fr_missing_rank2", "error", {"flight-recorder-missing-rank"}, "2"),
        ("fr_recorded_hang_allreduce", "error", {"flight-recorder-missing-rank"}, "1"),
        ("fr_recorded_loader_w0", "error", {"flight-recorder-missing-rank"}, "1"),
        ("fr_desync_rank1", "error", {"flight-recorder-desync"}, "1"),
        ("fr_size_rank3", "error", {"flight-recorder-shape-mismatch"}, "3"),
        ("fr_stuck", "note", {"flight-recorder-stuck"}, None),
    ],
)
def test_verdicts(name: str, verdict: str, expected: set[str], ranks: str | None) -> None:
    report, _, problems = analyze.analyze([str(FOLDER / name)])
    assert (verdict, expected, []) == (report.verdict, {f.name for f in report.findings}, problems)
    if ranks is not None:
        assert [ranks] == [f.ranks for f in report.findings]


def test_entries_agree_with_the_file() -> None:
    for form, suffix in (("pickle", "pkl"), ("json", "json")):
        folder = FOLDER / ("fr_recorded_fr" if form == "pickle" else "fr_recorded_fr_json")
        path = folder / f"fr_rank1.{suffix}"
        data = path.read_bytes()
        dump = pickle.loads(data) if form == "pickle" else json.loads(data)
        facts, reading = read(data, str(path))
        calls = facts.rows(RecorderCall)
        assert (len(dump["entries"]), None) == (reading.understood, reading.note)
        expected = [
            (e["collective_seq_id"], e["profiling_name"].split(":")[1], str(e["input_sizes"])) for e in dump["entries"]
        ]
        assert expected == [(c.seq, c.op, c.sizes) for c in calls]
        assert all(c.finished for c in calls)
        group = facts.rows(RecorderGroup)[0]
        assert ("0", "0,1", 9, 9) == (group.pg, group.ranks, group.enqueued, group.completed)
        assert [(1, form, "2.10")] == [(r.rank, r.form, r.version) for r in facts.rows(Recorder)]


def test_the_line_of_the_program_is_named() -> None:
    facts, _ = analyze.read_facts([str(FOLDER / "fr_desync_rank1")])
    assert "train_step (/home/user/train.py:123)" == facts.rows(RecorderMismatch)[0].frame


@pytest.mark.parametrize(
    ("name", "rank", "series"),
    [
        ("nccl_trace_rank_12", 12, "nccl_trace_rank_*"),
        ("out/comm_lib_trace_rank_3.json", 3, "out/comm_lib_trace_rank_*.json"),
        ("job.tar.gz!d/fr-rank7.pickle", 7, "job.tar.gz!d/fr-rank*.pickle"),
        ("dump00042", 42, "dump*"),
        ("node3_rank_5.pkl.gz", 5, "node3_rank_*.pkl.gz"),
        ("trace", None, "trace"),
    ],
)
def test_ranks_of_odd_names(name: str, rank: int | None, series: str) -> None:
    assert (rank, series) == (flight_recorder.rank_of(name), flight_recorder.series_of(name))


def test_the_first_release_is_read() -> None:
    facts, reading = read((FOLDER / "fr_first_release_rank0.pkl").read_bytes())
    assert 21 == reading.understood
    assert [("started", 0)] == [(c.state, c.finished) for c in facts.rows(RecorderCall)][-1:]


def compare(dumps: dict[int, dict[str, Any]], tmp_path: Path) -> list[RecorderMismatch]:
    for rank, dump in dumps.items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    facts, _ = analyze.read_facts([str(tmp_path)])
    return facts.rows(RecorderMismatch)


def test_rings_that_start_at_different_numbers_are_aligned(tmp_path: Path) -> None:
    dumps = {r: make.dump([make.entry(r, n) for n in range(1 + 5 * r, 40)], 3) for r in range(3)}
    assert [] == compare(dumps, tmp_path)


def test_a_dump_made_later_is_no_difference(tmp_path: Path) -> None:
    dumps = {r: make.dump([make.entry(r, n) for n in range(1, 20 + r)], 3) for r in range(3)}
    assert [] == compare(dumps, tmp_path)


def test_the_first_difference_counts(tmp_path: Path) -> None:
    shifted = [make.entry(1, n, "all_gather" if n >= 5 else "all_reduce", [[n]]) for n in range(1, 20)]
    dumps = {0: make.dump([make.entry(0, n, sizes=[[n]]) for n in range(1, 20)], 2), 1: make.dump(shifted, 2)}
    assert [(5, "type", "0-1")] == [(m.seq, m.kind, m.ranks) for m in compare(dumps, tmp_path)]


def test_types_of_elements(tmp_path: Path) -> None:
    types = {0: "Float", 1: "Half", 2: "Float"}
    dumps = {r: make.dump([make.entry(r, n, input_dtypes=[types[r]]) for n in range(1, 4)], 3) for r in types}
    assert [("dtype", 1)] == [(m.kind, m.rank) for m in compare(dumps, tmp_path)]


def test_sizes_may_differ_where_the_operation_allows_it(tmp_path: Path) -> None:
    dumps = {r: make.dump([make.entry(r, 1, "all_to_all", [[10 + r]])], 2) for r in range(2)}
    assert [] == compare(dumps, tmp_path)


def test_a_chain_of_groups_ends_at_the_rank_that_waits_nowhere(tmp_path: Path) -> None:
    """Rank 1 misses the call of group 0 because it waits for rank 2 in group 1."""
    config = {"0": {"name": "0", "desc": "dp", "ranks": "[0, 1]"}, "1": {"name": "1", "desc": "tp", "ranks": "[1, 2]"}}
    own = {
        0: [make.waiting(make.entry(0, 1, process_group=("0", "dp")))],
        1: [make.waiting(make.entry(1, 1, process_group=("1", "tp")))],
        2: [make.entry(2, 1, process_group=("2", "other"))],
    }
    dumps = {r: {**make.dump(entries, 3), "pg_config": config, "pg_status": {}} for r, entries in own.items()}
    found = {m.pg: (m.kind, m.rank) for m in compare(dumps, tmp_path)}
    assert {"0": ("elsewhere", 1), "1": ("missing", 2)} == found


def test_a_rank_whose_gpu_stands_waits_for_nobody(tmp_path: Path) -> None:
    """Dumps of open calls only: rank 1 has calls open that the others finished, and did not reach those in which they wait."""
    config = {
        "0": {"name": "0", "desc": "tp", "ranks": "[0, 1]"},
        "1": {"name": "1", "desc": "ep", "ranks": "[0, 1, 2]"},
    }

    def opened(rank: int, group: str, *numbers: int) -> list[make.Entry]:
        named = (group, config[group]["desc"])
        return [make.waiting(make.entry(rank, n, process_group=named)) for n in numbers]

    send = make.waiting(make.entry(2, 9, "send 2->0", process_group=("1", "ep"), is_p2p=True, p2p_seq_id=1))
    own = {
        0: [*opened(0, "1", 3), *opened(0, "0", 6, 7)],
        1: [*opened(1, "0", 5), *opened(1, "1", 2)],
        2: [*opened(2, "1", 3), send],
    }
    dumps = {r: {**make.dump(entries, 3), "pg_config": config, "pg_status": {}} for r, entries in own.items()}
    found = compare(dumps, tmp_path)
    assert {("1", "missing", 1), ("0", "missing", 1), ("1", "p2p-busy", 0)} == {(m.pg, m.kind, m.rank) for m in found}
    assert "rank 1 has not finished all_reduce (number 2) of group 1, which the others have" in found[0].what


def test_two_ranks_whose_gpus_stand_are_both_named(tmp_path: Path) -> None:
    """Dumps of open calls only: ranks 1 and 3 have a call open that the other three finished, and they wait in a later one."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3, 4]"}}
    numbers = {0: (3,), 1: (2,), 2: (3,), 3: (2,), 4: (3,)}
    own = {
        r: [make.waiting(make.entry(r, n, process_group=("0", "default_pg"))) for n in of] for r, of in numbers.items()
    }
    dumps = {r: {**make.dump(entries, 5), "pg_config": config, "pg_status": {}} for r, entries in own.items()}
    found = compare(dumps, tmp_path)
    assert [("missing", "1,3")] == [(m.kind, m.ranks) for m in found]
    assert "ranks 1,3 have not finished all_reduce (number 2) of group 0, which the others have" in found[0].what


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    dumps = {r: make.dump(make.missing(r), 4) for r in (0, 1, 3)}
    found = {m.kind: m.ranks for m in compare(dumps, tmp_path)}
    assert {"stuck": "0-1,3", "absent": "2"} == found


def test_a_send_that_nobody_receives(tmp_path: Path) -> None:
    send = make.waiting(make.entry(0, 1, "send 0->1", is_p2p=True, p2p_seq_id=1))
    dumps = {0: make.dump([make.entry(0, 1), send], 2), 1: make.dump([make.entry(1, 1)], 2)}
    assert [("p2p", 1)] == [(m.kind, m.rank) for m in compare(dumps, tmp_path)]
    receive = make.waiting(make.entry(1, 1, "recv 1<-0", is_p2p=True, p2p_seq_id=4))
    dumps[1] = make.dump([make.entry(1, 1), receive], 2)
    assert [] == compare(dumps, tmp_path)


class _Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_of_some_bytes_takes_no_gigabyte(tmp_path: Path) -> None:
    """The index of a memo, behind the opcode `r`, has the unpickler make room for so many."""
    data = pickle.dumps(make.dump(make.healthy(0), 4), 2)
    (tmp_path / "nccl_trace_rank_0").write_bytes(data[:-1] + b"r" + (120 << 20).to_bytes(4, "little") + b".")
    with pytest.raises(UsageProblem, match="asks for more memory than any dump needs"):
        analyze.analyze([str(tmp_path / "nccl_trace_rank_0")])


def test_a_hostile_pickle_is_refused_by_name_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for protocol in range(2, 6):
        data = pickle.dumps({"entries": [_Runs(mark)], "pg_config": {}}, protocol)
        with pytest.raises(InputProblem, match=r"asks for `\w+\.system`"):
            read(data)
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    _, problems = analyze.read_facts([str(tmp_path / "nccl_trace_rank_0"), str(FOLDER / "fr_healthy")])
    assert "system" in problems[0]
    assert not mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cbuiltins\neval\n(V1\ntR.",
        b"\x80\x02P1\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # asks for 32 GB
        b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f",
        b"\x80\x02" + b"(" * 1_000_000,
        b"\x80\x02K\x03.",
        pickle.dumps(make.dump(make.healthy(0), 4), 2)[:900],
        b'{"pg_config": {}, "entries": ' + b"[" * 200_000,
        b'{"a": 1}',
    ],
)
def test_what_is_no_dump_is_refused(data: bytes) -> None:
    with pytest.raises(InputProblem):
        read(data)


def test_lists_that_hold_each_other_are_not_written_out() -> None:
    """Forty lists of two make a terabyte when they are written out."""
    deep: Any = [1, 2]
    for _ in range(40):
        deep = [deep, deep]
    dump = make.dump([make.entry(0, 1, sizes=deep, state=deep, process_group=deep)], 2)
    facts, _ = read(pickle.dumps(dump, 2))
    assert 1 == len(facts.rows(RecorderCall))


def test_a_cut_json_dump_is_read_up_to_the_cut() -> None:
    data = (FOLDER / "fr_recorded_hang_allreduce" / "hang_allreduce_rank0.json").read_bytes()
    _, reading = read(data[: len(data) // 2])
    assert 0 < reading.understood < 9
    assert reading.note is not None
    assert f"behind entry {reading.understood}" in reading.note


def test_recognised_by_content() -> None:
    for path in (p for p in FOLDER.glob("fr_*/*") if p.is_file()):
        known = registry.recognise(path.read_bytes()[: 1 << 16])
        assert known is not None
        assert "flight-recorder" == known.kind
