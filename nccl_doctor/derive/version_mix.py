"""Which components of a job have different versions on different hosts."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Library, VersionMix

# A version that is the beginning of another one of the same component comes from a torn line. A host with two versions of a
# component has processes of two programs, which says nothing about other hosts.
_ONE_A_HOST = """
WITH version AS MATERIALIZED (SELECT DISTINCT name, version FROM library)
SELECT name, host, min(version), min(ref) FROM library
WHERE host IS NOT NULL AND name || ' ' || version NOT IN (
  SELECT torn.name || ' ' || torn.version FROM version torn JOIN version whole
  ON whole.name = torn.name AND whole.version LIKE torn.version || '_%' WHERE torn.version IS NOT NULL)
GROUP BY name, host HAVING count(DISTINCT version) = 1
"""


@derivation(fills=[VersionMix], needs=[Library])
def version_mix(facts: Facts) -> Iterator[VersionMix]:
    """Hosts that differ from most others, component by component; the smaller version counts as usual in a draw."""
    stated: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for name, host, version, ref in facts.query(_ONE_A_HOST):
        stated[name][host] = version, ref
    for name, of_host in stated.items():
        counts = Counter(version for version, _ in of_host.values())
        usual, same = min(counts.items(), key=lambda item: (-item[1], item[0]))
        usual_ref = min(ref for version, ref in of_host.values() if version == usual)
        for host, (version, ref) in sorted(of_host.items()):
            if version != usual:
                yield VersionMix(host, name, version, usual, same, len(of_host), ref, usual_ref)
