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
        after=("rdma-test",),
    ),
    Format(
        "serving-benchmark",
        "serving",
        tables=("active_test",),
        begins=compiled(rb"\A\s{0,20}\{(?=[^\n]{0,9000}\"mean_ttft_ms\" ?: ?\d)"),
        inside=(b" Serving Benchmark Result ",),
        after=("rdma-test",),
    ),
)
