"""A genuine log behind any launcher or collector: the same findings on the same hosts and ranks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.log_prefixes import FORMS, Said, analysed
from helpers.places import SHARED

REAL = SHARED / "real"
REAL_LOGS = (
    "bigscience-workshop__bigscience/experiments__bandwidth__n1_16gb_all_reduce_bench.txt",
    "bigscience-workshop__bigscience/experiments__bandwidth__n16_32gb_all_reduce_bench.txt",
    "bigscience-workshop__bigscience/experiments__bandwidth__all_reduce_bench-a100-n4.txt",
)
_HEAD = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] ")
_RANK = re.compile(
    r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[(?P<dev>\d+)\] NCCL INFO .*\brank (?P<rank>\d+) nranks (?P<of>\d+) "
)


def _genuine(text: str) -> Iterator[Said]:
    """The lines of a genuine log of one process a GPU; what no head names is the launcher's."""
    ranks: dict[tuple[str, str], tuple[int, int]] = {}
    for found in _RANK.finditer(text):
        process = found["host"], found["pid"]
        ranks[process] = max(ranks.get(process, (0, 0)), (int(found["of"]), int(found["rank"])))
    hosts = sorted({host for host, _ in ranks})
    for number, line in enumerate(text.splitlines()):
        head = _HEAD.match(line)
        process = (head["host"], head["pid"]) if head else ("", "")
        if process not in ranks:
            yield Said(line, 1.7e9 + number / 100)
        else:
            host, pid = process
            rank = ranks[process][1]
            yield Said(line, 1.7e9 + number / 100, host, hosts.index(host), rank, rank % 8, int(pid))


@pytest.mark.parametrize("name", REAL_LOGS)
def test_a_genuine_log_is_the_same_behind_any_prefix(name: str, tmp_path: Path) -> None:
    text = (REAL / name).read_text("utf-8", "replace").replace("\r\n", "\n")
    lines = list(_genuine(text))
    assert any(said.rank is not None for said in lines)
    expected = analysed("".join(f"{said.text}\n" for said in lines), tmp_path)
    for form in FORMS:
        assert expected == analysed("".join(f"{FORMS[form](said)}\n" for said in lines), tmp_path), form
