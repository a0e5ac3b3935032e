"""One process that py-spy dumped more than once is one rank, as it was last; equal process ids of two containers are two."""

import io

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.formats.profiles import pyspy

COLLECTIVE = "wait (torch/distributed/distributed_c10d.py:2806)"


def dump(pid: int, frame: str, threads: int = 3, first: int = 0) -> str:
    """A dump of a process with its main thread and others, numbered from `first`."""
    others = [
        f'Thread {(first or pid) + at} (idle): "pt_{at}"\n    wait (threading.py:320)\n' for at in range(1, threads + 1)
    ]
    return (
        f'Process {pid}: python train.py\nPython v3.11.9 (/usr/bin/python)\n\nThread {pid} (idle): "MainThread"\n    {frame}\n'
        + "".join(others)
    )


def doing(*dumps: tuple[str, str]) -> list[tuple[int | None, int, str, int, int | None]]:
    facts = Facts()
    for name, text in dumps:
        pyspy.read_format(io.BytesIO(text.encode()), name, facts)
    derive_all(facts)
    return [(row.rank, row.pid, row.doing, row.ranks, row.moved) for row in facts.rows(RankDoing)]


def test_two_dumps_of_one_process_are_one_rank() -> None:
    once, later = dump(4242, "load (train.py:10)"), dump(4242, COLLECTIVE)
    assert [(None, 4242, "collective", 1, 1)] == doing(("a.txt", once), ("b.txt", later))
    assert [(None, 4242, "other", 1, 0)] == doing(("a.txt", once), ("b.txt", once))
    assert [(None, 4242, "collective", 1, 1)] == doing(("both.txt", once + "\n" + later))
    assert [(3, 4242, "collective", 1, 1)] == doing(("rank3.txt", once), ("again.txt", later))
    alone = dump(4242, COLLECTIVE, threads=0)
    assert [(None, 4242, "collective", 1, 0)] == doing(("a.txt", alone), ("b.txt", alone))


def test_equal_process_ids_of_two_containers_are_two_ranks() -> None:
    one, other = dump(7, COLLECTIVE, first=20), dump(7, "load (train.py:10)", first=90)
    assert [2, 2] == [row[3] for row in doing(("a.txt", one), ("b.txt", other))]
    same = dump(7, COLLECTIVE)
    assert [(0, 2), (1, 2)] == [(row[0], row[3]) for row in doing(("rank0.txt", same), ("rank1.txt", same))]
    alone = dump(7, COLLECTIVE, threads=0)
    assert [2, 2] == [row[3] for row in doing(("a.txt", alone), ("b.txt", alone))]


def test_a_process_that_waits_for_itself_is_no_hang() -> None:
    """The first dump was of the start, the second of the collective: nobody is outside of it."""
    found = doing(
        ("t0.txt", dump(4242, "load (train.py:10)")),
        ("t1.txt", dump(4242, COLLECTIVE)),
        ("t2.txt", dump(4242, COLLECTIVE)),
    )
    assert [(None, 4242, "collective", 1, 0)] == found


def test_numbers_with_zeros_in_front_are_numbers() -> None:
    text = dump(4242, COLLECTIVE).replace("Thread 4242", "Thread 0004242").replace("Thread 4243", "Thread 0x00001093")
    assert doing(("a.txt", dump(4242, COLLECTIVE))) == doing(("a.txt", text))
