"""Small logs of programs of a cluster, in the words of their sources: the first finding is the reason, and healthy ones give no alarm."""

from pathlib import Path

import pytest

from tests.helpers.program_logs import alarms_of, first_of

RUNC = "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: "
FAILING = {
    "Ray: the port of the head is taken": ("port-in-use", """
        (gcs_server) grpc_server.cc:163: Failed to start the grpc server. The specified port is 6379. \
If the server startup error message is `Address already in use`, it indicates the server fails to start because the port is already used
        (gcs_server) grpc_server.cc:168:  Check failed: server_ Failed to start the grpc server.
        """),
    "Ray: the head is silent": ("rendezvous-failed", """
        2026-11-23 10:00:01,000	INFO scripts.py:1163 -- Local node IP: 10.0.0.12
        [2026-11-23 10:00:21,002 E 812 812] gcs_rpc_client.h:740: Failed to connect to GCS at address 10.0.0.11:6379 within 5 seconds.
        [2026-11-23 10:00:41,003 W 812 812] gcs_client.cc:184: Failed to get cluster ID from GCS server: TimedOut: x
        """),
    "Ray: an agent of a node ended": ("job-cannot-start", """
        (raylet) agent_manager.cc:86: The raylet exited immediately because one Ray agent failed, agent_name = runtime_env_agent.
        (raylet) The raylet fate shares with the agent. This can happen because
        (raylet) - The agent failed to start because of unexpected error or port conflict. Read the log `cat x.log`.
        ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more information.
        """),
    "containers: the runtime is not installed": ("file-not-found", f"""
        docker: {RUNC}unable to retrieve OCI runtime error (open log.json: no such file or directory): \
fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown
        """),
    "containers: no memory to begin with": ("host-memory-oom", f"""
        docker: {RUNC}runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown
        """),
    "containers: the disk for layers is full": ("disk-full", """
        gpu-01 containerd[2121]: level=error msg="PullImage \\"reg.example/train:7\\" failed" \
error="failed to pull and unpack image \\"reg.example/train:7\\": failed to extract layer sha256:11: write x.so: no space left on device"
        """),
}  # fmt: skip
HEALTHY = {
    "Ray": """
        2026-11-23 10:00:01,020	INFO worker.py:2013 -- Connected to Ray cluster. View the dashboard at http://10.0.0.11:8265
        (raylet) memory_monitor.cc:197: Failed to parse cgroup memory usage. memory usage 1 inactive file 2 active file 3
        (pid=99) core_worker_process.cc:842: Failed to establish connection to the metrics exporter agent. Metrics will not be exported.
        (RayTrainWorker pid=812, ip=10.0.0.12) Setting up process group for: env:// [rank=0, world_size=2]
        (RayTrainWorker pid=812, ip=10.0.0.12) epoch 0 step 10 loss 2.31
        Training completed after 1 iterations at 2026-11-23 10:10:02. Total running time: 10min 2s
        """,
    "containerd": """
        containerd[2121]: level=info msg="skip loading plugin" error="skip plugin: btrfs not supported"
        level=error msg="failed to load cni during init, please check CRI plugin status before setting up network for pods"
        containerd[2121]: level=info msg="containerd successfully booted in 0.04s"
        containerd[2121]: level=info msg="StartContainer for \\"8f\\" returns successfully"
        containerd[2121]: level=error msg="collecting metrics for 8f" error="ttrpc: closed"
        containerd[2121]: level=error msg="ContainerStatus for \\"8f\\" failed" \
error="rpc error: code = NotFound desc = an error occurred when try to find container \\"8f\\": not found"
        """,
}


@pytest.mark.parametrize("name", FAILING)
def test_the_reason_comes_first(tmp_path: Path, name: str) -> None:
    expected, log = FAILING[name]
    assert expected == first_of(tmp_path, log)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_gives_no_alarm(tmp_path: Path, name: str) -> None:
    assert [] == alarms_of(tmp_path, HEALTHY[name])
