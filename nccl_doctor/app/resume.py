"""`analyze --resume`: reads what was appended to logs since the facts in a file were saved, and saves them there again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nccl_doctor.common import interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import reading_points
from nccl_doctor.facts.saved import Unreadable
from nccl_doctor.facts.schema import APPLICATION_ID
from nccl_doctor.facts.store import Facts
from nccl_doctor.log.readers import resumed

Outcome = tuple[Report, Facts, list[str]]


def analyze(base: Path, ask: Callable[[resumed.ResumedReader], Outcome]) -> Outcome:
    """What `ask` returns, which reads with the given reader. Keeps in `base` how far it read, unless it was interrupted.

    Raises UsageProblem where `base` is a file of another kind or cannot be written.
    """
    reader = resumed.reader()
    try:
        points, reason = reading_points.load(base, APPLICATION_ID, reader)
    except Unreadable as problem:
        raise UsageProblem(f"{base} {problem}") from None
    read_ahead = resumed.ResumedReader(points, reason)
    report, facts, problems = ask(read_ahead)
    if not interruption.requested():
        try:
            facts.save(base, lambda part: reading_points.write(part, reader, read_ahead.points()))
        except OSError as error:
            raise UsageProblem(f"cannot write {base}: {error.strerror}") from None
        except Exception as error:  # of SQLite
            raise UsageProblem(f"cannot write {base}: {error}") from None
    return replace(report, resumed=read_ahead.notes()), facts, problems
