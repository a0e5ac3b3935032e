"""Programs that measure copies between GPUs, between GPUs and host memory, between network cards and hosts, and with storage."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "copy-bandwidth",
        "copy_matrices",
        tables=("copy_test", "copy_rate"),
        begins=compiled(rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{\s{0,20}\"nvbandwidth\"\s{0,4}:"),
        inside=(
            b"nvbandwidth Version: ",
            b"(column) bandwidth (GB/s)",
            b"SUM host_to_device_",
            b"Bandwidth Matrix (GB/s)",
        ),
        reach=4 << 20,
        after=("node-capture",),
    ),
    Format(
        "copy-lines",
        "copy_lines",
        tables=("copy_test", "copy_rate"),
        inside=(
            b"bandwidthTest-H2D-",
            b"bandwidthTest-D2H-",
            b"bandwidthTest-D2D-",
            b"Transfer Size (Bytes)",
            b"_by_sm ",
            b"_by_dma ",
            b"_by_sm_under_numa0 ",
            b"_by_dma_under_numa0 ",
            b"STREAM_COPY_",
            b"STREAM_TRIAD_",
            b"2D_Bandwidth_",
            b"2H_Bandwidth_",
        ),
        reach=4 << 20,
        after=("copy-bandwidth", "superbench"),
    ),
    Format(
        "rdma-test",
        "perftest",
        tables=("active_test",),
        inside=(
            b"RDMA_Write BW Test",
            b"Post List BW Test",
            b"RDMA_Read BW Test",
            b"Send BW Test",
            b"RDMA_Write Latency Test",
            b"Send Latency Test",
        ),
        reach=4 << 20,
        after=("copy-lines",),
    ),
    Format(
        "tcp-test",
        "iperf3",
        tables=("active_test",),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,20}\{\s{0,20}\"start\"\s{0,4}:\s{0,4}\{\s{0,20}\"connected\"\s{0,4}:"
        ),
        inside=(b"bits/sec  ", b"bits/sec\n"),
        after=("rdma-test",),
    ),
    Format(
        "netperf-test",
        "netperf",
        tables=("active_test",),
        inside=(b" STREAM TEST from ", b" MAERTS TEST from ", b" REQUEST/RESPONSE TEST from "),
        reach=1 << 16,
        after=("tcp-test",),
    ),
    Format(
        "storage-test",
        "fio",
        tables=("active_test",),
        # also inside the document of a harness: `{"data": [{"fio version": …`
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,20}\{[^{}\[\]]{0,400}[\[{]?\s{0,40}\{?\s{0,40}\"fio version\"\s{0,4}:"
        ),
        inside=(b": (groupid=",),
        after=("rdma-test",),
    ),
)
