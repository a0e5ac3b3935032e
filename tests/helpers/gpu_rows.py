"""Rows of GPU samples that a test writes, and what the reader makes of them."""

import io
from collections.abc import Iterable

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import samples


def read(data: bytes | str, name: str = "gpu.csv") -> tuple[Facts, Reading]:
    """The facts of a file of samples, and what was read of it."""
    facts = Facts()
    return facts, samples.read_format(io.BytesIO(data if isinstance(data, bytes) else data.encode()), name, facts)


def rows(lines: Iterable[str]) -> str:
    """The text of these lines."""
    return "\n".join(lines) + "\n"
