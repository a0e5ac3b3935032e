"""Machine types: what an invented node consists of. Figures are those the makers publish."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Nic:
    """Network cards of one kind."""

    kind: Literal["ib", "roce", "efa", "ethernet"]
    count: int
    rate: int  # Gb/s
    driver: str  # kernel module
    prefix: str  # of the device names: mlx5_0, rdmap0s31, eth0
    storage: bool = False  # for storage: on a root port of its own, away from GPUs


@dataclass(frozen=True)
class Machine:
    """One machine type."""

    name: str
    product: str  # DMI product name, which tells the machine type
    vendor: str  # DMI system vendor
    gpu: str  # model as NVML names it
    device_id: str  # PCI
    gpus: int
    memory: int  # MiB of one GPU
    power: int  # W, limit of one GPU
    nvlinks: int  # links of one GPU; 0 without NVLink
    nvswitches: int
    pcie: int  # generation of the GPUs' links
    nics: tuple[Nic, ...]
    sockets: int
    cores: int  # of the whole node
    ram: int  # GiB
    capability: tuple[int, int] = (9, 0)

    @property
    def amd(self) -> bool:
        """Whether the GPUs are of AMD."""
        return self.gpu.startswith("AMD ")


_ENA = Nic("ethernet", 1, 100, "ena", "eth")
_ETH = Nic("ethernet", 1, 25, "mlx5_core", "eth")

MACHINES = {
    m.name: m
    for m in (
        Machine("p3dn", "p3dn.24xlarge", "Amazon EC2", "Tesla V100-SXM2-32GB", "0x1db5", 8, 32768, 300, 6, 0, 3,
                (Nic("efa", 1, 100, "efa", "efa_"), _ENA), 2, 48, 768, (7, 0)),
        Machine("p4d", "p4d.24xlarge", "Amazon EC2", "NVIDIA A100-SXM4-40GB", "0x20b0", 8, 40960, 400, 12, 6, 4,
                (Nic("efa", 4, 100, "efa", "rdmap"), _ENA), 2, 48, 1152, (8, 0)),
        Machine("p5", "p5.48xlarge", "Amazon EC2", "NVIDIA H100 80GB HBM3", "0x2330", 8, 81559, 700, 18, 4, 5,
                (Nic("efa", 32, 100, "efa", "rdmap"), _ENA), 2, 96, 2048),
        Machine("p5en", "p5en.48xlarge", "Amazon EC2", "NVIDIA H200", "0x2335", 8, 143771, 700, 18, 4, 5,
                (Nic("efa", 16, 200, "efa", "rdmap"), _ENA), 2, 96, 2048),
        Machine("nd-a100-v4", "Virtual Machine", "Microsoft Corporation", "NVIDIA A100-SXM4-40GB", "0x20b0", 8, 40960, 400, 12, 6, 4,
                (Nic("ib", 8, 200, "mlx5_core", "mlx5_ib"), _ETH), 2, 96, 900, (8, 0)),
        Machine("nd-h100-v5", "Virtual Machine", "Microsoft Corporation", "NVIDIA H100 80GB HBM3", "0x2330", 8, 81559, 700, 18, 4, 5,
                (Nic("ib", 8, 400, "mlx5_core", "mlx5_ib"), _ETH), 2, 96, 1900),
        Machine("a3-highgpu", "Google Compute Engine", "Google", "NVIDIA H100 80GB HBM3", "0x2330", 8, 81559, 700, 18, 4, 5,
                (Nic("ethernet", 5, 200, "gve", "eth"),), 2, 104, 1872),
        Machine("dgx-h100", "DGXH100", "NVIDIA", "NVIDIA H100 80GB HBM3", "0x2330", 8, 81559, 700, 18, 4, 5,
                (Nic("ib", 8, 400, "mlx5_core", "mlx5_"), _ETH), 2, 112, 2048),
        Machine("b200-roce", "PowerEdge XE9680L", "Dell Inc.", "NVIDIA B200", "0x2901", 8, 183359, 1000, 18, 2, 5,
                (Nic("roce", 8, 400, "mlx5_core", "mlx5_"), _ETH), 2, 128, 2048, (10, 0)),
        Machine("l40s-pcie", "SYS-421GE-TNRT", "Supermicro", "NVIDIA L40S", "0x26b9", 8, 46068, 350, 0, 0, 4,
                (Nic("roce", 2, 200, "mlx5_core", "mlx5_"), _ETH), 2, 64, 1024, (8, 9)),
    )
}  # fmt: skip

AMD_MACHINES = {
    "mi300x": Machine("mi300x", "AS -8125GS-TNMR2", "Supermicro", "AMD Instinct MI300X", "0x74a1", 8, 196592, 750, 0, 0, 5,
                      (Nic("roce", 8, 400, "mlx5_core", "mlx5_"), _ETH), 2, 192, 2304),
}  # fmt: skip
ALL_MACHINES = {**MACHINES, **AMD_MACHINES}
