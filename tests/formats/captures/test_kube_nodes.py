"""Nodes of Kubernetes: their conditions, and what they and pods use."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.app.analyze import report_of

NODES = "SELECT host, condition, bad, text FROM kube_node ORDER BY host, condition"
USED = "SELECT host, name, value, unit FROM host_number ORDER BY host, name"
DESCRIBED = """\
Name:               gpu-a-7
Roles:              worker
Unschedulable:      true
Conditions:
  Type                 Status    LastHeartbeatTime                 LastTransitionTime                Reason                       Message
  ----                 ------    -----------------                 ------------------                ------                       -------
  MemoryPressure       False     Tue, 24 Nov 2026 09:00:01 +0000   Tue, 24 Nov 2026 08:00:01 +0000   KubeletHasSufficientMemory   kubelet has sufficient memory
  DiskPressure         True      Tue, 24 Nov 2026 09:00:01 +0000   Tue, 24 Nov 2026 08:00:01 +0000   KubeletHasDiskPressure       kubelet has disk pressure
  NetworkingReady      True      Tue, 24 Nov 2026 09:00:01 +0000   Tue, 24 Nov 2026 08:00:01 +0000   NetworkingIsReady            fine
  SiteReviewed         True      Tue, 24 Nov 2026 09:00:01 +0000   Tue, 24 Nov 2026 08:00:01 +0000   ByHand
  Ready                Unknown   Tue, 24 Nov 2026 09:00:01 +0000   Tue, 24 Nov 2026 08:00:01 +0000   NodeStatusUnknown            Kubelet stopped posting node status.
Capacity:
  nvidia.com/gpu:     8
Allocatable:
  nvidia.com/gpu:     8
"""  # noqa: E501


@pytest.mark.parametrize("front", ["", "$ kubectl describe node gpu-a-7\n$ date\n"])
def test_conditions_of_a_description(tmp_path: Path, front: str) -> None:
    file = tmp_path / "node.txt"
    file.write_text(front + DESCRIBED)
    report, facts, problems = analyze.analyze([str(file)])
    assert [] == problems
    assert [
        ("gpu-a-7", "DiskPressure", 1, "kubelet has disk pressure"),
        ("gpu-a-7", "MemoryPressure", 0, "kubelet has sufficient memory"),
        ("gpu-a-7", "NetworkingReady", 0, "fine"),
        ("gpu-a-7", "Ready", 1, "Kubelet stopped posting node status."),
        ("gpu-a-7", "SchedulingDisabled", 0, None),
        ("gpu-a-7", "SiteReviewed", 0, "ByHand"),
    ] == facts.query(NODES)
    assert ["not ready: Kubelet stopped posting node status.; DiskPressure: kubelet has disk pressure"] == [
        finding.message.partition(": ")[2] for finding in report.findings
    ]


def test_a_list_of_nodes_names_those_that_are_not_ready() -> None:
    facts = analyze.read_text(
        "NAME    STATUS                     ROLES           AGE    VERSION   INTERNAL-IP\n"
        "gpu-1   Ready                      <none>          200d   v1.30.1   10.0.0.1\n"
        "gpu-2   NotReady                   worker          200d   v1.30.1   10.0.0.2\n"
        "gpu-3   Ready,SchedulingDisabled   control-plane   200d   v1.30.1   10.0.0.3\n"
        "gpu-4   Rea"
    )
    assert [
        ("gpu-1", "Ready", 0, None),
        ("gpu-2", "Ready", 1, "NotReady"),
        ("gpu-3", "Ready", 0, None),
        ("gpu-3", "SchedulingDisabled", 0, None),
    ] == facts.query(NODES)
    assert ["gpu-2"] == [finding.hosts for finding in report_of(facts).findings]


def test_what_nodes_and_pods_use() -> None:
    nodes = (
        "NAME    CPU(cores)   CPU%        MEMORY(bytes)   MEMORY%\n"
        "gpu-1   95012m       49%         412311Mi        20%\n"
        "gpu-2   <unknown>    <unknown>   <unknown>       <unknown>\n"
    )
    assert [
        ("gpu-1", "CPUs busy", 49.0, "%"),
        ("gpu-1", "CPUs used", 95.012, ""),
        ("gpu-1", "memory share", 20.0, "%"),
        ("gpu-1", "memory used", float(412311 << 20), "B"),
    ] == analyze.read_text(nodes).query(USED)
    pods = "NAMESPACE   NAME    CPU(cores)   MEMORY(bytes)\nml          job-0   12           3Gi\n\nml          job-1   12           3Gi\n"
    assert [("job-0", "CPUs used", 12.0, ""), ("job-0", "memory used", float(3 << 30), "B")] == analyze.read_text(
        pods
    ).query(USED)
