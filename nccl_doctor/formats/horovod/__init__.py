"""Files of Horovod: its timeline."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "horovod-timeline",
        "timeline",
        tables=(
            "timeline",
            "timeline_activity",
            "timeline_tensor",
            "timeline_rank",
            "timeline_window",
            "timeline_gap",
        ),
        begins=compiled(
            rb"\A\s*(?:\{\s*\"traceEvents\"\s*:\s*)?\[\s*\{[\s\S]{0,4000}?"
            rb"\"(?:start_time_since_epoch_in_micros|CYCLE_START|NEGOTIATE_[A-Z]{3,20})\""
        ),
        after=("kineto-trace",),  # a Chrome trace as well; only PyTorch's has categories and a schema version
    ),
)
