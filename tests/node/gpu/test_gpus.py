"""GPUs of a node: trees of invented nodes, healthy and broken, answers that nobody would believe, and expectations."""

import json
from pathlib import Path

import pytest
from helpers.gpu_nodes import OURS, alarms, look, planted

from nccl_doctor.app import preflight
from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import CounterBefore, GpuHealth, GpuHolder, NodeCounter, NodeGpu, NodeGpuError
from nccl_doctor.knowledge import entries, machines
from nccl_doctor.node.gpu import devices, pci
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.rules import loader, schema
from nccl_doctor.simulate import node

FAULTS = [name for name, fault in node.FAULTS.items() if fault.change.__module__.endswith("gpu_faults")]


@pytest.mark.parametrize(("number", "fault"), list(enumerate(FAULTS)), ids=FAULTS)
def test_a_planted_fault_comes_first(tmp_path: Path, number: int, fault: str) -> None:
    if fault.startswith("nic") and not hasattr(node, "network"):
        pytest.skip("invented nodes have no /sys/class/infiniband")
    kinds = node.FAULTS[fault].machines
    report, _ = planted(tmp_path, kinds[number % len(kinds)], fault)
    assert [fault] == alarms(report)[:1]
    unexplained = [
        finding.name for finding in report.findings[1:] if finding.severity != "note" and not finding.explained_by
    ]
    assert [] == unexplained
    assert {"drain": "drain", "job": "job", "warn": "fit"}[report.findings[0].action] == report.fitness


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 20
    assert {rule.name for rule in loader.load_rules((), schema.NODE)} >= set(FAULTS)


@pytest.mark.parametrize("machine", list(node.MACHINES))
def test_a_healthy_node_raises_no_alarm(tmp_path: Path, machine: str) -> None:
    report, facts = planted(tmp_path, machine)
    assert ([], "fit") == (alarms(report), report.fitness)
    kind = node.MACHINES[machine]
    shown = facts.query(
        "SELECT count(*), sum(kind = 'gpu'), sum(kind = 'nvswitch'), sum(kind = 'nic') FROM pci_device WHERE kind != 'bridge'"
    )[0]
    cards = sum(nic.count for nic in kind.nics)
    assert (kind.gpus + kind.nvswitches + cards, kind.gpus, kind.nvswitches, cards) == shown
    assert kind.gpus == facts.query("SELECT count(*) FROM node_gpu")[0][0]
    assert kind.gpus * kind.nvlinks == facts.query("SELECT count(*) FROM gpu_link")[0][0]


def test_the_machine_type_is_recognised(tmp_path: Path) -> None:
    known = {machine for machine in node.MACHINES if machines.machine(machine)}
    assert {"p3dn", "p4d", "p5", "p5en", "nd-a100-v4", "nd-h100-v5", "a3-highgpu", "dgx-h100"} <= known
    for machine in node.MACHINES:
        node.build(machine).write(tmp_path / machine)
        row = next(iter(pci.collect(Root(tmp_path / machine))))
        assert (machine if machine in known else None) == row.type, machine


def test_a_machine_is_recognised_with_a_gpu_missing(tmp_path: Path) -> None:
    report, facts = planted(tmp_path, "nd-h100-v5", "gpu-missing-on-bus")
    assert [("nd-h100-v5",)] == facts.query("SELECT type FROM node_machine")
    finding = report.findings[0]
    assert "7 GPUs on the PCI bus, this machine has 8" in finding.message
    assert any("machine type nd-h100-v5" in place.text for place in finding.evidence)


def test_other_clouds_of_the_same_maker_are_not_taken_for_it() -> None:
    gpus = [("gpu", "0x10de", "0x2321")] * 2
    assert machines.recognise("Microsoft Corporation", "Virtual Machine", gpus) is None
    assert (
        machines.recognise(
            "Google", "Google Compute Engine", [("gpu", "0x10de", "0x2330"), ("nic", "0x1ae0", "0x0042")]
        )
        is None
    )
    assert "p5" == machines.recognise("Amazon EC2", "p5.48xlarge", [])
    assert machines.recognise(None, None, []) is None


@pytest.mark.parametrize("kind", list(node.MACHINES.values()), ids=lambda kind: kind.name)
def test_the_data_know_the_models_of_the_simulator(kind: node.Machine) -> None:
    found = machines.model(kind.gpu)
    assert found == machines.model(None, kind.device_id)
    assert found is not None
    assert (kind.memory, kind.power, kind.nvlinks, kind.pcie) == tuple(
        found[k] for k in ("memory", "power", "links", "pcie")
    )


def test_every_figure_has_a_source() -> None:
    for name in ("gpu_models", "machine_types"):
        for entry in entries(name):
            assert entry["source"].startswith("https://"), entry
    assert len({entry["model"] for entry in entries("gpu_models")}) == len(entries("gpu_models"))


# Evidence and details


def test_evidence_shows_what_was_read(tmp_path: Path) -> None:
    report, _ = planted(tmp_path, "p5", "gpu-off-the-bus")
    texts = [f"{place.file} {place.text}" for place in report.findings[0].evidence]
    assert any("reads ff ff ff ff" in text and "/sys/bus/pci/devices/" in text for text in texts)
    assert "gpu-lost" in [f.name for f in report.findings if f.explained_by]


def test_growth_counts_and_size_does_not(tmp_path: Path) -> None:
    node.build("p4d").write(tmp_path)
    for before, expected in ((None, []), (10, ["gpu-pcie-replay-growing"])):
        facts = preflight.look(Root(tmp_path), OURS, 20.0)
        host, device, ref = facts.query("SELECT host, device, ref FROM node_counter WHERE name = 'pcie-replay'")[0]
        facts.add([NodeCounter(host, device, "pcie-replay", 1_000_000, None, ref)])
        facts.add([CounterBefore(device, "pcie-replay", before)] if before is not None else [])
        assert expected == alarms(preflight.report_of(facts))


def test_processes_have_owners_and_jobs(tmp_path: Path) -> None:
    tree = node.build("p4d", "gpu-stray-process")
    tree.put("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nbob:x:1007:1007::/home/bob:/bin/sh")
    tree.write(tmp_path)
    report, facts = look(tmp_path)
    assert [(31007, "python3", "bob", "4698", 0, 1)] == facts.query(
        "SELECT pid, name, user, job, own, granted FROM gpu_holder"
    )
    assert "python3 31007 of bob" in report.findings[0].message


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4698/step_0/user/task_0", "4698"),
        ("7:memory:/slurm/uid_1000/job_12/step_batch", "12"),
        ("4:cpu:/pbs_jobs.service/jobid/12.head", "12.head"),
        (
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice",
            "0a1b2c3d_1111_2222_3333_444455556666",
        ),
        ("0::/user.slice/user-1000.slice", None),
        ("", None),
    ],
)
def test_jobs_of_control_groups(cgroup: str, job: str | None) -> None:
    assert job == devices._job(cgroup)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023", "535.129.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@host)",
            "570.86.15",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build", "580.65.06"),
        ("NVRM version: gibberish", None),
        ("", None),
    ],
)
def test_driver_versions(text: str, version: str | None) -> None:
    assert version == pci.driver_version(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("16.0 GT/s PCIe", 16.0), ("8 GT/s", 8.0), ("Unknown", None), ("Unknown speed", None), (None, None), ("", None)],
)
def test_link_speeds(text: str | None, rate: float | None) -> None:
    assert rate == pci.rate(text)


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("16", 16), ("0", None), ("255", None), ("63", None), ("x16", None), (None, None), ("9" * 40, None)],
)
def test_link_widths(text: str | None, lanes: int | None) -> None:
    assert lanes == pci.lanes(text)


def test_configuration_space() -> None:
    assert (None, None) == pci.config(None)
    assert (None, None) == pci.config(b"\xff")
    assert (0, None) == pci.config(b"\xff" * 64)
    assert (1, None) == pci.config(bytes.fromhex("de103023") + bytes(60))
    plain = bytearray(4096)
    plain[0:4] = bytes.fromhex("b51110b5")
    plain[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # AER, then ACS
    plain[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    assert (1, 0) == pci.config(bytes(plain))
    plain[0x14E:0x150] = (0x001D).to_bytes(2, "little")
    assert (1, 1) == pci.config(bytes(plain))
    plain[0x148:0x14C] = (0x0002 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # a circle
    assert (1, None) == pci.config(bytes(plain))


def test_stale_device_files_are_seen(tmp_path: Path) -> None:
    tree = node.build("p4d")
    tree.stat("/dev/nvidia-uvm", device=510 << 8)
    tree.write(tmp_path)
    report, _ = look(tmp_path)
    assert ["gpu-device-file-unusable"] == alarms(report)
    assert "wrong device number" in report.findings[0].message


# What is not there


def test_a_node_without_gpus_is_absent_and_fit(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    report, facts = look(tmp_path)
    assert ("fit", []) == (report.fitness, report.findings)
    assert {("gpu", "absent"), ("pci", "absent")} == set(facts.query("SELECT source, outcome FROM collection"))


def test_a_library_without_any_gpu_is_absent(tmp_path: Path) -> None:
    for code in (9, 12):
        tree = node.Tree()
        tree.extra["nvml"] = {"gpus": [], "errors": [{"gpu": None, "call": "nvmlInit", "code": code, "text": "x"}]}
        tree.write(tmp_path / str(code))
        report, _ = look(tmp_path / str(code))
        assert ("fit", []) == (report.fitness, report.findings)


def test_a_container_with_some_of_the_gpus_is_fit(tmp_path: Path) -> None:
    tree = node.build("p4d")
    whole = tree.extra["nvml"]
    whole.update(gpus=whole["gpus"][:2], pairs=whole["pairs"][:1], whole=0, fabric_manager=None)
    for number in range(2, 8):
        tree.remove(f"/dev/nvidia{number}")
    tree.remove("/usr/bin/nvidia-modprobe")
    tree.write(tmp_path)
    report, _ = look(tmp_path)
    assert ("fit", []) == (report.fitness, alarms(report))


def test_the_machine_that_runs_this_test_can_be_asked() -> None:
    _, facts = look(Path("/"))
    assert {"ok", "partial", "absent"} >= {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}


def test_rows_of_an_answer() -> None:
    answer = {
        "source": "nvml",
        "gpus": [{"gpu": 0, "pci": "0000:10:00.0", "model": "X", "ecc": 1, "tasks": [{"pid": 1, "kind": "C", "memory": None}]}],
        "errors": [{"gpu": 1, "pci": None, "call": "c", "code": 15, "text": "t"}],
    }  # fmt: skip
    rows = list(devices.rows(Root("/nonexistent"), json.loads(json.dumps(answer))))
    kinds = {type(row): row for row in rows}
    assert ("X", None, None) == (kinds[NodeGpu].model, kinds[NodeGpu].power, kinds[NodeGpu].granted)
    assert (1, None) == (kinds[GpuHealth].ecc, kinds[GpuHealth].uncorrected)
    assert (0, None, None) == (kinds[GpuHolder].alive, kinds[GpuHolder].own, kinds[GpuHolder].memory)
    assert ("gpu-lost", 1) == (kinds[NodeGpuError].name, kinds[NodeGpuError].gpu)
    assert all(isinstance(row[-1], Seen) for row in rows)
