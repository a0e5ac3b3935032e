"""Every NCCL library of a node, and in which order a process of the task would find them."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import NcclLibrary
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software import elf
from nccl_doctor.node.software.python_env import Python
from nccl_doctor.node.software.variables import folders

SONAME = "libnccl.so.2"
DEFAULT = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib64", "/usr/lib64", "/lib", "/usr/lib",
)  # fmt: skip
ELSEWHERE = ("/usr/local/cuda/lib64", "/usr/local/lib", "/opt/nccl/lib", "/opt/nccl/build/lib")
_CACHED = re.compile(r"/[^\0]{0,900}/libnccl\.so\.2(?![^\0])")
_LIBRARY = re.compile(r"libnccl\.so\.2(\.\d+)*")


class _Candidate(NamedTuple):
    path: str
    how: str
    loaded: bool  # folder that the loader searches


def torch_library(root: Root, python: Python | None) -> tuple[str, elf.Library] | None:
    """PyTorch's library that calls NCCL."""
    for site in python.sites if python else ():
        path = f"{site.path}/torch/lib/libtorch_cuda.so"
        if root.exists(path) and (parsed := elf.library(root, path)):
            return path, parsed
    return None


def copies(root: Root, environment: Mapping[str, str], python: Python | None) -> Iterator[NcclLibrary]:
    """The libraries in the order of the search; those that no process finds by itself come last."""
    torch = torch_library(root, python)
    seen: set[str] = set()
    place = 0
    if torch and torch[1].nccl and SONAME not in torch[1].needed:
        path, own = torch
        place = 1
        yield NcclLibrary(
            None, path, path, own.nccl, own.cuda, "torch", 1, own.size, *elf.span(own),
            Seen(path, own.nccl or ""),
        )  # fmt: skip
    for path, how, loaded in _candidates(root, environment, python, torch):
        target = root.target(path)
        if target is None or target in seen:
            continue
        seen.add(target)
        known = elf.library(root, target)
        named = elf.version_in_name(target)
        inside = known.nccl if known else None
        place += loaded
        text = f"{path}{'' if target == path else f' -> {target}'}: NCCL {inside or named or '?'}"
        yield NcclLibrary(
            None, path, target, inside or named, known.cuda if known else None, how if loaded else "not searched",
            place if loaded else None, known.size if known else None, *elf.span(known), Seen(path, text),
        )  # fmt: skip


def _candidates(
    root: Root, environment: Mapping[str, str], python: Python | None, torch: tuple[str, elf.Library] | None
) -> Iterator[_Candidate]:
    for path in re.split(r"[:\s]+", environment.get("LD_PRELOAD", "")):
        if _LIBRARY.fullmatch(os.path.basename(path)):
            yield _Candidate(path, "LD_PRELOAD", True)
    before, after = [], []
    if torch:
        origin = os.path.dirname(torch[0])
        rpath = [] if torch[1].runpath else torch[1].rpath
        before = [os.path.normpath(entry.replace("$ORIGIN", origin)) for entry in rpath]
        after = [os.path.normpath(entry.replace("$ORIGIN", origin)) for entry in torch[1].runpath]
    yield from (_Candidate(f"{entry}/{SONAME}", "torch", True) for entry in before)
    if python and python.conda:
        yield _Candidate(f"{python.prefix}/lib/{SONAME}", "conda", True)
    for entry in folders(environment.get("LD_LIBRARY_PATH")):
        if entry.startswith("/"):
            yield _Candidate(f"{entry.rstrip('/')}/{SONAME}", "LD_LIBRARY_PATH", True)
    yield from (_Candidate(f"{entry}/{SONAME}", "torch", True) for entry in after)
    for path in dict.fromkeys(_CACHED.findall(root.text("/etc/ld.so.cache") or "")):
        yield _Candidate(path, "ld.so.cache", True)
    yield from (_Candidate(f"{entry}/{SONAME}", "default folder", True) for entry in DEFAULT)
    for site in python.sites if python else ():
        yield _Candidate(f"{site.path}/nvidia/nccl/lib/{SONAME}", "", False)
        yield _Candidate(f"{site.path}/torch/lib/{SONAME}", "", False)
    conda = environment.get("CONDA_PREFIX")
    for entry in (*([f"{conda}/lib"] if conda else []), *ELSEWHERE):
        yield _Candidate(f"{entry}/{SONAME}", "", False)
