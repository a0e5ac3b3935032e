"""Tables made from what was read of a node."""

from nccl_doctor.facts.store import Facts, version_number
from nccl_doctor.facts.tables import EnvLint


def derive_node(facts: Facts) -> None:
    """Judge the settings of the task by the release of the NCCL library that it would load."""
    looked = facts.looked()
    if "env" not in looked or "env_lint" in looked:
        return
    hosts = facts.own("SELECT DISTINCT host FROM env")
    if hosts:
        from nccl_doctor.knowledge import env_lint  # a prologue mostly has no settings to judge
    for (host,) in hosts:
        versions = facts.own("SELECT version FROM nccl_library WHERE host IS ? AND place = 1", (host,))
        number = version_number(versions[0][0]) if versions else None
        settings = facts.own("SELECT host, rank, name, value, ref FROM env WHERE host IS ?", (host,))
        facts.add(EnvLint(*row) for row in env_lint.rows(settings, number))
    facts.look("env_lint")
