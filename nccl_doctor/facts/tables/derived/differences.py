"""In what nodes or files that should be equal differ; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class TopoDifference(NamedTuple):
    """Something in which two topology files of one job differ; derived."""

    what: str
    file: str
    value: str
    other_file: str
    other_value: str
    ref: int


class NodeOdd(NamedTuple):
    """A node that differs from the majority of the nodes that were asked together, or from the only other one; derived."""

    host: str | None
    subject: str  # driver, nccl, kernel, gpus, firmware, gid, mtu, plugin, mount, setting, clock
    name: str  # what of it: a mount's path, a variable; else the subject again
    value: str  # of this node
    common: str  # of most others
    same: int  # nodes that have the common value
    nodes: int  # nodes that were compared
    ref: int


class VersionMix(NamedTuple):
    """A host on which a component has another version than on most hosts of the job; derived from what logs state."""

    host: str
    name: str  # aws-ofi-nccl, libfabric, cuda-driver, pytorch, horovod, …
    version: str  # on this host
    usual: str  # on most others
    same: int  # hosts that have the usual version
    hosts: int  # hosts that state a version of it
    ref: int
    usual_ref: int  # a line that states the usual version


class HostOdd(NamedTuple):
    """A host of a job whose log shows something else than those of nearly all others show; derived, from three hosts on."""

    host: str
    subject: str  # network, cards, interface, plugin, gpus, inside (what carries data inside the host), gpudirect
    value: str  # of this host
    common: str  # of most others
    same: int  # hosts that have the common value
    hosts: int  # hosts of which the log shows it
    ref: int
    common_ref: int  # a line of a host that has the common value
