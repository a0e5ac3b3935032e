"""The specification of an invented job: the size of the cluster, its software and the fault."""

from dataclasses import dataclass

CUDA = {
    "2.4.8": "10.1",
    "2.7.8": "10.2",
    "2.10.3": "11.3",
    "2.12.12": "11.6",
    "2.14.3": "11.7",
    "2.18.3": "12.2",
    "2.19.3": "12.3",
    "2.21.5": "12.4",
    "2.22.3": "12.5",
    "2.23.4": "12.6",
    "2.25.1": "12.8",
    "2.27.7": "12.9",
    "2.28.9": "13.0",
    "2.30.7": "13.1",
}
"""NCCL version -> CUDA version it was built with, as NCCL prints it after ``+cuda``."""

VERSIONS: tuple[str, ...] = tuple(CUDA)
NETWORKS: tuple[str, ...] = ("ib", "roce", "efa", "socket")
FRAMEWORKS: tuple[str, ...] = ("pytorch", "horovod", "nccl-tests")


@dataclass(frozen=True)
class Spec:
    """One invented job; equal specs give equal text."""

    nodes: int = 2
    gpus: int = 8  # per node
    version: str = "2.21.5"  # of NCCL, one of VERSIONS
    network: str = "ib"  # one of NETWORKS
    framework: str = "pytorch"  # one of FRAMEWORKS
    prefix: str = "none"  # a key of PREFIXES
    fault: str | None = None  # a key of FAULTS, None for a healthy job
    seed: int = 0
    steps: int = 20  # training lines (rows of the table for nccl-tests)
    interleave: bool = True  # mix the ranks' lines; each rank's own order is always kept

    def check(self) -> None:
        """Raise ValueError for an unsupported value."""
        for name, value, known in (
            ("version", self.version, VERSIONS),
            ("network", self.network, NETWORKS),
            ("framework", self.framework, FRAMEWORKS),
        ):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        if not 1 <= self.nodes <= 4096 or not 1 <= self.gpus <= 16:
            raise ValueError("nodes must be 1 to 4096 and gpus 1 to 16")
        if self.steps < 1:
            raise ValueError("steps must be at least 1")


def version_tuple(version: str) -> tuple[int, int, int]:
    """``2.21.5`` as (2, 21, 5)."""
    major, minor, patch = (int(part) for part in version.split("."))
    return major, minor, patch
