"""The step lines of training programs: for each a literal to find the line and a function to parse it.

A function gets the bytes of one line and returns a `Point`, or None where the literal occurs in another kind of line.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

# start of the program's own text, step, seconds a step, rate, seconds that waited for data
Point = tuple[int, int | None, float | None, float | None, float | None]
_BAR = compiled(
    rb"(?:([A-Za-z][^|:\]]{0,40}): *)?\d{1,3}%\|[^|]{0,200}\| *(\d+)/(\d+) \[([\d:]+)<[\d:?]+, +(\d+(?:\.\d+)?)(it/s|s/it)"
).search


_RICH_BAR = compiled(
    rb"Epoch (\d{1,9})/\d{1,9} {1,200}(?:\xe2[\x80-\xbf]{2}| ){1,400}(\d{1,15})/(\d{1,15}) (?:\d{1,4}:){1,2}\d\d "
    rb"\xe2\x80\xa2 [-\d:]{4,12} +(\d{1,9}(?:\.\d{1,9})?)it/s"
).search


class Tool(NamedTuple):
    """A program or library that prints step lines."""

    literal: bytes
    name: str
    unit: str  # of the rate that the line shows; of lines with seconds only: computed with the batch
    scope: str  # job, gpu or process
    read: Callable[[bytes], Point | None]
    # For logs of a million steps: the number that follows or precedes the literal, given the place of its last byte. Raises
    # ValueError or IndexError where there is none.
    quick: Callable[[bytes, int], float] | None = None
    quick_is_rate: bool = True


_NUMBER = rb"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"

_tf_cnn = compiled(rb"(\d{1,20})\s{1,40}images/sec: " + _NUMBER).search
_horovod = compiled(rb"Iter #(\d+): " + _NUMBER + rb" \w+/sec per").search
_fairseq_json = compiled(
    rb'"wps": "?' + _NUMBER + rb'"?, "ups": "?' + _NUMBER + rb'"?,.{0,400}?"num_updates": "?(\d+)'
).search
_fairseq_text = compiled(rb"\bwps=" + _NUMBER + rb", ups=" + _NUMBER + rb",.{0,400}?\bnum_updates=(\d+)").search
_megatron = compiled(
    rb"iteration +(\d+)/ *\d+ \|.{0,300}?elapsed time per iteration \((ms|s)\): +" + _NUMBER + rb" \|"
).search
_deepspeed = compiled(
    rb"(?:epoch=\d+/)?(?:micro_step=\d+/)?(?:global_step=|/)(\d+), (?:RunningAvgSamplesPerSec=[\d.naif]+, Curr)?SamplesPerSec="
    + _NUMBER
).search
_hf_end = compiled(rb"'train_samples_per_second': '?" + _NUMBER + rb"'?, 'train_steps_per_second': '?" + _NUMBER).search
_titan = compiled(rb"\bstep: +(\d+) .{0,300}?\btps: +([\d,]+)").search
_composer = compiled(rb"throughput/(?:(device)/)?samples_per_sec: " + _NUMBER).search
_official = compiled(
    rb"TimeHistory: " + _NUMBER + rb" seconds, " + _NUMBER + rb" examples/second between steps (\d+) and (\d+)"
).search
_tutorial = compiled(rb"\bstep (\d+), .{0,80}?\(" + _NUMBER + rb" examples/sec; " + _NUMBER + rb" sec/batch\)").search
_imagenet = compiled(
    rb"Epoch: \[(\d+)\] ?\[ *(\d+)/(\d+)\].{0,300}?\b[Tt]ime:? +"
    + _NUMBER
    + rb"(?:.{0,60}?\b[Dd]ata:? +"
    + _NUMBER
    + rb")?"
).search
_timm = compiled(
    rb"Train: (\d+) \[ *(\d+)/(\d+) .{0,200}?Time: " + _NUMBER + rb"s, +" + _NUMBER + rb"/s.{0,120}?Data: " + _NUMBER
).search
_mmdet = compiled(
    rb"Epoch {0,9}(?:\(train\))? {0,9}\[(\d+)\]\[ *(\d+)/(\d+)\].{0,300}?\btime: "
    + _NUMBER
    + rb".{0,60}?data_time: "
    + _NUMBER
).search
_detectron = compiled(
    rb"(?:iter: (\d+) .{0,300}?|batch: (\d+)/\d+ .{0,300}?)?\btime: "
    + _NUMBER
    + rb"(?: +last_time: [\d.]+)?.{0,60}?data_time: "
    + _NUMBER
).search
_nanogpt = compiled(rb"\biter (\d+): loss [\d.naif]+, time " + _NUMBER + rb"ms, mfu ").search
_torchtune = compiled(rb"\bStep (\d+) \| .{0,300}?\btokens_per_second_per_gpu:" + _NUMBER).search
_maxtext = compiled(
    rb"completed step: (\d+), seconds: " + _NUMBER + rb", TFLOP/s/device: [\d.]{1,20}, Tokens/s/device: " + _NUMBER
).search
_nemo = compiled(rb"global_step[=:] ?(\d+)(?:\.0+)?\b.{0,300}?train_step_timing in s[=:] ?" + _NUMBER).search
_axolotl = compiled(
    rb"'loss': .{0,400}?'(?:tokens_per_second_per_gpu|tokens/train_per_sec_per_gpu)': '?" + _NUMBER
).search
_gnmt = compiled(
    rb"TRAIN \[(\d+)\]\[(\d+)/(\d+)\]\s+Time " + _NUMBER + rb" .{0,40}?Data " + _NUMBER + rb" .{0,40}?Tok/s " + _NUMBER
).search
_ANSI = compiled(rb"\x1b\[[0-9;]*m|\[(?:0|3\d)m")
_DESCRIPTION = compiled(rb"(?i)\b(?:epoch|train|training|step|steps|iter|iteration)\b")


def _read_tf_cnn(line: bytes) -> Point | None:
    match = _tf_cnn(line)
    if match is None or b"total " in line:
        return None
    step, rate = match.groups()
    return match.start(), int(step), None, float(rate), None


def _read_horovod(line: bytes) -> Point | None:
    match = _horovod(line)
    return (match.start(), int(match[1]), None, float(match[2]), None) if match else None


def _read_fairseq_json(line: bytes) -> Point | None:
    match = _fairseq_json(line)
    if match is None:
        return None
    rate, updates, step = match.groups()
    return match.start(), int(step), 1 / float(updates) if float(updates) else None, float(rate), None


def _read_fairseq_text(line: bytes) -> Point | None:
    match = _fairseq_text(line)
    if match is None:
        return None
    rate, updates, step = match.groups()
    return match.start(), int(step), 1 / float(updates) if float(updates) else None, float(rate), None


def _read_megatron(line: bytes) -> Point | None:
    match = _megatron(line)
    if match is None:
        return None
    step, unit, time = match.groups()
    return match.start(), int(step), float(time) / 1000 if unit == b"ms" else float(time), None, None


def _read_deepspeed(line: bytes) -> Point | None:
    match = _deepspeed(line)
    return (match.start(), int(match[1]), None, float(match[2]), None) if match else None


def _read_hf_end(line: bytes) -> Point | None:
    match = _hf_end(line)
    if match is None:
        return None
    steps = float(match[2])  # printed with three decimals: 0.005 stands for 180 to 220 s
    return line.find(b"{"), None, 1 / steps if steps >= 0.05 else None, float(match[1]), None


class Bar(NamedTuple):
    """A progress bar of a training loop."""

    point: Point
    identity: tuple[bytes | None, bytes, bytes]  # description, step, steps of the whole bar
    elapsed: int  # seconds since its start


def read_bar(line: bytes) -> Bar | None:
    """A tqdm bar without description, or with one that speaks of epochs, steps or training."""
    match = _BAR(line)
    if match is None:
        return None
    name, step, total, elapsed, value, unit = match.groups()
    if step == b"0" or (name is not None and not _DESCRIPTION.search(name)):
        return None
    number = float(value)
    seconds = number if unit == b"s/it" else 1 / number if number else None
    since = 0
    for part in elapsed.split(b":"):
        since = 60 * since + int(part or 0)
    return Bar((match.start(), int(step), seconds, None, None), (name, step, total), since)


def _read_tqdm(line: bytes) -> Point | None:
    found = read_bar(line)
    return found.point if found else None


def _read_rich_bar(line: bytes) -> Point | None:
    """The bar of Lightning where rich draws it, epochs counted from 0; into a file only the last of each fit is written."""
    match = _RICH_BAR(_ANSI.sub(b"", line)) if b"Epoch " in line else None
    if match is None or not float(match[4]):
        return None
    epoch, step, total, rate = match.groups()
    return max(line.find(b"Epoch "), 0), int(epoch) * int(total) + int(step), 1 / float(rate), None, None


def _read_titan(line: bytes) -> Point | None:
    match = _titan(_ANSI.sub(b"", line))
    if match is None or b"validate step:" in line:
        return None
    return max(line.find(b"step:"), 0), int(match[1]), None, float(match[2].replace(b",", b"")), None


def _read_composer(line: bytes) -> Point | None:
    match = _composer(line)
    if match is None or match[1]:
        return None
    return match.start(), None, None, float(match[2]), None


def _read_official(line: bytes) -> Point | None:
    match = _official(line)
    if match is None:
        return None
    first, last = int(match[3]), int(match[4])
    seconds = float(match[1]) / (last - first) if last > first else None
    return match.start(), last, seconds, float(match[2]), None


def _read_tutorial(line: bytes) -> Point | None:
    match = _tutorial(line)
    return (match.start(), int(match[1]), float(match[3]), float(match[2]), None) if match is not None else None


def _read_imagenet(line: bytes) -> Point | None:
    match = _imagenet(line)
    if match is None:
        return None
    epoch, batch, total, time, data = match.groups()
    step = int(epoch) * int(total) + int(batch)
    return match.start(), step, float(time), None, float(data) if data else None


def _read_nanogpt(line: bytes) -> Point | None:
    match = _nanogpt(line)
    return (match.start(), int(match[1]), float(match[2]) / 1000, None, None) if match else None


def _read_torchtune(line: bytes) -> Point | None:
    match = _torchtune(line)
    return (match.start(), int(match[1]), None, float(match[2]), None) if match else None


def _read_maxtext(line: bytes) -> Point | None:
    match = _maxtext(line)
    return (match.start(), int(match[1]), float(match[2]), float(match[3]), None) if match else None


def _read_nemo(line: bytes) -> Point | None:
    match = _nemo(line)
    if match is None:
        return None
    return max(line.find(b"Training epoch"), line.find(b"Epoch "), 0), int(match[1]), float(match[2]), None, None


def _read_axolotl(line: bytes) -> Point | None:
    match = _axolotl(line)
    return (line.find(b"{"), None, None, float(match[1]), None) if match else None


def _read_gnmt(line: bytes) -> Point | None:
    match = _gnmt(line)
    if match is None:
        return None
    epoch, batch, total, time, data, rate = match.groups()
    return match.start(), int(epoch) * int(total) + int(batch), float(time), float(rate), float(data)


def _read_timm(line: bytes) -> Point | None:
    match = _timm(line)
    if match is None:
        return None
    epoch, batch, total, time, rate, data = match.groups()
    return match.start(), int(epoch) * int(total) + int(batch), float(time), float(rate), float(data)


def _read_data_time(line: bytes) -> Point | None:
    match = _mmdet(line)
    if match is not None:
        epoch, batch, total, time, data = match.groups()
        return match.start(), int(epoch) * int(total) + int(batch), float(time), None, float(data)
    match = _detectron(line)
    if match is None:
        return None
    step, _, time, data = match.groups()
    return match.start(), int(step) if step else None, float(time), None, float(data)


def _following(block: bytes, at: int) -> float:
    return float(block[at + 1 : at + 24].split(None, 1)[0].split(b",", 1)[0])


def _grouped(block: bytes, at: int) -> float:
    return float(block[at + 1 : at + 24].split(None, 1)[0].replace(b",", b""))


def _quoted(block: bytes, at: int) -> float:
    return float(block[at + 1 : at + 24].split(b'"', 2)[1])


def _second_word(block: bytes, at: int) -> float:
    return float(block[at + 1 : at + 24].split(b" ", 2)[1])


def _after_name(block: bytes, at: int) -> float:
    return float(
        block[at + 1 : at + 24]
        .lstrip(b"=: '")
        .split(b" ", 1)[0]
        .split(b"]", 1)[0]
        .split(b",", 1)[0]
        .split(b"\n", 1)[0]
        .rstrip(b"'}")
    )


def _behind(regex: bytes) -> Callable[[bytes, int], float]:
    """The number that an expression finds in what follows the literal on its line."""
    search = compiled(rb"[^\n]{0,300}?" + regex + _NUMBER).match

    def read(block: bytes, at: int) -> float:
        found = search(block, at + 1)
        if found is None:
            raise ValueError("no number behind it")
        return float(found[1])

    return read


def _time_before(block: bytes, at: int) -> float:
    place = block.rindex(b"time: ", max(at - 120, 0), at - 10)
    return float(block[place + 6 : place + 24].split(None, 1)[0].rstrip(b",s"))


def _last_word(block: bytes, at: int, size: int) -> float:
    """The word in front of a literal of `size` bytes."""
    return float(block[max(at - size - 24, 0) : at + 1 - size].rsplit(None, 1)[1].lstrip(b"("))


TOOLS = (
    Tool(b"images/sec: ", "tf-cnn-benchmarks", "samples/s", "job", _read_tf_cnn, _following),
    Tool(
        b"/sec per ",
        "horovod-synthetic",
        "samples/s",
        "gpu",
        _read_horovod,
        lambda block, at: float(block[at - 40 : at].rsplit(None, 3)[1]),
    ),
    Tool(b'"ups": ', "fairseq", "tokens/s", "job", _read_fairseq_json, _quoted),
    Tool(b", ups=", "fairseq", "tokens/s", "job", _read_fairseq_text, _after_name),
    Tool(b"elapsed time per iteration (", "megatron", "samples/s", "job", _read_megatron, _second_word, False),
    Tool(b"CurrSamplesPerSec=", "deepspeed", "samples/s", "job", _read_deepspeed, _following),
    Tool(b", SamplesPerSec=", "deepspeed", "samples/s", "job", _read_deepspeed, _after_name),
    Tool(b"'train_samples_per_second'", "hf-trainer", "samples/s", "job", _read_hf_end),
    Tool(b"it/s]", "tqdm", "samples/s", "job", _read_tqdm, partial(_last_word, size=5)),
    Tool(b"it/s, ", "tqdm", "samples/s", "job", _read_tqdm, partial(_last_word, size=6)),
    Tool(b"s/it]", "tqdm", "samples/s", "job", _read_tqdm, partial(_last_word, size=5), False),
    Tool(b"s/it, ", "tqdm", "samples/s", "job", _read_tqdm, partial(_last_word, size=6), False),
    Tool(b" \xe2\x80\xa2 0:", "lightning", "samples/s", "job", _read_rich_bar),
    Tool(b"tps: ", "torchtitan", "tokens/s", "gpu", _read_titan, _grouped),
    Tool(b"throughput/samples_per_sec: ", "composer", "samples/s", "job", _read_composer, _after_name),
    Tool(
        b" examples/second between steps ",
        "tf-official",
        "samples/s",
        "job",
        _read_official,
        partial(_last_word, size=31),
    ),
    Tool(b" examples/sec; ", "tf-tutorial", "samples/s", "job", _read_tutorial, partial(_last_word, size=15)),
    Tool(b"Epoch: [", "pytorch-example", "samples/s", "process", _read_imagenet, _behind(rb"[Tt]ime:? +"), False),
    Tool(b"ms, mfu ", "nanogpt", "samples/s", "job", _read_nanogpt, partial(_last_word, size=8), False),
    Tool(b" tokens_per_second_per_gpu:", "torchtune", "tokens/s", "gpu", _read_torchtune, _following),
    Tool(b", Tokens/s/device: ", "maxtext", "tokens/s", "gpu", _read_maxtext, _following),
    Tool(b"train_step_timing in s", "nemo", "samples/s", "job", _read_nemo, _after_name, False),
    Tool(b"'tokens_per_second_per_gpu': ", "axolotl", "tokens/s", "gpu", _read_axolotl, _after_name),
    Tool(b"'tokens/train_per_sec_per_gpu': ", "axolotl", "tokens/s", "gpu", _read_axolotl, _after_name),
    Tool(b"\tTok/s ", "gnmt", "tokens/s", "job", _read_gnmt, _following),
    Tool(b"Train: ", "timm", "samples/s", "job", _read_timm, _behind(rb"Time: "), False),
    Tool(b"data_time: ", "detection", "samples/s", "job", _read_data_time, _time_before, False),
)


def quick_values(tool: Tool, which: int, places: list[tuple[int, int]], block: bytes) -> list[float] | None:
    """The number beside each literal; None where the literals differ or one has no number."""
    quick = tool.quick
    if quick is None or any(other != which for _, other in places):
        return None
    try:
        return [quick(block, at) for at, _ in places]
    except (ValueError, IndexError):
        return None
