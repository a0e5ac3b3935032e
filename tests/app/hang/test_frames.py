"""What the text of py-spy shows of a rank."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.hang.frames import read_stack, short

PACKAGES = "/opt/env/lib/python3.11/site-packages"
WAITING = f"""Process 4001: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4001 (idle): "MainThread"
    all_reduce ({PACKAGES}/torch/distributed/distributed_c10d.py:3252)
    wrapper ({PACKAGES}/torch/distributed/c10d_logger.py:83)
        Arguments:
            token: "hunter2"
    train (/home/user/train.py:40)
        Locals:
            step: 120
            secret: "hunter2"
    <module> (/home/user/train.py:90)
Thread 4002 (idle): "watcher"
    wait (/usr/lib/python3.11/threading.py:327)
        Locals:
            i: 7
"""


def test_a_waiting_rank() -> None:
    found = read_stack(WAITING, 4001)
    assert ("all_reduce", "train (train.py:40)", "step", 120) == (found.op, found.site, found.counter, found.step)
    assert "    all_reduce (torch/distributed/distributed_c10d.py:3252)" in found.text.split("\n")
    assert "hunter2" not in repr(found)
    assert "/home/user" not in found.text.partition("\n")[2]


def test_the_place_changes_with_the_line_and_not_with_variables() -> None:
    assert read_stack(WAITING, 4001).place == read_stack(WAITING.replace("120", "121"), 4001).place
    assert read_stack(WAITING, 4001).place != read_stack(WAITING.replace("train.py:40", "train.py:41"), 4001).place


def test_a_call_into_c_is_known_by_its_source_line(tmp_path: Path) -> None:
    source = tmp_path / "5" / "root" / "work" / "train.py"
    source.parent.mkdir(parents=True)
    source.write_text("comm = MPI.COMM_WORLD\ncomm.Allreduce(a, b)\nhandle.wait()\nlock.acquire()\n")

    def at(line: int) -> tuple[str | None, str | None]:
        text = f'Process 5: python\n\nThread 5 (idle): "MainThread"\n    main (/work/train.py:{line})\n'
        found = read_stack(text, 5, tmp_path)
        return found.doing, found.op

    expected = [(None, None), ("collective", "Allreduce"), ("collective", "wait"), (None, None), (None, None)]
    assert expected == [at(line) for line in range(1, 6)]


def test_paths_are_shortened_from_the_package_on() -> None:
    assert "torch/nn/modules/linear.py" == short(f"{PACKAGES}/torch/nn/modules/linear.py")
    assert ("threading.py", "train.py", "<string>") == (
        short("/usr/lib/python3.11/threading.py"), short("/home/user/train.py"), short("<string>"),
    )  # fmt: skip


@given(st.text(max_size=300))
def test_nothing_makes_reading_fail(text: str) -> None:
    assert read_stack(WAITING + text, 4001).op == "all_reduce"
    assert read_stack(text, 1).step is None
