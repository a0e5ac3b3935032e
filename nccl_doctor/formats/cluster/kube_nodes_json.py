"""Nodes of Kubernetes as JSON: `kubectl get nodes -o json`, `kubectl get node NAME -o json`, `kubectl get --raw /api/v1/nodes`."""

import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import KubeNode, KubeResource
from nccl_doctor.formats.captures.kube_nodes import is_bad
from nccl_doctor.formats.cluster.slurm_values import Elements, inner, text
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.json_depth import TooDeep
from nccl_doctor.inputs.json_items import BrokenJson
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 1 << 10  # bytes within which a list says so
_MOST = 100_000  # nodes of one file
_CONDITIONS = 60  # of one node
_RESOURCE = re.compile(r"[a-z0-9.-]{2,100}/[\w.-]{1,60}|hugepages-\w{2,8}")
_AMOUNT = re.compile(r"\d{1,18}[A-Za-z]{0,2}")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the conditions and the devices of every node.

    Source: type NodeStatus of k8s.io/api/core/v1, as kubectl 1.20 and newer print it::

        {"kind": "Node", "metadata": {"name": "node01"}, "status": {
          "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"},
          "conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}]}}
    """
    head = read_head(stream, _HEAD)
    stream = Joined(head, stream)
    is_list = re.search(rb"\"items\"|\"NodeList\"", head) is not None
    elements = Elements(stream, "items")
    nodes = iter(elements) if is_list else elements.only()
    rows: list[KubeNode | KubeResource] = []
    used = 0
    note = None
    try:
        for line, node in nodes:
            found = list(_rows(node))
            if found:
                used += 1
                ref = facts.evidence(name, line, _shown(found))
                rows += (row._replace(file=name, ref=ref) for row in found)
            if used >= _MOST:
                note = f"holds more than {_MOST:,} nodes; the others were left out"
                break
    except (BrokenJson, TooDeep) as error:
        note = f"{error}; {used:,} nodes before that were read"
    facts.add(rows)
    facts.mark_covered("kube_node", "kube_resource")
    return Reading(max(elements.lines, 1), used, note)


def _rows(node: dict[str, Any]) -> Iterator[KubeNode | KubeResource]:
    host = text(inner(node, "metadata").get("name"))
    status = inner(node, "status")
    if host is None or node.get("kind", "Node") != "Node":
        return
    conditions = status.get("conditions")
    for condition in conditions[:_CONDITIONS] if isinstance(conditions, list) else ():
        if not isinstance(condition, dict):
            continue
        kind, state = text(condition.get("type")), text(condition.get("status"))
        if kind is not None and state is not None:
            told = text(condition.get("message")) or text(condition.get("reason"))
            yield KubeNode(host, "", kind, is_bad(kind, state), told, 0)
    if inner(node, "spec").get("unschedulable") is True:
        yield KubeNode(host, "", "SchedulingDisabled", 0, None, 0)
    capacity, allocatable = inner(status, "capacity"), inner(status, "allocatable")
    for name in list(capacity)[:_CONDITIONS]:
        most, usable = (_amount(amounts.get(name)) for amounts in (capacity, allocatable))
        if _RESOURCE.fullmatch(name) and most is not None:
            yield KubeResource(host, "", name, most, usable, None, 0)


def _amount(value: object) -> str | None:
    return value if isinstance(value, str) and _AMOUNT.fullmatch(value) else None


def _shown(rows: list[KubeNode | KubeResource]) -> str:
    """A node in one line: what is wrong with it, and its devices."""
    parts = []
    for row in rows:
        if isinstance(row, KubeResource):
            parts.append(f"{row.name} {row.allocatable} of {row.capacity} allocatable")
        elif row.bad or row.condition in ("Ready", "SchedulingDisabled"):
            parts.append(row.condition if not row.bad else f"{row.condition}: {row.text}")
    host = next(row.host if isinstance(row, KubeNode) else row.node for row in rows)
    return f"{host}: {', '.join(parts)}"[:600]
