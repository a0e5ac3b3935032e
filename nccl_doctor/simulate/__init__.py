"""Writes logs of an invented cluster: what NCCL, the framework, the launcher and the kernel would print for a fault.

The text follows the formats of the programs, with invented values. Equal specs give equal text.
"""

from nccl_doctor.simulate.faults import (  # noqa: F401  (importing a module registers its faults)
    cuda,
    hardware,
    interface,
    memory,
    mismatch,
    plugin,
    process,
    rdma,
    sync,
)
from nccl_doctor.simulate.faults.registry import FAULTS, Fault, Needs, fit
from nccl_doctor.simulate.monitored import FAULTS as MONITORED_FAULTS
from nccl_doctor.simulate.monitored import write_monitored
from nccl_doctor.simulate.pairs import FAULTS as PAIR_FAULTS
from nccl_doctor.simulate.pairs import write_pairs
from nccl_doctor.simulate.prefixes import PREFIXES
from nccl_doctor.simulate.scenario import write_files, write_log
from nccl_doctor.simulate.spec import FRAMEWORKS, NETWORKS, VERSIONS, Spec

__all__ = [
    "FAULTS",
    "FRAMEWORKS",
    "MONITORED_FAULTS",
    "NETWORKS",
    "PAIR_FAULTS",
    "PREFIXES",
    "VERSIONS",
    "Fault",
    "Needs",
    "Spec",
    "fit",
    "write_files",
    "write_log",
    "write_monitored",
    "write_pairs",
]
