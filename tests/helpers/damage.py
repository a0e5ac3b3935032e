"""What happens to logs on their way: lost, torn, doubled, moved and mixed lines, split and cut files."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Finding, Report

Files = list[list[bytes]]  # the lines of each file that is left
Kept = Collection[int]  # indices of lines that survive

WINDOW = 8  # places by which a line moves
FOREIGN = (
    b"step 1200/5000 | loss 2.31 | lr 3.0e-04 | grad_norm 0.41 | 3412.1 tok/s",
    b"Saving checkpoint to /scratch/run7/checkpoint-1200 (14.2 GB, 31.2 s)",
    b"INFO:root:Reducer buckets have been rebuilt in this iteration.",
    b"wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin",
)


def dropped(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """A fifth of the lines is lost."""
    return [[line for at, line in enumerate(lines) if at in kept or rng.random() >= 0.2]]


def torn(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """One line of ten is broken in two, one of ten is glued to the line before it."""
    result: list[bytes] = []
    glueable = False
    for at, line in enumerate(lines):
        fate = rng.random()
        if at in kept:
            result.append(line)
        elif fate < 0.1 and len(line) > 1:
            place = rng.randrange(1, len(line))
            result += [line[:place], line[place:]]
        elif fate > 0.9 and glueable:
            result[-1] += line
        else:
            result.append(line)
        glueable = at not in kept
    return [result]


def doubled(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """One line of ten comes twice."""
    return [[copy for line in lines for copy in [line] * (1 + (rng.random() < 0.1))]]


def shuffled(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """Each line comes up to `WINDOW` places earlier or later."""
    moved = sorted(range(len(lines)), key=lambda at: at + rng.random() * WINDOW)
    return [[lines[at] for at in moved]]


def interleaved(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """Another program writes into the same file."""
    return [[out for line in lines for out in ([rng.choice(FOREIGN), line] if rng.random() < 0.3 else [line])]]


def split(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """The file is cut into three at line ends."""
    first, second = sorted(rng.randint(0, len(lines)) for _ in range(2))
    return [list(lines[:first]), list(lines[first:second]), list(lines[second:])]


def cut(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """The end of the file is lost, in the middle of a line."""
    last = rng.randint(max(kept, default=-1) + 1, len(lines))
    rest = lines[last] if last < len(lines) else b""
    return [[*lines[:last], rest[: rng.randint(0, len(rest))]]]


def labelled(lines: Sequence[bytes], kept: Kept, rng: Random) -> Files:
    """A launcher has put the number of a task in front."""
    return [[b"0: " + line for line in lines]]


DAMAGES: dict[str, Callable[[Sequence[bytes], Kept, Random], Files]] = {
    one.__name__: one for one in (dropped, torn, doubled, shuffled, interleaved, split, cut, labelled)
}


def first(report: Report) -> Finding | None:
    """What the report says first: an alarm, or the first note where there is none."""
    alarms = [finding for finding in report.findings if finding.severity != "note"]
    return next(iter(alarms or report.findings), None)


def evidence(finding: Finding | None) -> set[int]:
    """Indices of the lines that prove a finding in a log of one file; a message of several lines is proven by all of them."""
    places = finding.evidence if finding is not None else ()
    return {place.line - 1 + more for place in places for more in range(place.text.count("\n") + 1)}


def report_on(files: Files, folder: Path) -> Report:
    """The report on these files; their names keep their order."""
    folder.mkdir()
    paths = [folder / f"job.{number}.log" for number in range(len(files))]
    for path, lines in zip(paths, files, strict=True):
        path.write_bytes(b"\n".join(lines) + b"\n" if lines else b"")
    return analyze.analyze([str(path) for path in paths])[0]
