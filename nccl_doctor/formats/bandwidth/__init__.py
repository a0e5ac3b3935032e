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
        after=("copy-bandwidth",),
    ),
    Format(
        "tcp-test",
        "iperf3",
        tables=("active_test",),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,20}\{\s{0,20}\"start\"\s{0,4}:\s{0,4}\{\s{0,20}\"connected\"\s{0,4}:"
        ),
        inside=(b"bits/sec  ",),
        after=("rdma-test",),
    ),
    Format(
        "storage-test",
        "fio",
        tables=("active_test",),
        begins=compiled(rb"\A(?:\xef\xbb\xbf)?\s{0,20}\{\s{0,20}\"fio version\"\s{0,4}:"),
        inside=(b": (groupid=",),
        after=("rdma-test",),
    ),
)
