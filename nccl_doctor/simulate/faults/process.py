"""Faults that end processes or nodes: signals, memory of the host, exceptions and the scheduler."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster
from nccl_doctor.simulate.failure import TRAIN_FRAMES, python_error
from nccl_doctor.simulate.faults.hardware import kernel
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import exit_rank, neighbours_fail


@fault(
    "rank-sigkill",
    "Somebody or something killed one rank with SIGKILL.",
    r"exitcode\s*: -9|signal 9|SIGKILL|: Killed|Exit code: 137",
)
def _killed(cluster: Cluster) -> Break:
    return Break("train", lambda: exit_rank(cluster, cluster.victim, -9))


@fault(
    "host-memory-oom",
    "A node ran out of memory and its kernel killed a rank.",
    r"Out of memory: Killed process|oom-kill:constraint=",
)
def _host_memory(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        host = rank.host
        phase = Phase(1.0)
        phase.add(
            host,
            kernel(
                host,
                "python invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
            ),
            kernel(
                host,
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
                f"task_memcg=/system.slice/slurmd.service,task=python,pid={rank.pid},uid=10042",
            ),
            kernel(
                host,
                f"Out of memory: Killed process {rank.pid} (python) total-vm:1841392304kB, anon-rss:902341120kB, "
                "file-rss:140288kB, shmem-rss:8388608kB, UID:10042 pgtables:1881204kB oom_score_adj:0",
            ),
        )
        yield phase
        if cluster.launcher == "srun":
            phase = Phase(0.5)
            step = f"StepId={cluster.job_id}.0"
            phase.add(
                None,
                f"slurmstepd: error: Detected 1 oom_kill event in {step}. Some of the step tasks have been OOM Killed.",
            )
            yield phase
        yield from exit_rank(cluster, rank, -9)

    return Break("train", phases)


@fault(
    "python-exception",
    "One rank ended with a Python exception of the training script.",
    r"KeyError: 'labels'",
    Needs(frameworks=("pytorch", "horovod")),
)
def _exception(cluster: Cluster) -> Break:
    rank = cluster.victim
    frames = [*TRAIN_FRAMES, ("/workspace/train.py", 198, "train", 'labels = batch["labels"]')]
    return Break("train", lambda: exit_rank(cluster, rank, 1, python_error(rank, frames, "KeyError: 'labels'")))


@fault("rank-crash", "One rank ended with a segmentation fault.", r"[Ss]egmentation fault|SIGSEGV|segfault at")
def _segfault(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        phase = Phase(1.0)
        text = (
            f"pt_main_thread[{rank.pid}]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
            "libcustom_ops.so[7f7c7ac00000+d3000]"
        )
        phase.add(rank.host, kernel(rank.host, text))
        yield phase
        yield from exit_rank(cluster, rank, -11)

    return Break("train", phases)


@fault(
    "scheduler-time-limit",
    "Slurm ended the job at its time limit.",
    r"CANCELLED AT \S+ DUE TO TIME LIMIT",
)
def _time_limit(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        phase = Phase(2.0)
        first = cluster.hosts[0].name
        job = cluster.job_id
        phase.add(None, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
        phase.add(None, f"slurmstepd: error: *** JOB {job} ON {first} CANCELLED AT \x00s DUE TO TIME LIMIT ***")
        phase.add(None, f"slurmstepd: error: *** STEP {job}.0 ON {first} CANCELLED AT \x00s DUE TO TIME LIMIT ***")
        for host in cluster.hosts[:8]:
            phase.add(None, f"srun: error: {host.name}: task {host.index}: Terminated")
        yield phase

    return Break("train", phases)


@fault(
    "node-failed",
    "A node stopped answering in the middle of the job.",
    r"DUE TO NODE FAILURE",
    Needs(nodes=2),
)
def _node(cluster: Cluster) -> Break:
    host = cluster.hosts[max(1, cluster.victim.host.index)]

    def phases() -> Iterator[Phase]:
        yield Phase(60.0)
        yield from neighbours_fail(cluster, host)
        phase = Phase(2.0)
        job = cluster.job_id
        phase.add(
            None,
            f"srun: error: Node failure on {host.name}",
            f"slurmstepd: error: *** STEP {job}.0 ON {cluster.hosts[0].name} CANCELLED AT \x00s DUE TO NODE FAILURE, "
            "SEE SLURMCTLD LOG FOR DETAILS ***",
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        )
        yield phase

    return Break("train", phases)
