"""The engine as commands call it: loaded on the first call, its problems told on stderr or turned into UsageProblem."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.comparison import Comparison
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts
    from nccl_doctor.rules.schema import Rule

Progress = Callable[[int, int], None] | None


def analyzed(
    paths: Sequence[str], rules_dirs: tuple[Path, ...], config: Path | None, progress: Progress
) -> "tuple[Report, Facts, list[str]]":
    """The report and facts of these inputs, and what could not be read."""
    from nccl_doctor.app import analyze
    from nccl_doctor.rules.site_config import Config

    with _one_line():
        settings = Config.read(config) if config is not None else None
        return analyze.analyze(paths, rules_dirs=rules_dirs, config=settings, progress=progress)


def compared(
    paths: tuple[str, str], rules_dirs: tuple[Path, ...], config: Path | None, tolerance: float, progress: Progress
) -> "tuple[Comparison, list[str]]":
    """What changed from the first of two runs to the second, and what could not be read."""
    from nccl_doctor.app import compare
    from nccl_doctor.rules.site_config import Config

    with _one_line():
        settings = Config.read(config) if config is not None else None
        (before, problems), (after, more) = (compare.read(path, rules_dirs, settings, progress) for path in paths)
        return compare.compare(before, after, tolerance), list(dict.fromkeys([*problems, *more]))


def facts_of(paths: Sequence[str]) -> "Facts":
    """The facts of these inputs; what could not be read is told on stderr."""
    from nccl_doctor.app import analyze

    with _one_line():
        facts, problems = analyze.read(paths)
    for problem in problems:
        complain(problem)
    return facts


def facts_of_node() -> "Facts":
    """The facts of the node that this runs on."""
    from nccl_doctor.app import preflight
    from nccl_doctor.node.runtime.root import Root

    return preflight.preflight(Root())[1]


def rules_of(folders: tuple[Path, ...]) -> "tuple[Rule, ...]":
    """The shipped rules and those of these folders; a file that cannot be used is told on stderr."""
    from nccl_doctor.rules import loader

    found = loader.load_usable(folders)
    for problem in found.problems:
        complain(f"rule left out: {problem}")
    return found.rules


def rule_of(file: Path) -> "Rule":
    """The rule in this file."""
    from nccl_doctor.rules import loader

    with _one_line():
        return loader.read_rule(file)


@contextmanager
def _one_line() -> Iterator[None]:
    from nccl_doctor.facts.store import QueryProblem
    from nccl_doctor.rules.schema import RuleProblem

    try:
        yield
    except (QueryProblem, RuleProblem) as problem:
        raise UsageProblem(str(problem)) from None
