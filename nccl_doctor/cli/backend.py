"""What commands call of the lower layers: imported on the first call; problems go to stderr or become UsageProblem."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.app.bundle.archive import Bundle
    from nccl_doctor.diagnosis.comparison import Comparison, RunsTable
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts
    from nccl_doctor.log.readers.followed import Follower
    from nccl_doctor.rules.schema import Rule

Progress = Callable[[int, int], None] | None


def run_analysis(
    paths: Sequence[str],
    rules_dirs: tuple[Path, ...],
    config: Path | None,
    progress: Progress,
    apart: str,
    drawn: bool,
    dask: str | None = None,
    expect: Sequence[str] = (),
    resume: Path | None = None,
) -> "tuple[Report, Facts, list[str]]":
    """Returns the report, of one job or of several, the facts, and one sentence for each input that could not be read.

    `drawn` asks for pictures, `dask` names the cluster whose workers read, `expect` what nccl-tests has to reach, `resume` the
    file that says how far logs were read before.
    """
    from nccl_doctor.app import analyze, expected
    from nccl_doctor.rules.site_config import Config

    with _usage_problems():
        settings = Config.read(config) if config is not None else None
        ask = partial(analyze.analyze, paths, rules_dirs=rules_dirs, config=settings, progress=progress)
        ask = partial(ask, apart=apart, drawn=drawn, expect=expected.parse(expect))
        if resume is not None:
            from nccl_doctor.app import resume as resumption

            return resumption.analyze(resume, lambda reader: ask(read_ahead=reader))
        if dask is None:
            return ask()
        from nccl_doctor.log.readers import cluster

        with cluster.connected(dask, complain) as client:
            return ask(read_ahead=partial(cluster.ClusterReader, client, complain))


def run_following(
    paths: Sequence[str],
    rules_dirs: tuple[Path, ...],
    config: Path | None,
    apart: str,
    drawn: bool,
    show: "Callable[[Report], None]",
    enough: "Callable[[Report], bool]",
    idle: float | None,
    expect: Sequence[str] = (),
) -> "tuple[Report, Facts]":
    """Returns the last report on inputs that grow, and its facts. `show` gets each report with other findings."""
    from nccl_doctor.app import analyze, expected, follow
    from nccl_doctor.rules.site_config import Config

    told: set[str] = set()
    last: list[Facts] = []

    def look(now: Sequence[str], follower: "Follower") -> "Report":
        report, facts, problems = analyze.analyze(
            now, rules_dirs=rules_dirs, config=settings, apart=apart, drawn=drawn, read_ahead=follower, expect=wanted
        )
        last[:] = [facts]
        for problem in problems:
            if problem not in told:
                complain(problem)
        told.update(problems)
        return report

    with _usage_problems():
        settings = Config.read(config) if config is not None else None
        wanted = expected.parse(expect)
        report = follow.Following(paths, look, show, complain).run(enough, idle)
        return report, last[0]


def run_comparison(
    paths: Sequence[str],
    rules_dirs: tuple[Path, ...],
    config: Path | None,
    tolerance: float,
    by: str,
    drawn: bool,
    progress: Progress,
) -> "tuple[Comparison | RunsTable, list[str]]":
    """Returns what changed from the first run to the second, or a table of more, and one sentence for each unreadable input.

    `drawn` asks for the pictures of two runs, `by` is part of the name of the measure by which more are sorted.
    """
    from nccl_doctor.app.comparison import pair, runs
    from nccl_doctor.rules.site_config import Config

    with _usage_problems():
        settings = Config.read(config) if config is not None else None
        if len(paths) == 2:
            (before, problems), (after, more) = (
                pair.read(path, rules_dirs, settings, progress, drawn) for path in paths
            )
            return pair.compare(before, after, tolerance), list(dict.fromkeys([*problems, *more]))
        answers, problems = [], []
        for path in paths:
            run, more = pair.read(path, rules_dirs, settings, progress)
            answers.append(runs.ask(run))
            problems += more
        return runs.table(answers, tolerance, by), list(dict.fromkeys(problems))


def make_bundle(paths: Sequence[str]) -> "Bundle":
    """Returns redacted copies of these inputs, not written yet."""
    try:
        from nccl_doctor.app.bundle.archive import Bundle
    except ImportError:
        raise UsageProblem("bundle needs the patterns of detect-secrets: pip install 'nccl-doctor[bundle]'") from None

    with _usage_problems():
        return Bundle(paths)


def load_facts(paths: Sequence[str]) -> "Facts":
    """Returns the facts of these inputs; reports unreadable inputs on stderr."""
    from nccl_doctor.app import analyze

    with _usage_problems():
        facts, problems = analyze.read_facts(paths)
    for problem in problems:
        complain(problem)
    return facts


def collect_node_facts() -> "Facts":
    """Returns the facts of this node, as `preflight` collects them."""
    from nccl_doctor.app import preflight
    from nccl_doctor.node.runtime.root import Root

    return preflight.preflight(Root())[1]


def load_rules(folders: tuple[Path, ...]) -> "tuple[Rule, ...]":
    """Returns the shipped rules and those of these folders; reports unusable files on stderr."""
    from nccl_doctor.rules import loader

    found = loader.load_usable(folders)
    for problem in found.problems:
        complain(f"rule left out: {problem}")
    return found.rules


def load_rule(file: Path) -> "Rule":
    """Returns the rule in this file. Raises UsageProblem when it is not a valid rule."""
    from nccl_doctor.rules import loader

    with _usage_problems():
        return loader.read_rule(file)


@contextmanager
def _usage_problems() -> Iterator[None]:
    """Turn problems of rules and queries into UsageProblem."""
    from nccl_doctor.facts.guard import QueryProblem
    from nccl_doctor.rules.schema import RuleProblem

    try:
        yield
    except (QueryProblem, RuleProblem) as problem:
        raise UsageProblem(str(problem)) from None
