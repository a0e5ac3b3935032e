"""Output of gpu-burn: the rate, the errors and the temperature of each GPU under full load, and which of them are faulty."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.line_forms import FormMemo
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb"proc'd: |Tested \d{1,4} GPUs:")
_PROGRESS = re.compile(r"proc'd: ([^e]{1,4000})errors: ([^t]{1,4000})temps: (.{1,4000})$")
_GFLOPS = re.compile(r"(-?\d{1,15}) \((\d{1,12}) Gflop/s\)")
_VERDICT = re.compile(r"\s*GPU (\d{1,4}): (OK|FAULTY)\b")
_KEEP = 40
_MOST = 10_000


class _Line(NamedTuple):
    """A line that says something."""

    drawn: int | None = None  # where its progress begins; the same line was drawn many times
    gpu: slice = slice(0)  # where the number of the GPU is, of which
    verdict: str | None = None  # this is said


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the last line of progress of each host, and the verdict at the end.

    Source: gpu-burn `gpu_burn-drv.cu`; GPUs are separated by ` - `, and a carriage return draws the line anew::

        34.2%  proc'd: 1026 (41800 Gflop/s) - 1024 (22310 Gflop/s)   errors: 0 - 17 (WARNING!)  temps: 61 C - 87 C
        Tested 2 GPUs:
                GPU 0: OK
                GPU 1: FAULTY
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    last: dict[str | None, tuple[int, str]] = {}
    verdicts: dict[tuple[str | None, int], tuple[str, int, str]] = {}
    forms = FormMemo(_parse_line)
    used = 0
    note = None
    for first, label, texts in sections.batches():
        if len(last) + len(verdicts) >= _MOST:
            note = f"holds more than {_MOST:,} GPUs; the others were left out"
            break
        taken = drawn = None  # the last line that says something, and the last one of progress
        for at, line in enumerate(forms.of_all(texts)):
            if line is None:
                continue
            used, taken = used + 1, at
            if line.drawn is not None:
                drawn = at, line.drawn
            elif line.verdict is not None:
                verdicts[label.host, int(texts[at][line.gpu])] = line.verdict, first + at, texts[at]
        if drawn is not None:
            last[label.host] = first + drawn[0], texts[drawn[0]][drawn[1] :]
        if taken is not None:
            sections.used(first + taken)
    rows: list[ActiveTest] = []
    for host, (number, text) in last.items():
        rows += _rates(facts, name, host, number, text)
    for (host, gpu), (said, number, text) in verdicts.items():
        outcome = "pass" if said == "OK" else "fail"
        ref = facts.evidence(name, number, text.strip())
        rows.append(ActiveTest(host, "gpu-burn", "gpu-burn verdict", str(gpu), outcome, None, None, said, ref))
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _parse_line(text: str) -> _Line | None:
    """What a line says; None for another line."""
    drawn = max(text.rfind("proc'd: "), 0)
    if _PROGRESS.match(text, drawn) is not None:
        return _Line(drawn)
    if (verdict := _VERDICT.match(text)) is not None:
        return _Line(gpu=slice(*verdict.span(1)), verdict=verdict[2])
    return _Line() if "Tested " in text else None


def _rates(facts: Facts, file: str, host: str | None, number: int, text: str) -> list[ActiveTest]:
    progress = _PROGRESS.match(text)
    if progress is None:
        return []
    errors, temperatures = (part.split(" - ") for part in (progress[2], progress[3]))
    ref = facts.evidence(file, number, text.strip())
    rows = []
    for gpu, part in enumerate(progress[1].split(" - ")):
        if (rate := _GFLOPS.search(part)) is None:
            continue
        wrong = errors[gpu].split()[0] if gpu < len(errors) and errors[gpu].split() else "0"
        died = rate[1].startswith("-") or "DIED" in (errors[gpu] if gpu < len(errors) else "")
        said = f"{wrong} errors, {temperatures[gpu].strip() if gpu < len(temperatures) else '-'}"
        outcome = "fail" if died or wrong not in ("0", "-") else "other"
        rows.append(ActiveTest(host, "gpu-burn", "gpu-burn", str(gpu), outcome, float(rate[2]), "Gflop/s", said, ref))
    return rows
