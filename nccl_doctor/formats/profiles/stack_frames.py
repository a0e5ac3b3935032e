"""Frames of call stacks: functions and files of PyTorch, Horovod, NCCL and CUDA by what they wait for.

The names are those of torch/distributed, torch/utils/data, torch/autograd, horovod/torch and of the libraries' symbols.
"""

import re
from functools import lru_cache

_COLLECTIVES = (
    "all_?reduce", r"all_?gather\w*", r"reduce_?scatter\w*", r"broadcast\w*", r"all_?to_?all\w*", "monitored_barrier",
    "barrier", "reduce", "scatter", r"gather\w*", "send", "recv", "isend", "irecv", "batch_isend_irecv", "wait",
)  # fmt: skip

# (kind, function, file); the first that fits counts.
KINDS = tuple(
    (kind, re.compile(function), re.compile(file))
    for kind, function, file in (
        ("queue", r"(?:^|\.)get$", r"multiprocessing/queues\.py$"),
        ("collective", r"^(?:pnccl|nccl)(?:All|Group|Reduce|Broadcast|Send|Recv)", ""),
        ("collective", r"^(?:c10d|gloo|horovod)::|^P?MPI_", ""),
        ("rendezvous", r"(?:^|\.)(?:init_process_group|_store_based_barrier|_new_process_group_helper)$", "distributed_c10d"),
        ("rendezvous", "", r"torch/distributed/(?:rendezvous|elastic/rendezvous/)"),
        ("collective", rf"(?:^|\.)_?(?:{'|'.join(_COLLECTIVES)})(?:_coalesced|_into_tensor|_tensor|_single)?$",
         r"torch/distributed/(?:distributed_c10d|_functional_collectives)|torch/nn/parallel"),
        ("collective", r"synchronize|allreduce|allgather|broadcast|alltoall|wait_and_clear|join|barrier",
         r"horovod/\w+/(?:mpi_ops|functions|optimizer|__init__)"),
        ("cuda-sync", r"^(?:cuda|cu)\w*Synchronize", ""),
        ("cuda-sync", r"(?:^|\.)(?:synchronize|wait)$", r"torch/cuda/"),
        ("checkpoint", "", r"torch/distributed/checkpoint/|torch/serialization\.py$|safetensors/|orbax/"),
        ("checkpoint", "", r"(?:deepspeed|megatron|lightning\w{0,40})/\S{0,200}checkpoint"),
        ("checkpoint", r"(?:^|\.)(?:save_checkpoint|load_checkpoint|save_pretrained|save_state)$", ""),
        ("compiling", "", r"torch/_(?:inductor|dynamo|functorch)/|torch/utils/cpp_extension\.py"),
        ("compiling", "", r"triton/(?:compiler|runtime/jit)|jax/_src/(?:compiler|interpreters)"),
        ("loader-worker", r"^_worker_loop$", r"torch/utils/data/_utils/worker\.py$"),
        ("dataloader", r"(?:_try_get_data|_get_data|_next_data|__next__|_next_index)$", r"torch/utils/data/dataloader\.py$"),
        ("dataloader", "", r"nvidia/dali/|tensorflow/python/data/|webdataset/"),
        ("backward", r"^_engine_run_backward$|(?:^|\.)backward$", r"torch/autograd/"),
    )
)  # fmt: skip


@lru_cache(maxsize=4096)
def kind_of(function: str, file: str) -> str | None:
    """What a thread with this frame waits for or does; None for a frame that does not show it."""
    return next((kind for kind, name, place in KINDS if name.search(function) and place.search(file)), None)
