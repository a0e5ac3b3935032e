"""Settings in which ranks differ, and settings that are misspelt, obsolete or harmful."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.sql_functions import version_number
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env, EnvDifference, EnvLint, Job, NcclLibrary


@derivation(fills=[EnvLint], needs=[Env], reads=[Job, NcclLibrary])
def doubtful_settings(facts: Facts) -> Iterator[EnvLint]:
    """Settings judged by the NCCL release of the job, on a node without a job by the library that a task would load."""
    # a torn line may have lost its value
    settings = facts.query("SELECT host, rank, name, value, ref FROM env WHERE value IS NOT NULL")
    if not settings:
        return
    from nccl_doctor.knowledge import env_lint  # a prologue mostly has no settings to judge

    of_job = facts.query("SELECT nccl_number FROM job")[0][0]
    groups = [(of_job, settings)] if of_job is not None else _by_release(facts, settings)
    confirmed = facts.query(
        "SELECT DISTINCT v.name FROM env v JOIN evidence e ON e.id = v.ref"
        " WHERE e.text LIKE '% INFO % set by environment to %' AND instr(e.text, v.name || ' set by environment to ') > 0"
    )
    for release, group in groups:
        yield from (EnvLint(*row) for row in env_lint.lint_settings(group, release, {name for (name,) in confirmed}))


def _by_release(facts: Facts, settings: list[Any]) -> list[tuple[int | None, list[Any]]]:
    """(release of the NCCL library that a task on the host would load, settings of the host): 22105 for 2.21.5."""
    versions = dict(facts.query("SELECT host, version FROM nccl_library WHERE place = 1"))
    groups: dict[int | None, list[Any]] = defaultdict(list)
    for setting in settings:
        groups[version_number(versions.get(setting[0]))].append(setting)
    return list(groups.items())


@derivation(fills=[EnvDifference], reads=[Env])
def setting_differences(facts: Facts) -> Iterator[EnvDifference]:
    """Settings that not all ranks share, where every rank had the chance to show them.

    Values such as a device index or a per-rank file are expected to differ and are left out.
    """
    # a torn line that lost its value says nothing
    rows = facts.query("SELECT host, pid, name, value, ref FROM env WHERE pid IS NOT NULL AND value IS NOT NULL")
    speaking = {(host, pid) for host, pid, *_ in rows}
    if len(speaking) < 2:
        return
    values: dict[str, dict[str, dict[tuple[str, int], int]]] = defaultdict(lambda: defaultdict(dict))
    for host, pid, name, value, ref in facts.query(
        "SELECT host, pid, name, value, ref FROM env WHERE pid IS NOT NULL AND value IS NOT NULL"
    ):
        values[name][value][host, pid] = ref
    for name, by_value in sorted(values.items()):
        holders = {process for group in by_value.values() for process in group}
        absent = speaking - holders
        groups = [(value, set(group), min(group.values())) for value, group in by_value.items()]
        if absent:
            groups.append((None, absent, None))  # type: ignore[arg-type]
        if len(groups) < 2:
            continue
        for value, group, ref in groups:
            hosts = " ".join(sorted({host for host, _ in group if host}))
            yield EnvDifference(name, value, len(group), len(speaking), hosts, ref)
