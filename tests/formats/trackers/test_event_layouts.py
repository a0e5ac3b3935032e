"""Records that are read by their layout say what tensorboardX decodes, whatever is between them and wherever they are damaged."""

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.trackers import event_layouts, tensorboard
from nccl_doctor.formats.trackers.event_layouts import Layouts, layout_of

pytest.importorskip("tensorboardX")

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter

NAMES = ["loss", "lr", "perf/step_time", "tokens_per_second", "größe"]
FLOATS = st.floats(width=32)
STEPS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1), st.integers(-5, 5))
SCALARS = st.lists(st.tuples(st.sampled_from(NAMES), FLOATS), min_size=1, max_size=3)


@st.composite
def similar(draw: st.DrawFn) -> list[Any]:
    """Events of one layout, mostly."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
    first = draw(STEPS)
    return [
        Event(
            wall_time=draw(st.floats()),
            step=min(first + at, (1 << 63) - 1),
            summary=Summary(value=[Summary.Value(tag=name, simple_value=draw(FLOATS)) for name in names]),
        )
        for at in range(draw(st.integers(1, 30)))
    ]


OTHERS = st.sampled_from(
    [
        [Event(wall_time=1.0, file_version="brain.Event:2")],
        [Event(wall_time=1.0, step=3, summary=Summary(value=[Summary.Value(tag="text", node_name="x" * 20)]))],
        [Event(step=3, summary=Summary(value=[Summary.Value(tag="loss", node_name="n", simple_value=0.5)]))] * 9,
    ]
)
FILES = st.lists(st.one_of(similar(), OTHERS), max_size=6).map(
    lambda parts: [event for part in parts for event in part]
)


def framed(events: list[Any]) -> bytes:
    out = io.BytesIO()
    writer = RecordWriter.__new__(RecordWriter)
    writer._writer = out
    for event in events:
        writer.write(event.SerializeToString())
    return out.getvalue()


def read(data: bytes, alike: int) -> tuple[Any, ...]:
    """What a file says where so many records of a length are needed for a layout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_layouts, "_ALIKE", alike)
        patch.setattr(tensorboard, "_BLOCK", 1 << 10)
        facts = Facts()
        reading = tensorboard.read_format(io.BytesIO(data), "events", facts)
    return reading, *(repr(facts.query(f"SELECT * FROM {name}")) for name, rows in facts.counts().items() if rows)


@given(FILES, st.data())
def test_facts_are_those_of_the_decoder(events: list[Any], data: st.DataObject) -> None:
    whole = framed(events)
    assert read(whole, 1 << 30) == read(whole, 2)
    if whole:
        at = data.draw(st.integers(0, len(whole) - 1))
        cut, damaged = whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        assert read(cut, 1 << 30) == read(cut, 2)
        assert read(damaged, 1 << 30) == read(damaged, 2)


@given(similar())
def test_columns_are_the_fields_of_the_events(events: list[Any]) -> None:
    records = [event.SerializeToString() for event in events]
    sizes = [len(record) for record in records]
    starts = np.cumsum([0, *sizes[:-1]])
    columns, others = Layouts(Event).read(b"".join(records), starts, np.array(sizes))
    found = sorted((int(one.record[at]), one.place, at, one) for one in columns for at in range(len(one.record)))
    read = [number for number in range(len(events)) if number not in others]
    assert [(number, place) for number in read for place in range(len(events[number].summary.value))] == [
        (number, place) for number, place, *_ in found
    ]
    for number, place, at, one in found:
        event, value = events[number], events[number].summary.value[place]
        assert (value.tag, event.step) == (one.name, one.step[at])
        assert [_same(event.wall_time), _same(value.simple_value)] == [_same(one.when[at]), _same(one.value[at])]


def _same(value: float) -> str:
    return "nan" if math.isnan(value) else repr(float(value))


def test_most_records_have_a_layout() -> None:
    events = [
        Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1.5)]))
        for step in range(500)
    ]
    records = [event.SerializeToString() for event in events]
    starts = np.cumsum([0, *map(len, records[:-1])])
    columns, others = Layouts(Event).read(b"".join(records), starts, np.array([*map(len, records)]))
    assert [0] == others  # a step of 0 is not written
    assert 499 == sum(len(one.record) for one in columns)


def test_only_what_tensorboardx_would_write_has_a_layout() -> None:
    event = Event(wall_time=1.0, step=200, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1.5)]))
    data = event.SerializeToString()
    layout = layout_of(data, Event)
    assert layout is not None
    assert (1, (10, 2), (("loss", len(data) - 4),)) == (layout.when, layout.step, layout.values)
    assert layout_of(data + data[:9], Event) is None  # the time twice
    assert layout_of(Event(wall_time=1.0, file_version="x").SerializeToString(), Event) is None
