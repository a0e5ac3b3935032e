"""What is installed for a job on this node: driver, CUDA, NCCL, frameworks, MPI, compilers, search paths."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import CondaChange, NcclLibrary, NcclSettingLine, SearchPath, SoftwareVersion
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software import elf, nccl_conf, nccl_libraries, python_env
from nccl_doctor.node.software.python_env import Packaged, Python
from nccl_doctor.node.software.variables import folders, variables

TABLES = (SoftwareVersion, NcclLibrary, SearchPath, CondaChange, NcclSettingLine)
_NETWORK = ("nfs", "nfs4", "lustre", "cifs", "smb3", "gpfs", "beegfs", "wekafs", "ceph", "fuse.sshfs", "afs", "panfs")
_ENTRIES = 60  # of a search path; longer ones are cut


def collect(root: Root) -> Iterator[Any]:
    environment = variables(root)
    python = python_env.find(root, environment)
    packages = python_env.packages(root, python) if python else []
    yield from nccl_conf.lines(root, environment)
    yield from search_paths(root, environment)
    yield from nccl_libraries.copies(root, environment, python)
    yield from _driver(root)
    yield from _cuda(root, environment)
    for package in packages:
        yield _package(root, package)
    if python:
        yield from _conda(root, python, packages)
    yield from _mpi(root, environment)
    yield from _cxx(root, environment, python)
    if root.deep or any(package.name == "horovod" for package in packages):
        yield from _gcc(root)
    if root.deep:
        yield from _horovod_says(root)


def _row(
    name: str,
    version: str | None,
    place: str,
    origin: str,
    said: str,
    cuda: str | None = None,
    nccl: str | None = None,
) -> SoftwareVersion:
    seen = Seen(place, said)
    return SoftwareVersion(None, name, version, cuda, nccl, place, origin, seen)


def _driver(root: Root) -> Iterator[SoftwareVersion]:
    path = "/proc/driver/nvidia/version"
    text = root.text(path)
    match = re.search(r"NVRM version:.{0,200}?\s(\d{3,}\.\d+(?:\.\d+)?)\s", text or "")
    if text and match:
        yield _row("nvidia-driver", match[1], path, "proc", text.splitlines()[0])


def _cuda(root: Root, environment: Mapping[str, str]) -> Iterator[SoftwareVersion]:
    """Toolkits: version.json (11.1 and newer), version.txt before; the first nvcc of PATH; the compatibility package."""
    homes = {
        root.target(f"/usr/local/{name}"): name for name in reversed(root.names("/usr/local")) if name[:4] == "cuda"
    }
    for place in sorted(place for place in homes if place):
        if version := _toolkit(root, place):
            yield _row("cuda-toolkit", version, place, "file", f"{place}: CUDA {version}")
        for name in root.names(f"{place}/compat"):
            if m := re.fullmatch(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", name):
                yield _row("cuda-compat", m[1], f"{place}/compat", "file", f"{place}/compat/{name}")
    for folder in folders(environment.get("PATH")):
        if folder.startswith("/") and root.exists(f"{folder}/nvcc"):
            place = os.path.dirname(os.path.dirname(root.target(f"{folder}/nvcc") or f"{folder}/nvcc"))
            if version := _toolkit(root, place):
                yield _row("nvcc", version, f"{folder}/nvcc", "path", f"{folder}/nvcc: CUDA {version}")
            break


def _toolkit(root: Root, place: str) -> str | None:
    text = root.text(f"{place}/version.json")
    if text:
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
    match = re.search(r"CUDA Version ([\d.]+)", root.text(f"{place}/version.txt") or "")
    return match[1] if match else None


def _package(root: Root, package: Packaged) -> SoftwareVersion:
    site, name = package.site.path, package.name
    version: str | None = package.version
    cuda = nccl = None
    parsed = package.info
    if name == "torch":
        text = root.text(f"{site}/torch/version.py")
        value, cuda = python_env.torch_build(text)
        version = value or version
        pin = python_env.nccl_pin(root.text(f"{package.info}/METADATA"))
        nccl = pin[1] if pin else None
        parsed = f"torch {version}, CUDA {cuda or '?'}{f', asks for {pin[0]} {pin[1]}' if pin else ''}"
    elif name.startswith("tensorflow"):
        cuda = "none" if name == "tensorflow-cpu" else python_env.tensorflow_build(
            root.text(f"{site}/tensorflow/python/platform/build_info.py")
        )  # fmt: skip
        parsed = f"{name} {version}, CUDA {cuda or '?'}"
    elif name == "horovod":
        nccl, parsed = _horovod(root, site)
        parsed = f"horovod {version}: {parsed}"
    elif name.startswith("nvidia-nccl"):
        nccl = version
    return _row(name, version, site, package.site.kind, parsed, cuda, nccl)


def _horovod(root: Root, site: str) -> tuple[str | None, str]:
    """The NCCL in Horovod's libraries: its version where it is linked in, `shared`, `none` where they do not call it."""
    for framework in ("torch", "tensorflow", "mxnet"):
        for name in root.names(f"{site}/horovod/{framework}"):
            if not re.fullmatch(r"mpi_lib.*\.so", name):
                continue
            path = f"{site}/horovod/{framework}/{name}"
            parsed = elf.library(root, path)
            if parsed is None or not parsed.elf:
                continue
            if not parsed.calls_nccl:
                return "none", f"{path} does not call NCCL"
            if nccl_libraries.SONAME in parsed.needed:
                return "shared", f"{path} loads {nccl_libraries.SONAME}"
            return parsed.nccl, f"{path} holds NCCL {parsed.nccl or '?'}"
    return None, "no library of it can be read"


def _conda(root: Root, python: Python, packages: list[Packaged]) -> Iterator[Any]:
    if not python.conda:
        return
    for name, version in python_env.conda_packages(root.names(f"{python.prefix}/conda-meta")):
        if name in ("nccl", "pytorch", "tensorflow", "cudatoolkit", "cuda-version", "openmpi", "mpich"):
            yield _row(f"conda-{name}", version, python.prefix, "conda", f"{name} {version} of conda")
    file = f"{python.prefix}/conda-meta/history"
    text = root.text(file)
    ours = [p for p in packages if p.site.kind == "env" and root.value(f"{p.info}/INSTALLER") == "pip"]
    if not text or not ours:
        return
    written = python_env.times(root, file, *(f"{package.info}/RECORD" for package in ours))
    installed = {p.name: written[f"{p.info}/RECORD"] for p in ours if f"{p.info}/RECORD" in written}
    for change in python_env.conda_history(text, written.get(file)):
        before = python_env.older(change, installed)
        if before:
            seen = Seen(file, text.splitlines()[change.line - 1], change.line)
            names = " ".join(change.packages[:12])
            yield CondaChange(None, python.prefix, change.stamp, names, " ".join(before), seen)


def _mpi(root: Root, environment: Mapping[str, str]) -> Iterator[SoftwareVersion]:
    """Every mpirun of PATH; files beside it tell which MPI it is."""
    seen = set()
    for folder in folders(environment.get("PATH"))[:_ENTRIES]:
        path = f"{folder}/mpirun"
        if not folder.startswith("/") or not root.exists(path):
            continue
        target = root.target(path) or path
        if target in seen:
            continue
        seen.add(target)
        prefix = os.path.dirname(os.path.dirname(path)) or "/"
        text = root.text(f"{prefix}/share/openmpi/mpicc-wrapper-data.txt")
        parsed = re.search(r"^version=([\w.]+)", text or "", re.MULTILINE)
        name, version = ("openmpi" if text is not None else "mpi"), (parsed[1] if parsed else None)
        if version is None and root.deep and (out := root.run(path, "--version")):
            match = re.search(r"\(Open MPI\) ([\w.]+)|Version:?\s+([\w.]+)", out.text)
            name = "openmpi" if "Open MPI" in out.text else "mpi"
            version = next((group for group in match.groups() if group), None) if match else None
        yield _row(name, version, path, "path", f"{path} -> {target}" if target != path else path)


def _cxx(root: Root, environment: Mapping[str, str], python: Python | None) -> Iterator[SoftwareVersion]:
    """The C++ runtimes a process could get, in the order of the search."""
    places = [(entry, "LD_LIBRARY_PATH") for entry in folders(environment.get("LD_LIBRARY_PATH"))[:_ENTRIES]]
    if python and python.conda:
        places.append((f"{python.prefix}/lib", "conda"))
    places += [(entry, "system") for entry in nccl_libraries.DEFAULT]
    seen = set()
    for folder, origin in places:
        target = root.target(f"{folder}/libstdc++.so.6") if folder.startswith("/") else None
        match = re.search(r"\.so\.(6\.\d+\.\d+)$", target or "")
        if target and match and target not in seen:
            seen.add(target)
            yield _row("libstdc++", match[1], target, origin, target)


def _gcc(root: Root) -> Iterator[SoftwareVersion]:
    """The compiler that would build Horovod."""
    for command in ("g++", "gcc"):
        try:
            out = root.run(command, "--version", seconds=1.0)
        except TimeoutError:
            continue
        match = re.search(r"^\S.{0,200}?\b(\d+\.\d+\.\d+)\b", out.text) if out and out.status == 0 else None
        if out and match:
            yield _row("gcc", match[1], command, "command", out.text.splitlines()[0])
            return


def _horovod_says(root: Root) -> Iterator[SoftwareVersion]:
    """`horovodrun --check-build`, which imports every framework and takes seconds."""
    out = root.run("horovodrun", "--check-build", seconds=20.0)
    if out is None or out.status != 0:
        return
    version = re.search(r"Horovod v([\w.]+)", out.text)
    has = re.search(r"^[ \t]*\[(X| )\] NCCL[ \t]*$", out.text, re.MULTILINE)
    if has:
        nccl = "shared" if has[1] == "X" else "none"
        parsed = has[0].strip()
        yield _row("horovod", version[1] if version else None, "horovodrun --check-build", "command", parsed, nccl=nccl)


def search_paths(root: Root, environment: Mapping[str, str]) -> Iterator[SearchPath]:
    """The entries of LD_LIBRARY_PATH and LD_PRELOAD."""
    mounts = _mounts(root.text("/proc/self/mountinfo") or "")
    for place, entry in enumerate(folders(environment.get("LD_LIBRARY_PATH"))[:_ENTRIES], 1):
        if not entry.startswith("/"):
            continue
        state = "ok" if root.exists(entry) else "missing"
        if state == "ok" and re.search(r"/stubs/?$", entry):
            state = "stubs"
        elif state == "ok" and re.search(r"/compat/?$", entry):
            state = "compat"
        filesystem = _filesystem(root.target(entry) or entry, mounts)
        seen = Seen("environment", f"LD_LIBRARY_PATH={environment['LD_LIBRARY_PATH']}")
        yield SearchPath(None, "LD_LIBRARY_PATH", place, entry, state, filesystem, seen)
    preload = environment.get("LD_PRELOAD", "")
    for place, entry in enumerate([part for part in re.split(r"[:\s]+", preload) if part][:_ENTRIES], 1):
        if entry.startswith("/"):
            state = "ok" if root.exists(entry) else "missing"
            seen = Seen("environment", f"LD_PRELOAD={preload}")
            yield SearchPath(None, "LD_PRELOAD", place, entry, state, None, seen)


def _mounts(text: str) -> dict[str, str]:
    """Mount point -> file system, of /proc/self/mountinfo; a later mount covers an earlier one."""
    rows = {}
    for line in text.splitlines():
        before, mark, after = line.partition(" - ")
        parts = before.split()
        if mark and len(parts) > 4 and after.split():
            rows[parts[4]] = after.split()[0]
    return rows


def _filesystem(path: str, mounts: Mapping[str, str]) -> str | None:
    """The network file system that a path lies on; None for local ones."""
    while path and path != "/":
        if path in mounts:
            return mounts[path] if mounts[path] in _NETWORK else None
        path = os.path.dirname(path)
    return mounts["/"] if mounts.get("/") in _NETWORK else None
