"""The file of an offline run of Weights & Biases: one that wandb 0.31 wrote, whole, cut and changed.

It is of this loop on one CPU, with `wandb.Settings(host="node01", x_disable_stats=True, …)`, and ended with `finish(exit_code=1)`.
"""

import io
import random
import zlib
from collections.abc import Iterator

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.trackers import wandb_run
from nccl_doctor.formats.training.metrics import rank_of

RUN = FIXTURES / "records" / "run-slow.wandb"


def logged() -> Iterator[float]:
    """The step times that the loop logged."""
    source = random.Random(1)
    for step in range(40):
        yield 0.1 * (1 + source.random() * 0.02) * (2.5 if step >= 20 else 1)


def read(data: bytes) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, wandb_run.read_format(io.BytesIO(data), "run.wandb", facts)


def test_an_offline_run_is_read_to_the_digit() -> None:
    known = recognise(RUN.read_bytes()[:4096])
    assert known is not None
    assert "wandb-run" == known.kind
    facts, reading = read(RUN.read_bytes())
    assert reading.note is None
    assert list(logged()) == [step.seconds for step in facts.rows(Step)]
    (run,) = facts.rows(ThroughputRun)
    assert (0, 39, 16, 64) == (run.first_step, run.last_step, run.gpus, run.batch)
    scalars = facts.query("SELECT name, n, first, last FROM scalar WHERE name <> 'perf/step_time'")
    assert {("train/loss", 40, 3.0, 2.61), ("train.grad_norm", 40, 1.0, 1.975)} == set(scalars)


def test_its_end_and_its_slower_half_are_found() -> None:
    report, facts, _ = analyze.analyze([str(RUN)])
    assert {"rank-exited", "throughput-drop"} == {one.name for one in report.findings}
    assert [("node01", 1, "wandb")] == facts.query("SELECT host, exitcode, reporter FROM process_end")


@pytest.mark.parametrize("size", [7, 3000, 10_000])
def test_a_run_that_was_killed_says_so(size: int) -> None:
    facts, reading = read(RUN.read_bytes()[:size])
    assert reading.note is not None
    assert ("no record of its end" if size == 7 else "ends in the middle of a record") in reading.note
    times = [step.seconds for step in facts.rows(Step)]
    assert list(logged())[: len(times)] == times
    assert (size > 7) == bool(times)


def test_records_longer_than_a_block_and_values_of_other_kinds() -> None:
    """Framed here by LevelDB's own description: a record in three pieces, with a table that is left out."""
    large = '{"_type": "table", "x": "' + "y" * 80_000 + '"}'
    items = b"".join(
        item(key, value) for key, value in (("loss", "NaN"), ("t", large), ("step_time", "0.5"), ("_step", "1"))
    )
    data = framed([field(2, items), field(2, item("step_time", "0.25") + item("_step", "2")), field(18, b"\x08\x00")])
    facts, reading = read(data)
    assert (3, None) == (reading.understood, reading.note)
    assert [0.5, 0.25] == [step.seconds for step in facts.rows(Step)]
    assert [("loss", 1)] == facts.query("SELECT name, not_finite FROM scalar WHERE name <> 'step_time'")


@pytest.mark.parametrize(
    ("names", "rank"), [(("rank", "world_size"), 2), (("rank",), None), (("lora_rank", "world_size"), None)]
)
def test_the_rank_in_the_configuration_of_a_run(names: tuple[str, ...], rank: int | None) -> None:
    """A rank without a number of ranks may be one of LoRA."""
    assert rank == rank_of({names[0]: 2} | dict.fromkeys(names[1:], 4), 4 if "world_size" in names else None)


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def item(key: str, value: str) -> bytes:
    return field(1, field(1, key.encode()) + field(16, value.encode()))


def varint(value: int) -> bytes:
    more = value >> 7
    return bytes([value & 0x7F | 0x80]) + varint(more) if more else bytes([value])


def framed(records: list[bytes]) -> bytes:
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        begun = False
        while record or not begun:
            left = 32_768 - len(data) % 32_768
            if left < 7:
                data += bytes(left)
                continue
            piece, record = record[: left - 7], record[left - 7 :]
            kind = (3 if record else 4) if begun else (2 if record else 1)
            check = zlib.crc32(bytes([kind]) + piece)
            data += check.to_bytes(4, "little") + len(piece).to_bytes(2, "little") + bytes([kind]) + piece
            begun = True
    return data


@given(st.integers(7, RUN.stat().st_size), st.binary(max_size=12))
def test_a_changed_file_never_fails(at: int, noise: bytes) -> None:
    data = RUN.read_bytes()
    facts, _ = read(data[:at] + noise + data[at + len(noise) :])
    assert len(facts.rows(Step)) <= 40


def test_the_gpus_that_work_are_sampled() -> None:
    # StatsRecord { timestamp = 2, item = 3 }: all GPUs of the node; 0 and 1 are of others
    records = []
    for number in range(30):
        stamp = field(2, bytes([1 << 3]) + varint(1_700_000_000 + 30 * number))
        items = b"".join(
            field(3, field(1, f"gpu.{gpu}.{name}".encode()) + field(16, str(value).encode()))
            for gpu in range(4)
            for name, value in (
                ("gpu", 97.0 if gpu > 1 else 0.0), ("powerWatts", 600.5 if gpu > 1 else 70.0), ("temp", 60 + gpu),
                ("memoryAllocatedBytes", 40 << 30),
            )
        )  # fmt: skip
        records.append(field(7, stamp + items))
    facts, _ = read(framed(records))
    wanted = [(2, 30, 97.0, 62.0, 40960.0, 870.0), (3, 30, 97.0, 63.0, 40960.0, 870.0)]
    assert wanted == facts.query(
        "SELECT gpu, samples, util_mean, temperature_max, memory_max, seconds FROM gpu_use WHERE source = 'wandb' ORDER BY gpu"
    )
