"""The files of `nccl-doctor record`."""

import re

from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "recording",
        "recorded_files",
        tables=(
            "recorded_run", "process_end", "env", "gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "gpu_process",
            "host_use", "port_use", "port_error", "rank_use", "rank_state", "stuck_socket", "stack",
        ),
        begins=re.compile(
            rb'\A\{"kind":"(?:gpu|port|host|process|hang)","hostname":|\A\s*\{\s*"schema": "nccl-doctor/run/1"'
        ),
    ),
)  # fmt: skip
