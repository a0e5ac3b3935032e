"""Settings of a run in a training log: GPUs, batch, model, data; from the lines before and between its step lines."""

import re
from collections.abc import Callable
from math import prod

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training.layout import Layout

LITERALS = (
    b"orld size: ", b"_size ...", b"num_layers ...", b"seq_length ...", b"dist_world_size=", b"WORLD_SIZE=", b"MEMBER: ",
    b"training on ", b"Number of GPUs: ", b"Num processes: ", b"device mesh with", b"num_gpus=", b"num_workers = ",
    b"nproc_per_node", b"nproc-per-node", b"--nnodes", b"Batch size: ", b" per device", b"otal train batch size",
    b"Num Epochs = ", b"otal optimization steps = ",
    b"padded vocab (size: ", b"n_layer=", b"parallel size: ", b"(synthetic)", b"ynthetic data", b"use_synthetic_data",
    b"ummy data is used", b"Dataset: ", b"Starting with ",
)  # fmt: skip

_WORLD = compiled(
    rb"(?:(?<!parallel )(?<!group )[Ww]orld size: +|dist_world_size=|\bWORLD_SIZE=|MEMBER: \d+/"
    rb"|training on (?=\d+ (?:GPU|dev))|Number of GPUs: "
    rb"|Num processes: |Starting with (?=\d+ processes)|(?<![\w-])world_size \.{3,} ?)(\d{1,7})"
)
_ARGUMENT = compiled(
    rb"(?<![\w-])(hidden_size|num_layers|seq_length|micro_batch_size|global_batch_size|pipeline_model_parallel_size"
    rb"|data_parallel_size) \.{3,} ?(\d+)"
)
_MESH = compiled(rb"device mesh with .{0,80}?\[([\d, ]+)\]")
_PARALLEL = compiled(rb"(data|pipeline-model)-parallel[- ]size: (\d+)")
_NUM_GPUS = compiled(rb"num_gpus=(\d+)")
_NUM_WORKERS = compiled(rb"MirroredStrategy with cluster_spec.{0,900}?num_workers = (\d+)")
_NODES = compiled(rb"--nnodes[= ]+(\d+)(?![\d:])")
_PER_NODE = compiled(rb"nproc[_-]per[_-]node[= ]+(\d+)")
_GLOBAL = compiled(rb"Batch size: +(\d+)(?:\.\d+)? global")
_DEVICE = compiled(rb"(?<![\d.])(\d{1,18})(?:\.\d{1,18})? per device")
_TOTAL = compiled(rb"otal train batch size[^=]{0,80}= ([\d,]+)")
_EPOCHS = compiled(rb"Num Epochs = (\d[\d,]{0,12})")
_OPTIMIZER_STEPS = compiled(rb"otal optimization steps = (\d[\d,]{0,15})")
_VOCABULARY = compiled(rb"padded vocab \(size: \d+\).{0,80}\(new size: (\d+)\)")
_GPT2 = compiled(rb"n_embd=(\d+)\S{0,80}?n_layer=(\d+)|n_layer=(\d+)\S{0,80}?n_embd=(\d+)")
_SYNTHETIC = compiled(rb"\(synthetic\)|[Ss]ynthetic data|use_synthetic_data(?:=| is )True|[Dd]ummy data is used")
_REAL = compiled(rb"Dataset: {1,20}(?!.{0,400}\(synthetic\))\w|use_synthetic_data(?:=| is )False")
_NAME = compiled(r"(?<![A-Za-z0-9])(?:(\d{1,4})n(\d{1,3})g|(\d{1,5})[_-]?gpus?)(?![A-Za-z0-9])", re.IGNORECASE)


class Settings:
    """Numbers of one launch; None where the log does not say."""

    def __init__(self) -> None:
        self.world: int | None = None
        self.num_gpus: int | None = None  # of one TensorFlow worker
        self.workers: int | None = None
        self.nodes: int | None = None
        self.per_node: int | None = None
        self.batch: int | None = None
        self.device_batch: int | None = None
        self.epochs: int | None = None
        self.optimizer_steps: int | None = None  # of the whole run
        self.layers: int | None = None
        self.hidden: int | None = None
        self.sequence: int | None = None
        self.vocabulary: int | None = None
        self.pipeline: int | None = None
        self.microbatch: int | None = None
        self.data_parallel: int | None = None
        self.synthetic: int | None = None
        self.previous: int | None = None  # world size before the last change
        self.layout = Layout()
        self.early_overflows: list[tuple[bytes, int]] = []  # lines about the loss scale before any step line

    def note(self, line: bytes) -> bool:
        """Take the settings of a line. True where its world size differs from the one before: a new launch begins."""
        match = _WORLD.search(line)
        if match is not None:
            world, old = int(match[1]), self.world
            # DeepSpeed's configuration names the data-parallel ranks so; without model parallelism these are all
            if world and world != old and not (old and b"config.py" in line):
                self.previous, self.world = old, world
                self._details(line)
                return old is not None
        self._details(line)
        return False

    def _details(self, line: bytes) -> None:
        for pattern, use in _DETAILS:
            for found in pattern.finditer(line):
                use(self, found)

    def argument(self, found: re.Match[bytes]) -> None:
        value = int(found[2])
        match found[1]:
            case b"hidden_size":
                self.hidden = value
            case b"num_layers":
                self.layers = value
            case b"seq_length":
                self.sequence = value
            case b"micro_batch_size":
                self.microbatch = value
            case b"global_batch_size":
                self.batch = value
            case b"pipeline_model_parallel_size" | b"pipeline-model":
                self.pipeline = value
            case _:
                self.data_parallel = value

    def gpt2(self, found: re.Match[bytes]) -> None:
        self.hidden, self.layers = int(found[1] or found[4]), int(found[2] or found[3])

    def gpus(self, file: str) -> tuple[int | None, str | None]:
        """GPUs of the job, and the source of that number; the name of the file comes last."""
        if self.world:
            return self.world, "world-size"
        if self.num_gpus:
            return self.num_gpus * (self.workers or 1), "arguments"
        if self.batch and self.device_batch and self.batch % self.device_batch == 0:
            return self.batch // self.device_batch, "batch"
        if self.nodes and self.per_node:
            return self.nodes * self.per_node, "arguments"
        match = _NAME.search(file.rsplit("/", 1)[-1].replace("_", " "))
        if match is not None:
            return int(match[3]) if match[3] else int(match[1]) * int(match[2]), "file-name"
        return None, None

    def microbatches(self, batch: int | None) -> int | None:
        """How many micro batches one pipeline takes in a step of this batch."""
        if not batch or not self.microbatch:
            return None
        return max(batch // (self.microbatch * (self.data_parallel or 1)), 1)


def _set(name: str) -> Callable[[Settings, re.Match[bytes]], None]:
    def use(settings: Settings, found: re.Match[bytes]) -> None:
        setattr(settings, name, int(found[1].replace(b",", b"")))

    return use


def _mesh(settings: Settings, found: re.Match[bytes]) -> None:
    settings.world = prod(int(size) for size in found[1].split(b",") if size.strip())


def _synthetic(settings: Settings, found: re.Match[bytes]) -> None:
    settings.synthetic = 1


def _real(settings: Settings, found: re.Match[bytes]) -> None:
    settings.synthetic = settings.synthetic or 0


_DETAILS: tuple[tuple[re.Pattern[bytes], Callable[[Settings, re.Match[bytes]], None]], ...] = (
    (_ARGUMENT, Settings.argument),
    (_PARALLEL, Settings.argument),
    (_MESH, _mesh),
    (_NUM_GPUS, _set("num_gpus")),
    (_NUM_WORKERS, _set("workers")),
    (_NODES, _set("nodes")),
    (_PER_NODE, _set("per_node")),
    (_GLOBAL, _set("batch")),
    (_DEVICE, _set("device_batch")),
    (_TOTAL, _set("batch")),
    (_EPOCHS, _set("epochs")),
    (_OPTIMIZER_STEPS, _set("optimizer_steps")),
    (_VOCABULARY, _set("vocabulary")),
    (_GPT2, Settings.gpt2),
    (_SYNTHETIC, _synthetic),
    (_REAL, _real),
)
