"""Files of PyTorch: traces of its profiler and dumps of its flight recorder."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "kineto-trace",
        "kineto",
        tables=("trace", "trace_op", "trace_call"),
        begins=compiled(
            rb"\A\s*\{(?=[\s\S]{0,60000}\"traceEvents\"\s*:\s*\[)[\s\S]{0,60000}?"
            rb"\"(?:schemaVersion|distributedInfo|baseTimeNanoseconds|deviceProperties|cat)\"\s*:\s*[\[{0-9\"]"
            rb"|\A\s{0,9}\{\s{0,9}\"traceEvents\":\[\{\}\s{0,9},\{\"args\":\{\"name\":\"(?:\d{1,3} )?(?:Markers|CPU |COPY|GPU)"  # rocprof
        ),
    ),
    Format(
        "flight-recorder",
        "flight_recorder",
        tables=("recorder", "recorder_group", "recorder_call"),
        begins=compiled(
            rb"\A\x80[\x02-\x05]"  # a pickle
            rb"|\A\s*\{(?=[\s\S]{0,60000}\"(?:collective_seq_id|pg_status|pg_config|seq_id)\"\s*:)"
            rb"[\s\S]{0,60000}?\"(?:comm_lib_version|nccl_version|pg_config|profiling_name)\"\s*:"
            rb"|\A\s*\[\s*\{[^{}]{0,60000}\"profiling_name\"\s*:"
        ),
        after=("kineto-trace",),  # whose `distributedInfo` holds `pg_config` and `nccl_version` too
    ),
)
