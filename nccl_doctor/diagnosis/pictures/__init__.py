"""The pictures of a report: each module makes one kind from facts, where these exist."""

from collections.abc import Callable, Iterable, Sequence

from nccl_doctor.diagnosis.picture import Picture, Shown
from nccl_doctor.diagnosis.pictures import (
    bandwidth,
    exposed,
    gpu_use,
    horovod,
    job_map,
    pairs,
    scaling,
    steps,
    time_line,
    transports,
)
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules.schema import Rule

KINDS: tuple[Callable[[Facts, Sequence[Finding]], Iterable[Shown]], ...] = (
    job_map.pictures,
    time_line.pictures,
    transports.pictures,
    steps.pictures,
    gpu_use.pictures,
    pairs.pictures,
    bandwidth.pictures,
    horovod.pictures,
    exposed.pictures,
    scaling.pictures,
)


def draw(facts: Facts, findings: Sequence[Finding], rules: Iterable[Rule]) -> list[Picture]:
    """Every picture that these facts can give, in the order in which a person asks."""
    needs = {rule.id: frozenset(rule.needs) for rule in rules}
    shown = [one for kind in KINDS for one in kind(facts, findings)]
    return [
        Picture(one, tuple(at for at, f in enumerate(findings, 1) if needs.get(f.rule, frozenset()) & {*one.tables}))
        for one in shown
    ]
