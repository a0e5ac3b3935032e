"""`record --tty`: the job has a terminal, what is typed reaches it, and ours is as before afterwards."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

from helpers.waiting import until

JOB = """
import os, sys
print('terminal', *[os.isatty(n) for n in (0, 1, 2)], *os.get_terminal_size(), flush=True)
name = input('name? ')
print('hello', name)
sys.exit(3)
"""


def test_a_job_with_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", 33, 101, 0, 0))
    before = termios.tcgetattr(slave)
    command = [
        sys.executable,
        "-m",
        "nccl_doctor",
        "record",
        "--tty",
        "-o",
        str(tmp_path),
        "--",
        sys.executable,
        "-c",
        JOB,
    ]
    running = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    seen = bytearray()
    os.set_blocking(master, False)

    def shown(text: bytes) -> bool:
        try:
            seen.extend(os.read(master, 4096))
        except BlockingIOError:
            return text in seen
        return text in seen

    until(lambda: shown(b"name? "), lambda: bytes(seen))
    assert b"terminal True True True 101 33" in seen
    os.write(master, b"Ada\r")
    until(lambda: shown(b"hello Ada"), lambda: bytes(seen))
    assert 3 == running.wait()
    assert before == termios.tcgetattr(slave)
    os.close(slave)
    os.close(master)
    (run,) = tmp_path.glob("run-*")
    assert "hello Ada" in (run / "output.log").read_text()


def test_a_job_with_a_terminal_where_we_have_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nccl_doctor", "record", "--tty", "-o", str(tmp_path), "--"]
    job = [sys.executable, "-c", "import os, sys; print(os.isatty(1), sys.stdin.read()); sys.exit(4)"]
    done = subprocess.run([*command, *job], input="typed", capture_output=True, text=True, check=False)
    assert (4, "True typed\n") == (done.returncode, done.stdout.replace("\r", ""))
