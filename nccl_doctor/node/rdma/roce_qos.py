"""Priorities, congestion control and traffic class of RoCE ports, as NVIDIA's drivers show them below /sys.

`ecn/roce_np` and `ecn/roce_rp` of an interface have a switch for each of the eight priorities; `tc/1/traffic_class` of an RDMA
device says `Global tclass=106` where one was set for all traffic (MLNX_OFED: Explicit Congestion Notification, RoCE).
Drivers of the kernel itself have none of these files.
"""

import re
from collections.abc import Iterator, Sequence

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import RoceQos
from nccl_doctor.node.rdma.rdma_ports import BASE
from nccl_doctor.node.runtime.root import Root

PRIORITIES = range(8)
_TRAFFIC_CLASS = re.compile(r"tclass\s*=\s*(\d{1,3})$")


def collect(root: Root, device: str, interfaces: Sequence[str]) -> Iterator[RoceQos]:
    """A row for each interface of the device of which anything is shown."""
    folder = f"{BASE}/{device}/tc/1/traffic_class"
    match = _TRAFFIC_CLASS.search(root.value(folder) or "")
    traffic_class = int(match[1]) or None if match else None
    for interface in interfaces:
        settings = f"/sys/class/net/{interface}"
        notified, reacting = (_priorities(root, f"{settings}/ecn/{point}/enable") for point in ("roce_np", "roce_rp"))
        trust = root.value(f"{settings}/qos/trust")
        if (notified, reacting, trust, traffic_class) == (None, None, None, None):
            continue
        marks = (
            f"roce_np at priority {_told(notified)}, roce_rp at {_told(reacting)}, trust {trust or '?'}"
            f", traffic class {traffic_class or 'not set'}"
        )
        yield RoceQos(
            host=None, device=device, interface=interface, notified=notified, reacting=reacting, trust=trust,
            traffic_class=traffic_class, marks=marks, ref=Seen(f"{settings}/ecn", f"{interface}: {marks}"),
        )  # fmt: skip


def _priorities(root: Root, folder: str) -> str | None:
    """The priorities that are switched on; None where the driver does not show them."""
    switches = {number: root.value(f"{folder}/{number}") for number in PRIORITIES} if root.exists(folder) else {}
    if not any(value in ("0", "1") for value in switches.values()):
        return None
    return " ".join(str(number) for number, value in switches.items() if value == "1")


def _told(priorities: str | None) -> str:
    return "?" if priorities is None else priorities or "none"
