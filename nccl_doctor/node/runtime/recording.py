"""A live node that is copied while it is read."""

import fcntl
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nccl_doctor.node.runtime.redact import KEPT, SECRET
from nccl_doctor.node.runtime.root import EXTRA, HOPS, MOST, Output, Root, Stat


class Recorder(Root):
    """Reads a live node and keeps a copy of everything that was read, as a tree that `Root` reads again."""

    def __init__(self, keep: Path, redact: Callable[[str], str] | None = None, **options: Any) -> None:
        super().__init__("/", **options)
        self._keep = keep
        self._redact = redact or (lambda text: text)
        self._told: dict[str, dict[str, Any]] = {}

    def text(self, path: str, most: int = MOST) -> str | None:
        found = super().text(path, most)
        if found is not None:
            self._put(path, _telling(found) if path.endswith("/environ") else found)
        return found

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        target = self._link(path)
        for name in found:
            entry = os.path.join(path, name)
            if os.path.islink(entry):
                self._link(entry)
            elif os.path.isdir(entry):
                (target / name).mkdir(parents=True, exist_ok=True)
            elif not (target / name).exists():
                target.mkdir(parents=True, exist_ok=True)
                (target / name).touch()
        return found

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found and not os.path.isdir(path):
            self.stat(path)
        elif found:
            self._link(path).mkdir(parents=True, exist_ok=True)
        return found

    def target(self, path: str) -> str | None:
        found = super().target(path)
        if found is not None:
            self._link(path)
        return found

    def stat(self, path: str) -> Stat | None:
        found = super().stat(path)
        if found is not None:
            self._tell("stat", path, found._asdict())
        return found

    def opens(self, path: str, flags: int = os.O_RDWR) -> str | None:
        found = super().opens(path, flags)
        if found is not None:
            self.stat(path)
            self._tell("stat", path, {"opens": found})
        return found

    def label(self, path: str) -> str | None:
        found = super().label(path)
        if found is not None:
            self.stat(path)
            self._tell("stat", path, {"label": found})
        return found

    def run(self, *command: str, seconds: float = 2.0) -> Output | None:
        found = super().run(*command, seconds=seconds)
        if found is not None:
            self._tell("commands", " ".join(command), {"status": found.status, "text": self._redact(found.text)})
        return found

    def asked(self, name: str, ask: Callable[[], Any]) -> Any:
        found = super().asked(name, ask)
        if found is not None:
            self._told.setdefault(name, {}).update(found)
            self.finish()
        return found

    def finish(self) -> None:
        """Write answers that are not files. Collectors run in separate processes, so the answers of others are kept."""
        folder = self._keep / EXTRA
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # what two read at once would be lost for one of them
            for name, told in self._told.items():
                file = folder / f"{name}.json"
                old = json.loads(file.read_text("utf-8")) if file.exists() else {}
                part = folder / f"{name}.{os.getpid()}"
                part.write_text(self._redact(json.dumps({**old, **told}, indent=1)), "utf-8")
                part.replace(file)
        finally:
            os.close(lock)

    def _tell(self, kind: str, key: str, values: dict[str, Any]) -> None:
        self._told.setdefault(kind, {}).setdefault(key, {}).update(values)

    def _put(self, path: str, content: str) -> None:
        target = self._link(path)
        if stat.S_ISREG(os.stat(path).st_mode) or not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                return
            target.write_text(self._redact(content), "utf-8")

    def _link(self, path: str) -> Path:
        """Copy the symbolic links on the way; returns where the file itself belongs."""
        done = ""
        todo = [part for part in reversed(os.path.abspath(path).split("/")) if part]
        for _ in range(HOPS * 8):
            if not todo:
                break
            here = f"{done}/{todo.pop()}"
            if not os.path.islink(here):
                done = here
                continue
            leads = os.readlink(here)
            copy = self._keep / here.lstrip("/")
            if not os.path.lexists(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # another collector was quicker
                    copy.symlink_to(os.path.relpath(leads, done or "/") if leads.startswith("/") else leads)
            whole = os.path.normpath(os.path.join(done or "/", leads))
            done = ""
            todo += [part for part in reversed(whole.split("/")) if part]
        return self._keep / done.lstrip("/")


def _telling(environ: str) -> str:
    """The variables that matter, without secrets, whoever asked to keep them."""
    kept = [one for one in environ.split("\0") if KEPT.match(one) and not SECRET.search(one.partition("=")[0])]
    return "".join(f"{one}\0" for one in kept)
