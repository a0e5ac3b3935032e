"""One matrix of copies while it is read, and the GPUs by which it names its rows and columns."""

import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CopyRate, CopyTest


class Device:
    """A GPU by the number under which the matrices name it."""

    def __init__(self, host: str | None, index: int, model: str | None) -> None:
        self.host = host
        self.index = index
        self.model = model


class Matrix:
    """A test while it is read."""

    def __init__(self, title: str, unit: str, test: str | None) -> None:
        self.title = title
        self.unit = unit
        self.test = test
        self.columns = 0
        self.rows: list[tuple[int, int | None, list[float | None], int, str]] = []  # label, partner, cells, line, text
        self.total: float | None = None

    @property
    def kind(self) -> str:
        """What is measured: see `CopyTest`."""
        title = self.title.lower()
        if "p2p=" in title or "bisect" in title:
            return "pair" if "bisect" not in title else "bisect"
        if "local" in title:
            return "local"
        if "cpu(row)" in title:
            return "crowd" if re.match(r"(?:all_to_host|host_to_all)", self.test or "") else "host"
        if len(self.rows) == self.columns and self.columns > 1:
            return "pair"
        return "crowd"

    def facts(self, facts: Facts, file: str, number: int, tool: str, devices: dict[int, Device]) -> Iterator[Any]:
        """The rows of the fact base."""
        kind = self.kind
        latency = self.unit != "GB/s"
        engine = next((word for word in ("CE", "SM") if f" {word} " in f" {self.title} "), None)
        line, text = (self.rows[0][3], self.rows[0][4])
        models = {device.model for device in devices.values()}
        hosts = {device.host for device in devices.values()}
        yield CopyTest(
            number=number, host=hosts.pop() if len(hosts) == 1 else None, file=file, tool=tool, test=self.test or self.title,
            kind=kind, measure="latency" if latency else "bandwidth", engine=engine, unit=self.unit,
            gpus=max(self.columns, len(self.rows)), model=models.pop() if len(models) == 1 else None, total=self.total,
            status="passed", said=None, ref=facts.evidence(file, line, f"{self.title}: {text}"),
        )  # fmt: skip
        for label, partner, cells, line, text in self.rows:
            ref = facts.evidence(file, line, f"{self.title}: {text}")
            for column, value in enumerate(cells):
                gpu, peer = (label, partner) if kind == "bisect" else (column, label if kind == "pair" else None)
                if gpu == peer:
                    continue
                own = devices.get(gpu)
                other = devices.get(peer) if peer is not None else None
                yield CopyRate(
                    test=number, host=own.host if own else None, gpu=own.index if own else gpu,
                    peer_host=other.host if other else None,
                    peer=other.index if other and peer is not None else peer, value=value, ref=ref,
                )  # fmt: skip


def without_matrix(
    number: int, file: str, test: str, status: str, said: str, devices: dict[int, Device], ref: int
) -> CopyTest:
    """The row of a test that was waived or failed."""
    hosts = {device.host for device in devices.values()}
    return CopyTest(
        number=number, host=hosts.pop() if len(hosts) == 1 else None, file=file, tool="nvbandwidth", test=test, kind="none",
        measure="bandwidth", engine=None, unit="GB/s", gpus=len(devices), model=None, total=None, status=status,
        said=said[:300], ref=ref,
    )  # fmt: skip
