"""A machine that should have GPUs and shows none is never called fit without a word."""

from pathlib import Path

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.node.gpu import hints
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node.tree import Tree

CLOUD = '{"ds": {"meta_data": {"imds": {"compute": {"vmSize": "%s"}}}}}'


def bare(product: str = "PowerEdge R660", vendor: str = "Dell Inc.") -> Tree:
    """A machine without GPUs and network cards for RDMA."""
    tree = Tree()
    tree.put("/sys/class/dmi/id/product_name", product)
    tree.put("/sys/class/dmi/id/sys_vendor", vendor)
    tree.put("/proc/1/cgroup", "0::/init.scope")
    return tree


def judge(tree: Tree, folder: Path, inventory: dict[str, object] | None = None) -> Report:
    tree.write(folder)
    facts = preflight.look(Root(folder), names=("pci", "gpu", "host"))
    expectations.add(facts, {}, inventory)
    return preflight.report_of(facts)


def loud(report: Report) -> list[tuple[str, str]]:
    return [(finding.name, finding.severity) for finding in report.findings if finding.name.startswith("gpu")]


def test_a_machine_without_gpus_is_fit(tmp_path: Path) -> None:
    report = judge(bare(), tmp_path)
    assert ("fit", []) == (report.fitness, loud(report))


@pytest.mark.parametrize("product", ["g5.48xlarge", "p4de.24xlarge", "p6-b200.48xlarge", "DGXA100", "DGX B200"])
def test_a_product_with_gpus_that_shows_none_drains(product: str, tmp_path: Path) -> None:
    report = judge(bare(product, "Amazon EC2" if "xlarge" in product else "NVIDIA"), tmp_path)
    assert "drain" == report.fitness
    assert {"gpus-not-visible", "gpu-missing-on-bus"} >= {
        name for name, severity in loud(report) if severity == "error"
    }


def test_the_size_of_an_azure_instance_stands_in_the_data_of_cloud_init(tmp_path: Path) -> None:
    tree = bare("Virtual Machine", "Microsoft Corporation")
    tree.put("/run/cloud-init/instance-data.json", CLOUD % "Standard_D64s_v5")
    assert "fit" == judge(tree, tmp_path / "cpu").fitness
    tree.put("/run/cloud-init/instance-data.json", CLOUD % "Standard_ND96isr_H100_v5")
    report = judge(tree, tmp_path / "gpu")
    assert ("drain", [("gpus-not-visible", "error")]) == (report.fitness, loud(report))


def test_an_installed_driver_is_a_note(tmp_path: Path) -> None:
    tree = bare()
    tree.put("/usr/bin/nvidia-smi", "")
    report = judge(tree, tmp_path)
    assert ("fit", [("gpus-not-visible", "note")]) == (report.fitness, loud(report))


@pytest.mark.parametrize(("product", "fitness"), [("PowerEdge R660", "drain"), ("PowerEdge R760", "fit")])
def test_what_the_last_good_check_saw_counts_for_the_same_machine(product: str, fitness: str, tmp_path: Path) -> None:
    report = judge(bare(product), tmp_path, {"gpus": 8, "machine": "Dell Inc. PowerEdge R660"})
    assert fitness == report.fitness
    assert ([("gpu-missing-on-bus", "error")] if fitness == "drain" else []) == loud(report)


@pytest.mark.parametrize("machine", ["p4d", "l40s-pcie"])
def test_fewer_gpus_than_the_last_good_check_saw(machine: str, tmp_path: Path) -> None:
    tree = node.build(machine)
    kind = node.MACHINES[machine]
    report = judge(tree, tmp_path, {"gpus": 9, "machine": f"{kind.vendor} {kind.product}"})
    assert ("fit" if machine == "p4d" else "drain") == report.fitness  # a known type says how many there are


@pytest.mark.parametrize(
    ("name", "expected"),
    [("m5.large", False), ("p3.2xlarge", True), ("hpc7g.16xlarge", False), ("g4dn.xlarge", True), ("Standard_NC24ads_A100_v4", True),
     ("Standard_NP10s", False), ("a2-highgpu-8g", True), ("n2-standard-8", False), ("BM.GPU.H100.8", True), ("BM.Standard3.64", False),
     ("", False)],
)  # fmt: skip
def test_types_with_gpus(name: str, expected: bool) -> None:
    assert expected == hints.is_gpu_type(name)


@pytest.mark.parametrize("text", ["", "{", '"vmSize": "', "\x00" * 99, '"shape": "' + "x" * 999 + '"'])
def test_broken_data_of_cloud_init(text: str) -> None:
    assert [] == hints.parse_sizes(text)
