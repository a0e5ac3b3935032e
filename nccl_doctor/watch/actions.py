"""Actions of keys outside the screen: run a program in a worker and show its output, send signals."""

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
from textual.app import App

from nccl_doctor.common.own_command import own_command
from nccl_doctor.watch.state import Node
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.screens import Page, SignalDialog

TIMEOUT = 60.0  # seconds
RAS = [sys.executable, "-P", "-m", "nccl_doctor.app.hang.ras"]


def stacks_command(row: tuple[Node, dict[str, Any]] | None, here: str, via: str) -> list[str]:
    """Returns the command that dumps the stacks of a process, or of all ranks; on another node through `via`."""
    command = [*own_command(), "stacks"]
    if row is None:
        return command
    node, process = row
    if node.name != here:
        command += [f"--nodes={node.name}", f"--via={via}"]
    return [*command, f"--pid={process['pid']}"] if isinstance(process.get("pid"), int) else command


def show_output(app: App[None], look: Look, title: str, command: list[str]) -> None:
    """Run a program and show its output on a page; the screen stays live meanwhile."""
    page = Page(look, f"running: {title}", title)
    app.push_screen(page)

    def show(text: str) -> None:
        if page.is_attached:
            page.pager.show(text)

    def work() -> None:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
                check=False,
            )  # fmt: skip
            text = (done.stdout + done.stderr).strip() or "no output"
        except (OSError, subprocess.TimeoutExpired) as error:
            text = str(error)
        app.call_from_thread(show, text)

    app.run_worker(work, thread=True, group="ask", exit_on_error=False)


def send_signal(app: App[None], look: Look, rank: dict[str, Any], show_message: Any) -> None:
    """Ask which signal to send to a rank's process, and send it if the process id still belongs to that process."""
    pid = rank.get("pid")
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError, TypeError):
        show_message(f"process {pid} has ended")
        return

    def answered(number: signal.Signals | None) -> None:
        if number is None:
            return
        try:
            if not process.is_running():
                raise ProcessLookupError
            os.kill(process.pid, number)
            show_message(f"{number.name} sent to {pid}")
        except ProcessLookupError:
            show_message(f"process {pid} has ended")
        except OSError as error:
            show_message(f"cannot signal {pid}: {error.strerror}")

    question = f"Process {pid}, rank {rank.get('rank')}, of {rank.get('user')}: {rank.get('command') or ''}"
    app.push_screen(SignalDialog(look, question[:140]), answered)
