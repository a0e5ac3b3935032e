"""On nodes that several jobs share, only the GPUs that the scheduler gave to this job count for it."""

from pathlib import Path

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.node.gpu import devices
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import gpu
from nccl_doctor.simulate.node.software import variables

UUIDS = {number: f"GPU-{number}" for number in range(4)}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLURM_JOB_GPUS": "0,2"}, {0: 1, 1: 0, 2: 1, 3: 0}),
        ({"SLURM_STEP_GPUS": "1-3"}, {0: 0, 1: 1, 2: 1, 3: 1}),
        (
            {"SLURM_JOB_GPUS": "4,5,6,7"},
            {0: 1, 1: 1, 2: 1, 3: 1},
        ),  # the control group hides the others and numbers anew
        ({"SLURM_JOB_GPUS": "9"}, {}),  # not here: not believed
        ({"PBS_JOBID": "7.pbs", "CUDA_VISIBLE_DEVICES": "GPU-3"}, {0: 0, 1: 0, 2: 0, 3: 1}),
        ({"LSB_JOBID": "7", "CUDA_VISIBLE_DEVICES": "1"}, {0: 0, 1: 1, 2: 0, 3: 0}),
        ({"LSB_JOBID": "7", "CUDA_VISIBLE_DEVICES": "MIG-5"}, {}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {}),  # of a user's shell, not of a scheduler
        ({"SLURM_JOB_GPUS": "0,"}, {}),
        ({"SLURM_JOB_GPUS": "3-1"}, {0: 0, 1: 0, 2: 0, 3: 0}),
        ({}, {}),
    ],
)
def test_what_schedulers_say(environ: dict[str, str], expected: dict[int, int]) -> None:
    assert expected == devices.parse_granted(environ, UUIDS)


@pytest.mark.parametrize(("granted", "names"), [("0,1", []), ("0,5", ["gpu-process-graphics"])])
def test_processes_on_the_gpus_of_other_jobs_do_not_count(granted: str, names: list[str], tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    variables(tree, SLURM_JOB_GPUS=granted, SLURM_GPUS_ON_NODE="2", CUDA_VISIBLE_DEVICES="0,1")
    gpu.told(tree, 5)["tasks"] = [{"pid": 999, "memory": 1 << 30, "kind": "G"}]
    tree.put("/proc/999/status", "Name:\tXorg\nUid:\t0\t0\t0\t0")
    tree.write(tmp_path)
    report = preflight.report_of(preflight.look(Root(tmp_path), names=("gpu", "pci")))
    assert names == [finding.name for finding in report.findings if finding.severity != "note"]
    assert "fit" == report.fitness


def test_a_task_whose_control_group_shows_one_gpu_of_eight_does_not_drain(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    variables(tree, SLURM_JOB_GPUS="3", SLURM_GPUS_ON_NODE="1", CUDA_VISIBLE_DEVICES="0")
    nvml = gpu.told(tree)
    nvml["gpus"] = [{**nvml["gpus"][3], "gpu": 0}]
    nvml["pairs"] = []
    for number in range(8):
        if number != 3:
            tree.stat(f"/dev/nvidia{number}", opens="EPERM")
    tree.write(tmp_path)
    report = preflight.report_of(preflight.look(Root(tmp_path), names=("gpu", "pci")))
    assert "drain" != report.fitness, [(f.name, f.message) for f in report.findings if f.action == "drain"]
