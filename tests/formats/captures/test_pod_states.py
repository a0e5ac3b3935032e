"""How pods ended, of `kubectl describe pod` and `kubectl get pods -o yaml`."""

import re
import tarfile
from pathlib import Path
from textwrap import dedent

import pytest
from helpers.scaling import called

from nccl_doctor.app.analyze import read_facts
from nccl_doctor.facts.tables import Input

DESCRIBED = Path(__file__).parents[3] / "fixtures/captures/describe_pod.txt"
LISTED = "SELECT pod, status, restarts, node FROM listed_pod ORDER BY pod"
ENDED = "SELECT host, exitcode FROM process_end WHERE exitcode IS NOT NULL ORDER BY host"


def test_a_description_names_the_pod_its_restarts_and_how_it_ended() -> None:
    facts, _ = read_facts([str(DESCRIBED)])
    assert [("train-worker-1", "CrashLoopBackOff", 7, "gpu-02")] == facts.query(LISTED)
    assert [("train-worker-1", 137)] == facts.query(ENDED)
    assert ("train-worker-1",) in facts.query("SELECT field(fields, 'pod') FROM message WHERE kind = 'k8s-oom-killed'")


def test_descriptions_one_after_the_other_are_kept_apart(tmp_path: Path) -> None:
    text = DESCRIBED.read_text()
    other = text.replace("train-worker-1", "train-worker-2").replace("OOMKilled", "Error").replace("137", "1")
    (tmp_path / "two.txt").write_text(text + "\n\n" + other)
    facts, _ = read_facts([str(tmp_path / "two.txt")])
    assert [("train-worker-1", 137), ("train-worker-2", 1)] == facts.query(ENDED)


@pytest.mark.parametrize("wrapped", [False, True])
def test_yaml_of_pods_says_how_each_ended(tmp_path: Path, wrapped: bool) -> None:
    pod = dedent(
        """\
        apiVersion: v1
        kind: Pod
        metadata:
          name: NAME
          namespace: research
        spec:
          containers:
          - name: train
          nodeName: gpu-02
        status:
          containerStatuses:
          - lastState: {}
            name: train
            ready: false
            restartCount: 2
            state:
              STATE
          phase: PHASE
        """
    )
    good = pod.replace("NAME", "train-worker-0").replace("STATE", "running: {}").replace("PHASE", "Running")
    bad = pod.replace("NAME", "train-worker-1").replace("PHASE", "Failed")
    bad = bad.replace("STATE", "terminated:\n        exitCode: 139\n        reason: Error")
    text = f"{good}---\n{bad}"
    if wrapped:
        items = [f"- {part.replace(chr(10), chr(10) + '  ').rstrip()}\n" for part in (good, bad)]
        text = "apiVersion: v1\nitems:\n" + "".join(items) + "kind: List\n"
    (tmp_path / "pods.yaml").write_text(text)
    facts, _ = read_facts([str(tmp_path / "pods.yaml")])
    assert [("train-worker-0", "Running", 2, "gpu-02"), ("train-worker-1", "Error", 2, "gpu-02")] == facts.query(LISTED)
    assert [("train-worker-1", 139)] == facts.query(ENDED)
    shown = facts.query("SELECT e.text FROM process_end p JOIN evidence e ON e.id = p.ref")
    assert [("exitCode: 139",)] == shown


POD = """\
- apiVersion: v1
  kind: Pod
  metadata:
    name: train-worker-{number}
    resourceVersion: "7"
  spec:
    containers:
{spec}
  status:
    containerStatuses:
    - name: train
      restartCount: 0
      state:
        terminated:
          exitCode: 1
          reason: Error
    phase: Failed
"""


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_cluster_kept_is_found_in_a_folder_and_templates_are_passed_over(tmp_path: Path, packed: bool) -> None:
    """By its content: the list of pods says what it is in its items only, which may be long."""
    folder = tmp_path / "run"
    (folder / "k8s").mkdir(parents=True)
    pods = "".join(POD.format(number=number, spec="    - name: train\n" * 150) for number in range(4))
    text = {
        "k8s/pods.yaml": f'apiVersion: v1\nitems:\n{pods}kind: List\nmetadata:\n  resourceVersion: ""\n',
        "k8s/job.yml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: template\nspec:\n  containers: []\n",
        "config.yaml": "status: \nlearning_rate: 0.1\nepochs: 3\n",
        "empty.yaml": "",
        "job.log": "step 1 loss 2.5 step_time 0.5\n" * 3,
    }
    for name, content in text.items():
        (folder / name).write_text(content)
    given = folder
    if packed:
        given = tmp_path / "run.tar"
        with tarfile.open(given, "w") as archive:
            archive.add(folder, ".")
    facts, problems = read_facts([str(given)])
    assert [] == problems
    assert [(f"train-worker-{number}", "Error", 0, None) for number in range(4)] == facts.query(LISTED)
    assert {"pods.yaml", "job.log"} == {re.split("[/!]", row.path)[-1] for row in facts.rows(Input)}


def test_templates_have_no_state(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: train\nspec:\n  containers: []\n")
    facts, _ = read_facts([str(tmp_path / "job.yaml")])
    assert [] == facts.query(LISTED)


def test_each_of_many_pods_is_found_in_the_same_number_of_steps(tmp_path: Path) -> None:
    def steps(pods: int) -> int:
        text = "apiVersion: v1\nkind: List\nitems:\n" + "".join(
            f"- kind: Pod\n  metadata:\n    name: worker-{number}\n  spec: {{}}\n  status:\n    phase: Failed\n"
            for number in range(pods)
        )
        (tmp_path / "pods.yaml").write_text(text)
        facts, _ = read_facts([str(tmp_path / "pods.yaml")])
        assert [(pods,)] == facts.query("SELECT COUNT(*) FROM listed_pod")
        return called(lambda: read_facts([str(tmp_path / "pods.yaml")]))

    steps(10)  # imports
    few, many = steps(100), steps(400)
    assert many < 4 * few


UNREACHABLE = "node.kubernetes.io/unreachable:NoExecute"


def test_what_a_pod_tolerates_is_no_lost_node(tmp_path: Path) -> None:
    tolerant = f"Tolerations:     node.kubernetes.io/not-ready:NoExecute op=Exists for 300s\n{' ' * 17}{UNREACHABLE} op=Exists for 300s\n"
    for text, lost in ((tolerant, 0), (f"Taints:             {UNREACHABLE}\n", 1)):
        (tmp_path / "pod.txt").write_text(text)
        facts, _ = read_facts([str(tmp_path / "pod.txt")])
        assert [(lost,)] == facts.query("SELECT count(*) FROM known_message WHERE fault = 'node-failed'")
