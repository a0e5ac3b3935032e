"""Files other than logs, recognised by content, and tables of other programs that stand inside a log.

A format is one module of this package with ``read(stream, name, facts) -> Reading``. It is imported only when one of its
files is there.
"""

import importlib
import os
import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats import signatures
from nccl_doctor.inputs.streams import Readable


class Reading(NamedTuple):
    """What a format's reader says about one file."""

    lines: int
    understood: int  # lines or records that it could use
    note: str | None = None  # where and why it stopped early


class Format(NamedTuple):
    """How a kind of file is recognised and who reads it."""

    kind: str
    module: str
    head: re.Pattern[bytes] | None = None  # searched in the first 64 kB of a file of its own
    inside: tuple[bytes, ...] = ()  # literals that betray it in the middle of a log


class _Reader(Protocol):
    def read(self, stream: Readable, name: str, facts: Facts) -> Reading: ...


_HOROVOD = re.compile(
    rb"\A\s*(?:\{\s*\"traceEvents\"\s*:\s*)?\[\s*\{[\s\S]{0,4000}?"
    rb"\"(?:start_time_since_epoch_in_micros|CYCLE_START|NEGOTIATE_[A-Z]{3,20})\""
)

_KINETO = re.compile(
    rb"\A\s*\{(?=[\s\S]{0,60000}\"traceEvents\"\s*:\s*\[)[\s\S]{0,60000}?"
    rb"\"(?:schemaVersion|distributedInfo|baseTimeNanoseconds|deviceProperties|cat)\"\s*:\s*[\[{0-9\"]"
)
_RECORDER = re.compile(
    rb"\A\x80[\x02-\x05]|\A\s*\{(?=[\s\S]{0,60000}\"(?:collective_seq_id|pg_status|pg_config|seq_id)\"\s*:)"
    rb"[\s\S]{0,60000}?\"(?:comm_lib_version|nccl_version|pg_config|profiling_name)\"\s*:|\A\s*\[\s*\{[^{}]{0,60000}\"profiling_name\"\s*:"
)

_NCCL_TESTS = re.compile(rb"\A\s*\{(?=[\s\S]{0,60000}?\"(?:minimum_bytes|warmup_iters|aggregated_iterations)\" ?:)")
# What step lines of training programs contain; the literals of `throughput_lines` that ordinary output does not have.
_STEPS = (
    b"images/sec: ", b"/sec per ", b'"ups": ', b", ups=", b"elapsed time per iteration (", b"SamplesPerSec=",
    b"'train_samples_per_second'", b"it/s]", b"it/s, ", b"s/it]", b"s/it, ", b"  tps: ", b"mtps: ", b"throughput/samples_per_sec: ",
    b" examples/second between steps ", b"Epoch: [", b"data_time: ", b"BatchTimestamp<batch_index: ", b"| comm op: ", b"/s)  LR: ",
)  # fmt: skip

_STACKS = re.compile(
    rb"\A\s*Process \d+: [^\n]{0,4000}\s+Python v\d|\A\s*\[\s*\{\s*\"pid\"\s*:\s*\d+,\s*\"thread_id\"\s*:"
)

# nvprof and `nsys stats` also write into the log of the job, which then stays a log.
_PROFILE = re.compile(
    rb"\A\s*(?:(?:Generating|Processing|Exporting|Using) [^\n]{0,400}\s+){0,8}\"?Time ?\(%\)\"?(?:,|  +)\"?Total Time\b"
)

_RECORDING = re.compile(rb'\A\{"kind":"(?:gpu|port|host|process)","hostname":|\A\s*\{\s*"schema": "nccl-doctor/run/1"')

FORMATS: tuple[Format, ...] = (
    Format("recording", "recording", _RECORDING),
    Format(
        "profile-summary",
        "profiles.profile_summary",
        _PROFILE,
        (b"Profiling result:", b"Total Time (ns)", b"Total Time (us)", b"Total Time (ms)"),
    ),
    Format("kineto-trace", "torch.kineto", _KINETO),
    Format("flight-recorder", "torch.flight_recorder", _RECORDER),
    Format("horovod-timeline", "horovod.timeline", _HOROVOD),
    Format("gpu-samples", "gpu.samples", signatures.GPU_SAMPLES, signatures.GPU_SAMPLES_INSIDE),
    Format("nvidia-smi-q", "gpu.smi_query", signatures.SMI_QUERY),
    Format("nccl-topology", "nccl.topology", signatures.TOPOLOGY),
    Format("nccl-ras", "nccl.ras", signatures.RAS),
    Format("nccl-inspector", "nccl.inspector", signatures.INSPECTOR),
    Format("kubernetes", "captures.kubernetes", signatures.KUBERNETES),
    Format("packages", "captures.packages", signatures.PACKAGES),
    Format("node-capture", "captures.node_commands", inside=signatures.NODE_INSIDE),
    Format(
        "nccl-tests",
        "nccl.nccl_tests",
        _NCCL_TESTS,
        (b"Avg bus bandwidth", b"Out of bounds values", b"algbw   busbw", b"# nThread "),
    ),
    Format("stacks", "profiles.pyspy", _STACKS, (b' (idle): "', b' (active): "', b" (active+gil)")),
    Format("training-steps", "training.step_lines", None, _STEPS),
)


def recognise(head: bytes) -> Format | None:
    """The format of a file that starts with these bytes; None for a log."""
    return next((f for f in FORMATS if f.head is not None and f.head.search(head)), None)


def is_known(head: bytes) -> bool:
    """Whether some reader other than that of logs takes a file that starts with these bytes."""
    return recognise(head) is not None


def within(seen: Iterable[bytes]) -> list[Format]:
    """The formats of which one of these literals was seen in a log."""
    literals = set(seen)
    return [f for f in FORMATS if literals.intersection(f.inside)]


def read(format_: Format, stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file with the module of its format.

    A value that its reader cannot use, such as a number of thousands of digits, ends this file, not the analysis: the note says so.
    """
    module: _Reader = importlib.import_module(f"nccl_doctor.formats.{format_.module}")
    try:
        return module.read(stream, name, facts)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        if os.environ.get("NCCL_DOCTOR_DEBUG"):
            raise
        return Reading(
            0, 0, f"read only in part, as {format_.kind}: {type(error).__name__}: {error}".split("\n")[0][:200]
        )
