"""Kubernetes: TFJob, PyTorchJob, MPIJob and plain workloads as YAML, and the resources in `kubectl describe node`."""

import io
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import KubePod, KubeResource
from nccl_doctor.formats.captures import kube_nodes, shell_settings
from nccl_doctor.formats.captures.pod_states import Place, pod_rows
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable

_MAX_BYTES = 4 << 20
_DEPTH = 60
_GROWN = 100_000  # nodes that the aliases of one document may expand to
_REPLICAS = {
    "TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs", "PaddleJob": "paddleReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs", "JAXJob": "jaxReplicaSpecs",
}  # fmt: skip
_PLAIN = {"Pod", "Job", "StatefulSet", "Deployment", "DaemonSet", "ReplicaSet"}
_RESOURCE = re.compile(
    r"\s+((?:nvidia\.com|amd\.com|vpc\.amazonaws\.com|rdma|nvidia|k8s\.amazonaws\.com)/[\w.-]{1,40}|hugepages-2Mi)(?::|\s)\s*(\d\w{0,12})"
)
_SECTION = re.compile(r"(Name|Capacity|Allocatable|Allocated resources|Non-terminated Pods|System Info):\s*(\S{0,200})")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file: YAML documents, or the description of nodes.

    Source: the APIs kubeflow.org/v1, v1 and apps/v1 as `kubectl get -o yaml` prints them, and `kubectl describe node`::

        kind: PyTorchJob
          nvidia.com/gpu:     8
    """
    data = stream.read(_MAX_BYTES + 1)
    while len(data) <= _MAX_BYTES and (more := stream.read(_MAX_BYTES)):
        data += more
    text = data[:_MAX_BYTES].decode("utf-8", "replace").lstrip("\ufeff")
    total = text.count("\n") + (not text.endswith("\n"))
    if re.search(r"(?m)^(?:Capacity|Allocatable):", text) and not re.search(r"(?m)^apiVersion:", text):
        return _describe(text, name, facts)
    note = f"is larger than {_MAX_BYTES >> 20} MiB; the rest was not read" if len(data) > _MAX_BYTES else None
    used = 0
    facts.mark_covered("kube_pod")
    start = 1
    for document in re.split(r"(?m)^---[^\n]*\n", text):
        parsed, problem = _parse(document)
        if problem is not None:
            note = f"the document that starts in line {start} is not plain YAML ({problem})"
        where = _Lines(document, start)
        rows = list(_pods(parsed, name, facts, where)) if isinstance(parsed, dict) else []
        facts.add(rows)
        if rows and (states := pod_rows(list(_plain_pods(parsed)), where.find, name, facts)):
            facts.add(states)
            facts.mark_covered("message", "process_end")
        used += len(rows)
        start += document.count("\n") + 1
    settings = shell_settings.read_format(io.BytesIO(data[:_MAX_BYTES]), name, facts)
    return Reading(total, used + settings.understood, note or settings.note)


class _Lines:
    """Line numbers of keys, and of keys with a value, in one document."""

    def __init__(self, text: str, start: int) -> None:
        self._lines = text.split("\n")
        self._start = start
        self._places: dict[str | tuple[str, str], list[int]] = {}
        for at, line in enumerate(self._lines):
            key, mark, value = line.strip().removeprefix("- ").partition(":")
            if mark:
                key = key.strip(" \"'")
                self._places.setdefault(key, []).append(at)
                self._places.setdefault((key, value.strip(" \"'")), []).append(at)

    def of(self, *keys: str) -> tuple[int, str]:
        """The line of the last of these keys, each searched behind the one before."""
        at = 0
        for key in keys:
            at = self._next(key, at, at)
        return self._start + at, self._lines[at].strip() if self._lines else ""

    def find(self, key: str, value: str, behind: Place) -> Place:
        """The first line behind a place that gives a key this value, or that place."""
        found = self._next((key, value), max(behind[0] - self._start + 1, 0), -1)
        return behind if found < 0 else (self._start + found, self._lines[found].strip())

    def _next(self, entry: str | tuple[str, str], at: int, default: int) -> int:
        places = self._places.get(entry, [])
        index = bisect_left(places, at)
        return places[index] if index < len(places) else default


def _parse(text: str) -> tuple[Any, str | None]:
    """A document without objects of Python, and whose aliases do not make it grow beyond bounds."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; it has no limit of its own on nesting
    try:
        problem = _unbounded(yaml.parse(text, Loader=loader))
        return (None, problem) if problem else (yaml.load(text, Loader=loader), None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return None, (getattr(error, "problem", None) or "unreadable") + (
            f", line {mark.line + 1} of it" if mark else ""
        )
    except (ValueError, RecursionError, OverflowError):
        return None, "unreadable values"


def _unbounded(events: Iterable[Any]) -> str | None:
    """Why a document expands beyond the limits: nested too deep, or aliases that repeat each other."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

    nodes = grown = 0
    sizes: dict[str, int] = {}  # anchor -> nodes
    waiting: list[tuple[str | None, int]] = []
    for event in events:
        if isinstance(event, AliasEvent):
            if event.anchor not in sizes:
                return "an alias stands for what it is part of"
            grown += sizes[event.anchor]
            nodes += sizes[event.anchor]
        elif isinstance(event, ScalarEvent):
            nodes += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, CollectionStartEvent):
            waiting.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, CollectionEndEvent):
            anchor, before = waiting.pop()
            if anchor:
                sizes[anchor] = nodes - before
        if len(waiting) > _DEPTH:
            return "it is nested too deeply"
        if grown > _GROWN:
            return "its aliases make it grow beyond bounds"
    return None


def _pods(document: dict[str, Any], file: str, facts: Facts, where: _Lines) -> Iterator[KubePod]:
    kind, spec = document.get("kind"), _dict(document.get("spec"))
    name = _dict(document.get("metadata")).get("name")
    if kind == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, dict):
                yield from _pods(item, file, facts, where)
    if kind in _REPLICAS:
        slots = spec.get("slotsPerWorker", spec.get("nprocPerNode"))
        for role, replica in _dict(spec.get(_REPLICAS[str(kind)])).items():
            replica = _dict(replica)
            pod = _dict(_dict(replica.get("template")).get("spec"))
            yield _pod(
                pod,
                file,
                str(kind),
                name,
                str(role),
                replica.get("replicas", 1),
                slots,
                facts,
                where.of(_REPLICAS[str(kind)], str(role)),
            )
    elif kind in _PLAIN:
        pod = spec if kind == "Pod" else _dict(_dict(spec.get("template")).get("spec"))
        count = spec.get("replicas", spec.get("parallelism", 1))
        yield _pod(pod, file, str(kind), name, None, count, None, facts, where.of("kind"))


def _plain_pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods themselves, without templates."""
    if document.get("kind") == "Pod":
        yield document
    elif document.get("kind") == "List":
        yield from (item for item in _items(document.get("items")) if item.get("kind") == "Pod")


def _pod(
    pod: dict[str, Any],
    file: str,
    kind: str,
    name: Any,
    role: str | None,
    replicas: Any,
    slots: Any,
    facts: Facts,
    place: tuple[int, str],
) -> KubePod:
    containers = _items(pod.get("containers"))
    memory = {
        volume.get("name")
        for volume in _items(pod.get("volumes"))
        if _dict(volume.get("emptyDir")).get("medium") == "Memory" or "hostPath" in volume
    }
    gpus = rdma = None
    shared = lock = horovod = 0
    for container in containers:
        resources = _dict(container.get("resources"))
        for key, value in (_dict(resources.get("requests")) | _dict(resources.get("limits"))).items():
            number = _whole(value)
            if re.fullmatch(r"(?:nvidia|amd)\.com/(?:gpu|mig-[\w.]+)", str(key)) and number is not None:
                gpus = (gpus or 0) + number
            elif str(key).startswith(("rdma/", "vpc.amazonaws.com/efa", "nvidia.com/hostdev")) and number is not None:
                rdma = (rdma or 0) + number
        mounts = _items(container.get("volumeMounts"))
        shared |= int(
            any(str(m.get("mountPath")).rstrip("/") == "/dev/shm" and m.get("name") in memory for m in mounts)
        )
        security = _dict(container.get("securityContext"))
        added = _dict(security.get("capabilities")).get("add")
        lock |= int(
            bool(security.get("privileged"))
            or (isinstance(added, list) and bool({"IPC_LOCK", "ALL", "SYS_ADMIN"} & set(map(str, added))))
        )
        words = " ".join(str(part) for key in ("command", "args", "image") for part in _parts(container.get(key)))
        horovod |= int(bool(re.search(r"horovod|mpirun|mpiexec", words)))
    return KubePod(
        file=file, kind=kind, name=name if isinstance(name, str) else None, role=role,
        replicas=max(0, _whole(replicas) or 0), gpus=gpus, rdma=rdma, shared_memory=shared,
        host_network=int(bool(pod.get("hostNetwork"))), lock_memory=lock, slots=_whole(slots), horovod=horovod,
        ref=facts.evidence(file, *place),
    )  # fmt: skip


def _describe(text: str, name: str, facts: Facts) -> Reading:
    """Capacity, allocatable and requested amounts of every node."""
    node: str | None = None
    section = ""
    found: dict[tuple[str | None, str], dict[str, tuple[str, int, str]]] = {}
    number = used = 0
    for number, line in enumerate(text.split("\n"), 1):
        heading = _SECTION.match(line)
        if heading is not None:
            section = heading[1]
            node = heading[2] or node if section == "Name" else node
        resource = _RESOURCE.match(line)
        if resource is not None and section in ("Capacity", "Allocatable", "Allocated resources"):
            used += 1
            found.setdefault((node, resource[1]), {})[section] = (resource[2], number, line.strip())
    rows = []
    for (node, key), values in found.items():
        last = values.get("Allocatable") or next(iter(values.values()))
        capacity, allocatable, requested = (
            values[part][0] if part in values else None for part in ("Capacity", "Allocatable", "Allocated resources")
        )
        ref = facts.evidence(name, last[1], last[2])
        rows.append(KubeResource(node, name, key, capacity, allocatable, requested, ref))
    facts.add(rows)
    facts.mark_covered("kube_resource")
    conditions = kube_nodes.read_format(io.BytesIO(text.encode("utf-8", "replace")), name, facts)
    return Reading(number, used + conditions.understood, conditions.note)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _whole(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None
