"""Logs as files, and what reading them gives."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import zstandard

from nccl_doctor.inputs.sources import InputProblem, Source, expand, open_stream

LINE = b"node01:101:140 [0] NCCL INFO Using network IB\n"
LOG = b"".join(b"node01:101:140 [0] NCCL INFO Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM\n" % n for n in range(3000))

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


def look(*paths: Path | str) -> tuple[list[Source], list[str]]:
    found = list(expand([str(path) for path in paths]))
    sources = [one for one in found if isinstance(one, Source)]
    return sources, [one.reason for one in found if isinstance(one, InputProblem)]


def text(source: Source) -> bytes:
    with open_stream(source) as stream:
        return stream.read()


def drain(stream: BinaryIO) -> tuple[bytes, str]:
    """What a stream gives before it breaks, and the words of the break."""
    got = b""
    try:
        while data := stream.read(1 << 16):
            got += data
    except InputProblem as problem:
        return got, str(problem)
    return got, ""


def names(root: Path, sources: list[Source]) -> list[str]:
    return [source.name.removeprefix(f"{root}/") for source in sources]
