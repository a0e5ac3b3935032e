"""Small logs of servers and trainers, in the words of their sources: the first finding is the reason, and healthy ones give no alarm."""

from pathlib import Path

import pytest

from tests.helpers.program_logs import alarms_of, first_of

REGISTER = "coordination_service_agent.cc:360] Coordination service agent failed to register with the leader"
FAILING = {
    "JAX: process 0 is not reached": ("rendezvous-failed", f"""
        I1123 10:00:00.000001 4711 distributed.py:172] Connecting to JAX distributed service on 10.0.0.11:1234
        W1123 10:01:00.000001 4711 {REGISTER} (attempt #9, will try again in 60s): DEADLINE_EXCEEDED: Deadline Exceeded
        F1123 10:05:00.000001 4711 client.h:80] Terminating process because the JAX distributed service detected fatal errors.
        """),
    "JAX: the port of process 0 is taken": ("port-in-use", """
        I1123 10:00:00.000001 4711 distributed.py:149] Starting JAX distributed service on [::]:1234
        E1123 10:00:00.100000 4711 chttp2_server.cc:1045] UNKNOWN:No address added out of total 1 resolved for '[::]:1234'
        RuntimeError: INTERNAL: Failed to start RPC server
        """),
    "Triton: a port is taken": ("port-in-use", """
        I1123 10:00:10.000001 1 http_server.cc:4725] "Started HTTPService at 0.0.0.0:8000"
        E1123 10:00:10.000001 1 main.cc:270] "failed to start GRPC service: Unavailable - Socket '0.0.0.0:8001' already in use "
        """),
    "vLLM: another process holds the memory": ("cuda-oom", """
        (Worker_TP3 pid=280) ERROR 11-23 10:00:20 [multiproc_executor.py:772] WorkerProc failed to start.
        (Worker_TP3 pid=280) ERROR 11-23 10:00:20 [multiproc_executor.py:772] ValueError: Free memory on device cuda:3 (12.1/79.1 GiB) \
on startup is less than desired GPU memory utilization (0.9, 71.19 GiB).
        (EngineCore_DP0 pid=271) ERROR 11-23 10:00:25 [core.py:866] EngineCore failed to start.
        (APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
        """),
    "SGLang: the second node does not reach the first": ("rendezvous-failed", """
        [2026-11-23 10:00:20 TP8] Init torch distributed begin.
        [2026-11-23 10:10:20 TP8] Scheduler hit an exception: Traceback (most recent call last):
          File "model_runner.py", line 700, in init_torch_distributed
        torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.11, 20000).
        [2026-11-23 10:10:21] Received sigquit from a child process. It usually means the child failed.
        """),
    "accelerate: the port is taken": ("port-in-use", """
        ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it.
        """),
    "DeepSpeed: nobody listens for ssh": ("launch-failed", """
        [2026-11-23 10:00:00,000] [INFO] [multinode_runner.py:81:get_cmd] Running on the following workers: node1,node2
        node2: ssh: connect to host node2 port 22: Connection refused
        pdsh@node1: node2: ssh exited with exit code 255
        """),
    "Lightning: another number of nodes than Slurm": ("world-size-wrong", """
        ValueError: You set `num_nodes=2` in Lightning, but the number of nodes configured in SLURM `--nodes=4` does not match.
        """),
    "Azure: an extension was not installed": ("node-failed", """
        2026-11-23T10:00:00.000000Z ERROR ExtHandler ExtHandler Event: name=Microsoft.HpcCompute.NvidiaGpuDriverLinux, op=Enable, \
message=[ExtensionOperationError] Non-zero exit code: 100, install.sh
        2026-11-23T10:00:05.000000Z ERROR ExtHandler ExtHandler Error fetching the goal state: [ProtocolError] x
        """),
}  # fmt: skip
HEALTHY = {
    "JAX": f"""
        I1123 10:00:00.000001 4711 distributed.py:172] Connecting to JAX distributed service on 10.0.0.11:1234
        W1123 10:00:01.000001 4711 {REGISTER} (attempt #1, will try again in 1s): DEADLINE_EXCEEDED: Deadline Exceeded
        I1123 10:00:03.000001 4711 coordination_service_agent.cc:369] Coordination agent has successfully connected.
        step 20 loss 2.11
        I1123 10:10:00.000001 4711 coordination_service_agent.cc:499] Coordination agent has successfully shut down.
        """,
    "Triton": """
        W1123 10:00:00.000001 1 server.cc:251] "failed to enable peer access for some device pairs"
        I1123 10:00:10.000001 1 model_lifecycle.cc:849] "successfully loaded 'm'"
        I1123 10:00:10.000001 1 grpc_server.cc:2562] "Started GRPCInferenceService at 0.0.0.0:8001"
        I1123 11:00:10.100001 1 server.cc:345] "Timeout 30: Found 0 live models and 0 in-flight non-inference requests"
        """,
    "vLLM": """
        (EngineCore_DP0 pid=271) INFO 11-23 10:00:10 [core.py:93] Initializing a V1 LLM engine (v0.33.0) with config: model='x'
        (Worker_TP0 pid=280) WARNING 11-23 10:00:12 [custom_all_reduce.py:144] Custom allreduce is disabled because your platform \
lacks GPU P2P capability or P2P test failed.
        (EngineCore_DP0 pid=271) INFO 11-23 10:01:40 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.
        (APIServer pid=9) INFO:     Application startup complete.
        (APIServer pid=9) INFO:     Application shutdown complete.
        """,
    "SGLang": """
        [2026-11-23 10:00:21 TP0] Init torch distributed ends. elapsed=1.20 s, mem usage=0.21 GB
        [2026-11-23 10:00:22 TP0] Setup Custom allreduce failed with Custom all-reduce is not supported on this platform.
        [2026-11-23 10:01:05] The server is fired up and ready to roll!
        """,
    "DeepSpeed": """
        [2026-11-23 10:00:01,000] [WARNING] [runner.py:220:fetch_hostfile] Unable to find hostfile, will proceed with training with \
local resources only.
        [2026-11-23 10:00:02,000] [INFO] [launch.py:162:main] nnodes=1, num_local_procs=2, node_rank=0
        [2026-11-23 10:01:12,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]
        [2026-11-23 10:03:02,000] [INFO] [launch.py:351:main] Process 812 exits successfully.
        """,
    "Lightning": """
        Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2
        Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2
        All distributed processes registered. Starting with 2 processes
        data_connector.py:425: The 'train_dataloader' does not have many workers which may be a bottleneck.
        Epoch 1: 100%|##########| 10/10 [00:05<00:00,  1.98it/s, v_num=0, train_loss=2.11]
        `Trainer.fit` stopped: `max_epochs=2` reached.
        """,
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_the_reason_comes_first(tmp_path: Path, name: str) -> None:
    expected, log = FAILING[name]
    assert expected == first_of(tmp_path, log)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_gives_no_alarm(tmp_path: Path, name: str) -> None:
    assert [] == alarms_of(tmp_path, HEALTHY[name])
