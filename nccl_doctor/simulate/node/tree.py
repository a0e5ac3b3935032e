"""Trees of invented nodes: what /proc, /sys, /dev, NVML and commands of a machine type show, with a fault of choice.

A tree is what `Root` reads: files under their own paths, and a folder `.nccl-doctor` with answers that are not files.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_doctor.simulate.node.machines import ALL_MACHINES, MACHINES, Machine

EXTRA = ".nccl-doctor"


@dataclass
class Tree:
    """The files of a node, not yet written."""

    host: str = "node01"
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, path: str, text: str | int) -> None:
        """A file; a newline is added as the kernel does."""
        content = str(text)
        self.files[path] = content if content.endswith("\n") or not content else content + "\n"

    def link(self, path: str, target: str) -> None:
        self.links[path] = target

    def remove(self, prefix: str) -> None:
        """Take away a file, a link or a whole folder, and what commands and stat said of it."""
        for group in (self.files, self.links, self.extra.get("stat", {})):
            for path in [path for path in group if path == prefix or path.startswith(prefix.rstrip("/") + "/")]:
                del group[path]
        self.folders = {path for path in self.folders if path != prefix and not path.startswith(prefix + "/")}

    def stat(self, path: str, **values: Any) -> None:
        """Mode, uid, gid, device, label, opens of a path that cannot be a plain file (device nodes, labels)."""
        self.extra.setdefault("stat", {}).setdefault(path, {}).update(values)

    def command(self, line: str, text: str, status: int = 0) -> None:
        """What a command prints."""
        self.extra.setdefault("commands", {})[line] = {"status": status, "text": text}

    def write(self, folder: Path) -> None:
        """Put the tree below an empty folder."""
        made = {""}
        for path in self.folders:
            _folder(folder, path, made)
        for path, text in self.files.items():
            _folder(folder, path.rpartition("/")[0], made)
            Path(f"{folder}{path}").write_text(text, "utf-8")
        for path, leads in self.links.items():
            _folder(folder, path.rpartition("/")[0], made)
            Path(f"{folder}{path}").symlink_to(leads)
        for name, content in self.extra.items():
            _folder(folder, f"/{EXTRA}", made)
            (folder / EXTRA / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _folder(tree: Path, path: str, made: set[str]) -> None:
    """Make a folder of a tree once."""
    if path not in made:
        Path(f"{tree}{path}").mkdir(parents=True, exist_ok=True)
        made.add(path)


Change = Callable[[Tree, Machine], None]


@dataclass(frozen=True)
class Fault:
    """A fault put into a healthy tree. It has the name of the rule that must come first."""

    name: str
    change: Change
    machines: tuple[str, ...]  # machine types that can have it


PARTS: list[Change] = []
FAULTS: dict[str, Fault] = {}


def part(change: Change) -> Change:
    """Registers a function that writes one subsystem of a healthy node."""
    PARTS.append(change)
    return change


def fault(name: str, *machines: str) -> Callable[[Change], Change]:
    """Registers a fault; without machine types all with NVIDIA GPUs can have it."""

    def register(change: Change) -> Change:
        FAULTS[name] = Fault(name, change, machines or tuple(MACHINES))
        return change

    return register


def build(machine: str, planted: str | None = None, host: str = "node01") -> Tree:
    """The tree of a node of this machine type. Raises KeyError on an unknown machine type or fault."""
    kind = ALL_MACHINES[machine]
    tree = Tree(host)
    for write in PARTS:
        write(tree, kind)
    if planted is not None:
        FAULTS[planted].change(tree, kind)
    return tree
