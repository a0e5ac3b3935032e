"""What `kubectl describe pod` and `kubectl get events` print of pods that did not start or were ended, and of pods that ran."""

from pathlib import Path

import pytest

from tests.helpers.program_logs import alarms_of, first_of

FAILING = {
    "a secret without the key": ("pod-not-created", """
        12m   Normal    Scheduled   pod/train-worker-0   Successfully assigned ml/train-worker-0 to gpu-01
        11m   Warning   Failed      pod/train-worker-0   Error: failed to sync secret cache: timed out waiting for the condition
        10m   Warning   Failed      pod/train-worker-0   Error: couldn't find key token in Secret ml/hub-token
        """),
    "a user that the policy forbids": ("pod-not-created", """
          Normal   Scheduled  2m                default-scheduler  Successfully assigned ml/train-0 to gpu-01
          Warning  Failed     60s (x4 over 2m)  kubelet  Error: container has runAsNonRoot and image has non-numeric user (worker)
        """),
    "a call to the runtime that takes too long": ("pod-not-created", """
          Warning  FailedCreatePodSandBox  2m  kubelet  Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = x
        """),
    "a node that was lost": ("node-failed", """
            State:          Terminated
              Reason:       ContainerStatusUnknown
              Message:      The container could not be located when the pod was terminated
              Exit Code:    137
          Warning  NodeNotReady         9m    node-controller  Node is not ready
        """),
    "a device class that nobody brings": ("pod-unschedulable", """
          Warning  FailedScheduling  5m  default-scheduler  request gpus: device class gpu.nvidia.com does not exist
        """),
    "a claim whose volume is gone": ("pod-unschedulable", """
          Warning  FailedScheduling  1m  default-scheduler  persistentvolumeclaim "data" bound to non-existent persistentvolume "pv-7"
        """),
    "a set whose quota is used up": ("pod-not-created", """
        4m  Warning  FailedCreate  statefulset/train  create Pod train-0 in StatefulSet train failed error: pods "train-0" is forbidden: x
        """),
    "the deadline of a pod": ("scheduler-time-limit", """
        Status:           Failed
        Reason:           DeadlineExceeded
        Message:          Pod was active on the node longer than the specified deadline
        """),
    "a training job of which a container crashed": ("rank-crash", """
        5m  Normal   SuccessfulCreatePod   pytorchjob/train  Created pod: train-worker-1
        2m  Warning  Error                 pytorchjob/train  Error pod train-worker-1 container pytorch exitCode: 139 terminated message:
        2m  Warning  PyTorchJobRestarting  pytorchjob/train  PyTorchJob train is restarting because 1 Worker replica(s) failed.
        """),
    "a training job at its deadline": ("scheduler-time-limit", """
        2m  Normal   PyTorchJobFailed      pytorchjob/train  Job train has failed because it was active longer than specified deadline
        """),
}  # fmt: skip
HEALTHY = {
    "a training job that ends": """
        5m  Normal   SuccessfulCreatePod   pytorchjob/train  Created pod: train-worker-1
        5m  Normal   PyTorchJobRunning     pytorchjob/train  PyTorchJob train is running.
        2m  Normal   ExitedWithCode        pytorchjob/train  Pod: ml.train-worker-1 exited with code 0
        2m  Normal   PyTorchJobSucceeded   pytorchjob/train  PyTorchJob train is successfully completed.
        """,
    "a pod that waited for a node and for a token": """
          Warning  FailedScheduling  12m  default-scheduler  0/8 nodes are available: 8 Insufficient nvidia.com/gpu.
          Normal   Scheduled    10m  default-scheduler  Successfully assigned ml/train-0 to gpu-01
          Warning  FailedMount  10m  kubelet  MountVolume.SetUp failed for volume "token" : failed to sync configmap cache: timed out
          Normal   Pulled       9m   kubelet  Successfully pulled image "reg.example/train:7" in 45.2s (45.2s including waiting)
          Normal   Started      9m   kubelet  Started container train
          Normal   Completed    1m   job-controller  Job completed
        """,
    "a node that starts": """
        10m  Normal   Starting             node/gpu-01  Starting kubelet.
        10m  Warning  InvalidDiskCapacity  node/gpu-01  invalid capacity 0 on image filesystem
        10m  Warning  CgroupV1             node/gpu-01  cgroup v1 support is in maintenance mode, please migrate to cgroup v2
        9m   Normal   NodeReady            node/gpu-01  Node gpu-01 status is now: NodeReady
        8m   Normal   Started              pod/train-0  Started container train
        """,
}


@pytest.mark.parametrize("name", FAILING)
def test_the_reason_of_a_pod_comes_first(tmp_path: Path, name: str) -> None:
    expected, log = FAILING[name]
    assert expected == first_of(tmp_path, log)


@pytest.mark.parametrize("name", HEALTHY)
def test_what_passes_by_itself_is_no_alarm(tmp_path: Path, name: str) -> None:
    assert [] == alarms_of(tmp_path, HEALTHY[name])
