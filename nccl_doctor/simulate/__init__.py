"""Logs of an invented cluster: what NCCL, the framework, the launcher and the kernel would print, with a chosen fault.

All text is made from the programs' own formats and invented values; equal specs give equal text.
"""

from nccl_doctor.simulate import (  # noqa: F401  (importing a module registers its faults)
    fault_cuda,
    fault_hardware,
    fault_interface,
    fault_memory,
    fault_mismatch,
    fault_plugin,
    fault_process,
    fault_rdma,
    fault_sync,
)
from nccl_doctor.simulate.faults import FAULTS, Fault, Needs, fit
from nccl_doctor.simulate.prefixes import PREFIXES
from nccl_doctor.simulate.spec import FRAMEWORKS, NETWORKS, VERSIONS, Spec
from nccl_doctor.simulate.story import write_log

__all__ = [
    "FAULTS",
    "FRAMEWORKS",
    "NETWORKS",
    "PREFIXES",
    "VERSIONS",
    "Fault",
    "Needs",
    "Spec",
    "fit",
    "write_log",
]
