"""Programs that measure a whole job: MPI between ranks, linear algebra on all GPUs, a server of a language model under load."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "mpi-benchmark",
        "osu",
        tables=("active_test",),
        inside=(b"# OSU ",),
        after=("rdma-test",),
    ),
    Format(
        "linpack",
        "hpl",
        tables=("active_test",),
        inside=(b"HPLinpack ", b"HPL-NVIDIA ", b"Time                 Gflops", b" Prog= "),
        reach=4 << 20,
        after=("rdma-test",),
    ),
    Format(
        "message-benchmark",
        "point_to_point",
        tables=("active_test",),
        inside=(
            b"# Benchmarking ",
            b"|    Stage     | # iterations",
            b"bytes   #sent   #ack     total",
            b"[tuning] Best ",
            b" bandwidth: ",
        ),
        reach=4 << 20,
        after=("rdma-test",),
    ),
    Format(
        "collective-benchmark",
        "collective_tables",
        tables=("comm_op",),
        inside=(
            b"COMMS-RES",
            b"-- Performance of ",
            b"# Setting up the connection in MSCCL++",
            b"MSCCL++ proxy threads",
            b"busbw(GB/s)",
            b"Time, us",
            b"algbw   busbw\n",
        ),
        reach=4 << 20,
        after=("rdma-test", "nccl-tests"),
    ),
    Format(
        "gpu-burn",
        "gpu_burn",
        tables=("active_test",),
        inside=(b"  proc'd: ",),
        reach=4 << 20,
        after=("rdma-test",),
    ),
    Format(
        "rate-benchmark",
        "rates",
        tables=("active_test",),
        inside=(
            b"access    bw(MiB/s)",
            b"Function    M",
            b"Function    Best Rate MB/s",
            b"Function      Rate (",
            b"Final Summary::HPCG result",
            b"[METRIC] ",
        ),
        reach=4 << 20,
        after=("rdma-test",),
    ),
    Format(
        "metadata-benchmark",
        "metadata",
        tables=("active_test",),
        inside=(b"SUMMARY rate", b"SUMMARY: (of ", b"[RESULT]", b"[mdtest-hard-write]", b"mdtest_hard_write"),
        reach=4 << 20,
        after=("rate-benchmark",),
    ),
    Format(
        "elbencho",
        "elbencho",
        tables=("active_test",),
        inside=(b"OPERATION   RESULT TYPE ", b"OPERATION RESULT TYPE "),
        reach=1 << 20,
        after=("rate-benchmark",),
    ),
    Format(
        "superbench",
        "superbench",
        tables=("active_test",),
        begins=compiled(
            rb"\A\s{0,20}(?:\[\s{0,20})?\{\s{0,40}(?:"
            rb'(?="[\w./:-]{1,300}:\d{1,6}"|[^\n]{0,60000}"node"\s{0,4}:\s{0,4}")(?:"node"\s{0,4}:\s{0,4}"[^"\n]{0,200}"\s{0,4},\s{0,40})?'
            rb'"[\w.-]{1,100}(?::[\w.-]{1,100})?/[\w./:-]{1,180}"\s{0,4}:\s{0,4}(?:-?\d|null)'
            rb'|"Category"[^\n]{0,9000}"Defective Details"'
            rb'|(?:"index"\s{0,4}:\s{0,4}"[^"\n]{0,200}"\s{0,4},\s{0,40})?"diagnosis/category")'
        ),
    ),
    Format(
        "serving-benchmark",
        "serving",
        tables=("active_test",),
        begins=compiled(
            rb"\A\s{0,20}\{(?:(?=[^\n]{0,9000}\"mean_ttft_ms\" ?: ?\d)|\s{0,20}\"avg_latency\" ?: ?\d[^{\[]{0,60}\"latencies\" ?: ?\["
            rb"|\s{0,20}\"elapsed_time\" ?: ?\d[^{\[]{0,60}\"num_requests\" ?: ?\d)"
        ),
        inside=(b" Serving Benchmark Result ", b"= PERFORMANCE OVERVIEW"),
        reach=4 << 20,
        after=("rdma-test",),
    ),
)
