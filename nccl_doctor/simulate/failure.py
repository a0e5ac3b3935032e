"""How a failing rank exits: the framework's exception and the reports of torchrun, mpirun, horovodrun or srun."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.phase import Phase

_TEXTS = {
    1: ("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed."),
    2: (
        "unhandled system error",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
    ),
    3: (
        "internal error - please report this issue to the NCCL developers",
        "ncclInternalError: Internal check failed.",
    ),
    5: ("invalid usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    6: (
        "remote process exited or there was a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
}
_SITE = "/opt/conda/lib/python3.10/site-packages"
_SIGNALS = {6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_SRUN = {6: "Aborted (core dumped)", 7: "Bus error", 9: "Killed", 11: "Segmentation fault", 15: "Terminated"}


def nccl_text(v: tuple[int, int, int], code: int) -> str:
    """Returns the text of ncclGetErrorString for a result code."""
    hint = " (run with NCCL_DEBUG=INFO for details)" if v >= (2, 13) and code in (1, 2, 5) else ""
    if v < (2, 13) and code == 6:
        code = 2
    return _TEXTS[code][0] + hint


def tagged(rank: Rank, text: str) -> str:
    """Returns a traceback as PyTorch 2.2 and newer print it: each line starts with the rank."""
    if rank.host.version < (2, 19):
        return text
    return "\n".join(f"[rank{rank.number}]: {line}" for line in text.split("\n"))


def python_error(rank: Rank, frames: list[tuple[str, int, str, str]], error: str) -> str:
    """Returns a traceback as PyTorch prints it; frames are (file, line, function, source line)."""
    return tagged(rank, _traceback(frames, error))


def _traceback(frames: list[tuple[str, int, str, str]], error: str) -> str:
    lines = ["Traceback (most recent call last):"]
    for file, line, func, source in frames:
        lines += [f'  File "{file}", line {line}, in {func}', f"    {source}"]
    return "\n".join([*lines, error])


TRAIN_FRAMES = [
    ("/workspace/train.py", 312, "<module>", "main()"),
    ("/workspace/train.py", 287, "main", "train(model, optimizer, loader)"),
]


def nccl_exception(cluster: Cluster, rank: Rank, code: int, last: str, call: str = "init") -> str:
    """Returns the framework's text for an NCCL error; `last` is NCCL's last WARN, `call` is init or allreduce."""
    v = rank.host.version
    text = nccl_text(v, code)
    framework = cluster.spec.framework
    if framework == "nccl-tests":
        where = "common.cu:1012" if call == "init" else "common.cu:419"
        extra = f" / {last}" if v >= (2, 19) else ""
        return (
            f"{rank.host.name}: Test NCCL failure {where} '{text}{extra}'\n"
            f" .. {rank.host.name} pid {rank.pid}: Test failure common.cu:891"
        )
    if framework == "horovod":
        name = "ncclCommInitRank" if call == "init" else "ncclAllReduce"
        raised = (f"{_SITE}/horovod/torch/mpi_ops.py", 1290, "synchronize", "raise HorovodInternalError(e)")
        error = f"horovod.common.exceptions.HorovodInternalError: {name} failed: {text}"
        return _traceback([*TRAIN_FRAMES, raised], error)
    return _torch_exception(rank, code, text, last, call)


def _torch_exception(rank: Rank, code: int, text: str, last: str, call: str) -> str:
    """PyTorch's exception, or the message of its watchdog for an error after the start."""
    v = rank.host.version
    version = ".".join(str(part) for part in v)
    collective = f"{_SITE}/torch/distributed/distributed_c10d.py"
    frames = [*TRAIN_FRAMES, (collective, 2806, "all_reduce", "work = group.allreduce([tensor], opts)")]
    detail = _TEXTS[code][1]
    if v < (2, 14):
        place = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191"
        error = f"RuntimeError: NCCL error in: {place}, {text}, NCCL version {version}"
        old = "ncclSystemError: System call (socket, malloc, munmap, etc) failed."
        return python_error(rank, frames, f"{error}\n{old if code in (2, 6) else detail}")
    if call != "init":
        group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank.number}]" if v >= (2, 21) else f"[Rank {rank.number}]"
        stamp = f"[rank{rank.number}]:[E\x00c" if v >= (2, 19) else "[E"
        thread = "Process group watchdog" if v >= (2, 19) else "NCCL watchdog"
        return (
            f"{stamp} ProcessGroupNCCL.cpp:1895] {group} {thread} thread terminated with exception: NCCL error: {text}, "
            f"NCCL version {version}\n{detail}\nLast error:\n{last}\n"
            "Exception raised from checkForNCCLErrorsInternal at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2027 "
            "(most recent call first):"
        )
    place = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970"
    error = f"torch.distributed.DistBackendError: NCCL error in: {place}, {text}, NCCL version {version}"
    return python_error(rank, frames, f"{error}\n{detail}\nLast error:\n{last}")


def job_end(cluster: Cluster, dead: dict[Rank, int], first: Rank) -> Iterator[Phase]:
    """The launcher's report. `dead` holds exit codes (negative = signal) of failed ranks; `first` failed first."""
    phase = Phase(3.0)
    launcher = cluster.launcher
    if launcher == "torchrun":
        for host in cluster.hosts:
            own = {rank: code for rank, code in dead.items() if rank.host is host}
            if own:
                phase.add(host, *_torchrun(host, own, first if first in own else next(iter(own))))
    elif launcher == "launch":
        for host in {rank.host: None for rank in dead}:
            code = next(code for rank, code in dead.items() if rank.host is host)
            phase.add(host, _old_launch(code))
    elif launcher == "mpirun":
        phase.add(None, _mpirun(cluster, first, dead[first]))
    elif launcher == "horovodrun":
        phase.add(
            None,
            "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
            f"terminated. The first process to do so was:\nProcess name: {first.number}\n"
            f"Exit code: {dead[first] if dead[first] >= 0 else 128 - dead[first]}\n",
        )
    else:
        for rank, code in dead.items():
            phase.add(None, f"srun: error: {rank.host.name}: task {rank.number}: {srun_status(code)}")
        phase.add(None, f"srun: Terminating StepId={cluster.job_id}.0")
    yield phase


def srun_status(code: int) -> str:
    """Returns the text of srun for an exit status."""
    return f"Exited with exit code {code}" if code >= 0 else _SRUN[-code]


def _torchrun(host: Host, dead: dict[Rank, int], first: Rank) -> list[str]:
    v = host.version
    new = v >= (2, 19)
    api = "torch/distributed/elastic/multiprocessing/api.py"
    lines = []
    for rank in host.ranks:
        if rank not in dead:
            text = f"Sending process {rank.pid} closing signal SIGTERM"
            head = (
                f"W\x00e {host.agent_pid} {api}:897] "
                if new
                else "WARNING:torch.distributed.elastic.multiprocessing.api:"
            )
            lines.append(head + text)
    text = f"failed (exitcode: {dead[first]}) local_rank: {first.local} (pid: {first.pid}) of binary: /opt/conda/bin/python"
    head = f"E\x00e {host.agent_pid} {api}:869] " if new else "ERROR:torch.distributed.elastic.multiprocessing.api:"
    lines.append(head + text)
    ruler, thin = "=" * 60, "-" * 60
    summary = [
        "Traceback (most recent call last):",
        '  File "/opt/conda/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        f'  File "{_SITE}/torch/distributed/run.py", line 919, in main',
        "    run(args)",
        f'  File "{_SITE}/torch/distributed/launcher/api.py", line 264, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ruler,
        "/workspace/train.py FAILED",
        thin,
        "Failures:",
    ]
    others = [rank for rank in dead if rank is not first]
    if not others:
        summary.append("  <NO_OTHER_FAILURES>")
    for number, rank in enumerate(others, 1):
        summary += [f"[{number}]:", *_failure(rank, dead[rank])]
    summary += [thin, "Root Cause (first observed failure):", "[0]:", *_failure(first, dead[first]), ruler]
    return [*lines, "\n".join(summary)]


def _failure(rank: Rank, code: int) -> list[str]:
    if code < 0:
        name = _SIGNALS[-code]
        trace = f"Signal {-code} ({name}) received by PID {rank.pid}"
    else:
        trace = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    return [
        "  time      : \x00u",
        f"  host      : {rank.host.name}",
        f"  rank      : {rank.number} (local_rank: {rank.local})",
        f"  exitcode  : {code} (pid: {rank.pid})",
        "  error_file: <N/A>",
        f"  traceback : {trace}",
    ]


def _old_launch(code: int) -> str:
    reason = (
        f"died with <Signals.{_SIGNALS[-code]}: {-code}>." if code < 0 else f"returned non-zero exit status {code}."
    )
    return (
        "Traceback (most recent call last):\n"
        f'  File "{_SITE}/torch/distributed/launch.py", line 261, in main\n'
        "    cmd=cmd)\n"
        f"subprocess.CalledProcessError: Command '['/opt/conda/bin/python', '-u', 'train.py']' {reason}"
    )


def _mpirun(cluster: Cluster, first: Rank, code: int) -> str:
    ruler = "-" * 74
    if code < 0:
        words = {6: "Aborted", 7: "Bus error", 9: "Killed", 11: "Segmentation fault", 15: "Terminated"}[-code]
        return (
            f"{ruler}\nmpirun noticed that process rank {first.number} with PID 0 on node {first.host.name} "
            f"exited on signal {-code} ({words}).\n{ruler}"
        )
    return (
        f"{ruler}\nPrimary job  terminated normally, but 1 process returned\n"
        f"a non-zero exit code. Per user-direction, the job has been aborted.\n{ruler}\n{ruler}\n"
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        f"  Process name: [[{cluster.job_id % 65536},1],{first.number}]\n  Exit code:    {code}\n{ruler}"
    )
