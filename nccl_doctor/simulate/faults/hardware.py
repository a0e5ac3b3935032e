"""Faults of GPUs, NVLink and the fabric, as NCCL, PyTorch and the kernel report them."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.failure import TRAIN_FRAMES, job_end, python_error
from nccl_doctor.simulate.faults.cuda import cuda_warn
from nccl_doctor.simulate.faults.memory import Failures
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import init_trail, warn
from nccl_doctor.simulate.phase import KERNEL_STAMP, Phase
from nccl_doctor.simulate.secondary_errors import exit_rank, fail_ranks

_HINT = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)


def kernel(host: Host, text: str) -> str:
    """Returns a kernel line as journald shows it."""
    return f"{KERNEL_STAMP} {host.name} kernel: {text}"


def pci(rank: Rank) -> str:
    """Returns the PCI address of a GPU as in Xid lines."""
    return f"PCI:0000:{rank.bus >> 12:02x}:00"


def cuda_error(cluster: Cluster, rank: Rank, text: str) -> str:
    """Returns the framework's report of a CUDA error on a rank."""
    if cluster.spec.framework == "nccl-tests":
        return f"{rank.host.name}: Test CUDA failure common.cu:583 '{text}'"
    frames = [*TRAIN_FRAMES, ("/workspace/train.py", 211, "train", "torch.cuda.synchronize()")]
    return python_error(rank, frames, f"RuntimeError: CUDA error: {text}\n{_HINT}")


def _xid(cluster: Cluster, messages: list[str], error: str) -> Break:
    """Kernel lines on the victim's host, then the rank's CUDA error and its exit."""
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        phase = Phase(1.0)
        for message in messages:
            phase.add(rank.host, kernel(rank.host, f"NVRM: Xid ({pci(rank)}): {message}"))
        yield phase
        yield from exit_rank(cluster, rank, 1, cuda_error(cluster, rank, error))

    return Break("train", phases)


@fault("xid-79-off-bus", "A GPU is no longer reachable over PCI Express.", r"Xid \(PCI:[0-9a-f:]+\): 79,")
def _off_bus(cluster: Cluster) -> Break:
    pid = cluster.victim.pid
    return _xid(cluster, [f"79, pid={pid}, name=python, GPU has fallen off the bus."], "unspecified launch failure")


@fault("xid-119-gsp-timeout", "The GPU's system processor does not answer.", r"Xid \(PCI:[0-9a-f:]+\): 119,")
def _gsp(cluster: Cluster) -> Break:
    rank = cluster.victim
    text = (
        f"119, pid={rank.pid}, name=python, Timeout after 6s of waiting for RPC response from GPU{rank.nvml} GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c)."
    )
    return _xid(cluster, [text, text.replace("(0x20801813 0x4c)", "(0x2080014b 0x5)")], "unspecified launch failure")


@fault("xid-145-149-nvlink", "An NVLink of a GPU failed.", r"Xid \(PCI:[0-9a-f:]+\): 14[59],")
def _nvlink_xid(cluster: Cluster) -> Break:
    messages = [
        "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
        "149, NETIR_LINK_EVT Fatal XC0 i0 Link 13 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    ]
    return _xid(cluster, messages, "uncorrectable NVLink error detected during the execution")


@fault(
    "xid-94-contained-ecc",
    "A GPU had a memory error that was contained to one process.",
    r"Xid \(PCI:[0-9a-f:]+\): 94,",
)
def _contained(cluster: Cluster) -> Break:
    pid = cluster.victim.pid
    messages = [
        "63, Row Remapper: New row (0x0000000c1e4) marked for remapping, reset gpu to activate.",
        f"94, pid={pid}, name=python, Contained: SM (0x1). RST: No, D-RST: No",
    ]
    return _xid(cluster, messages, "uncorrectable ECC error encountered")


@fault("ecc-uncorrectable", "A GPU had an uncorrectable memory error.", r"uncorrectable ECC error encountered")
def _ecc(cluster: Cluster) -> Break:
    rank = cluster.victim
    error = cuda_error(cluster, rank, "uncorrectable ECC error encountered")
    return Break("train", lambda: exit_rank(cluster, rank, -6 if cluster.spec.framework == "pytorch" else 1, error))


@fault(
    "nvlink-error",
    "CUDA reports an uncorrectable NVLink error.",
    r"uncorrectable NVLink error detected during the execution",
)
def _nvlink(cluster: Cluster) -> Break:
    rank = cluster.victim
    error = cuda_error(cluster, rank, "uncorrectable NVLink error detected during the execution")
    return Break("train", lambda: exit_rank(cluster, rank, 1, error))


@fault("xid-31-mmu-fault", "A kernel used an address that the GPU has not mapped.", r"Xid \(PCI:[0-9a-f:]+\): 31,")
def _mmu(cluster: Cluster) -> Break:
    text = (
        f"31, pid={cluster.victim.pid}, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 "
        "GPCCLIENT_T1_3 faulted @ 0x7f6a_3c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )
    return _xid(cluster, [text], "an illegal memory access was encountered")


@fault(
    "fabric-manager-not-running",
    "The Fabric Manager does not run on one node, so CUDA cannot start there.",
    r"system not yet initialized",
)
def _manager(cluster: Cluster) -> Break:
    ranks = cluster.victim.host.ranks

    def phases() -> Iterator[Phase]:
        phase = Phase(1.0)
        for rank in ranks:
            if cluster.spec.framework == "nccl-tests":
                text = f"{rank.host.name}: Test CUDA failure common.cu:891 'system not yet initialized'"
            else:
                frames = [*TRAIN_FRAMES[:1], ("/workspace/train.py", 251, "main", "torch.cuda.set_device(local_rank)")]
                error = (
                    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
                    "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
                )
                text = python_error(rank, frames, error)
            phase.add(rank, text)
        yield phase
        yield from job_end(cluster, dict.fromkeys(ranks, 1), ranks[0])

    return Break("launch", phases)


@fault(
    "fabric-manager-state",
    "NVLink SHARP multicast fails because of the Fabric Manager or the NVSwitches.",
    r"transport/nvls\.cc:\d+.*Cuda failure|Failed to bind NVLink SHARP",
    Needs(gpus=3, since="2.18.3"),
)
def _multicast(cluster: Cluster) -> Break:
    host = cluster.victim.host

    def phases() -> Iterator[Phase]:
        failures: Failures = {}
        v = cluster.v
        words = "the operation cannot be performed in the present state"
        for rank in host.ranks:
            if v >= (2, 29):
                text = (
                    f"Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 '{words}'.\n"
                    "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.\n"
                    "Disable NVLS (NCCL_NVLS_ENABLE=0) if you wish to avoid this error."
                )
                first = warn(rank, "transport/nvls.cc:254", text, "nvlsGroupBindMem")
                last = text.split("\n")[0]
            else:
                code, words_now = (1, "invalid argument") if v < (2, 22) else (401, words)
                first = cuda_warn(rank, "transport/nvls.cc:244", code, words_now, "nvlsGroupBindMem")
                last = f"Cuda failure {code} '{words_now}'"
            steps = (("transport/nvls.cc:409", "ncclNvlsGroupCreate"), ("transport/nvls.cc:542", "ncclNvlsSetup"))
            failures[rank] = ([first, init_trail(rank, 1, *steps)], 1, last)
        yield from fail_ranks(cluster, failures, "init")

    return Break("graph", phases)


@fault(
    "imex-channel-missing",
    "The GPUs of an NVLink domain of several nodes cannot share memory, because the IMEX channel is missing.",
    r"MNNVL (\(cliqueSize \d+\) is available but not (working|supported)|is not supported on this system)",
    Needs(nodes=2, since="2.21.5"),
)
def _imex(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        failures: Failures = {}
        v = cluster.v
        size = len(cluster.ranks)
        for rank in cluster.victim.host.ranks:
            if v < (2, 25):
                text = "MNNVL is not supported on this system"
            elif v < (2, 27):
                text = f"MNNVL (cliqueSize {size}) is available but not supported on this system. Check the IMEX configuration."
            else:
                text = (
                    f"MNNVL (cliqueSize {size}) is available but not working on this system. Check the IMEX channel "
                    "configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue."
                )
            where = "mnnvl.cc:56" if v >= (2, 25) else "init.cc:911"
            first = cuda_warn(
                rank, "transport/p2p.cc:249", 800, "operation not permitted", "ncclP2pAllocateShareableBuffer"
            )
            failures[rank] = (
                [first, warn(rank, where, text, "ncclMnnvlCheck"), init_trail(rank, 2, (where, "ncclMnnvlCheck"))],
                2,
                text,
            )
        yield from fail_ranks(cluster, failures, "init")

    return Break("start", phases)


@fault(
    "pcie-aer-errors",
    "The PCI Express link of a GPU has uncorrectable errors.",
    r"PCIe Bus Error: severity=Uncorrect",
)
def _aer(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        host = rank.host
        address = f"0000:{rank.bus >> 12:02x}:00.0"
        phase = Phase(1.0)
        phase.add(
            host,
            kernel(host, "pcieport 0000:15:01.0: AER: Uncorrectable (Fatal) error message received from 0000:15:01.0"),
            kernel(
                host,
                f"nvidia {address}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)",
            ),
            kernel(host, f"nvidia {address}:   device [10de:2330] error status/mask=00004000/00000000"),
        )
        yield phase
        yield from exit_rank(cluster, rank, 1, cuda_error(cluster, rank, "unspecified launch failure"))

    return Break("train", phases)
