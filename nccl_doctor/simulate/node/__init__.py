"""Trees of invented nodes: what /proc, /sys, /dev, NVML and commands of a machine type show, with a fault of choice.

Importing a module registers its parts of a node and its faults.
"""

from nccl_doctor.simulate.node import (  # noqa: F401
    amd,
    base,
    bus,
    gpu,
    gpu_faults,
    kernel_log,
    network_faults,
    scheduler,
    security,
    software,
    surroundings,
)
from nccl_doctor.simulate.node.machines import ALL_MACHINES, AMD_MACHINES, MACHINES, Machine, Nic
from nccl_doctor.simulate.node.tree import EXTRA, FAULTS, Fault, Tree, build, fault, part

__all__ = [
    "ALL_MACHINES",
    "AMD_MACHINES",
    "EXTRA",
    "FAULTS",
    "MACHINES",
    "Fault",
    "Machine",
    "Nic",
    "Tree",
    "build",
    "fault",
    "part",
]
