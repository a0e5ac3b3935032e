"""What step lines tell of the use of GPUs beside times and rates: model FLOPs utilisation, TFLOP/s, memory.

Programs name them in words of their own, which are looked for in the lines that are kept of a run::

    step: 10  loss:  7.1  memory: 55.42GiB(69.97%)  tps: 6,812  tflops: 398.20  mfu: 40.11%      (TorchTitan)
    iter 9: loss 3.2, time 251.31ms, mfu 37.12%                                                  (nanoGPT)
    completed step: 9, seconds: 4.2, TFLOP/s/device: 188.2, Tokens/s/device: 1945.2              (MaxText)
    step:[ 2/ 19], loss: 10.6, per_step_time: 1752ms, …, train_throughput_per_npu: 170.738T      (MindFormers)
    iteration  20/ 500 | elapsed time per iteration (ms): 812.4 | throughput per GPU (TFLOP/s/GPU): 420.1 | (Megatron-LM)
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, StepNumber, ThroughputRun

_LINES = 200  # of a run, evenly spread
_LEAST = 2  # lines that tell a number
_NUMBER = r"(?P<value>\d{1,7}(?:,\d{3}){0,3}(?:\.\d{1,12})?)"
_VALUE = rf"[\"']?\)?[\"']?[ \t]{{0,4}}[:=]?[ \t]{{0,4}}[\"']?{_NUMBER}"
_MFU = compiled(
    r"(?i)(?<![a-z])mfu[\"']?(?:[/_ ](?:actor|percent|%))?\)?[ \t]{0,3}[:=]?[ \t]{0,3}[\"']?"
    rf"{_NUMBER}[ ]?(?P<percent>%)?(?![\w.])"
)
_MFU_BEHIND = compiled(rf"(?<![\d.,-]){_NUMBER}[ ]?% (?:(?:bf16|fp16|fp8|fp32|tf32) )?MFU\b")
_TFLOPS = compiled(
    r"(?i)(?<![a-z])(?:model_|hardware_|achieved_)?t(?:era)?flops?(?:/s|s)?"
    rf"(?:[/_ ](?:per[_ ])?(?P<of>gpu|device|chip|card))?{_VALUE}(?![\w%])"
)
_TFLOPS_BEHIND = compiled(
    rf"(?<![\w.,-]){_NUMBER} ?T(?:FLOP|flop|Flop)[Ss]?(?:/s)?(?:/(?P<of>GPU|gpu|device))?(?![A-Za-z:=]| ?[:=])"
)
_TERA_BEHIND = compiled(rf"throughput_per_(?P<of>npu): {_NUMBER}T(?![\w/])")
_MEMORY = compiled(
    r"(?i)(?<![a-z])(?P<name>[a-z_/ ]{0,30}mem(?:ory|alloc(?:ated)?|reserved)?(?:[_ /][a-z_]{1,30})?)(?:[ ]?\((?P<in>[GM]i?B)\))?"
    rf"[\"']?[ \t]{{0,3}}[:=][ \t]{{0,3}}[\"']?{_NUMBER} ?(?P<unit>GiB|GB|MiB|MB|G|M)?(?![\w.%])"
)
_NOT_OF_GPU = compiled(r"(?i)(?<![a-z])(?:cpu|host|ram|virtual|vms|rss|pinned|free|util)")
_GIB = {"GIB": 1.0, "G": 1.0, "GB": 1.0, "MIB": 1 / 1024, "MB": 1 / 1024, "M": 1 / 1024}  # PyTorch's GB are GiB
_UNIT_OF_TOOL = {"detection": "M", "torchtune": "GIB"}  # that print no unit
_OF_GPU = frozenset(("torchtitan", "maxtext", "megatron", "nemo"))  # whose TFLOP/s are those of one GPU


@derivation(fills=[StepNumber], needs=[ThroughputRun], reads=[Step])
def step_numbers(facts: Facts) -> Iterator[StepNumber]:
    """One row for each number that at least two lines of a run tell."""
    runs = {run.run: run.tool for run in facts.rows(ThroughputRun)}
    refs: dict[int, list[int]] = defaultdict(list)
    for step in facts.rows(Step):
        refs[step.run].append(step.ref)
    for run, tool in runs.items():
        of_run = refs[run][:: -(-len(refs[run]) // _LINES) or 1]
        found: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        for place in facts.evidence_rows(of_run):
            for name, unit, value in numbers_of(place.text, tool):
                found[name, unit].append((value, place.id))
        for (name, unit), values in found.items():
            if len(values) >= _LEAST:
                highest, ref = max(values)
                yield StepNumber(run, name, median(value for value, _ in values), highest, len(values), unit, ref)


def numbers_of(text: str, tool: str) -> Iterator[tuple[str, str, float]]:
    """(name, unit, value) of the numbers of a line: mfu in %, tflops, memory in GiB."""
    mfu = _MFU.search(text) or _MFU_BEHIND.search(text)
    if mfu is not None:
        value = _value(mfu)
        is_share = mfu.re is _MFU and mfu["percent"] is None and value <= 1
        yield "mfu", "%", 100 * value if is_share else value
    flops = _TFLOPS_BEHIND.search(text) or _TFLOPS.search(text) or _TERA_BEHIND.search(text)
    if flops is not None:
        yield "tflops", "TFLOP/s a GPU" if flops["of"] or tool in _OF_GPU else "TFLOP/s", _value(flops)
    memory = [gib for found in _MEMORY.finditer(text) if (gib := _gib(found, tool)) is not None]
    if memory:
        yield "gpu_memory", "GiB", max(memory)


def _gib(found: re.Match[str], tool: str) -> float | None:
    unit = (found["unit"] or found["in"] or _UNIT_OF_TOOL.get(tool) or "").upper()
    return None if not unit or _NOT_OF_GPU.search(found["name"]) else _value(found) * _GIB[unit]


def _value(found: re.Match[str]) -> float:
    return float(found["value"].replace(",", ""))
