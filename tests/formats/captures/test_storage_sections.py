"""File servers and traffic of a host: targets of Lustre, NFS mounts, interfaces, and what the processors wait for."""

import pytest

from nccl_doctor.app.analyze import read_text
from nccl_doctor.facts.tables import HostNumber, HostUse, Input, LustreTarget

LFS = """\
UUID                       bytes        Used   Available Use% Mounted on
lus-MDT0000_UUID            3.9T      402.1G        3.5T  10% /lus[MDT:0]
lus-OST0000_UUID          173.1T       81.4T       91.8T  47% /lus[OST:0]
lus-OST0001_UUID          173.1T      171.0T        2.1T  99% /lus[OST:1]
OST0002             : inactive device
OST0003             : Resource temporarily unavailable

filesystem_summary:       346.2T      163.8T      182.5T  48% /lus
"""
IMPORT = """\
osc.lus-OST000{0}-osc-ffff8f1a2b3c4000.import=
import:
    name: lus-OST000{0}-osc-ffff8f1a2b3c4000
    target: lus-OST000{0}_UUID
    state: {1}
    connection:
       failover_nids: [ 10.1.0.1@o2ib ]
       connection_attempts: 1
    rpcs:
       inflight: 0
       avg_waittime: {2} usec
"""
STATES = """\
osc.lus-OST0000-osc-ffff8f1a2b3c4000.ost_server_uuid=lus-OST0000_UUID\tFULL
osc.lus-OST0001-osc-ffff8f1a2b3c4000.ost_server_uuid=lus-OST0001_UUID\tDISCONN\tDEACTIVATED
lus-OST0002-osc-ffff8f1a2b3c4000 active.
lus-MDT0000-mdc-ffff8f1a2b3c4000: Resource temporarily unavailable
health_check=healthy
"""
NFS = """
fs01:/home mounted on /home:

           ops/s       rpc bklog
          12.210           0.000

read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors
                   2.100          31.211          14.862        2 (0.4%)           0.512           0.580           0.012        0 (0.0%)
write:             ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)
                   0.000           0.000           0.000        0 (0.0%)           0.000           0.000
"""
SAR = """\
Linux 6.1.0 (node07)   08/11/2026      _x86_64_        (96 CPU)

{0}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil
{0}           lo     12.00     12.00      3.10      3.10      0.00      0.00      0.00      0.00
{0}         eth0 120000.00 118000.00    1000.00     500.00      0.00      0.00      0.00     48.10
{0}         eth1      0.00      0.00       0.00       0.00      0.00      0.00      0.00      0.00

"""
DOOL = """\
-----time----- ----total-usage---- -dsk/total-
     time     |usr sys idl wai stl| read  writ
"""


def _numbers(text: str) -> dict[str, float]:
    return {row.name: row.value for row in read_text(text).rows(HostNumber)}


def _targets(text: str) -> list[tuple[str, str, str, int | None]]:
    return [(row.kind, row.name, row.state, row.active) for row in read_text(text).rows(LustreTarget)]


@pytest.mark.parametrize("prefix", ["", "node01: "])
def test_the_targets_of_a_file_system(prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in LFS.splitlines())
    assert {
        "used of lus-MDT0000": 10, "used of lus-OST0000": 47, "used of lus-OST0001": 99, "used of /lus": 48,
    } == _numbers(text)  # fmt: skip
    assert [
        ("osc", "OST0002", "inactive device", 0),
        ("osc", "OST0003", "Resource temporarily unavailable", 1),
    ] == _targets(text)


def test_the_connections_to_targets() -> None:
    text = IMPORT.format(0, "FULL", 900) + IMPORT.format(1, "DISCONN", 41_000)
    assert [("osc", "lus-OST0000", "FULL", 1), ("osc", "lus-OST0001", "DISCONN", 1)] == _targets(text)
    assert {"mean wait for lus-OST0000": 0.9, "mean wait for lus-OST0001": 41.0} == _numbers(text)
    assert [
        ("osc", "lus-OST0000", "FULL", 1),
        ("osc", "lus-OST0001", "DISCONN", 0),
        ("osc", "lus-OST0002", "FULL", 1),
        ("mdc", "lus-MDT0000", "Resource temporarily unavailable", 1),
        ("health", "client", "healthy", None),
    ] == _targets(STATES)


def test_a_mount_of_nfs_that_does_nothing_has_no_time() -> None:
    assert {"read of /home": 0.512, "reads sent again of /home": 0.4} == _numbers(NFS)


@pytest.mark.parametrize("time", ["03:10:01", "03:10:01 AM", "Average:"])
def test_the_traffic_of_interfaces(time: str) -> None:
    facts = read_text(2 * SAR.format(time))
    assert [
        ("node07", "traffic of eth0", 1_024_000.0),
        ("node07", "use of eth0", 48.1),
    ] == [(row.host, row.name, row.value) for row in facts.rows(HostNumber)]


def test_what_the_processors_of_a_screen_wait_for() -> None:
    rows = "".join(f"11-08 03:14:{at:02}|  8   2  {30 - at}  {60 + at}   0|1812M 1024k\n" for at in range(5))
    [use] = read_text(DOOL + rows).rows(HostUse)
    assert (4, 10.0, 62.5) == (use.samples, use.cpu_mean, use.cpu_wait)  # the first is the mean since the start


@pytest.mark.parametrize("text", [LFS, STATES, NFS, SAR.format("03:10:01"), IMPORT.format(1, "FULL", 3), DOOL])
def test_a_cut_capture_breaks_nothing(text: str) -> None:
    for end in range(0, len(text), 7):
        assert len(read_text(text[:end]).rows(Input)) == 1


STATS = """\
llite.lus-ffff9c1e2b3a4800.stats=
snapshot_time             1772446811.123456789 secs.nsecs
start_time                1772400000.000000000 secs.nsecs
elapsed_time              46811.123456789 secs.nsecs
read_bytes                1203123 samples [bytes] 1 4194304 4123123123123
read                      1203123 samples [usecs] 1 9812312 412312312312 91231231231231231
fsync                     12 samples [usecs] 120 812312 1812312 812312312312
ioctl                     12 samples [reqs]
osc.lus-OST0001-osc-ffff9c1e2b3a4800.stats=
snapshot_time             1772446811.123456789 secs.nsecs
req_waittime              2000 samples [usec] 10 5000 8000000 1234567890
req_qdepth                2000 samples [reqs] 0 8 400
"""


def test_statistics_of_lustre_tell_bytes_and_the_mean_time_of_an_operation() -> None:
    told = {row.name: (row.value, row.unit) for row in read_text(STATS).rows(HostNumber)}
    assert {"read from lus", "mean read of lus", "mean req_waittime of lus-OST0001"} == set(told)
    assert (4123123123123.0, "B") == told["read from lus"]
    assert 342.7 == pytest.approx(told["mean read of lus"][0], abs=0.01)
    assert (4.0, "ms") == told["mean req_waittime of lus-OST0001"]


DISKS = """\
Linux 6.1.0-18-amd64 (node01)   11/02/26        _x86_64_        (96 CPU)

Device            r/s     rMB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wMB/s   wrqm/s  %wrqm w_await wareq-sz  aqu-sz  %util
nvme0n1        222.97      1.14     0.05   0.02   99.00     5.25  247.21      1.94     0.47   0.19    9.00     8.04    0.15  99.00
loop0            0.00      0.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   0.00    0.00     0.00    0.00   0.00

Device            r/s     rMB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wMB/s   wrqm/s  %wrqm w_await wareq-sz  aqu-sz  %util
nvme0n1         10.00      0.14     0.00   0.00    0.57     9.47   15.00      0.14     0.00   0.00    1.25     9.47    0.01  12.50
loop0            0.00      0.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   0.00    0.00     0.00    0.00   0.00

Device            r/s     rMB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wMB/s   wrqm/s  %wrqm w_await wareq-sz  aqu-sz  %util
nvme0n1         10.00      0.14     0.00   0.00    0.25     9.47   15.00      0.14     0.00   0.00    2.50     9.47    0.01  37.50
"""


def test_how_busy_disks_were_behind_the_report_since_the_start_of_the_host() -> None:
    facts = read_text(DISKS)
    assert {"use of nvme0n1": 37.5, "read of nvme0n1": 0.57, "write of nvme0n1": 2.5} == {
        row.name: row.value for row in facts.rows(HostNumber)
    }


MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device nfs01:/export/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576
\tage:\t11367
\tbytes:\t204440464584 110857586443 783170354688 296174954496 1134399088816 407107155723 85749323 30784819
\tper-op statistics
\t        READ: 1000 1010 0 200000 1048576000 5000 412000 418000 0
\t       WRITE: 50 50 0 1048576 20000 10 70 80
device sysfs mounted on /sys with fstype sysfs
\t        READ: 9000 9000 0 0 0 0 90000000 0
"""


def test_what_the_kernel_counted_of_nfs_mounts() -> None:
    facts = read_text(MOUNTSTATS)
    assert {
        "read from /data": (1134399088816.0, "B"),
        "written to /data": (407107155723.0, "B"),
        "read of /data": (412.0, "ms"),
        "reads sent again of /data": (1.0, "%"),
    } == {row.name: (row.value, row.unit) for row in facts.rows(HostNumber)}
    for cut in range(0, len(MOUNTSTATS), 37):
        read_text(MOUNTSTATS[:cut])
