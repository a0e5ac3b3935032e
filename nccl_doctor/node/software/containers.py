"""Containers on this node: NVIDIA's toolkit, its device specification, and the links that keep devices across a reload of systemd."""

import json
import re
from collections.abc import Iterator

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import ContainerFact
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software.environment import device_files

_SPECS = ("/etc/cdi", "/var/run/cdi")
_DOCKER, _CONTAINERD, _CRIO = "/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/crio/crio.conf"


def facts(root: Root) -> Iterator[ContainerFact]:
    """Nothing where no container runtime is configured and no toolkit is installed."""
    yield from _toolkit(root)
    yield from _specs(root)
    driver = _cgroup_driver(root)
    if driver is None:
        return
    name, path = driver
    yield _fact("cgroup-driver", name, path)
    if minors := device_files(root):
        missing = [f"nvidia{number}" for number in minors if not root.exists(f"/dev/char/195:{number}")]
        yield _fact("dev-char-missing", " ".join(missing), "/dev/char")


def _fact(name: str, value: str, path: str) -> ContainerFact:
    return ContainerFact(None, name, value, path, Seen(path, f"{name}: {value}"))


def _toolkit(root: Root) -> Iterator[ContainerFact]:
    for command in ("nvidia-ctk", "nvidia-container-cli"):
        path = f"/usr/bin/{command}"
        if not root.exists(path):
            continue
        try:
            out = root.run(command, "--version", seconds=1.0)
        except TimeoutError:
            continue
        match = re.search(r"(?:version:?|cli-version:)\s+v?(\d+\.\d+\.\d+)", out.text) if out else None
        if match:
            yield _fact("toolkit", match[1], path)
            return


def _specs(root: Root) -> Iterator[ContainerFact]:
    for folder in _SPECS:
        for name in root.names(folder):
            text = (
                root.text(f"{folder}/{name}") if re.fullmatch(r".{0,255}nvidia.{0,255}\.(ya?ml|json)", name) else None
            )
            if not text:
                continue
            if match := re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", text):
                yield _fact("cdi-driver", match[1], f"{folder}/{name}")
            devices = set(re.findall(r"path\"?:\s*\"?(/dev/nvidia\d+)\b", text))
            yield _fact("cdi-gpus", str(len(devices)), f"{folder}/{name}")


def _cgroup_driver(root: Root) -> tuple[str, str] | None:
    """(systemd or cgroupfs, file that decides it) of the runtime; None where none is configured."""
    text = root.text(_DOCKER)
    if text is not None:
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            loaded = {}
        options = loaded.get("exec-opts", []) if isinstance(loaded, dict) else []
        parsed = " ".join(str(one) for one in options) if isinstance(options, list) else ""
        match = re.search(r"native\.cgroupdriver=(\w+)", parsed)
        if match:
            return match[1], _DOCKER
        unified = root.exists("/sys/fs/cgroup/cgroup.controllers")
        return ("systemd" if unified and root.exists("/run/systemd/system") else "cgroupfs"), _DOCKER
    text = root.text(_CONTAINERD)
    if text is not None:
        on = re.search(r"^[ \t]*SystemdCgroup[ \t]*=[ \t]*true", text, re.MULTILINE)
        return ("systemd" if on else "cgroupfs"), _CONTAINERD
    text = root.text(_CRIO)
    if text is not None:
        match = re.search(r"^[ \t]*cgroup_manager[ \t]*=[ \t]*\"(\w+)\"", text, re.MULTILINE)
        return (match[1] if match else "systemd"), _CRIO
    return None
