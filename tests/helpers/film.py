"""A real terminal that tests type into and read: tmux."""

import shutil
import subprocess
import tempfile
from uuid import uuid4

from helpers.waiting import until


class Film:
    """A terminal that can be read."""

    def __init__(self, columns: int, rows: int, command: str) -> None:
        self._socket = f"film-{uuid4().hex[:12]}"
        self._settings = tempfile.mkdtemp()
        command = f"export XDG_CONFIG_HOME={self._settings}; {command}"
        self._run("new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def _run(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    def frame(self) -> str:
        return self._run("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        self._run("send-keys", *names)

    def wait(self, *words: str) -> str:
        """The first picture that holds all these words."""
        frame = ""

        def shown() -> bool:
            nonlocal frame
            frame = self.frame()
            return all(word in frame for word in words)

        until(shown, lambda: f"{words} not in\n{frame}")
        return frame

    def close(self) -> None:
        self._run("kill-session")
        shutil.rmtree(self._settings)
