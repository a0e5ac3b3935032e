"""How a run divides its work: parallel layout, batch and sequence, as Megatron-LM, NeMo, DeepSpeed, TorchTitan and MaxText print it.

What a program was asked for, at its start::

      tensor_model_parallel_size ...................... 4
    using world size: 64, data-parallel size: 4, context-parallel size: 2, tensor-model-parallel size: 4, pipeline-model-parallel size: 2
    Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1
    [NeMo I 2024-11-14 19:42:15 megatron_init:439] Rank 0 has tensor model parallel group: [0, 1]
"""

import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RunSetting
from nccl_doctor.inputs import prefixes

LITERALS = (
    b"arallel_size ...", b"arallel size: ", b"arallel-size: ", b"batch_size ...", b"batch_size_per_gpu ", b"seq_length ...",
    b"gradient_accumulation_steps ", b"optimization_stage ", b"with parallelism: ", b" local batch size ", b" parallel group: [",
    b"_parallelism: ", b"max_target_length: ", b"per_device_batch_size: ", b"batch size per device = ", b"ccumulation steps = ",
    b"otal train batch size",
)  # fmt: skip
_NAMES = {
    "tensor": "tensor parallel", "tp": "tensor parallel", "pipeline": "pipeline parallel", "pipe": "pipeline parallel",
    "pp": "pipeline parallel", "data": "data parallel", "dp_replicate": "data parallel, replicas",
    "dp_shard": "data parallel, shards", "fsdp": "data parallel, shards", "context": "context parallel", "cp": "context parallel",
    "expert": "expert parallel", "ep": "expert parallel", "etp": "expert tensor parallel",
    "expert tensor": "expert tensor parallel", "virtual pipeline": "virtual pipeline stages",
    "seq_length": "sequence length", "sequence length": "sequence length", "max_target_length": "sequence length",
    "micro_batch_size": "micro batch", "train_micro_batch_size_per_gpu": "micro batch", "local batch size": "micro batch",
    "per_device_batch_size": "micro batch", "global_batch_size": "global batch", "train_batch_size": "global batch",
    "global batch size": "global batch", "gradient_accumulation_steps": "gradient accumulation",
    "gradient accumulation steps": "gradient accumulation", "zero_optimization_stage": "ZeRO stage",
    "Instantaneous batch size per device": "micro batch", "Gradient Accumulation steps": "gradient accumulation",
    "Total train batch size": "global batch",
}  # fmt: skip
_DIMENSION = (
    rb"(virtual[-_ ]pipeline|expert[-_ ]tensor|tensor|pipeline|pipe|data|context|expert)(?:[-_ ]model)?[-_ ]parallel"
)
_ASSIGNED = compiled(rb"(?<![\w-])" + _DIMENSION + rb"[-_ ]size(?: \.{3,80} ?|: )(\d{1,7})(?!\d)")
_PLAIN = compiled(
    rb"(?<![\w-])(seq_length|micro_batch_size|global_batch_size|train_micro_batch_size_per_gpu|train_batch_size"
    rb"|gradient_accumulation_steps|zero_optimization_stage) {1,40}\.{2,80} ?(\d{1,9})(?!\d)"
)
_DEEPSPEED = compiled(rb"\] {1,20}(train_micro_batch_size_per_gpu) {1,20}(\d{1,9})(?!\d)")  # a name too long for dots
_MESH = compiled(rb"\b(pp|dp_replicate|dp_shard|cp|tp|ep|etp)=(\d{1,7})(?!\d)")
_TITAN = compiled(
    rb"\b(local batch size|global batch size|gradient accumulation steps|sequence length) (\d{1,9})(?!\d)"
)
_GROUP = compiled(rb"Rank \d{1,7} has " + _DIMENSION + rb" group: \[([\d, ]{1,200000})\]")
_MAXTEXT = compiled(rb"Config param (?:ici_)?(tensor|pipeline|data|context|expert|fsdp)_parallelism: (\d{1,7})(?!\d)")
_MAXTEXT_SIZE = compiled(rb"Config param (max_target_length|per_device_batch_size): (\d{1,9}(?:\.\d{1,9})?)(?!\d)")
_HUGGING_FACE = compiled(
    rb"\b(Instantaneous batch size per device|Gradient Accumulation steps|Total train batch size)[^=\n]{0,80}= ([\d,]{1,12})(?!\d)"
)


class Layout:
    """What one launch printed; the first line that states something counts, as all ranks print the same."""

    def __init__(self) -> None:
        self._stated: dict[str, tuple[float, int, bytes]] = {}  # name -> value, line number, line

    def note(self, line: bytes, number: int) -> None:
        """Take what a line states."""
        patterns = [_ASSIGNED, _PLAIN, _DEEPSPEED]
        if b"with parallelism: " in line:
            patterns = [_MESH]
        elif b" local batch size " in line:
            patterns = [_TITAN]
        elif b" = " in line:
            patterns = [_HUGGING_FACE]
        elif b"Config param " in line:
            patterns = [_MAXTEXT, _MAXTEXT_SIZE]
        for pattern in patterns:
            for name, value in pattern.findall(line):
                self._state(name, float(value.replace(b",", b"")), line, number)
        for name, ranks in _GROUP.findall(line) if b" group: [" in line else ():
            self._state(name, ranks.count(b",") + 1, line, number)

    def _state(self, name: bytes, value: float, line: bytes, number: int) -> None:
        text = name.decode()
        known = _NAMES.get(text) or _NAMES[re.sub("[-_]", " ", text)]
        self._stated.setdefault(known, (value, number, line))

    def rows(self, facts: Facts, file: str, run: int) -> Iterator[RunSetting]:
        """One row for each name."""
        for name, (value, number, line) in self._stated.items():
            text = prefixes.clean(line[:600].decode("utf-8", "replace"))
            yield RunSetting(run, name, f"{value:g}", facts.evidence(file, number, text))
