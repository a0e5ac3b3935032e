"""The Python of the task: its interpreter, its folders of packages, and those packages that use GPUs or the network."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software.variables import folders

_VERSION = re.compile(r"python(3\.\d+)")
_PACKAGE = re.compile(
    r"(torch|tensorflow|tensorflow_cpu|tensorflow_gpu|horovod|nvidia_nccl_cu\d+|nvidia_cuda_runtime(?:_cu\d+)?|mpi4py)"
    r"-([^-]+?)(?:-py[\d.]+)?(?:-[\w.]+)?\.(?:dist|egg)-info"
)
_BLOCK = re.compile(r"^==> (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) <==$", re.MULTILINE)
_CHANGED = re.compile(r"^[+-](?:\S*::)?([\w.-]+?)-[^-\s]+-[^-\s]+$", re.MULTILINE)
_MATTERS = re.compile(r"nccl|cuda|cudnn|torch|tensorflow|horovod|mpi|ucx|libfabric|libstdcxx|libgcc|numpy|^python$")
_SLACK = 120  # seconds between pip's record and the end of the same script's conda step


class Site(NamedTuple):
    """A folder of packages."""

    path: str
    kind: str  # PYTHONPATH, user, env, system


class Python(NamedTuple):
    """The interpreter that `python` starts in the task."""

    prefix: str
    version: str  # 3.11
    conda: bool
    sites: list[Site]  # in the order of the search


class Packaged(NamedTuple):
    """A package of a site folder."""

    name: str
    version: str
    site: Site
    info: str  # its folder of metadata


class Change(NamedTuple):
    """A block of conda-meta/history that added or took away packages."""

    stamp: float | None
    packages: list[str]
    line: int


def find(root: Root, environment: Mapping[str, str]) -> Python | None:
    """The first `python`, else `python3`, of PATH that has a library folder; without PATH that of the active environment."""
    path = [entry for entry in folders(environment.get("PATH")) if entry.startswith("/")][:40]
    active = [environment[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)]
    candidates = [f"{entry}/{name}" for name in ("python", "python3") for entry in path]
    candidates += [f"{entry}/bin/python" for entry in active]
    for candidate in candidates:
        if not root.exists(candidate):
            continue
        for place in (candidate, root.target(candidate) or candidate):
            prefix = os.path.dirname(os.path.dirname(place)) or "/"
            if made := _of_prefix(root, environment, prefix):
                return made
    return None


def _of_prefix(root: Root, environment: Mapping[str, str], prefix: str) -> Python | None:
    if prefix == "/":
        prefix = "/usr"
    versions = [m[1] for name in root.names(f"{prefix}/lib") if (m := _VERSION.fullmatch(name))]
    if not versions:
        return None
    version = max(versions, key=lambda text: int(text.partition(".")[2]))
    virtual = root.text(f"{prefix}/pyvenv.cfg")
    shared = virtual is None or re.search(r"include-system-site-packages\s*=\s*true", virtual) is not None
    sites = [Site(entry, "PYTHONPATH") for entry in folders(environment.get("PYTHONPATH")) if entry.startswith("/")]
    user = Site(f"{environment.get('HOME', '')}/.local/lib/python{version}/site-packages", "user")
    own = [Site(f"{prefix}/lib/python{version}/site-packages", "env")]
    if prefix in ("/usr", "/usr/local"):
        own = [
            Site(f"/usr/local/lib/python{version}/site-packages", "env"),
            Site(f"/usr/local/lib/python{version}/dist-packages", "env"),
            Site("/usr/lib/python3/dist-packages", "env"),
            Site(f"/usr/lib/python{version}/site-packages", "env"),
        ]
    users = [user] if shared and environment.get("HOME") and not environment.get("PYTHONNOUSERSITE") else []
    sites += [*own, *users] if virtual is not None else [*users, *own]
    if virtual is not None and shared:
        home = re.search(r"^home\s*=\s*(\S+)/bin$", virtual, re.MULTILINE)
        if home:
            sites.append(Site(f"{home[1]}/lib/python{version}/site-packages", "system"))
    conda = root.exists(f"{prefix}/conda-meta")
    return Python(prefix, version, conda, [site for site in sites if root.exists(site.path)])


def packages(root: Root, python: Python) -> list[Packaged]:
    """The packages that matter, in the order in which an import would find them."""
    rows = []
    for site in python.sites[:8]:
        for name in root.names(site.path):
            if m := _PACKAGE.fullmatch(name):
                rows.append(Packaged(m[1].replace("_", "-"), m[2], site, f"{site.path}/{name}"))
    return rows


def torch_build(text: str | None) -> tuple[str | None, str | None]:
    """(version, CUDA version or `none`) of torch/version.py."""
    version = re.search(r"^__version__[ \t]{0,80}(?::[^=]{0,80})?=\s{0,80}['\"]([^'\"]+)", text or "", re.MULTILINE)
    cuda = re.search(r"^cuda[ \t]{0,80}(?::[^=]{0,80})?=\s{0,80}(None|['\"]([\d.]+)['\"])", text or "", re.MULTILINE)
    hip = re.search(r"^hip[ \t]{0,80}(?::[^=]{0,80})?=\s{0,80}['\"]", text or "", re.MULTILINE)
    built = None if cuda is None or hip else (cuda[2] or "none")
    return (version[1] if version else None), built


def tensorflow_build(text: str | None) -> str | None:
    """The CUDA version of tensorflow/python/platform/build_info.py, `none` for a build without CUDA; None where it says nothing."""
    if text is None:
        return None
    version = re.search(r"['\"]cuda_version['\"]\s*[,:]\s*['\"]([\d.]+)", text)
    switch = re.search(r"['\"]is_cuda_build['\"]\s*[,:]\s*(True|False)|^is_cuda_build\s*=\s*(True|False)", text, re.M)
    if switch and "False" in switch.groups():
        return "none"
    return version[1] if version else None


def nccl_pin(metadata: str | None) -> tuple[str, str] | None:
    """(package, version) of NCCL that a package asks for, of its METADATA."""
    match = re.search(r"^Requires-Dist:\s*(nvidia-nccl-cu\d+)\s*\(?==\s*([\d.]+)", metadata or "", re.MULTILINE)
    return (match[1], match[2]) if match else None


def times(root: Root, *paths: str) -> dict[str, float]:
    """When files were last written; those that are absent are left out."""

    def ask() -> dict[str, float]:
        rows = {}
        for path in paths:
            try:
                rows[path] = os.stat(path).st_mtime
            except OSError:
                continue
        return rows

    kept: Any = root.asked("times", ask) or {}
    return {path: float(kept[path]) for path in paths if isinstance(kept.get(path), (int, float))}


def conda_packages(names: list[str]) -> Iterator[tuple[str, str]]:
    """(name, version) of the files in conda-meta."""
    for name in names:
        stem, mark, _ = name.rpartition(".json")
        parts = stem.rsplit("-", 2)
        if mark and len(parts) == 3:
            yield parts[0], parts[1]


def conda_history(text: str, written: float | None) -> list[Change]:
    """The blocks that changed packages. The times in the file have no zone: the time of the file's last change tells it."""
    rows: list[Change] = []
    marks = list(_BLOCK.finditer(text))
    local = [iso_seconds(mark[1], local=True) or 0.0 for mark in marks]
    zone = round((written - local[-1]) / 900) * 900 if written is not None and local else 0
    if abs(zone) > 14 * 3600:
        zone = 0  # the file was copied
    for place, mark in enumerate(marks):
        end = marks[place + 1].start() if place + 1 < len(marks) else len(text)
        changed = list(dict.fromkeys(_CHANGED.findall(text, mark.end(), end)))
        if changed:
            changed.sort(key=lambda name: _MATTERS.search(name) is None)
            rows.append(Change(local[place] + zone, changed, text.count("\n", 0, mark.start()) + 1))
    return rows


def older(change: Change, installed: Mapping[str, float]) -> list[str]:
    """The packages that pip installed before this change."""
    return sorted(name for name, stamp in installed.items() if change.stamp and stamp + _SLACK < change.stamp)
