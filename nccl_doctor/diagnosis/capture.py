"""What to capture so that a table is filled, by the module that the table is written down in."""

from nccl_doctor.facts.schema import by_name

_INFO = "a log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH"
_BY_MODULE = {
    "log": _INFO,
    "errors": "the whole output of the job, with the launcher's last lines",
    "derived": _INFO,
    "derived.hang": "stacks or a flight recorder dump of the hang: `nccl-doctor stacks`, TORCH_NCCL_TRACE_BUFFER_SIZE=2000",
    "torch": "a trace of torch.profiler, or a flight recorder dump (TORCH_NCCL_TRACE_BUFFER_SIZE=2000)",
    "timeline": "a Horovod timeline (HOROVOD_TIMELINE=/path/timeline.json)",
    "throughput": "the step lines of the training program, or a run of nccl-tests",
    "gpu": "samples of the GPUs: nvidia-smi --query-gpu=… --format=csv -l 1",
    "topology": "a topology file (NCCL_TOPO_DUMP_FILE), a RAS report (ncclras) or Inspector output",
    "captures": "output of node commands: ibstat, nvidia-smi topo -m, nvidia-smi nvlink -s, lsmod, kubectl describe",
    "stacks": "stacks of the ranks: `nccl-doctor stacks`",
    "recorded": "a recording: `nccl-doctor record -- COMMAND`",
    "node": "a node: `nccl-doctor preflight --save node.tar` on it",
}


def capture_of(table: str) -> str:
    """The capture that fills a table; empty for one that every input fills."""
    class_ = by_name().get(table)
    if class_ is None:
        return ""
    module = class_.__module__.partition(".tables.")[2]
    return _BY_MODULE.get(module) or _BY_MODULE.get(module.partition(".")[0], "")
