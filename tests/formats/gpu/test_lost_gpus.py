"""GPUs that `nvidia-smi dmon` cannot read any more: named, whichever way its rows are read, and never of a GPU without a sensor."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuCounter
from nccl_doctor.formats.gpu import samples as gpu_samples

TITLES = "# gpu    pwr  gtemp  mtemp     sm    mem   pclk \n# Idx      W      C      C      %      %    MHz \n"
LOST = "    2   ERR!   ERR!   ERR!   ERR!   ERR!   ERR! \n"


def _row(gpu: int, memory: str = "66") -> str:
    return f"    {gpu}    640     58 {memory:>6}     99     48   1980 \n"


def _unreadable(text: str) -> list[tuple[str | None, int | None]]:
    facts = Facts()
    gpu_samples.read_format(io.BytesIO(text.encode()), "dmon.txt", facts)
    return [(row.host, row.gpu) for row in facts.rows(GpuCounter) if row.name == "unreadable"]


@pytest.mark.parametrize("sweeps", [1, 5, 500])
@pytest.mark.parametrize("titles_every", [2, 1000])
def test_a_lost_gpu_is_named_once(sweeps: int, titles_every: int) -> None:
    good, bad = _row(0) + _row(1) + _row(2), _row(0) + _row(1) + LOST
    text = "".join(TITLES * (at % titles_every == 0) + (good if at < sweeps else bad) for at in range(2 * sweeps))
    assert [(None, 2)] == _unreadable(text)


@pytest.mark.parametrize("sweeps", [1, 500])
def test_a_missing_sensor_is_not_a_lost_gpu(sweeps: int) -> None:
    assert [] == _unreadable(TITLES + (_row(0, "-") + _row(1, "N/A")) * sweeps)


def test_the_node_of_a_lost_gpu_is_named() -> None:
    text = "".join(f"node0{node}: {line}\n" for node in (1, 2) for line in (TITLES + _row(0) + _row(2)).splitlines())
    assert [("node02", 2)] == _unreadable(text + f"node02: {LOST}")


@pytest.mark.parametrize("word", ["GPU is lost.  Reboot the system to recover this GPU", "Unknown Error"])
def test_the_line_with_which_it_ends_names_the_lost_gpu(word: str) -> None:
    facts = Facts()
    text = TITLES + _row(0) + f"Unable to determine the device handle for GPU 0000:9B:00.0: {word}\n"
    gpu_samples.read_format(io.BytesIO(text.encode()), "dmon.txt", facts)
    [row] = [row for row in facts.rows(GpuCounter) if row.name == "unreadable"]
    assert (None, None) == (row.host, row.gpu)
    assert [("dmon.txt", 4)] == facts.query("SELECT file, line FROM evidence WHERE id = ?", (row.ref,))
