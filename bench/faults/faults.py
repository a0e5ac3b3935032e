"""The faults that are injected, and what has to be said about each."""

from dataclasses import dataclass

BAD = 2  # the rank that meets the fault


@dataclass(frozen=True)
class Fault:
    """A fault of `train.py` or `train_mpi.py`.

    `rules` are the findings that are right, `rank` is the rank to name; None where the network fails. `kind` is `stall` where
    the job stands still, `end` where it ends by itself, `slow` where it goes on, and `none` where it is healthy.
    """

    name: str
    rules: tuple[str, ...]
    rank: int | None = BAD
    kind: str = "stall"
    place: str = "node"  # or `hosts`: two network namespaces, `mpi`
    words: str = ""  # in the table


FAULTS = (
    Fault("sleep", ("rank-outside-collective",), words="sleeps in its own code"),
    Fault("spin", ("rank-outside-collective",), words="computes for ever"),
    Fault("loader", ("rank-stuck-in-dataloader",), words="stuck in its dataset"),
    Fault("loader-worker", ("rank-stuck-in-dataloader",), words="stuck in a DataLoader worker"),
    Fault("slow-loader", ("rank-stuck-in-dataloader",), words="slow dataset, busy"),
    Fault("gil", ("gil-held",), words="a thread holds the interpreter's lock"),
    Fault("sigstop", ("rank-suspended",), words="SIGSTOP"),
    Fault("order", ("ranks-in-different-collectives",), words="collectives in another order"),
    Fault("skip", ("ranks-in-different-collectives",), words="a skipped collective"),
    Fault("checkpoint", ("rank-in-checkpoint",), words="a checkpoint that does not end"),
    Fault("gil-main", ("gil-held", "rank-outside-collective"), words="C code on the main thread holds the interpreter's lock"),
    Fault("frozen-mount", ("rank-outside-collective",), words="a file system that does not answer (state D)"),
    Fault("file-lock", ("rank-outside-collective",), words="waits for a file lock"),
    Fault("child", ("rank-outside-collective",), words="waits for a child process"),
    Fault("asyncio", ("rank-outside-collective",), words="waits in asyncio"),
    Fault("queue", ("rank-outside-collective",), words="waits for a thread's queue"),
    Fault("lock", ("rank-outside-collective",), words="takes a lock that it holds"),
    Fault("retry", ("rank-outside-collective",), words="tries again once a second"),
    Fault("gdb", ("rank-suspended",), words="a debugger stopped it (state t)"),
    Fault("fewer", ("ranks-in-different-collectives",), words="fewer samples: it is in the last barrier"),
    Fault("groups", ("ranks-in-different-collectives",), words="two process groups in another order"),
    Fault("monitored", ("rank-outside-collective",), words="the others are in monitored_barrier"),
    Fault("never-joined", ("rank-outside-collective",), words="never joins the process group"),
    Fault("finished", ("rank-ended-early",), kind="end", words="ends early with status 0"),
    Fault("drop", ("collective-data-lost",), rank=None, place="hosts", words="two hosts: all packets dropped"),
    Fault("port", ("collective-data-lost", "firewall-blocked"), rank=None, place="hosts",
          words="two hosts: all ports but MASTER_PORT blocked"),
    Fault("sleep", ("rank-outside-collective",), place="hosts", words="two hosts: sleeps in its own code"),
    Fault("mpi-sleep", ("rank-outside-collective",), place="mpi", words="MPI: sleeps in its own code"),
    Fault("mpi-spin", ("rank-outside-collective",), place="mpi", words="MPI: computes for ever"),
    Fault("mpi-sigstop", ("rank-suspended",), place="mpi", words="MPI: SIGSTOP"),
    Fault("mpi-order", ("ranks-in-different-collectives",), place="mpi", words="MPI: collectives in another order"),
    Fault("mpi-skip", ("ranks-in-different-collectives",), place="mpi", words="MPI: a skipped collective"),
    Fault("mpi-exit", ("rank-exited",), kind="end", place="mpi", words="MPI: exit status 3"),
    Fault("shape", ("collective-shape-mismatch",), rank=None, kind="end", words="another shape"),
    Fault("sigkill", ("rank-sigkill",), kind="end", words="SIGKILL"),
    Fault("exit", ("rank-exited",), kind="end", words="exit status 3"),
    Fault("exception", ("python-exception",), kind="end", words="exception"),
    Fault("memory", ("host-memory-refused",), kind="end", words="address-space limit (RLIMIT_AS)"),
    Fault("cgroup", ("rank-sigkill", "host-memory-oom"), kind="end", words="killed at the limit of its cgroup"),
    Fault("files", ("nofile-limit",), kind="end", words="open-files limit"),
    Fault("shm", ("dev-shm-full",), rank=None, kind="end", words="full /dev/shm"),
    Fault("hog", ("rank-starved-of-cpu",), kind="slow", words="three programs compute on its processor"),
    Fault("loss", ("tcp-packets-lost",), rank=None, kind="slow", place="hosts", words="two hosts: 10 % of packets lost"),
    Fault("delay", ("throughput-drop",), rank=None, kind="slow", place="hosts", words="two hosts: 100 ms delay"),
)  # fmt: skip
HEALTHY = (
    Fault("none", (), rank=None, kind="none", words="healthy"),
    Fault("pause", (), rank=None, kind="none", words="healthy, rank 0 pauses for 8 s"),
    Fault("slow-start", (), rank=None, kind="none", words="healthy, slow start"),
    Fault("evaluation", (), rank=None, kind="none", words="healthy, rank 0 evaluates every 50 steps"),
    Fault("uneven", (), rank=None, kind="none", words="healthy, uneven steps"),
    Fault("accumulation", (), rank=None, kind="none", words="healthy, gradient accumulation"),
    Fault("compile", (), rank=None, kind="none", words="healthy, every rank compiles for 10 s"),
    Fault("none", (), rank=None, kind="none", words="healthy, two jobs on one node"),
    Fault("none", (), rank=None, kind="none", place="hosts", words="healthy, two hosts"),
    Fault("mpi-none", (), rank=None, kind="none", place="mpi", words="healthy, MPI"),
)
