"""Which network cards are taken for the rails of GPUs, on the boards of several vendors.

A row of a layout: how many cards, name, link layer, board, Gb/s of active ports, and where the nearest GPU is, in the words of
`nvidia-smi topo -m`. Names and places as published listings of these machines show them.
"""

from typing import NamedTuple

import pytest

from nccl_doctor.facts.tables import RdmaDevice
from nccl_doctor.node.gpu.pci_path import NEAR
from nccl_doctor.node.rdma.infiniband import rails


class Cards(NamedTuple):
    names: str  # with blanks between
    kind: str
    board: str
    rate: float
    path: str | None  # None: the machine hides its PCI topology
    near: int = 1  # GPUs that are near
    rail: bool = True


CX6, CX6_DUAL, CX7, CX7_DUAL, BF3 = (f"MT_{n:010d}" for n in (223, 225, 838, 891, 884))
LAYOUTS = {
    "DGX A100, InfiniBand for storage too": [
        Cards("mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9", "ib", CX6, 200, "PXB", 2),
        Cards("mlx5_4 mlx5_10", "ib", CX6_DUAL, 200, "SYS", rail=False),
        Cards("mlx5_5 mlx5_11", "ib", CX6_DUAL, 0, "SYS", rail=False),  # second ports without a cable
    ],
    "DGX A100, storage on bonded Ethernet": [
        Cards("mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9", "ib", CX6, 200, "PXB", 2),
        Cards("mlx5_bond_0", "roce", CX6_DUAL, 200, "NODE", rail=False),
    ],
    "DGX H100": [
        Cards("mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11", "ib", CX7, 400, "PXB"),
        Cards("mlx5_1 mlx5_2 mlx5_7 mlx5_8", "ib", CX7_DUAL, 200, "NODE", rail=False),
    ],
    "DGX H100, storage at the rate of the rails": [
        Cards("mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11", "ib", CX7, 400, "PXB"),
        Cards("mlx5_1 mlx5_7", "ib", CX7, 400, "NODE", rail=False),
    ],
    "HGX of an OEM, storage cards below the GPUs' switches": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "roce", CX7, 400, "PIX"),
        Cards("mlx5_8 mlx5_9", "roce", CX7, 400, "PXB", 2, rail=False),
    ],
    "HGX of an OEM, bonded storage, one port for logins": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "ib", CX7, 400, "PIX"),
        Cards("mlx5_bond_0", "roce", CX7, 400, "PXB", 2, rail=False),
        Cards("mlx5_eth0", "roce", CX6_DUAL, 25, "NODE", rail=False),
    ],
    "HGX with BlueField DPUs for north-south traffic": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "roce", CX7, 400, "PIX"),
        Cards("mlx5_8 mlx5_9", "roce", BF3, 400, "NODE", rail=False),
        Cards("mlx5_10", "roce", BF3, 200, "PXB", 2, rail=False),
    ],
    "rails of BlueField-3 in the mode of a network card": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "roce", BF3, 400, "PIX"),
        Cards("mlx5_8", "roce", CX6_DUAL, 100, "SYS", rail=False),
    ],
    "two ports of each card are rails": [
        Cards(" ".join(f"mlx5_{n}" for n in range(16)), "roce", CX7_DUAL, 200, "PIX"),
        Cards("mlx5_16 mlx5_17", "roce", CX6_DUAL, 50, "NODE", rail=False),
    ],
    "Azure ND A100 v4": [
        Cards(" ".join(f"mlx5_ib{n}" for n in range(8)), "ib", CX6, 200, None),
        Cards("mlx5_an0", "roce", CX6_DUAL, 50, None, rail=False),
    ],
    "Azure ND H100 v5, one port down": [
        Cards(" ".join(f"mlx5_ib{n}" for n in range(7)), "ib", CX7, 400, "NODE", 0),
        Cards("mlx5_ib7", "ib", CX7, 0, "NODE", 0),
        Cards("mlx5_an0", "roce", CX6_DUAL, 100, "SYS", 0, rail=False),
    ],
    "GCP a3-ultragpu": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "roce", CX7, 400, "PIX"),
        Cards("irdma0", "roce", "idpf", 200, "NODE", rail=False),
    ],
    "one card for two GPUs": [
        Cards("mlx5_0 mlx5_1 mlx5_2 mlx5_3", "ib", CX7, 400, "PXB", 2),
        Cards("mlx5_4", "ib", CX7, 400, "SYS", rail=False),
    ],
    "every rail down": [
        Cards(" ".join(f"mlx5_{n}" for n in range(8)), "ib", CX7, 0, "PIX"),
        Cards("mlx5_8", "roce", CX6_DUAL, 100, "NODE", rail=False),
    ],
    "two cards far from the GPUs, and no others": [Cards("mlx5_0 mlx5_1", "roce", CX6, 200, "NODE", 0)],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rails_are_told_from_the_cards_for_storage_and_logins(layout: str) -> None:
    devices: list[tuple[RdmaDevice, float]] = []
    wanted = set()
    for cards in LAYOUTS[layout]:
        for name in cards.names.split():
            near = None if cards.path is None else cards.near if cards.path in NEAR else 0
            known = {
                "device": name,
                "kind": cards.kind,
                "board": cards.board,
                "gpu_path": cards.path,
                "gpus_near": near,
            }
            row = RdmaDevice(**dict.fromkeys(RdmaDevice._fields) | known)
            devices.append((row, cards.rate))
            wanted |= {name} if cards.rail else set()
    assert wanted == rails(devices, 8)
    assert wanted == rails(devices[::-1], 8)
