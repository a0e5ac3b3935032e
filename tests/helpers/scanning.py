"""Reads texts with the scanner, and compares what was counted."""

import io
from typing import Any
from unittest import mock

from nccl_doctor.log import scanner
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.scanner import Scanner

LIFE = "ncclCommInitRank comm 0x55aa{rank} rank {rank} nranks {of} cudaDev {dev} nvmlDev {dev} busId {dev}b000 commId 0xc0ffee"


def life(
    rank: int, of: int, host: str = "node01", dev: int | None = None, pid: int | None = None, tail: str = ""
) -> str:
    dev = rank if dev is None else dev
    pid = 100 + rank if pid is None else pid
    return f"{host}:{pid}:{pid + 50} [{dev}] NCCL INFO {LIFE.format(rank=rank, of=of, dev=dev)} - Init COMPLETE{tail}"


def plain(part: LogCounts) -> dict[str, Any]:
    """All that a LogCounts says, comparable."""
    return {
        "lines": (part.lines, part.bytes, part.nccl_lines, part.understood),
        "unknown": part.unknown,
        "marks": part.marks,
        "spans": {(h, s.n, s.first, s.last, s.stamp) for h, s in zip(part.headers, part.spans, strict=True) if s.n},
        "events": {
            *(
                (part.headers[key.header], *key[1:], e.n, e.first, e.last, e.stamp, e.left)
                for key, e in part.events.items()
            ),
            *((part.headers[row.header], *part.columns.messages[row.message], *row[2:]) for row in part.columns.rows()),
        },
        "edges": {(part.headers[head], *rest) for head, *rest in edges(part)},
    }


def edges(part: LogCounts) -> list[tuple[int, str, int, int, int, int, str, str]]:
    """The edges of all Channel lines: header, text, mask, n, first, last, channel, left."""
    found = part.all_edges()
    found.fold()
    texts, channels = found.texts(range(len(found))), list(found.channels)
    return [
        (head, text, mask, n, first, last, channels[channel], left)
        for head, text, channel, mask, n, first, last, left in zip(
            found.header, texts, found.channel, found.mask, found.n, found.first, found.last, found.left, strict=True
        )
    ]


def read(data: bytes, block: int = 1 << 19, ahead: int = 1 << 14, dense: int = scanner.DENSE) -> LogCounts:
    with (
        mock.patch.object(scanner, "BLOCK", block),
        mock.patch.object(scanner, "AHEAD", ahead),
        mock.patch.object(scanner, "DENSE", dense),
    ):
        return Scanner().read(io.BytesIO(data))
