"""How pods ended, of `kubectl describe pod` and `kubectl get pods -o yaml`."""

from pathlib import Path
from textwrap import dedent

import pytest
from helpers.scaling import called

from nccl_doctor.app.analyze import read_facts

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
