"""What profilers print: summaries of Nsight Systems and nvprof, tables of torch.profiler and cProfile, stacks of py-spy."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "profile-summary",
        "profile_summary",
        tables=("profile_sum", "profile_share"),
        # nvprof and `nsys stats` also write into the log of the job, which then stays a log.
        begins=compiled(
            rb"\A\s*(?:(?:Generating|Processing|Exporting|Using) [^\n]{0,400}\n\s{0,400}){0,8}\"?Time ?\(%\)\"?(?:,|  +)\"?Total Time\b"
            rb"|\A(?:\xef\xbb\xbf)?\"?Name\"?,\"?Calls\"?,\"?TotalDuration(?:Ns)?\"?,"  # rocprof
        ),
        inside=(b"Profiling result:", b"Total Time (ns)", b"Total Time (us)", b"Total Time (ms)"),
        reach=4 << 20,
        leads=True,
    ),
    Format(
        "profiler-table",
        "key_averages",
        tables=("profile_sum", "profile_share"),
        inside=(b"Self CPU time total: ",),
        reach=1 << 20,
    ),
    Format(
        "function-profile",
        "function_profile",
        tables=("profile_sum", "profile_share"),
        inside=(b"ncalls  tottime  percall  cumtime",),
        reach=1 << 20,
    ),
    Format(
        "nsys-database",
        "nsys_sqlite",
        tables=("trace", "trace_op"),
        begins=compiled(
            rb"\ASQLite format 3\x00[\s\S]{0,65000}?(?:CUPTI_ACTIVITY_KIND|TARGET_INFO_|NVTX_EVENTS|ENUM_NSYS_|EXPORT_SCHEMA_VERSION)"
        ),
    ),
    Format(
        "stacks",
        "pyspy",
        tables=("stack",),
        begins=compiled(
            rb"\A\s*Process \d+: [^\n]{0,4000}\n\s{0,400}Python v\d|\A\s*\[\s*\{\s*\"pid\"\s*:\s*\d+,\s*\"thread_id\"\s*:"
        ),
        inside=(b' (idle): "', b' (active): "', b" (active+gil)"),
        reach=4 << 20,
        leads=True,
    ),
)
