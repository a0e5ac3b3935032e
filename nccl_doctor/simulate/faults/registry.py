"""The registry of faults: name, description, requirements on the job, and signature in the log."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from nccl_doctor.simulate.cluster import Cluster
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.spec import VERSIONS, Spec, version_tuple


@dataclass(frozen=True)
class Break:
    """The stage after which the job breaks, and what is printed from there on; without a Break the job completes."""

    stage: str  # launch bootstrap network start graph connect connected complete train rest end destroy
    phases: Callable[[], Iterator[Phase]]


@dataclass(frozen=True)
class Needs:
    """Requirements on a job for a fault to be possible."""

    nodes: int = 1  # at least
    gpus: int = 1  # at least, per node
    since: str = VERSIONS[0]  # first and last NCCL version that prints it
    until: str = VERSIONS[-1]
    networks: tuple[str, ...] = ()  # one of these; empty = any
    frameworks: tuple[str, ...] = ()

    def missing(self, spec: Spec) -> str:
        """Returns what the spec lacks, as text; empty if nothing."""
        lacks = []
        if spec.nodes < self.nodes:
            lacks.append(f"at least {self.nodes} nodes")
        if spec.gpus < self.gpus:
            lacks.append(f"at least {self.gpus} GPUs per node")
        if not version_tuple(self.since) <= version_tuple(spec.version) <= version_tuple(self.until):
            lacks.append(f"an NCCL version from {self.since} to {self.until}")
        if self.networks and spec.network not in self.networks:
            lacks.append(f"network {' or '.join(self.networks)}")
        if self.frameworks and spec.framework not in self.frameworks:
            lacks.append(f"framework {' or '.join(self.frameworks)}")
        return ", ".join(lacks)


Inject = Callable[[Cluster], Break | None]


@dataclass(frozen=True)
class Fault:
    """A fault that can be put into an invented job."""

    name: str
    doc: str  # one sentence: what is wrong
    needs: Needs
    signature: re.Pattern[str]  # matches a line of every log with this fault
    inject: Inject  # changes the cluster and returns where the job breaks


FAULTS: dict[str, Fault] = {}


def fault(name: str, doc: str, signature: str, needs: Needs | None = None) -> Callable[[Inject], Inject]:
    """Register the function that injects a fault."""

    def register(inject: Inject) -> Inject:
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, doc, needs or Needs(), re.compile(signature), inject)
        return inject

    return register


def fit(spec: Spec) -> Spec:
    """Returns the spec with the changes that its fault requires: more nodes, another network, version or framework."""
    if spec.fault is None:
        return spec
    needs = FAULTS[spec.fault].needs
    version = spec.version
    if not version_tuple(needs.since) <= version_tuple(version) <= version_tuple(needs.until):
        fits = [v for v in VERSIONS if version_tuple(needs.since) <= version_tuple(v) <= version_tuple(needs.until)]
        version = fits[-1] if version_tuple(version) > version_tuple(needs.until) else fits[0]
    return replace(
        spec,
        nodes=max(spec.nodes, needs.nodes),
        gpus=max(spec.gpus, needs.gpus),
        version=version,
        network=needs.networks[0] if needs.networks and spec.network not in needs.networks else spec.network,
        framework=needs.frameworks[0]
        if needs.frameworks and spec.framework not in needs.frameworks
        else spec.framework,
    )
