"""Horovod timelines: what is read agrees with a reading by json and hand, broken files are read up to where they break."""

import io
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Timeline,
    TimelineActivity,
    TimelineGap,
    TimelineRank,
    TimelineTensor,
    TimelineWindow,
)
from nccl_doctor.formats import registry
from nccl_doctor.formats.horovod import timeline

FOLDER = FIXTURES / "timeline"
WHOLE = ["healthy_4r", "slow_rank2_4r", "slow_rank2_4r_nocache", "gpu_healthy", "unfused", "long_cycle", "input_gaps"]


def read(path: Path) -> tuple[Facts, registry.Reading]:
    facts = Facts()
    with path.open("rb") as stream:
        return facts, timeline.read_format(stream, path.name, facts)


def intervals(events: list[dict[str, Any]]) -> dict[str, list[tuple[int, int, int]]]:
    """Name -> (begin, end, tensor), by a stack for each tensor."""
    stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "B":
            stacks[event["pid"]].append(event)
        elif event["ph"] == "E" and stacks[event["pid"]]:
            begin = stacks[event["pid"]].pop()
            found[begin["name"]].append((begin["ts"], event["ts"], event["pid"]))
    return found


def union(parts: list[tuple[int, int, int]]) -> int:
    total, reached = 0, -1
    for begin, end, _ in sorted(parts):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@pytest.mark.parametrize("name", WHOLE)
def test_times_agree_with_a_reading_by_json(name: str) -> None:
    path = FOLDER / f"{name}.json"
    events = json.loads(path.read_text())
    expected = intervals(events)
    facts, reading = read(path)
    assert (None, sum(e["ph"] != "M" for e in events)) == (reading.note, reading.understood)
    found = {a.activity: a for a in facts.rows(TimelineActivity)}
    assert set(expected) == set(found)
    for activity, parts in expected.items():
        took = [(end - begin) / 1000 for begin, end, _ in parts]
        row = found[activity]
        assert len(parts) == row.n
        assert (sum(took), max(took)) == pytest.approx((row.total_ms, row.max_ms))
        assert union(parts) / 1000 == pytest.approx(row.busy_ms)
        assert statistics.median(took) == pytest.approx(row.median_ms)
    per_tensor = {(t.tensor, t.activity): t.total_ms for t in facts.rows(TimelineTensor)}
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]}
    for tensor, label in names.items():
        took_all = sum(end - begin for begin, end, pid in expected["NEGOTIATE_ALLREDUCE"] if pid == tensor) / 1000
        assert took_all == pytest.approx(per_tensor.get((label, "NEGOTIATE_ALLREDUCE"), 0.0))


@pytest.mark.parametrize("name", WHOLE)
def test_windows_add_up_to_the_whole(name: str) -> None:
    facts, _ = read(FOLDER / f"{name}.json")
    whole, windows = facts.rows(Timeline)[0], facts.rows(TimelineWindow)
    assert 60 <= len(windows) <= 120
    assert whole.length_s == pytest.approx(sum(w.length_s for w in windows))
    assert whole.negotiate_s == pytest.approx(sum(w.negotiate_s for w in windows))


def test_ranks_agree_with_the_ticks() -> None:
    path = FOLDER / "slow_rank2_4r_nocache.json"
    ticks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    late: dict[int, list[float]] = defaultdict(list)
    last: dict[int, int] = defaultdict(int)
    for event in json.loads(path.read_text()):
        tensor = event.get("pid")
        if event["ph"] == "B" and event["name"] == "NEGOTIATE_ALLREDUCE":
            begun[tensor], ticks[tensor] = event["ts"], []
        elif event["ph"] == "X" and tensor in begun:
            ticks[tensor].append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in begun:
            last[ticks[tensor][-1][1]] += 1
            for ts, rank in ticks[tensor]:
                late[rank].append((ts - begun[tensor]) / 1000)
            del begun[tensor]
    facts, _ = read(path)
    found = {r.rank: (r.n, r.last, r.late_ms) for r in facts.rows(TimelineRank)}
    assert {r: (len(v), last[r], pytest.approx(statistics.median(v))) for r, v in late.items()} == found


@pytest.mark.parametrize("size", [61, 300, 4096])
def test_pieces_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = FOLDER / "slow_rank2_4r_nocache.json"
    whole, _ = read(path)
    monkeypatch.setattr("nccl_doctor.formats.horovod.trace_events.CHUNK", size)
    parts, _ = read(path)
    for table in (TimelineRank, TimelineActivity, TimelineGap):
        assert sorted(row[1:-1] for row in whole.rows(table)) == sorted(row[1:-1] for row in parts.rows(table))
    a, b = whole.rows(Timeline)[0], parts.rows(Timeline)[0]
    assert (a.negotiate_s, a.idle_s, a.ticked, a.open) == pytest.approx((b.negotiate_s, b.idle_s, b.ticked, b.open))


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        ("healthy_4r", "nothing-found", {"horovod-cpu-path"}),
        ("slow_rank2_4r", "warning", {"horovod-straggler", "horovod-negotiation-wait", "horovod-cpu-path"}),
        ("slow_rank2_4r_nocache", "warning", {"horovod-straggler", "horovod-negotiation-wait", "horovod-cpu-path"}),
        ("gpu_healthy", "nothing-found", set()),
        ("gpu_slow_rank3_cached", "warning", {"horovod-straggler", "horovod-negotiation-wait"}),
        ("unfused", "warning", {"fusion-buffer-small"}),
        ("long_cycle", "warning", {"horovod-cycle-time-long"}),
        ("mpi_on_gpu", "warning", {"horovod-cpu-path"}),
        ("growing", "warning", {"allreduce-share-growing"}),
        ("input_gaps", "warning", {"timeline-gaps"}),
        ("two_segments", "nothing-found", set()),
        ("old_unclosed", "nothing-found", set()),
        ("unescaped_name", "nothing-found", set()),
        ("old_0195", "nothing-found", {"timeline-too-short"}),
    ],
)
def test_verdicts(name: str, verdict: str, expected: set[str]) -> None:
    report, _, problems = analyze.analyze([str(FOLDER / f"{name}.json")])
    assert (verdict, expected, []) == (report.verdict, {f.name for f in report.findings}, problems)
    late = [f.ranks for f in report.findings if f.name == "horovod-straggler"]
    assert late == (["2"] if "slow_rank2" in name else ["3"] if "rank3" in name else [])


def test_a_cut_file_is_read_up_to_the_cut_and_says_so() -> None:
    text = (FOLDER / "cut.json").read_text()
    events = json.loads(text[: text.rfind("},") + 1] + "]")
    facts, reading = read(FOLDER / "cut.json")
    assert sum(e["ph"] != "M" for e in events) == reading.understood
    assert reading.note is not None
    assert f"behind event {reading.understood}" in reading.note
    assert facts.rows(Timeline)[0].open > 0


def test_text_in_the_middle_is_passed_over_and_told() -> None:
    data = (FOLDER / "healthy_4r.json").read_bytes()
    half = data.index(b'"ts"', len(data) // 2)
    facts = Facts()
    mixed = data[:half] + b"\nTraceback (most recent call last):\n" + data[half:]
    note = timeline.read_format(io.BytesIO(mixed), "timeline.json", facts).note
    before = len(re.findall(rb'"ph": "[BEXi]"', data[:half])) - 1
    assert f"has torn events or other text in 1 places, first behind event {before}; all other events were read" == note


def test_segments_are_kept_apart() -> None:
    facts, _ = read(FOLDER / "two_segments.json")
    first, second = facts.rows(Timeline)
    assert (0, 1) == (first.segment, second.segment)
    assert 900 == round((second.started or 0) - (first.started or 0))
    assert first.negotiations == second.negotiations == 24


def test_names_that_break_json_are_kept() -> None:
    with pytest.raises(ValueError):
        json.loads((FOLDER / "unescaped_name.json").read_text())
    facts, reading = read(FOLDER / "unescaped_name.json")
    assert reading.note is None
    assert 'model["embed\\{0}"].weight' in {t.tensor for t in facts.rows(TimelineTensor)}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_that_another_program_wrote_anew(indent: int | None) -> None:
    events = json.loads((FOLDER / "healthy_4r.json").read_text())
    expected, _ = read(FOLDER / "healthy_4r.json")
    separators = (",", ":") if indent is None else None
    for wrapped in (events, {"traceEvents": events}):
        data = json.dumps(wrapped, indent=indent, separators=separators, sort_keys=True).encode()
        facts = Facts()
        reading = timeline.read_format(io.BytesIO(data), "x", facts)
        assert reading.understood == expected.rows(Timeline)[0].events
        assert expected.rows(Timeline)[0][2:-1] == facts.rows(Timeline)[0][2:-1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[\n",
        b'[\n{"ph": "B", "name": "',
        b'[{"ph": "E", "ts": 5, "pid": 99999999999999999999}',
        b'[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 99999999999999999999999, "pid": 3},',
        b'{"ph": "' * 1000,
        b'[{"ph": "E", "ts": 1, "pid": 1},' * 500,
        b"\xff\x00{" * 1000,
        b'[{"ph":' + b"[" * 100_000,
    ],
)
def test_broken_input_is_survived(data: bytes) -> None:
    facts = Facts()
    reading = timeline.read_format(io.BytesIO(data), "x", facts)
    assert reading.lines >= reading.understood


def test_recognised_by_content() -> None:
    for path in FOLDER.glob("*.json"):
        known = registry.recognise(path.read_bytes()[: 1 << 16])
        assert known is not None
        assert "horovod-timeline" == known.kind
    other = registry.recognise(b'{"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}]}')
    assert other is None or "horovod-timeline" != other.kind
    assert registry.recognise(b"[1,0]<stdout>: NEGOTIATE_ALLREDUCE took long\n") is None
