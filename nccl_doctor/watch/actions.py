"""Actions of keys outside the screen: ask a program or a service in a worker and show the answer, send signals."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from textual.app import App

from nccl_doctor.app.hang import ras
from nccl_doctor.common.own_command import own_command
from nccl_doctor.watch.state import Node
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.screens import Page, SignalDialog

TIMEOUT = 60.0  # seconds


def stacks_command(row: tuple[Node, dict[str, Any]] | None, here: str, via: str) -> list[str]:
    """Returns the command that dumps the stacks of a process, or of all ranks; on another node through `via`."""
    command = [*own_command(), "stacks"]
    if row is None:
        return command
    node, process = row
    if node.name != here:
        command += [f"--nodes={node.name}", f"--via={via}"]
    return [*command, f"--pid={process['pid']}"] if isinstance(process.get("pid"), int) else command


def run_program(command: Sequence[str]) -> str:
    """Returns what a program prints, or why it cannot be run."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).strip() or "no output"


def ask_ras() -> str:
    """Returns what NCCL's RAS service says, or that there is none."""
    host, port = ras.address()
    try:
        return ras.query_status((host, port)).strip() or "no answer"
    except OSError as error:
        return f"no RAS service on {host}:{port}: {error.strerror or error}. It needs NCCL 2.24 or newer and NCCL_RAS_ENABLE=1."


def show_answer(app: App[None], look: Look, title: str, ask: Callable[[], str]) -> None:
    """Show what `ask` returns on a page; the screen stays live meanwhile."""
    page = Page(look, f"running: {title}", title)
    app.push_screen(page)

    def show(text: str) -> None:
        if page.is_attached:
            page.pager.show(text)

    def work() -> None:
        app.call_from_thread(show, ask())

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
