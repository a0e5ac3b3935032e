"""The environment variables with which a recorded job logs what a diagnosis needs."""

from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

PIPE_FILE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # prefix of the pipes that trigger a dump


def settings(run: Path, environ: Mapping[str, str], torch: bool, horovod: bool) -> dict[str, str]:
    """Returns the variables that make a job log what a diagnosis needs; variables set by the user are left out."""
    wanted = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH",
        "NCCL_DEBUG_FILE": str(run / "nccl.%h.%p.log"),
        "PYTHONUNBUFFERED": "1",  # a killed process loses its buffered output
    }
    if torch:
        wanted |= {
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(run / "flight_recorder_rank_"),
            # PyTorch ends the job if it cannot make its pipe, so it is not in the folder, which may be full or removed.
            PIPE_FILE: f"/tmp/nccl-doctor-{token_hex(8)}-rank_",
        }
    if horovod:
        wanted |= {"HOROVOD_TIMELINE": str(run / "timeline.json"), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    if "TORCH_FR_BUFFER_SIZE" in environ or "TORCH_NCCL_TRACE_BUFFER_SIZE" in environ:
        wanted.pop("TORCH_FR_BUFFER_SIZE", None)
        wanted.pop("TORCH_NCCL_TRACE_BUFFER_SIZE", None)
    return {name: value for name, value in wanted.items() if name not in environ}
