"""Messages of the same program and class are reported under the same fault, in wordings that no case showed."""

import pytest

from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.knowledge.templates import LINE, RECORD

LINES = {
    "ib-peer-unreachable": [
        "/opt/nvshmem/src/modules/transport/ibgda/ibgda.cpp:2966: non-zero status: 7 create DCT share err.",
        "/opt/nvshmem/src/host/transport/transport.cpp:420: non-zero status: 7 connect EPS failed",
        "[ 10.1] infiniband mlx5_3: mlx5_poll_one:530:(pid 12): syndrome 0x15, vendor syndrome 0x81",
    ],
    "ib-rnr": ["infiniband mlx5_0: mlx5_poll_one:530:(pid 0): syndrome 0x16, vendor syndrome 0x82"],
    "ib-remote-error": ["infiniband rocep1s0: mlx5_poll_one:530:(pid 0): syndrome 0x13, vendor syndrome 0x88"],
    "collective-shape-mismatch": [
        "EI0005: The parameters of operator A are inconsistent between ranks, parameter n is 8 on the local rank and 4 on the remote rank.",
    ],
    "mpi-daemon-lost": [
        "[mpiexec@n1] HYD_pmcd_pmiserv_proxy_init_cb (mpiexec/x.c:4): unable to connect to the main server",
        "[mpiexec@n1] Error: Unable to run bstrap_proxy on localhost:2 (pid 13546, exit code 65280)",
        "[mpiexec@n1] HYD_print_bstrap_setup_error_message (i_mpiexec.c:1015): error setting up the bootstrap proxies",
    ],
    "mpi-init-failed": [
        "[3] MPI startup(): dapl fabric is unknown or has been removed from the product",
        "Abort(16) on node 0 (rank 0 in comm 0): Fatal error in internal_Init_thread: Other MPI error, error stack:",
        "MPIDI_OFI_mpi_init_hook(1545): OFI addrinfo() failed",
    ],
    "component-version-mismatch": [
        "E0101 12:00:00.1 12 cuda_dnn.cc:454] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0.",
        "jax.errors.JaxRuntimeError: FAILED_PRECONDITION: DNN library initialization failed.",
        "slurmstepd: error: mpi/pmi2: invalid PMI1 init command: `x'",
    ],
    "shared-library-missing": [
        "slurmctld: error: cannot create auth context for auth/jwt",
        "sbatch: error: plugin_load_from_file: dlopen(/usr/lib64/slurm/gpu_nvml.so): libnvidia-ml.so.1: cannot open",
    ],
    "launch-failed": [
        "slurmstepd: error: cgroup namespace 'cpuset' not mounted. aborting",
        "slurmd: error: cannot connect to dbus system daemon: Failed to connect to socket",
    ],
    "node-failed": [
        "slurmd: error: /dev/nvidia7 is not a valid character or block device, fix your gres.conf",
        "slurmd[57977]: fatal: gres.conf duplicate records for gpu",
        "slurmd[57977]: fatal: no PATH for the plug-ins",
    ],
    "host-memory-oom": [
        "kernel: memory: usage 67108864kB, limit 67108864kB, failcnt 9123",
        "kernel: Memory cgroup stats for /kubepods.slice/pod1: cache:32KB rss:524188KB",
    ],
    "ray-resources-missing": [
        "WARNING resource_demand_scheduler.py:1 -- The autoscaler could not find a node type to satisfy the request: [{'GPU': 8}]",
        "(raylet) The actor is not schedulable: no node has GPU",
    ],
    "ucx-device-unavailable": ["[1.2] [n1:9:0]  ib_device.c:1   UCX  ERROR ibv_query_device(mlx5_2) returned 22: Invalid argument"],
    "cuda-ipc-peer-failed": ["[1.2] [n1:9 :0] tl_cuda_cache.c:1  UCC  ERROR cache: failed to open ipc mem handle. addr:0x7f len:1"],
    "nic-command-failed": ["[1.2] [n1:9:0] ib_mlx5_dv.c:1 UCX  ERROR mlx5dv_devx_obj_create(DCI) failed, syndrome 0x1: Invalid argument"],
    "gpu-device-file-missing": ["slurmd[12]: slurmd: error: Waiting for gres.conf file /dev/nvidia7"],
    "pod-unschedulable": ["Predicates failed for task <ns/w-1> on node <n2>: task ns/w-1 on node n2 fit failed: no GPU"],
    "job-cannot-start": ["slurmctld[812]: fatal: there is no more of it"],
    "gpu-reset-required": ["2026-05-07 10:22:29.245 ERROR [5231:5273] nvmlDeviceGetHandle returned GPU requires reset [x.cpp:1]"],
    "cuda-oom": [
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc(&p, n): out of memory (/src/buffers.h:12)",
        "RuntimeError: Caught OutOfMemoryError in pin memory thread for device 3.",
    ],
    "world-size-wrong": [
        "AssertionError: 151936 is not divisible by 6",
        "ValueError: num_query_groups (8) must be a multiple of tensor_model_parallel_size (16).",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: MPI size 1 != TP size 2 * PP size 1",
        "ValueError: Number of devices 6 must be >= the product of mesh_shape (4, 2).",
    ],
    "too-many-ranks-for-gpus": [
        '!handles_.at(i) INTERNAL ASSERT FAILED at "../c10/core/x.cpp":9, please report a bug to PyTorch. device=8, num_gpus=4',
        "(EngineCore_DP3 pid=7) AssertionError: DP adjusted local rank 8 is out of bounds. ",
    ],
    "extension-built-for-other-version": [
        "ImportError: sgl_kernel architecture-specific ops library: Could not find any common_ops library!",
        "RuntimeError: Configured CUDA binary not found at /x/libbitsandbytes_cuda124.so",
    ],
    "missing-rank-in-collective": ["DeepEP dispatch forwarder timeout, channel: 3, RDMA: 0, nvl: 1"],
    "port-in-use": [
        "(APIServer pid=9) OSError: port 8000 is already in use",
        "EJ0003: [PID: 7] 2026-03-01-17:01:02.8 Failed to bind the IP port. Reason: The IP address and port have been bound already.",
        "EI0019: Failed to enable listening for the host network adapter socket. Reason: 10.0.0.1:60000",
    ],
    "imex-channel-missing": [
        "NVRM: imexsessionapiDestruct_IMPL: Abrupt nvidia-imex daemon shutdown detected, disabled fabric allocations",
        "[May 07 2026 06:40:33] [ERROR] [tid 7] No matching network interface found for any IP addresses in the node configuration file x",
    ],
    "nvswitch-sxid": ["[May 07 2026 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 11012 on fid 1 on NVSwitch pci bus id 0"],
    "build-out-of-memory": ["nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "make[2]: *** [x.o] Killed"],
    "selinux-denied": [
        'type=AVC msg=audit(1.2:3): avc:  denied  { read } for  pid=9 comm="python" name="nvidia1" tclass=chr_file permissive=0'
    ],
    "no-ib-device": ["n1.4711 PSM2 can't open hfi unit: 1", "n1:rank3: PSM3 no nic units are active"],
    "image-not-pulled": ["[ERROR] Could not retrieve digest from https://reg.example/v2/x/manifests/2"],
    "pod-evicted": ['I0507 12:00:00.000000 1 eviction_manager.go:369] "Eviction manager: attempting to reclaim" resourceName="memory"'],
    "jit-cache-race": ["ImportError: /home/u/.cache/torch_extensions/py311/utils/utils.so: cannot open shared object file: No such file"],
    "ranks-not-started": [
        "(EI0015): Failed to collect cluster information of the communicator based on rootInfo detection. Reason: x",
        "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank 3, for key: k (world_size=8",
        "(APIServer pid=9) RuntimeError: Did not receive response from front-end process within 5 minutes",
        "[rank2] nvidia_resiliency_ext.inprocess.exception.BarrierTimeout: ranks=[0, 2] rendezvous_count=8",
    ],
    "process-stuck-in-kernel": ["[default] Worker pid=7 stuck in uninterruptible sleep (D-state) for 61s"],
    "rendezvous-unreachable": ["TimeoutError: TCPStore server at n1:29500 did not become reachable within 60.0s (last error: x)."],
    "dev-shm-full": ["(Worker pid=8) RuntimeError: Insufficient space: 12 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host)."],
    "rank-gpu-mapping-wrong": ["[rank1]: ValueError: Inconsistent compute device and `device_id` on rank 1: cuda:0 vs cuda:1"],
    "collective-desync": [
        "[rank0]: RuntimeError: x rank 0 is all-gathering 2 parameters while rank 1 is all-gathering 3 parameters",
        "AssertionError: Data inconsistency within the TP group. Please check the Dataloader implementation to ensure consistency.",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("fault", "line"), [(fault, line) for fault, lines in LINES.items() for line in lines])
def test_a_sibling_is_known_by_its_fault(fault: str, line: str) -> None:
    hit = catalogue().find(line, LINE)
    assert hit is not None
    assert fault == hit.message.fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("duplicate-gpu", "Duplicate GPU detected : rank 3 a"),
        ("roce-gid-unreadable-in-container", "NET/IB: read failed in ncclIbRoceGetVersionNum: Inv"),
        ("bootstrap-id-shared", "Bootstrap Root : mismatch in rank count fr"),
    ],
)
def test_a_line_that_was_cut_off_keeps_its_fault(fault: str, text: str) -> None:
    hit = catalogue().find(text, RECORD)
    assert hit is not None
    assert fault == hit.message.fault


@pytest.mark.parametrize(
    "line",
    [
        "[    0.812] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.XHCI], AE_NOT_FOUND (20210730/psargs-330)",
        "[   21.000] ib_srpt MAD registration failed for mlx5_1-1.",
        "n1 systemd[1]: Failed to insert module 'autofs4': No such file or directory",
        "W0507 12:00:04.1 1 manager.go:1174] Failed to process watch event {EventType:0 Name:/kubepods/x WatchSource:0}: task not found",
        'level=error msg="failed to load cni during init, please check CRI plugin status before setting up network for pods"',
        "[2026-05-07T12:00:01.200] error: Could not open node state file /var/spool/slurmctld/node_state: No such file or directory",
        "Warning: Permanently added 'n7' (ED25519) to the list of known hosts.",
    ],
)
def test_lines_of_healthy_machines_are_harmless(line: str) -> None:
    hit = catalogue().find(line, LINE)
    assert hit is not None
    assert "harmless" == hit.message.kind
