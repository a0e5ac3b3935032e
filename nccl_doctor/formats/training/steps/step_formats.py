"""The step lines of training programs: for each a literal to find the line, and where the line has its numbers.

Nothing is computed here. `step_columns` reads the numbers of all lines of one form at once and makes steps of them.
"""

from collections.abc import Callable
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

# Where a number begins and ends in its line, and by what it is multiplied; its name is one of
#   step, epoch and total (of the steps of an epoch), first (the step before the first of several),
#   seconds (of a step), forward, backward, update (seconds of its parts), speed (steps a second), rounded_speed (so with three
#   decimals), rate, data (seconds that waited for data),
#   done and of (steps of an epoch: the line counts where both are equal and it is over), shown (seconds of the whole epoch),
#   left, left_minutes and left_hours (until the epoch is over), since (seconds since the line before),
#   pass (the epoch of a progress bar that is drawn once in each),
#   clock (seconds of training so far: what the steps since the line before took goes before `seconds`),
#   took, took_minutes and took_hours (of an epoch),
#   per_sample (seconds of one),
#   batch, scale (of the loss), skipped, nan (of steps), hours, minutes, rest (of what a progress bar took so far).
Place = tuple[str, int, int, float]

BAR = "tqdm"  # draws bars


class Fields(NamedTuple):
    """Where a step line has its numbers."""

    start: int  # of the program's own text, behind prefixes of launchers
    places: tuple[Place, ...]
    label: bytes = b""  # in front of a progress bar
    lost: bool = False  # a word says that the loss is no number


Find = Callable[[bytes], Fields | None]


class Tool(NamedTuple):
    """A program or library that prints step lines."""

    literal: bytes
    name: str
    unit: str  # of the rate that the line shows; of lines with seconds only: computed with the batch
    scope: str  # job, gpu or process
    find: Find = lambda _: None  # None where the literal occurs in another kind of line
    is_guess: bool = False  # of a loop that nobody knows: a number that cannot be a rate or a time makes a line none
    is_later: bool = False  # the other tools of a line are tried first, because their lines tell more


NUMBER = rb"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
RATE = rb"(?P<rate>" + NUMBER + rb")"
SECONDS = rb"(?P<seconds>" + NUMBER + rb")"
SPEED = rb"(?P<speed>" + NUMBER + rb")"
DATA = rb"(?P<data>" + NUMBER + rb")"
EPOCH = rb"\[(?P<epoch>\d+)\] {0,2}\[ *(?P<step>\d+)/(?P<total>\d+)"
_FACTORS = {
    "milliseconds": ("seconds", 1e-3),
    "microseconds": ("seconds", 1e-6),
    "clock_milliseconds": ("clock", 1e-3),
    "sample_milliseconds": ("per_sample", 1e-3),
    "sample_microseconds": ("per_sample", 1e-6),
    **{f"{part}_milliseconds": (part, 1e-3) for part in ("forward", "backward", "update")},
}  # names of groups that are no names of numbers

_ANSI = compiled(rb"\x1b\[[0-9;]*m|\[(?:0|3\d)m")
_DESCRIPTION = compiled(rb"(?i)\b(?:epoch|train|training|step|steps|iter|iteration)\b")


def by(expression: bytes) -> Find:
    """Finds numbers by the groups of an expression."""
    search = compiled(expression).search

    def find(line: bytes) -> Fields | None:
        match = search(line)
        if match is None:
            return None
        places = []
        for group in match.re.groupindex:
            if match[group] is not None:
                name, factor = _FACTORS.get(group, (group, 1.0))
                places.append((name, *match.span(group), factor))
        return Fields(match.start(), tuple(places))

    return find


def without(word: bytes, find: Find) -> Find:
    return lambda line: find(line) if word not in line else None


def _from(words: tuple[bytes, ...], find: Find) -> Find:
    """The program's own text begins with one of these words."""

    def found(line: bytes) -> Fields | None:
        fields = find(line)
        return fields._replace(start=max(*(line.find(word) for word in words), 0)) if fields is not None else None

    return found


_LABEL = rb"(?:(?P<label>[A-Za-z][^|:\]]{0,40}): *)?"
_TIMES = rb" \[(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<rest>\d+)(?:<[\d:?]+)?, +(?P<seconds>\d+(?:\.\d+)?)(?P<unit>it/s|s/it)"
_BAR = compiled(_LABEL + rb"\d{1,3}%\|[^|]{0,200}\| *(?P<step>\d+)/(?P<total>\d+)" + _TIMES)
_OPEN_BAR = compiled(_LABEL + rb"(?<!\d)(?P<step>\d{1,15})it" + _TIMES)  # of a loop whose length tqdm does not know
_EVALUATES = compiled(rb"(?i)(?<![a-z])(?:val|valid|validat\w{0,9}|eval\w{0,9}|test|testing)(?![a-z])")
_TRAINS = compiled(rb"(?i)(?<![a-z])train")
_EPOCH_LABEL = compiled(rb"(?i)(?<![a-z])epoch\W{0,3}(?P<pass>\d{1,9})(?![\d.])")


def _find_bar(line: bytes) -> Fields | None:
    """A tqdm bar without description, or with one that speaks of epochs, steps or training and not of an evaluation alone."""
    match = _BAR.search(line) or _OPEN_BAR.search(line)
    if match is None or (match["label"] is not None and not _DESCRIPTION.search(match["label"])):
        return None
    told = line[: match.start("step")]
    if _EVALUATES.search(told) is not None and _TRAINS.search(told) is None:
        return None
    names = {group: group for group in ("step", "total", "hours", "minutes", "rest") if group in match.re.groupindex}
    names["seconds"] = "seconds" if match["unit"] == b"s/it" else "speed"
    places = tuple((names[group], *match.span(group), 1.0) for group in names if match[group] is not None)
    epoch = _EPOCH_LABEL.search(told)
    if epoch is not None:
        places = (*places, ("pass", *epoch.span("pass"), 1.0))
    return Fields(match.start(), places, match["label"] or b"")


_COUNTS = (
    ("batch", compiled(rb"global[ _]batch[ _]size[:=] +(\d+)")),
    ("scale", compiled(rb"loss[ _]scale[:=] *(" + NUMBER + rb")")),
    ("skipped", compiled(rb"skipped[ _]iterations[:=] +(\d+)")),
    ("nan", compiled(rb"nan[ _]iterations[:=] +(\d+)")),
)
_LOST = (b"loss: NAN", b"loss: nan", b"loss=nan")
_MEGATRON = b"elapsed time per iteration (", b"elapsed_time_per_iteration_ms="  # the second: ALCF's Megatron-DeepSpeed
_find_iteration = by(  # Primus prints a mean behind the time
    rb"iteration +(?P<step>\d+)/ *\d+ \|.{0,300}?elapsed time per iteration \((?:s\): +%b|ms\): +(?P<milliseconds>%b)(?:/%b)?) \|"
    % (SECONDS, NUMBER, NUMBER)
)
_find_named_iteration = by(
    rb"iteration= +(?P<step>\d+)/ *\d+ \|.{0,300}?elapsed_time_per_iteration_ms= *(?P<milliseconds>%b) \|" % NUMBER
)


def _find_megatron(line: bytes) -> Fields | None:
    fields = _find_iteration(line) or _find_named_iteration(line)
    if fields is None:
        return None
    counts = tuple((name, *match.span(1), 1.0) for name, regex in _COUNTS if (match := regex.search(line)))
    return fields._replace(places=fields.places + counts, lost=any(word in line for word in _LOST))


_SCALE = compiled(rb'"loss_scale": "(' + NUMBER + rb')"')
_find_fairseq_json = by(
    rb'"wps": "?' + RATE + rb'"?, "ups": "?' + SPEED + rb'"?,.{0,400}?"num_updates": "?(?P<step>\d+)'
)


def _find_fairseq(line: bytes) -> Fields | None:
    fields = _find_fairseq_json(line)
    if fields is None:
        return None
    match = _SCALE.search(line)
    scale = (("scale", *match.span(1), 1.0),) if match is not None else ()
    return fields._replace(places=fields.places + scale, lost=b'"loss": "nan"' in line)


_TIME = rb"(?<!\w)(?:batch_|iter_|step_)?[Tt]ime:? ?=? {0,4}" + SECONDS
_DATA_TIME = rb"data_time:? ?=? {0,4}" + DATA
_MMDET = by(
    rb"Epoch {0,9}(?:\(train\))? {0,9}\[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/(?P<total>\d+)\].{0,300}?"
    + _TIME
    + rb".{0,60}?"
    + _DATA_TIME
)
_STEP = rb"(?:iter: (?P<step>\d+) .{0,300}?|batch: \d+/\d+ .{0,300}?)?"
_DETECTRON = by(_STEP + _TIME + rb"(?: +last_time: [\d.]+)?.{0,60}?" + _DATA_TIME)
_DATA_FIRST = by(_STEP + _DATA_TIME + rb"s?(?: \([^)]{0,200}\))?[,; |\-]{1,9}" + _TIME)
_BRACE = (b"{",)

TOOLS = (
    Tool(
        b"/sec per ",
        "horovod-synthetic",
        "samples/s",
        "gpu",
        by(rb"Iter #(?P<step>\d+): " + RATE + rb" \w+/sec per"),
    ),
    Tool(b'"ups": ', "fairseq", "tokens/s", "job", _find_fairseq),
    Tool(
        b", ups=",
        "fairseq",
        "tokens/s",
        "job",
        by(rb"\bwps=" + RATE + rb", ups=" + SPEED + rb",.{0,400}?\bnum_updates=(?P<step>\d+)"),
    ),
    *(Tool(literal, "megatron", "samples/s", "job", _find_megatron) for literal in _MEGATRON),
    *(
        Tool(
            literal,
            "deepspeed",
            "samples/s",
            "job",
            by(
                rb"(?:epoch=\d+/)?(?:micro_step=\d+/)?(?:global_step=|/)(?P<step>\d+), "
                rb"(?:RunningAvgSamplesPerSec=[\d.naif]+, Curr)?SamplesPerSec=" + RATE
            ),
        )
        for literal in (b"CurrSamplesPerSec=", b", SamplesPerSec=")
    ),
    Tool(
        b" | step: ",
        "deepspeed-timers",  # of all micro steps since the step before; the gradients' all-reduce is part of the backward pass
        "samples/s",
        "job",
        by(
            rb"time \(ms\) \| (?:fwd|forward): (?P<forward_milliseconds>"
            + NUMBER
            + rb") \| (?:bwd|backward): (?P<backward_milliseconds>"
            + NUMBER
            + rb") .{0,200}?\| step: (?P<update_milliseconds>"
            + NUMBER
            + rb")"
        ),
    ),
    Tool(
        b"'train_samples_per_second'",
        "hf-trainer",
        "samples/s",
        "job",
        _from(
            _BRACE,
            by(
                rb"'train_samples_per_second': '?"
                + RATE
                + rb"'?, 'train_steps_per_second': '?(?P<rounded_speed>"
                + NUMBER
                + rb")"
            ),
        ),
    ),
    *(Tool(literal, BAR, "samples/s", "job", _find_bar) for literal in (b"it/s]", b"it/s, ", b"s/it]", b"s/it, ")),
    Tool(
        b" \xe2\x80\xa2 0:",
        "lightning",  # where rich draws the bar; into a file only the last of each fit is written, epochs counted from 0
        "samples/s",
        "job",
        by(
            rb"Epoch (?P<epoch>\d{1,9})/\d{1,9} {1,200}(?:\xe2[\x80-\xbf]{2}| ){1,400}(?P<step>\d{1,15})/(?P<total>\d{1,15})"
            rb" (?:\d{1,4}:){1,2}\d\d \xe2\x80\xa2 [-\d:]{4,12} +(?P<speed>\d{1,9}(?:\.\d{1,9})?)it/s"
        ),
    ),
    Tool(
        b"tps: ",
        "torchtitan",
        "tokens/s",
        "gpu",
        without(
            b"validate step:",
            without(
                b"evaluation: ",
                # what the job does may stand in front of what a device does
                by(rb"\bstep: +(?P<step>\d+) .{0,300}?\btps: +(?:\d[\d,]* +per_device_tps: +)?(?P<rate>\d[\d,]*)"),
            ),
        ),
    ),
    Tool(
        b"  wps: ",
        "torchtitan",  # before 0.2, words for tokens; of Meta Lingua `1.44e+05`
        "tokens/s",
        "gpu",
        by(rb"\bstep: +(?P<step>\d+) .{0,300}?\bwps: +(?P<rate>\d[\d,]*(?:\.\d{1,4}e[+-]\d{1,3})?)"),
    ),
    Tool(
        b"Epoch: [",
        "pytorch-example",
        "samples/s",
        "process",
        by(rb"Epoch: " + EPOCH + rb"\].{0,300}?\b[Tt]ime:? +" + SECONDS + rb"(?:.{0,60}?\b[Dd]ata:? +" + DATA + rb")?"),
    ),
    Tool(
        b"ms, mfu ",
        "nanogpt",
        "samples/s",
        "job",
        by(
            rb"\biter (?P<step>\d+): loss [\d.naif]+(?: [A-Za-z/]{1,20})?, time (?P<milliseconds>"
            + NUMBER
            + rb")ms, mfu "
        ),
    ),
    Tool(
        b" tokens_per_second_per_gpu:",
        "torchtune",
        "tokens/s",
        "gpu",
        by(rb"\bStep (?P<step>\d+) \| .{0,300}?\btokens_per_second_per_gpu:" + RATE),
    ),
    Tool(
        b", Tokens/s/device: ",
        "maxtext",
        "tokens/s",
        "gpu",
        by(
            rb"completed step: (?P<step>\d+), seconds: "
            + SECONDS
            + rb", TFLOP/s/device: [\d.]{1,20}, Tokens/s/device: "
            + RATE
        ),
    ),
    Tool(
        b"timing_s/step:",
        "verl",  # all numbers of a step in one line; throughput is tokens a second and GPU
        "tokens/s",
        "gpu",
        by(
            rb"\bstep:(?P<step>\d+) - .{0,30000}?\btiming_s/step:(?:np\.float64\()?"
            + SECONDS
            + rb"(?:.{0,30000}? perf/throughput:(?:np\.float64\()?"
            + RATE
            + rb")?"
        ),
    ),
    Tool(
        b"train_step_timing in s",
        "nemo",
        "samples/s",
        "job",
        _from(
            (b"Training epoch", b"Epoch "),
            by(rb"global_step[=:] ?(?P<step>\d+)(?:\.0+)?\b.{0,300}?train_step_timing in s[=:] ?" + SECONDS),
        ),
    ),
    *(
        Tool(
            literal,
            "axolotl",
            "tokens/s",
            "gpu",
            _from(
                _BRACE,
                by(rb"'loss': .{0,400}?'(?:tokens_per_second_per_gpu|tokens/train_per_sec_per_gpu)': '?" + RATE),
            ),
        )
        for literal in (b"'tokens_per_second_per_gpu': ", b"'tokens/train_per_sec_per_gpu': ")
    ),
    Tool(
        b"Train: ",
        "timm",
        "samples/s",
        "job",
        by(
            rb"Train: (?P<epoch>\d+) \[ *(?P<step>\d+)/(?P<total>\d+) .{0,200}?Time: "
            + SECONDS
            + rb"s, +"
            + RATE
            + rb"/s.{0,120}?Data: "
            + DATA
        ),
    ),
    Tool(
        b" Batch (t): ",
        "open-clip",  # which counts samples and no steps
        "samples/s",
        "job",
        by(
            rb"Train Epoch: \d{1,9} \[ *\d{1,15}/\d{1,15} .{0,40}?Data \(t\): "
            + DATA
            + rb" Batch \(t\): "
            + SECONDS
            + rb", "
            + RATE
            + rb"/s, "
        ),
    ),
    Tool(
        b"data_time",
        "detection",
        "samples/s",
        "job",
        lambda line: _MMDET(line) or _DETECTRON(line) or _DATA_FIRST(line),
    ),
)


def uncoloured(line: bytes) -> bytes:
    """A line without colours, also those whose escape character was lost."""
    return _ANSI.sub(b"", line) if b"m" in line and b"[" in line else line


def colour_spans(line: bytes) -> list[tuple[int, int]]:
    """Where a line has colours."""
    return [match.span() for match in _ANSI.finditer(line)]
