"""The invented machines: hosts, ranks, addresses, GPUs and network cards."""

import random
from dataclasses import dataclass, field

from nccl_doctor.simulate.spec import CUDA, Spec, version_tuple

_BUS_IDS = {
    "V100": [0x1A000, 0x1C000, 0x3D000, 0x3E000, 0x88000, 0x8A000, 0xB1000, 0xB2000],
    "A100": [0x7000, 0xF000, 0x47000, 0x4E000, 0x87000, 0x90000, 0xB7000, 0xBD000],
    "H100": [0x1B000, 0x43000, 0x52000, 0x61000, 0x9D000, 0xC3000, 0xD1000, 0xDF000],
}
_NAMES = ("node{:02d}", "gpu-a-{}", "worker-{}", "dgx-{:03d}", "n{:03d}")
_INTERFACES = ("eth0", "bond0", "eno1", "ens8f0np0")


@dataclass(eq=False)
class Host:
    """A machine. A fault changes these fields before the log is written."""

    index: int
    name: str
    address: str
    interface: str
    network: str  # as NCCL names it: IB, Socket, AWS Libfabric, Libfabric
    version: tuple[int, int, int]
    hcas: list[tuple[str, int, str]]  # (device, port, IB or RoCE)
    ib: str = "ok"  # ok | no-library | no-device | open-failed | disabled
    plugin: str = "none"  # none | ofi | any other text: dlopen's error
    plugin_lines: list[tuple[str, str]] = field(
        default_factory=list
    )  # libfabric plug-in: (FILE:LINE of a WARN or "", text)
    peermem: bool = True
    p2p: bool = True
    bootstrap: bool = True  # whether an interface was found
    rendezvous: bool = True  # whether the ranks find each other
    more_interfaces: list[tuple[str, str]] = field(default_factory=list)  # (name, address) of further socket devices
    env: dict[str, str] = field(default_factory=dict)
    agent_pid: int = 0
    ranks: list["Rank"] = field(default_factory=list)

    @property
    def version_text(self) -> str:
        """``2.21.5+cuda12.4``"""
        text = ".".join(str(part) for part in self.version)
        return f"{text}+cuda{CUDA.get(text, '12.4')}"


@dataclass(eq=False)
class Rank:
    """A process with one GPU."""

    number: int
    local: int
    host: Host
    pid: int
    bus: int
    device: int  # CUDA's number of the GPU inside the process
    nvml: int
    comm: int
    init_tid: int
    proxy_tid: int
    parts: tuple[str, str] = ("", "")  # "HOST:PID:" and " [DEV] ", for speed

    def settle(self) -> None:
        """Recompute the prefix of NCCL's lines; call it after a change of host or GPU."""
        self.parts = (f"{self.host.name}:{self.pid}:", f" [{self.device}] ")


class Cluster:
    """All hosts and ranks of one spec, and its random numbers."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.v = version_tuple(spec.version)
        self.rng = random.Random(f"{spec.seed}/{spec.nodes}/{spec.gpus}/{spec.version}/{spec.network}")
        rng = self.rng
        self.gpu = "V100" if self.v < (2, 10) else "A100" if self.v < (2, 18) else "H100"
        self.comm_id = rng.getrandbits(63) | 1 << 62
        self.job_id = rng.randrange(100_000, 999_999)
        self.added_lines: dict[str, list[tuple[Rank | Host | None, str]]] = {}  # stage -> lines printed after it
        self.slow = 1.0  # factor on the step time
        self.net_debug = False  # NCCL_DEBUG_SUBSYS holds NET
        self.epoch = 1_767_225_600 + rng.randrange(300 * 86_400)
        self.nics = self._nics()
        self.hosts = self._hosts()
        self.ranks = [rank for host in self.hosts for rank in host.ranks]
        self.victim = self.ranks[rng.randrange(len(self.ranks))]

    def _nics(self) -> int:
        if self.spec.network == "socket":
            return 0
        per_nic = 1 if self.gpu == "H100" else 2
        return max(1, self.spec.gpus // per_nic)

    def _hosts(self) -> list[Host]:
        rng, spec = self.rng, self.spec
        style = rng.choice(_NAMES)
        interface = rng.choice(_INTERFACES)
        first = rng.randrange(1, 20)
        net_b, net_c = rng.randrange(1, 250), rng.randrange(0, 200)
        buses = _BUS_IDS[self.gpu]
        hosts = []
        for index in range(spec.nodes):
            last = first + 9 + index
            link = "IB" if spec.network == "ib" else "RoCE"
            host = Host(
                index=index,
                name=style.format(first + index),
                address=f"10.{net_b}.{net_c + last // 250}.{last % 250 + 1}",
                interface=interface,
                network={"socket": "Socket", "efa": self.ofi_name()}.get(spec.network, "IB"),
                version=self.v,
                hcas=[(f"mlx5_{n}", 1, link) for n in range(self.nics)],
                ib="ok" if spec.network in ("ib", "roce") else "no-device",
                plugin="ofi" if spec.network == "efa" else "none",
                agent_pid=rng.randrange(2_000, 9_000),
            )
            base = rng.randrange(10_000, 400_000)
            for local in range(spec.gpus):
                rank = Rank(
                    number=index * spec.gpus + local,
                    local=local,
                    host=host,
                    pid=base + local,
                    bus=buses[local] if local < 8 else buses[local - 8] + 0x1000,
                    device=local,
                    nvml=local,
                    comm=0x7F0000000000 + rng.getrandbits(36) * 16,
                    init_tid=base + 60 + local * 7 + rng.randrange(7),
                    proxy_tid=base + 200 + local * 7 + rng.randrange(7),
                )
                rank.settle()
                host.ranks.append(rank)
            hosts.append(host)
        return hosts

    def ofi_name(self) -> str:
        """Returns the network name of the libfabric plug-in, which changed in its release 1.12."""
        return "Libfabric" if self.v >= (2, 23) else "AWS Libfabric"

    @property
    def one_host(self) -> bool:
        return len(self.hosts) == 1

    @property
    def launcher(self) -> str:
        """The launcher, which also reports exits: torchrun, launch (before torchrun), mpirun, horovodrun or srun."""
        if self.spec.prefix == "srun":
            return "srun"
        if self.spec.prefix == "horovodrun":
            return "horovodrun"
        if self.spec.framework != "pytorch" or self.spec.prefix == "mpirun":
            return "mpirun"
        return "torchrun" if self.v >= (2, 10) else "launch"

    def add_after(self, stage: str, source: Rank | Host | None, text: str) -> None:
        """Add a line right after a stage of the healthy job."""
        self.added_lines.setdefault(stage, []).append((source, text))

    def other(self, host: Host) -> Host:
        """Returns the next host, a peer in every ring; the same host in a job on one node."""
        return self.hosts[(host.index + 1) % len(self.hosts)]

    def neighbours(self, host: Host) -> list[Host]:
        """Returns the other hosts that are connected to this one in a ring."""
        count = len(self.hosts)
        found = {(host.index - 1) % count, (host.index + 1) % count} - {host.index}
        return [self.hosts[index] for index in sorted(found)]
