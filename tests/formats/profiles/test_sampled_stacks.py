"""Samples of stacks as py-spy writes them: of a training with DDP and a loader, of one that hung, and of a program with two threads."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.formats.profiles import sampled_stacks

STACKS = FIXTURES / "stacks"
SHARES = "SELECT kind, n FROM profile_share ORDER BY n DESC, kind"


def shares_of(path: Path) -> dict[str, int]:
    _, facts, _ = analyze.analyze([str(path)])
    return dict(facts.query(SHARES))


def test_what_a_training_does() -> None:
    """The numbers are those of the lines of the main thread, added up by hand."""
    shares = shares_of(STACKS / "record_busy.raw.txt")
    lines = [line.rpartition(" ") for line in (STACKS / "record_busy.raw.txt").read_text().splitlines()]
    main = [(stack, int(n)) for stack, _, n in lines if stack and "_bootstrap (threading.py" not in stack]
    assert 80 == sum(n for _, n in main) == sum(shares.values())
    assert shares["loading data"] == sum(n for stack, n in main if "/data/dataloader.py:" in stack)
    assert shares["backward"] == sum(n for stack, n in main if "backward (torch/autograd/" in stack)
    assert shares["optimizer"] == sum(n for stack, n in main if "torch/optim/" in stack)


def test_a_file_for_speedscope_says_the_same_of_the_same_job() -> None:
    report, facts, _ = analyze.analyze([str(STACKS / "record_busy.speedscope.json")])
    samples = json.loads((STACKS / "record_busy.speedscope.json").read_text())["profiles"][0]["samples"]
    assert [(64, 1.28)] == facts.query("SELECT sum(n), round(sum(total_ms) / 1000, 6) FROM profile_share")
    assert 64 == len(samples)
    assert ["profile-loads-data"] == [found.name for found in report.findings]
    assert [(45.3125, "%")] == facts.query("SELECT value, unit FROM measure WHERE name = 'loading_data'")


def as_trace(stacks: list[list[str]], gap: int) -> list[dict[str, object]]:
    """What `py-spy record --format chrometrace` writes of samples of a thread, one every `gap` microseconds (chrometrace.rs)."""

    def event(frame: str, phase: str, ts: int) -> dict[str, object]:
        name, _, place = frame.partition(" (")
        file = place.rpartition(":")[0] or place.rstrip(")")
        return {
            "args": {"filename": file, "line": 7},
            "cat": "py-spy",
            "name": name,
            "ph": phase,
            "pid": 7,
            "tid": 9,
            "ts": ts,
        }

    events, before = [], list[str]()
    for ts, stack in enumerate([*stacks, []]):
        same = next(
            (at for at, (a, b) in enumerate(zip(before, stack, strict=False)) if a != b), min(len(before), len(stack))
        )
        events += [event(frame, "E", ts * gap) for frame in before[same:][::-1]]
        events += [event(frame, "B", ts * gap) for frame in stack[same:]]
        before = stack
    return events


def test_a_trace_says_the_same_as_the_samples(tmp_path: Path) -> None:
    lines = [line.rpartition(" ") for line in (STACKS / "record_busy.raw.txt").read_text().splitlines()]
    stacks = [stack.split(";") for stack, _, n in lines if stack for _ in range(int(n)) if "_bootstrap (" not in stack]
    (tmp_path / "rank0.json").write_text(json.dumps(as_trace(stacks, 10_000), separators=(",", ":")) + "\n")
    (tmp_path / "raw.txt").write_text("".join(f"{';'.join(stack)} 1\n" for stack in stacks))
    assert shares_of(tmp_path / "raw.txt") == shares_of(tmp_path / "rank0.json")


def test_a_profile_of_speedscope_with_events(tmp_path: Path) -> None:
    frames = [{"name": "main", "file": "train.py"}, {"name": "_next_data", "file": "torch/utils/data/dataloader.py"}]
    events = [("O", 0, 0), ("O", 1, 250), ("C", 1, 1000), ("C", 0, 2000), ("C", 1, 2000), ("O", 9, 2000), ("O", 0, "x")]
    profile = {
        "type": "evented", "name": "train", "unit": "milliseconds", "startValue": 0, "endValue": 2000,
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events],
    }  # fmt: skip
    top = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": frames}}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**top, "profiles": [profile]}))
    assert {"other": 125, "loading data": 75} == shares_of(path)
    path.write_text(json.dumps({**top, "profiles": [{**profile, "unit": "bytes"}]}))
    with pytest.raises(UsageProblem, match="no sample"):
        analyze.analyze([str(path)])


def test_a_flame_graph_is_read_box_by_box() -> None:
    """`main` calls three functions that work; the thread that feeds the queue is another one."""
    _, facts, _ = analyze.analyze([str(STACKS / "record.svg")])
    functions = dict(facts.query("SELECT name, n FROM profile_sum"))
    text = (STACKS / "record.svg").read_text()
    widths = {
        name: int(width)
        for name, width in re.findall(r"<title>(\w+) \(spin.py:\d+\) \([^)]*\)</title><rect [^>]*fg:w=\"(\d+)\"", text)
    }
    assert widths["compute"] == functions["compute (spin.py)"]
    assert max(functions.values()) == functions["compute (spin.py)"]
    beside = int(re.findall(r"Thread._bootstrap \(threading.py:\d+\) \((\d+) samples", text)[0])
    everything = int(re.findall(r"<title>all \((\d+) samples", text)[0])
    assert everything - beside == sum(n for _, n in facts.query(SHARES))


def test_threads_that_are_told_by_name() -> None:
    lines = (STACKS / "record_threads.raw.txt").read_text().splitlines()
    main = sum(int(line.rpartition(" ")[2]) for line in lines if "MainThread" in line)
    assert main == sum(shares_of(STACKS / "record_threads.raw.txt").values())


def test_a_process_that_waits_has_no_samples() -> None:
    with pytest.raises(UsageProblem, match="py-spy dump"):
        analyze.analyze([str(STACKS / "record_stuck.speedscope.json")])


def test_stacks_of_torch_profiler(tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    path.write_text(
        "train.py(9): <module>;train.py(5): step;torch/optim/adam.py(70): step 7000\n"
        "train.py(9): <module>;train.py(4): step;torch/nn/modules/module.py(1501): _call_impl;torch/nn/functional.py(9): relu 3000\n"
    )
    assert {"optimizer": 7000, "forward": 3000, "other": 0} == shares_of(path)


@pytest.mark.parametrize("name", ["record_busy.raw.txt", "record.svg"])
@pytest.mark.parametrize("part", [0.8, 0.99])
def test_the_part_of_a_file_that_is_there_is_read(name: str, part: float, tmp_path: Path) -> None:
    whole = (STACKS / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: int(part * len(whole))])
    assert 0 < sum(shares_of(path).values()) <= sum(shares_of(STACKS / name).values()) + 999


@pytest.mark.parametrize(("name", "part"), [("record_busy.speedscope.json", 0.5), ("record.svg", 0.05)])
def test_what_cannot_be_read_is_told(name: str, part: float, tmp_path: Path) -> None:
    whole = (STACKS / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(UsageProblem, match="cut or damaged"):
        analyze.analyze([str(tmp_path / name)])


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=12), st.booleans())
def test_boxes_say_what_the_stacks_say(stacks: list[list[str]], from_below: bool) -> None:
    """Drawn as inferno draws them: stacks in order, neighbours with the same frame in one box."""
    stacks = sorted(["all", *stack] for stack in stacks)
    text = ""
    for depth in range(max(map(len, stacks))):
        begin = 0
        while begin < len(stacks):
            prefix = stacks[begin][: depth + 1]
            end = begin + 1
            while end < len(stacks) and stacks[end][: depth + 1] == prefix:
                end += 1
            if len(prefix) == depth + 1:
                y = 1000 - 16 * depth if from_below else 36 + 16 * depth
                text += (
                    f'<g><title>{prefix[-1]} ({end - begin} samples, 1.00%)</title><rect x="1.0000%" y="{y}" width="2.0%" height="15"'
                    f' fill="rgb(1,2,3)" fg:x="{begin}" fg:w="{end - begin}"/></g>'
                )
            begin = end
    found: Counter[tuple[str, ...]] = Counter()
    for samples in sampled_stacks._of_boxes(text.encode()):
        found[tuple(samples.frames)] += samples.n
    assert Counter(tuple(stack[1:]) for stack in stacks) == found
