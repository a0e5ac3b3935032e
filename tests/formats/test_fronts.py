"""Files in which an output stands in front of something else, or a section behind a log: each part is read, and only by its reader."""

import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.formats import fronts, headings, registry
from nccl_doctor.formats.registry import FORMATS
from nccl_doctor.inputs.streams import InputProblem

STEPS = "".join(f"step {at * 50} | loss {3 - at / 50:.2f} | 412.{at % 10} samples/s\n" for at in range(30))
FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB.\n"
)
IBSTAT = "".join(
    f"CA 'mlx5_{card}'\n\tCA type: MT4123\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n"
    "\t\tRate: 200\n\t\tBase lid: 4\n\t\tLink layer: InfiniBand\n"
    for card, state, physical in ((0, "Active", "LinkUp"), (1, "Down", "Polling"))
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "ml"},
    "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0}]},
}
YAML = """apiVersion: v1
kind: Pod
metadata:
  name: train-0
status:
  phase: Running
  containerStatuses:
  - name: main
    lastState:
      terminated:
        message: |
          Traceback (most recent call last):
          torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.
"""
NODE = """Name:               node01
Roles:              worker
Conditions:
  Type             Status  LastHeartbeatTime                 LastTransitionTime                Reason        Message
  ----             ------  -----------------                 ------------------                ------        -------
  Ready            True    Tue, 11 Aug 2026 03:10:44 +0000   Mon, 02 Mar 2026 09:11:32 +0000   KubeletReady  kubelet is posting ready status
Events:              <none>
"""
TABLE = "Step,loss,samples_per_sec\n" + "".join(f"{at},2.5,{400 + at % 3}\n" for at in range(40))


def _known(kind: str) -> registry.Format:
    return next(known for known in FORMATS if known.kind == kind)


def _findings(tmp_path: Path, text: str) -> tuple[set[str], dict[str, int]]:
    path = tmp_path / "capture.txt"
    path.write_text(text, "utf-8")
    report, facts, _ = analyze.analyze([str(path)])
    return {finding.name for finding in report.findings}, facts.counts()


@pytest.mark.parametrize(
    ("front", "table"),
    [
        (json.dumps(POD, indent=4) + "\n", "message"),
        (json.dumps(POD) + "\n", "message"),
        (YAML, "kube_pod"),
        (NODE, "kube_node"),
        (TABLE, "scalar"),
        ((FIXTURES / "captures/smi_q.txt").read_text("utf-8"), "node_gpu"),
    ],
    ids=["json", "line of json", "yaml", "node", "table", "nvidia-smi"],
)
@pytest.mark.parametrize("between", ["", "\n", "starting the job\n"])
def test_the_log_behind_an_output_is_read(front: str, table: str, between: str, tmp_path: Path) -> None:
    names, counts = _findings(tmp_path, front + between + STEPS + FAILED)
    assert "cuda-oom" in names
    assert counts[table]


@pytest.mark.parametrize(
    "front",
    [json.dumps(POD, indent=4) + "\n", NODE, TABLE, (FIXTURES / "captures/smi_q.txt").read_text("utf-8")],
    ids=["json", "node", "table", "nvidia-smi"],
)
def test_the_next_output_is_read(front: str, tmp_path: Path) -> None:
    _, counts = _findings(tmp_path, front + IBSTAT)
    assert 2 == counts["ib_port"]


@pytest.mark.parametrize("kind", [known.kind for known in FORMATS if known.leads])
@pytest.mark.parametrize("text", [b"", b"\n", b"step 1 loss 2", b"{", b"}\n", b"a,b\n" * 40, b"x: 1\n" * 40])
def test_a_text_of_no_two_parts_has_no_end(kind: str, text: bytes) -> None:
    found = fronts.end_of_front(_known(kind), text, (b"CA type: ",))
    assert found is None or 0 <= found <= len(text)


def test_a_document_or_a_description_that_quotes_a_log_is_one() -> None:
    document = json.dumps({"message": STEPS, "items": [[1, 2], [3]]}, indent=0).encode()
    assert fronts.end_of_front(_known("kubernetes"), document) is None
    assert fronts.end_of_front(_known("kubernetes"), YAML.encode()) is None
    records = (json.dumps({"step": 1, "loss": 2.5}) + "\n").encode() * 40
    assert fronts.end_of_front(_known("training-records"), records + b"done\n") is None


def test_sections_are_those_between_a_heading_and_a_line_of_the_job() -> None:
    known = _known("amd-smi")
    assert known.heading is not None
    section = "======= ROCm System Management Interface =======\nGPU[0]\t: GPU use (%): 97\n"
    parts = headings.Sections(io.BytesIO((2 * (STEPS + section) + STEPS).encode()), known.heading)
    read = b"".join(iter(lambda: parts.read(1000), b"")).decode()
    assert 2 * [*section.splitlines(), ""] == read.splitlines()
    assert [31, 32, 33, 63, 64, 65] == [parts.source_line(line) for line in range(1, 7)]


@pytest.mark.parametrize(
    ("file", "table"),
    [
        ("gpu/npu_smi.txt", "gpu_use"),
        ("gridengine/qacct.txt", "accounted_job"),
    ],
)
def test_a_section_behind_a_log_says_what_it_says_alone(file: str, table: str, tmp_path: Path) -> None:
    text = (FIXTURES / file).read_text("utf-8")
    assert _findings(tmp_path, text)[1][table] == _findings(tmp_path, STEPS + text)[1][table]


class _BreaksOff(io.BytesIO):
    """A stream whose rest is damaged, as that of a compressed file that was cut."""

    def read(self, size: int | None = -1) -> bytes:
        if data := super().read(size):
            return data
        raise InputProblem("job.log.gz", "ends in the middle of its compressed data")


def test_what_stands_in_front_of_where_a_file_breaks_off_is_given_and_then_told() -> None:
    front = fronts.front_of(_known("nvidia-smi-q"), _BreaksOff(b"Attached GPUs"))
    assert b"Attached GPUs" == front.read(99)
    with pytest.raises(InputProblem):
        front.read(99)
