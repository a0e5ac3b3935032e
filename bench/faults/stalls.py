"""Ways in which a rank stops in its own code, which the ranks beside it cannot see."""

import asyncio
import ctypes
import fcntl
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

FOREVER = 10_000.0  # seconds
_NEWNS, _PRIVATE = 0x20000, 1 << 18 | 1 << 14  # unshare(2); mount(2): MS_PRIVATE | MS_REC


def hold_interpreter(folder: Path) -> None:
    """Sleep in C on the main thread and keep the interpreter's lock."""
    ctypes.PyDLL(None).sleep(int(FOREVER))


def read_frozen_mount(folder: Path) -> None:
    """Look at a FUSE mount whose server does not answer (state D), in a mount namespace of its own; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = folder / f"mount{os.getpid()}"
    place.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if (
        libc.unshare(_NEWNS)
        or libc.mount(b"none", b"/", None, _PRIVATE, None)
        or libc.mount(b"frozen", bytes(place), b"fuse", 0, options)
    ):
        raise OSError(ctypes.get_errno(), "a FUSE mount")
    (place / "shard-0003.tar").stat()


def wait_for_file_lock(folder: Path) -> None:
    """Wait for a lock that a process which does not end holds."""
    name = folder / "cache.lock"
    name.touch()
    holder = f"import fcntl, time; f = open({str(name)!r}); fcntl.flock(f, 2); time.sleep({FOREVER})"
    subprocess.Popen([sys.executable, "-c", holder])
    with name.open() as file:
        while _is_free(file.fileno()):
            time.sleep(0.05)
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def wait_for_child(folder: Path) -> None:
    subprocess.run(["sh", "-c", f"sleep {FOREVER:.0f}; : {folder}"], check=True)


def wait_in_asyncio(folder: Path) -> None:
    async def download() -> None:
        await asyncio.Event().wait()

    asyncio.run(download())


def wait_for_thread(folder: Path) -> None:
    """Wait for a queue that a thread fills which is stuck itself."""
    batches: queue.Queue[int] = queue.Queue()
    threading.Thread(target=time.sleep, args=(FOREVER,), name="prefetch", daemon=True).start()
    batches.get()


def deadlock_on_lock(folder: Path) -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def try_again(folder: Path) -> None:
    """Wait for a file in a loop that sleeps."""
    while not (folder / "tokens.bin").exists():
        time.sleep(1.0)


def stop_in_debugger(folder: Path) -> None:
    """A debugger attaches and stops the process (state t)."""
    subprocess.Popen(["gdb", "-q", "-batch", "-p", str(os.getpid()), "-ex", f"shell sleep {FOREVER:.0f}", "-ex", f"echo {folder}"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    time.sleep(FOREVER)


def wait_in_barrier(folder: Path) -> None:
    """Believe that the epoch is over, as a rank with fewer samples does."""
    dist.barrier()


STALLS: dict[str, Callable[[Path], None]] = {
    "gil-main": hold_interpreter, "frozen-mount": read_frozen_mount, "file-lock": wait_for_file_lock, "child": wait_for_child,
    "asyncio": wait_in_asyncio, "queue": wait_for_thread, "lock": deadlock_on_lock, "retry": try_again, "gdb": stop_in_debugger,
    "fewer": wait_in_barrier,
}  # fmt: skip
