"""Environment variables of the task: those that the programs of a distributed job read, and no others."""

import os
import re

from nccl_doctor.node.runtime.root import Root

_OURS = re.compile(
    r"(?:NCCL|RCCL|FI|UCX|OMPI|PMIX|PRTE|TORCH|TORCHELASTIC|PYTORCH|HOROVOD|CUDA|NVIDIA|RDMAV|GLOO|MASTER|OFI_NCCL|AWS_OFI|TF|"
    r"OMP|KMP|MKL|SLURM|PBS|LSB|PE|SGE|LOCAL|GROUP|ROLE|HSA|HIP|ROCR|IBV|MLX5|CONDA|PYTHON|GRID|CC|COMPUTE|NSIGHT|OPENCL)_\w*\s*"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|PATH|PYTHONPATH|PYTHONHOME|PYTHONNOUSERSITE|PYTHONUSERBASE|HOME|USER|LOGNAME|TMPDIR"
    r"|RANK|WORLD_SIZE|NNODES|NODE_RANK|NPROC_PER_NODE|NSLOTS|NHOSTS|JOB_ID|PBS\w*|KUBERNETES_SERVICE_HOST|HOSTNAME|CC|CXX"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|JWT|COOKIE|AUTH(?!_MODE)", re.IGNORECASE)


def chosen(name: str) -> bool:
    """True where a program of a job reads this variable and its name does not look like a secret."""
    return _OURS.fullmatch(name) is not None and _SECRET.search(name) is None


def parse(environ: str) -> dict[str, str]:
    """The content of /proc/PID/environ; of a name that occurs twice the first counts, as for getenv."""
    rows: dict[str, str] = {}
    for entry in environ.split("\0"):
        name, mark, value = entry.partition("=")
        if mark:
            rows.setdefault(name, value)
    return rows


def variables(root: Root) -> dict[str, str]:
    """The chosen variables of the task that this process belongs to; of a tree those in its `environ.json` or /proc/self/environ.

    A capture keeps only the chosen ones.
    """
    kept = root.asked("environ", lambda: {name: value for name, value in os.environ.items() if chosen(name)})
    if kept is None and not root.live:
        kept = parse(root.text("/proc/self/environ") or "")
    return {str(name): str(value) for name, value in (kept or {}).items() if chosen(str(name))}


def folders(value: str | None) -> list[str]:
    """The entries of a search path such as LD_LIBRARY_PATH; an empty one is the working directory."""
    return [entry or "." for entry in value.split(":")] if value else []
