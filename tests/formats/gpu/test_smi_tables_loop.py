"""Tables of plain `nvidia-smi` that one node printed in a loop are samples."""

import io
from collections.abc import Callable

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import smi_table

RULE = "+-----------------------------------------+------------------------+----------------------+\n"


def _table(clock: str, utils: list[int], *, model: str = "NVIDIA L40S", bus: int = 24) -> str:
    head = f"{clock}       \n{RULE}| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
    gpus = "".join(
        f"| {gpu:>3}  {model:<31}On  |   00000000:{bus + gpu:02X}:00.0 Off |                    0 |\n"
        f"| N/A   {40 + gpu}C    P0            {100 + util}W /  350W |   20480MiB /  46068MiB |    {util:>3}%      Default |\n"
        f"|                                         |                        |                  N/A |\n{RULE}"
        for gpu, util in enumerate(utils)
    )
    return head + gpus + " " * 88 + "\n"


def _read(tables: int, one: Callable[[int], str]) -> Facts:
    facts = Facts()
    smi_table.read_format(io.BytesIO("".join(map(one, range(tables))).encode()), "smi.log", facts)
    return facts


def _clock(minute: int) -> str:
    return f"Tue Oct 29 {19 + minute // 60:02}:{minute % 60:02}:24 2024"


USE = "SELECT gpu, model, samples, util_mean, power_median, memory_max, temperature_max, seconds FROM gpu_use"


def test_tables_of_a_loop_are_samples() -> None:
    facts = _read(20, lambda n: _table(_clock(n), [90, 10 * (n % 2)]))
    assert [
        (0, "NVIDIA L40S", 20, 90.0, 190.0, 20480.0, 40.0, 1140.0),
        (1, "NVIDIA L40S", 20, 5.0, 105.0, 20480.0, 41.0, 1140.0),
    ] == [(*row[:4], round(row[4], 0), *row[5:]) for row in facts.query(USE)]


def test_several_tables_a_second_are_a_loop_too() -> None:
    facts = _read(30, lambda n: _table(f"Tue Oct 29 19:00:{n // 5:02} 2024", [50]))
    assert [(30, 50.0)] == facts.query("SELECT samples, util_mean FROM gpu_use")


def test_a_few_tables_are_no_samples() -> None:
    assert [] == _read(4, lambda n: _table(_clock(n), [50])).query(USE)


def test_tables_of_other_gpus_are_of_other_nodes() -> None:
    assert [] == _read(20, lambda n: _table(_clock(n), [50], bus=24 + n)).query(USE)
    assert [] == _read(20, lambda n: _table(_clock(n), [50] * (1 + n % 2))).query(USE)


def test_tables_under_the_names_of_nodes_are_of_these() -> None:
    assert [] == _read(20, lambda n: f"node{n:02}\n{_table(_clock(n), [50])}").query(USE)


def test_tables_at_uneven_times_are_no_loop() -> None:
    assert [] == _read(20, lambda n: _table(_clock(n * n // 4), [50])).query(USE)


def test_tables_without_times_are_no_loop() -> None:
    assert [] == _read(20, lambda n: _table("", [50])).query(USE)
