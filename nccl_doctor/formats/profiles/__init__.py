"""What profilers print: summaries of Nsight Systems and nvprof, tables of torch.profiler and cProfile, stacks of py-spy
and samples of them."""

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
            rb"|\A(?:\xef\xbb\xbf)?\"?Kernel_Name\"?,\"?Count\"?,\"?Sum\(ns\)\"?,"  # rocprof-compute
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
        "sampled-stacks",
        "sampled_stacks",
        tables=("profile_sum", "profile_share"),
        begins=compiled(
            rb"\A\s{0,40}\{\s{0,40}\"\$schema\":\s{0,40}\"https://www\.speedscope\.app"
            rb"|\A\s{0,40}\[\{\"args\":\{\"filename\":\"[^\"]{0,1000}\",\"line\":(?:\d{1,9}|null)\},\"cat\":\"py-spy\""
            rb"|\A<\?xml [^>]{0,200}>\s{0,40}<!DOCTYPE svg [^>]{0,300}>\s{0,40}<svg [^>]{0,600}xmlns:fg="
            rb"|\A(?: \d{1,9}\r?\n)?(?:process \d{1,10}:[^;\n]{0,400};)?(?:thread \(\w{1,20}\):[^;\n]{0,200};)?"
            rb"(?:[^;\n]{1,600} \([^()\n]{1,400}\)|[^\s;]{1,400}\(\d{1,9}\): [^;\n]{1,600})(?:;[^;\n]{1,1000}){1,400} \d{1,15}\r?\n"
        ),
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
