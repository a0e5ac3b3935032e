"""Names of devices in front of a line are no hosts, whatever the kernel calls them."""

import pytest

from nccl_doctor.inputs.prefixes import clean, split

DEVICES = (
    "irdma0",
    "qedr0",
    "hns3",
    "cxi0",
    "em1",
    "opa1",
    "vxlan3",
    "ipogif0",
    "rxe0",
    "mlx5_bond_0",
    "bnxt_re0",
    "hfi1_0",
    "fan1",  # of lm-sensors
    "power1",
    "temp2_input",
)
BY_PLACE = (
    "rocep3s0f0",
    "rocep129s0f1np1",
    "roceo1",
    "enP2p1s0f0np0",
    "ibp12s0",
    "rdmap16s27",
    "enx00aabbccddee",
    "irdma-rocep3s0",
)


@pytest.mark.parametrize("device", [*DEVICES, *BY_PLACE])
def test_a_device_is_no_host(device: str) -> None:
    line = f"{device}: link down"

    assert (None, line) == (split(line)[0].host, split(line)[1])


@pytest.mark.parametrize(
    ("front", "host"),
    [
        ("May  6 12:00:00 host7 kernel: ", "host7"),
        ("May 06 12:00:00 host7 kernel: [   12.345678] ", "host7"),
        ("2026-05-07T12:00:00+00:00 host7 kernel: ", "host7"),
        ("node03: [   12.345678] ", "node03"),
        ("[1234567.345678] ", None),
        ("kern  :err   : [   12.345678] ", None),
    ],
)
def test_what_the_kernel_prints_begins_with_no_host(front: str, host: str | None) -> None:
    label, text = split(clean(f"{front}newcard7: waiting for reset"))

    assert (host, "newcard7: waiting for reset") == (label.host, text)


@pytest.mark.parametrize(
    "line", ["node01: text", "em-gpu-01: text", "enclave12: text", "ibm-p9-01: text", "cx12: text"]
)
def test_hosts_with_similar_names_stay_hosts(line: str) -> None:
    assert line.partition(":")[0] == split(line)[0].host


@pytest.mark.parametrize(
    "line", ["Seq1M-Read-Q8: (g=0): rw=read, bs=(R) 1024KiB", "job1: (groupid=0, jobs=1): err= 0: pid=12"]
)
def test_names_of_jobs_of_fio_are_no_hosts(line: str) -> None:
    assert split(line)[0].host is None


def test_a_rule_of_sagemaker_is_no_host() -> None:
    line = "ProfilerReport-1700000000: InProgress"

    assert (None, line) == (split(line)[0].host, split(line)[1])


def test_the_role_of_torchrun_may_be_the_node() -> None:
    label, text = split('[node01:3]:  File "/opt/train.py", line 42, in main')

    assert ("node01", 3, '  File "/opt/train.py", line 42, in main') == (label.host, label.local_rank, text)
