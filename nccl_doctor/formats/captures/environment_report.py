"""What programs print of their environment for a bug report: versions of the framework, CUDA and the driver, whether GPUs can be used."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, Package, SoftwareVersion
from nccl_doctor.formats.captures.packages import is_kept
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_WRITERS = 20_000
_PACKAGES = 500  # of one report
_LEAST = 3  # things that a report tells
_VERSION = r"(\d{1,5}(?:\.\d{1,6}){0,3}[\w.+-]{0,40})"
_HUGGING = r"[-*] `?PyTorch version \((?:GPU|accelerator)\?\)`?: `?"
_TITLES = (  # what a line tells, under the names of collect_env, Hugging Face, ds_report and SGLang
    ("torch", rf"(?:PyTorch version *: |{_HUGGING}|torch version \.{{3,60}} |(?<!build )PyTorch: ){_VERSION}"),
    (
        "available",
        rf"(?:Is CUDA available *: |CUDA available: |{_HUGGING}\S{{1,60}} \(|- PyTorch accelerator: )(True|False|CUDA|N/?A)\b",
    ),
    ("cuda", rf"(?:CUDA used to build PyTorch *: |torch cuda version \.{{3,60}} )({_VERSION}|None|N/A)"),
    ("rocm", rf"(?:ROCM used to build PyTorch *: |torch hip version \.{{3,60}} ){_VERSION}"),
    (
        "driver",
        r"(?:Nvidia driver version *: |CUDA Driver Version: |[-*] `?NVIDIA driver version`?: `?)(\d{3}\.\d{1,3}(?:\.\d{1,3})?)",
    ),
    ("nvcc", rf"(?:CUDA runtime version *: |nvcc version \.{{3,60}} |NVCC: .{{0,80}}\bV){_VERSION}"),
    ("gcc", r"GCC version *: \(.{0,120}\) (\d{1,3}\.\d{1,3}\.\d{1,3})"),
    ("deepspeed", rf"deepspeed info \.{{3,60}} {_VERSION}"),
)
_NAMES = {"torch": "torch", "driver": "nvidia-driver", "nvcc": "nvcc", "gcc": "gcc", "deepspeed": "deepspeed"}
_TITLE = re.compile("|".join(f"(?P<{name}>{expression})" for name, expression in _TITLES))
_VALUES = {name: re.compile(expression) for name, expression in _TITLES}
_WORDS = ("PyTorch", "torch ", "CUDA", "driver", "nvcc", "NVCC", "GCC", "ROCM", "deepspeed")  # one is in each title
_GPU = re.compile(r"(?:GPU models and configuration *: *)?GPU (\d{1,3}(?:,\d{1,3}){0,63}): \S")
_LISTED = re.compile(r"\[(?:pip3?|conda)\] ([A-Za-z0-9][\w.-]{0,80})(?:==| +)([\w.+!-]{1,60})")
_NAMED = re.compile(rf"([a-z][\w.-]{{1,60}}): {_VERSION}\s*$")  # of SGLang's report, below its line of PyTorch
_HEADS = re.compile(
    rb"(?:PyTorch version|Is CUDA available) *: |PyTorch version \((?:GPU|accelerator)\?\)|torch version \.{3}|CUDA available: "
    rb"|\[pip3?\] |\[conda\] "
)
_KEEP = 100  # lines between two that tell something: collect_env prints those of lscpu


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every report of a file.

    Source: `torch/utils/collect_env.py` (PyTorch 1.0 to 2.9) and vLLM's copy of it, `accelerate env`, `transformers-cli env`, DeepSpeed's
    `ds_report`, `python -m sglang.check_env`::

        PyTorch version: 2.5.1+cu124
        Is CUDA available: True
        [pip3] nvidia-nccl-cu12==2.21.5
    """
    reports: dict[str | None, _Report] = {}
    used = 0
    note = None
    sections = Sections(stream, _HEADS, _KEEP)
    for first, label, texts in sections.batches():
        report = reports.get(label.host)
        if report is None:
            if len(reports) >= _WRITERS:
                note = f"holds reports of more than {_WRITERS:,} writers; the others were left out"
                continue
            report = reports[label.host] = _Report(label.host)
        for at, said in enumerate(map(_parse, texts)):
            if (said is not None or report.names_packages) and report.take(first + at, texts[at], said):
                sections.used(first + at)
                used += 1
    told = [report for report in reports.values() if report.is_one]
    facts.add(chain.from_iterable(report.rows(facts, name) for report in told))
    if told:
        facts.mark_covered("software_version", "package", "message")
    return Reading(sections.lines, used if told else 0, note)


class _Said(NamedTuple):
    """What a line tells: versions and the like, or GPUs, or a package."""

    told: tuple[tuple[str, str], ...]
    gpus: tuple[str, ...] = ()
    package: tuple[str, str] | None = None


@lru_cache(1 << 12)  # most nodes of a cluster say the same
def _parse(text: str) -> _Said | None:
    """What a line tells; None for one that tells nothing by itself."""
    if any(map(text.__contains__, _WORDS)) and (told := _parse_titles(text)):
        return _Said(told)
    if (gpu := _GPU.match(text.strip())) is not None:
        return _Said((), tuple(gpu[1].split(",")))
    match = _LISTED.search(text)
    return None if match is None else _Said((), (), (match[1], match[2]))


def _parse_titles(text: str) -> tuple[tuple[str, str], ...]:
    """What a line tells, and its values; a line of Hugging Face's reports tells two things."""
    if _TITLE.search(text) is None:
        return ()
    found = ((key, expression.search(text)) for key, expression in _VALUES.items())
    return tuple((key, match[1]) for key, match in found if match is not None)


class _Report:
    """What one host said; of several reports the last."""

    def __init__(self, host: str | None) -> None:
        self._host = host
        self.said: dict[str, tuple[str, int, str]] = {}  # value, number of the line, the line
        self._packages: dict[str, tuple[str, int, str]] = {}
        self._gpus: set[str] = set()
        self.names_packages = False  # its lines name packages without saying so

    @property
    def is_one(self) -> bool:
        """Whether that is enough for a report; a line or two may come from any program."""
        return len(self.said) >= _LEAST or self.said.keys() >= {"torch", "available"}

    def take(self, number: int, text: str, said: _Said | None) -> bool:
        """Take a line that tells this by itself; whether it tells something."""
        if said is None:
            named = _NAMED.match(text.strip()) if self.names_packages else None
            return named is not None and self._package(named[1], named[2], number, text)
        if said.told:
            self.names_packages |= text.lstrip().startswith("PyTorch: ")
            for key, value in said.told:
                if key == "torch":
                    self._begin()
                self.said[key] = value, number, text.strip()
            return True
        if said.package is None:
            self._gpus.update(said.gpus)
            return True
        return self._package(*said.package, number, text)

    def _package(self, name: str, version: str, number: int, text: str) -> bool:
        """Keep a package, unless there are too many."""
        if len(self._packages) >= _PACKAGES:
            return False
        if is_kept(name):
            self._packages[name.lower().replace("_", "-")] = version, number, text.strip()
        return True

    def _begin(self) -> None:
        """Another report of the same host replaces one that told its PyTorch."""
        if "torch" in self.said and "driver" in self.said:
            self.said.clear()
            self._packages.clear()
            self._gpus.clear()

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """What the report tells of versions, and whether PyTorch can use GPUs."""
        refs = {key: facts.evidence(file, number, text) for key, (_, number, text) in self.said.items()}
        values = {key: value for key, (value, _, _) in self.said.items()}
        cuda = values.get("cuda", "")
        built = cuda if cuda[:1].isdigit() else "none" if cuda in ("None", "N/A") and "rocm" not in values else None
        if values.get("torch", "").endswith("+cpu"):
            built = "none"
        elif built is None and (tag := re.search(r"\+cu(\d{2,3})(\d)\b", values.get("torch", ""))) is not None:
            built = f"{tag[1]}.{tag[2]}"
        for key, name in (
            ("torch", "torch"),
            ("driver", "nvidia-driver"),
            ("nvcc", "nvcc"),
            ("gcc", "gcc"),
            ("deepspeed", "deepspeed"),
        ):
            if key in values:
                yield SoftwareVersion(
                    host=self._host, name=name, version=values[key], cuda=built if key == "torch" else None, nccl=None,
                    place="the report", origin="command", ref=refs[key],
                )  # fmt: skip
        if "torch" in values:
            self._packages.setdefault("torch", self.said["torch"])
        for package, (version, number, text) in self._packages.items():
            yield Package(file, "pip", package, version, facts.evidence(file, number, text))
        if "available" in values:
            can = int(values["available"] in ("True", "CUDA"))
            words = {"available": can, "gpus": len(self._gpus), "built": int(built not in (None, "none"))}
            _, number, text = self.said["available"]
            yield Message(
                kind="torch-gpus", level=None, host=self._host, rank=None, pid=None, source=None, text=text,
                fields=json.dumps(words), n=1, last_line=number, stamp=None, ref=refs["available"],
            )  # fmt: skip
