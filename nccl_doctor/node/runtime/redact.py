"""Redacts addresses, users and secrets from a node tree."""

import hashlib
import re
from collections.abc import Callable

KEPT = re.compile(
    r"(?:NCCL|RCCL|FI|UCX|OMPI|PMIX|PRTE|TORCH|HOROVOD|GLOO|CUDA|NVIDIA|RDMAV|MLX5|IBV|OFI|SLURM|PBS|LSB|SGE|KUBERNETES|EFA|OMP)_\w+="
    r"|(?:LD_LIBRARY_PATH|LD_PRELOAD|PATH|CONDA_PREFIX|VIRTUAL_ENV|PYTHONPATH|PYTHONNOUSERSITE|HOSTNAME|MASTER_ADDR"
    r"|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|PE_HOSTFILE|NSLOTS)="
)
"""Variables that say something about a job; no others leave the node."""
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)

_MAC = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_IPV4 = re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0|255\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_USER = re.compile(r"(?<=/home/)[\w.-]+|(?<=\buser=)[\w.-]+|(?<=SLURM_JOB_USER=)[\w.-]+")
_SECRET = re.compile(r"((?:KEY|TOKEN|SECRET|PASSW|CREDENTIAL)\w{0,900}[=:]\s{0,80})\S+", re.IGNORECASE)


def redactor(salt: bytes) -> Callable[[str], str]:
    """A function that replaces addresses, users and secrets by words; equal things get equal words."""

    def word(kind: str, text: str) -> str:
        return f"{kind}-{hashlib.blake2s(text.encode(), key=salt, digest_size=3).hexdigest()}"

    def address(match: re.Match[str]) -> str:
        number = int.from_bytes(hashlib.blake2s(match[0].encode(), key=salt, digest_size=3).digest(), "big")
        return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"

    def redact(text: str) -> str:
        text = _SECRET.sub(r"\1removed", text)
        text = _MAC.sub(lambda m: word("mac", m[0].lower()), text)
        text = _IPV4.sub(address, text)
        return _USER.sub(lambda m: word("user", m[0]), text)

    return redact
