"""Lines that differ only in digits and hexadecimal numbers count as if each were read alone."""

import io
import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import pytest
from helpers.examples import examples
from helpers.scanning import plain
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.log import counts
from nccl_doctor.log.block_lines import BlockLines
from nccl_doctor.log.line_patterns import grammar
from nccl_doctor.log.scanner import Scanner
from nccl_doctor.log.texts.text_lines import TextLines
from nccl_doctor.log.texts.text_templates import Hit, TextTemplates

PREFIXES = (
    "", "", "[rank{n}]: ", "{n}: ", "node{n:02d}: ", "2026-05-07T12:00:0{n}.5Z ", "May  7 12:0{n}:00 node0{n} kernel: [ 1{n}.5] ",
    "(Worker pid=1{n}, ip=10.1.0.{n}) ", "[pod/worker-{n}/main] ", "\x1b[3{n}mnode1\x1b[0m ", "ext{n}: ", '{{"log":"',
)  # fmt: skip
SAMPLES = [line for pattern in grammar().text for line in (*pattern.sample, *pattern.miss)]
MORE = (
    "RuntimeError: bad key 3f2a91bc at 0x7f12ab00cd34",
    "ERROR shard part-9e3779b1.tar of 123e4567-e89b-12d3-a456-426614174000 cannot be read",
    "error code 0xdeadbee5 failed=0 exit code 0",
    "error: 1e000001 1f",
    "",
)


def _alone(self: TextTemplates, hits: Sequence[Hit], numbers: Any, lines: BlockLines) -> None:
    for hit in hits:
        behind, asked = partial(lines.behind, hit.stop), self._literals.asked(hit.literals)
        self._lines.add(hit.raw.decode("utf-8", "replace"), numbers, hit.at, behind, asked)


_together = TextTemplates.add


def _in_parts(self: TextTemplates, hits: Sequence[Hit], numbers: Any, lines: BlockLines) -> None:
    """As the lines of several blocks come: what the first ones said is known of the others."""
    for at in range(0, len(hits), 3):
        _together(self, hits[at : at + 3], numbers, lines)


def both(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is counted with templates, and what without."""
    data = text.encode()
    with mock.patch.object(TextTemplates, "add", _alone):
        expected = plain(Scanner().read(io.BytesIO(data)))
    found = plain(Scanner().read(io.BytesIO(data)))
    with mock.patch.object(TextTemplates, "add", _in_parts):
        assert found == plain(Scanner().read(io.BytesIO(data)))
    return expected, found


def varied(line: str, chance: random.Random) -> str:
    """The line with other numbers; those of one digit often stay."""
    line = re.sub(r"\b[0-9a-f]{8,}\b", lambda found: f"{chance.getrandbits(4 * len(found[0])):0{len(found[0])}x}", line)
    return re.sub(r"\d+", lambda found: "".join(chance.choice("0123479") for _ in found[0]), line)


@pytest.mark.parametrize("part", range(6))
def test_each_sample_again_with_other_numbers(part: int) -> None:
    chance = random.Random(part)
    lines = [
        chance.choice(PREFIXES).format(n=n) + text
        for sample in SAMPLES[part::6]
        for n in range(4)
        for text in (sample if n == chance.randrange(4) else varied(sample, chance)).split("\n")
    ]
    expected, found = both("\n".join(lines))
    assert expected == found


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from((*SAMPLES, *MORE, *MORE)), st.sampled_from(PREFIXES)), min_size=1, max_size=4),
    st.integers(0, 1 << 16),
)
def test_mixed_lines_again_and_again(lines: list[tuple[str, str]], seed: int) -> None:
    chance = random.Random(seed)
    said = [varied(prefix.format(n=chance.randrange(10)) + text, chance) for _ in range(6) for text, prefix in lines]
    expected, found = both("\n".join(said))
    assert expected == found


def test_a_flood_is_read_by_its_shape() -> None:
    line = "[rank{r}]: ERROR loader {n}: shard s3://bucket/part-{hex:08x}.tar cannot be read, retrying\n"
    text = "".join(line.format(r=n % 8, n=n, hex=n * 2_654_435_761 % (1 << 32)) for n in range(2_000))
    alone: Counter[str] = Counter()
    read = TextLines.add

    def counted(self: TextLines, *args: Any) -> None:
        alone["lines"] += 1
        read(self, *args)

    with mock.patch.object(TextLines, "add", counted):
        part = Scanner().read(io.BytesIO(text.encode()))
    assert 2_000 == sum(event.n for event in part.events.values())
    assert alone["lines"] < 100


def test_counters_that_say_nothing_are_passed_over() -> None:
    ports = [
        f"node{n:02d}: {line}\n"
        for n in range(400)
        for line in ("Symbol Errors: 0", "Link Error Recovery Counter: 0", "State: Active", "")
    ]
    torn = ["node00: RuntimeError: Socket Time", "node00: out", "node00: Symbol Errors: \0"]
    expected, found = both("".join(ports) + "\n".join(torn))
    assert expected == found
    read: Counter[str] = Counter()
    add = TextTemplates._add

    def counted(self: TextTemplates, *args: Any) -> bool:
        read["lines"] += 1
        return add(self, *args)

    with mock.patch.object(TextTemplates, "add", _in_parts), mock.patch.object(TextTemplates, "_add", counted):
        Scanner().read(io.BytesIO("".join(ports).encode()))
    assert read["lines"] < 100


def test_a_writer_that_joins_a_flood_late_is_one_event() -> None:
    line = "[rank{r}]: RuntimeError: shape '[{n}, 3]' is invalid for input of size {n}\n"
    text = "".join(line.format(r=int(n >= 300), n=1_000 + n) for n in range(600))
    with mock.patch.object(counts, "_MAX_OBJECTS", 100):
        part = Scanner().read(io.BytesIO(text.encode()))
    assert 101 == len(part.events)
    assert {(0, 300), (1, 300)} == {
        (part.headers[header].label.rank, sum(e.n for key, e in part.events.items() if key.header == header))
        for header in {key.header for key in part.events}
    }


def test_a_flood_of_the_kernel_keeps_an_event_of_each_hour() -> None:
    line = "May  7 {hour:02d}:{n:02d}:00 node01 kernel: [ 1{n}.5] NVRM: Xid (PCI:0000:1b:00): 79, pid={n}00, GPU has fallen off the bus.\n"
    text = "".join(line.format(hour=hour, n=n) for hour in (1, 2, 23) for n in range(60))
    with mock.patch.multiple(counts, MAX_EVENTS=10, _MAX_OBJECTS=20):
        part = Scanner().read(io.BytesIO(text.encode()))
        part.finish()
    hours = [message.hour for message in part.columns.messages]
    assert 12 == len(part.columns)
    assert 180 == sum(part.columns.n)
    assert 3 == len({hours[message] for message in part.columns.message})
