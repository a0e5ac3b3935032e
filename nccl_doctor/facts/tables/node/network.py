"""Network cards of a live node: RDMA devices, GIDs, what GPUDirect needs, interfaces, EFA, and the labels of SELinux."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class RdmaStack(NamedTuple):
    """What the kernel has loaded for RDMA and for GPUDirect between GPUs and network cards."""

    host: str | None
    devices: int  # in /sys/class/infiniband
    cards: int  # PCI functions of class InfiniBand controller, or of Amazon's EFA, without virtual functions
    uverbs: int | None  # 1 where the module ib_uverbs is there; None where the modules cannot be listed
    driver: int | None  # the same for the driver of the cards (mlx5_ib, efa, …)
    cm: int | None  # the same for rdma_ucm
    peermem: int | None  # the same for nvidia_peermem or nv_peer_mem
    registered: int | None  # 1 where the kernel lists a peer memory client (/sys/kernel/mm/memory_peers)
    open_module: int | None  # 1 with NVIDIA's open kernel module; None without a driver
    dmabuf: int | None  # 1 where kernel and driver can share GPU memory as DMA-BUF
    gpus: int  # NVIDIA GPUs on the PCI bus
    ref: Ref


class RdmaDevice(NamedTuple):
    """One device in /sys/class/infiniband."""

    host: str | None
    device: str  # mlx5_0, rdmap0s31
    kind: str  # ib, roce, efa
    driver: str | None
    rail: int  # 1 where it seems meant for GPU traffic, 0 for management or storage
    firmware: str | None
    model: str | None  # hca_type, MT4129
    board: str | None  # board_id
    pci: str | None  # 0000:18:00.0
    numa: int | None
    virtual: int  # 1 for a virtual function
    interfaces: str  # network interfaces of the same card, separated by blanks
    mtu: int | None  # of the first of them
    uverbs: str | None  # /dev/infiniband/uverbs0; None where the kernel made none
    error: str | None  # why the caller cannot open it: missing, EACCES, EPERM, ENXIO; None where it can
    mode: str | None  # permissions of that file, 0666
    gpu: str | None  # PCI address of the nearest GPU
    gpu_path: str | None  # PIX, PXB, PHB, NODE, SYS
    gpus_near: int | None  # GPUs behind the same PCIe switches (PXB or nearer); None without GPUs
    p2p: str | None  # of EFA: which GPU driver it can exchange memory with; empty = none
    ref: Ref


class RdmaGid(NamedTuple):
    """One address of an RDMA port that is in use."""

    host: str | None
    device: str
    port: int
    number: int  # what NCCL_IB_GID_INDEX counts
    gid: str
    address: str | None  # IPv4
    scope: str  # link-local, ipv4, global
    kind: str | None  # RoCE v2, IB/RoCE v1; None where it cannot be read (an address of another network namespace)
    interface: str | None
    ref: Ref


class RoceQos(NamedTuple):
    """How an Ethernet port marks RDMA traffic and slows it down in congestion, where the driver shows it (MLNX_OFED, DOCA).

    Of priorities an empty text means that none is switched on.
    """

    host: str | None
    device: str
    interface: str
    notified: str | None  # priorities, such as `3`, at which marked packets are reported to the sender (roce_np)
    reacting: str | None  # priorities at which the sender then slows down (roce_rp)
    trust: str | None  # what gives a packet its priority: dscp or pcp
    traffic_class: int | None  # of all RDMA traffic of the device, whatever programs ask for; None where none is set
    marks: str  # all of this in words, the same for ports that are set up alike
    ref: Ref


class NetLink(NamedTuple):
    """One network interface as its link is."""

    host: str | None
    name: str
    kind: str  # physical, ipoib, bond, bridge, vlan, virtual, loopback
    state: str | None  # operstate: up, down, unknown
    carrier: int | None  # None where it is switched off
    speed: int | None  # Mb/s
    mtu: int | None
    driver: str | None
    master: str | None  # bond or bridge that it belongs to
    device: str | None  # RDMA device of the same card
    pci: str | None
    addresses: str  # 10.1.0.4/24, separated by blanks; link-local ones are left out
    ref: Ref


class BondMember(NamedTuple):
    """One interface of a bond."""

    host: str | None
    bond: str
    mode: str | None  # IEEE 802.3ad Dynamic link aggregation
    name: str
    status: str | None  # up, down
    speed: int | None  # Mb/s
    aggregator: int | None  # of 802.3ad: members of one bond share it
    ref: Ref


class EfaNode(NamedTuple):
    """What an Amazon machine has for the Elastic Fabric Adapter."""

    host: str | None
    product: str | None  # p5.48xlarge
    cards: int  # EFA on the PCI bus
    devices: int  # in /sys/class/infiniband with the driver efa
    module: str | None  # version of the kernel module; None where it is not loaded
    uverbs: int | None  # 1 where ib_uverbs is loaded
    installer: str | None  # version of the EFA installer
    libfabric: str | None  # version
    status: int | None  # exit status of `fi_info -p efa -t FI_EP_RDM`; None where it is not installed
    domains: int | None  # different domains that it lists
    text: str | None  # what it said, first line
    hugepages: int | None  # of 2 MiB, reserved
    hugepages_free: int | None
    gdrcopy: int | None  # 1 where gdrdrv is loaded
    ref: Ref


class PluginFile(NamedTuple):
    """A network plug-in of NCCL that lies on this node."""

    host: str | None
    path: str
    found_by: str | None  # LD_LIBRARY_PATH, ld.so.conf, default folder; None where the loader does not look there
    problem: str  # empty, empty-file, not-elf, wrong-architecture, libfabric-missing
    oldest: int | None  # interface that it offers (N of ncclNetPlugin_vN), the oldest
    newest: int | None  # and the newest; None where the file does not tell
    ref: Ref


class TaskSetting(NamedTuple):
    """A setting of the task that decides which network NCCL uses."""

    host: str | None
    name: str  # NCCL_IB_GID_INDEX, …
    value: str
    ref: Ref


class SecurityMode(NamedTuple):
    """A security module of the kernel."""

    host: str | None
    system: str  # selinux, apparmor
    mode: str  # enforcing, permissive; enabled for AppArmor
    configured: str | None  # what /etc/selinux/config says for the next boot
    own: str | None  # label or profile of this process
    ref: Ref


class SecurityLabel(NamedTuple):
    """The SELinux label of a file that containers with GPUs need, or why the file cannot be opened."""

    host: str | None
    path: str
    purpose: str  # gpu-device, gpu-program, kubelet, rdma-device
    label: str | None  # system_u:object_r:xserver_misc_device_t:s0
    type: str | None  # the third part of it
    wanted: str  # type that the policy gives to it
    wrong: int  # 1 where the type is another and containers are denied it
    ref: Ref


class SecurityBoolean(NamedTuple):
    """A switch of the SELinux policy that lets containers use devices."""

    host: str | None
    name: str
    value: int
    ref: Ref


class DeviceAccess(NamedTuple):
    """A device that the permissions allow and something else denies."""

    host: str | None
    path: str
    error: str  # EPERM, EACCES
    mode: str  # 0666
    confined: str | None  # AppArmor profile or SELinux label of this process, where it is confined
    ref: Ref
