"""What keys do outside the screen: programs that are asked in a worker, and signals."""

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
from textual.app import App

from nccl_doctor.watch.state import Node
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.screens import Ask, Page

SECONDS = 60.0
RAS = [sys.executable, "-m", "nccl_doctor.watch.ras"]


def stacks(row: tuple[Node, dict[str, Any]] | None, here: str, via: str) -> list[str]:
    """The command that dumps the stacks of a process, or of all ranks; of another node through the way by which it is watched."""
    command = [sys.executable, "-m", "nccl_doctor", "stacks"]
    if row is None:
        return command
    node, one = row
    if node.name != here:
        command += [f"--nodes={node.name}", f"--via={via}"]
    return [*command, f"--pid={one['pid']}"] if isinstance(one.get("pid"), int) else command


def ask(app: App[None], look: Look, title: str, command: list[str]) -> None:
    """Show what a program says; the screen goes on meanwhile."""
    page = Page(look, f"asking: {title}", title)
    app.push_screen(page)

    def show(text: str) -> None:
        if page.is_attached:
            page.pager.show(text)

    def work() -> None:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                check=False,
            )  # fmt: skip
            text = (done.stdout + done.stderr).strip() or "no answer"
        except (OSError, subprocess.TimeoutExpired) as error:
            text = str(error)
        app.call_from_thread(show, text)

    app.run_worker(work, thread=True, group="ask", exit_on_error=False)


def send(app: App[None], look: Look, one: dict[str, Any], say: Any) -> None:
    """Ask which signal a process shall get, and send it where it is still the same process."""
    pid = one.get("pid")
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError, TypeError):
        say(f"process {pid} has ended")
        return

    def answered(number: signal.Signals | None) -> None:
        if number is None:
            return
        try:
            if not process.is_running():
                raise ProcessLookupError
            os.kill(process.pid, number)
            say(f"{number.name} sent to {pid}")
        except ProcessLookupError:
            say(f"process {pid} has ended")
        except OSError as error:
            say(f"{pid}: {error.strerror}")

    words = f"Process {pid}, rank {one.get('rank')}, of {one.get('user')}: {one.get('command') or ''}"
    app.push_screen(Ask(look, words[:140]), answered)
