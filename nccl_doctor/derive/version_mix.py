"""Which components of a job have different versions on different hosts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Library, VersionMix

_STATED = "SELECT name, host, version, min(ref) FROM library WHERE version IS NOT NULL GROUP BY name, host, version"


@derivation(fills=[VersionMix], needs=[Library])
def version_mix(facts: Facts) -> Iterator[VersionMix]:
    """Hosts that differ from most others, component by component; the smaller version counts as usual in a draw."""
    stated: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    rows = facts.query(_STATED)
    torn = _torn({(name, version) for name, _, version, _ in rows})
    for name, host, version, ref in rows:
        if host is not None and (name, version) not in torn:
            stated[name][host].append((version, ref))
    for name, versions in stated.items():
        # A host with two versions of a component has processes of two programs, which says nothing about other hosts.
        of_host = {host: found[0] for host, found in versions.items() if len(found) == 1}
        if not of_host:
            continue
        counts = Counter(version for version, _ in of_host.values())
        usual, same = min(counts.items(), key=lambda item: (-item[1], item[0]))
        usual_ref = min(ref for version, ref in of_host.values() if version == usual)
        for host, (version, ref) in sorted(of_host.items()):
            if version != usual:
                yield VersionMix(host, name, version, usual, same, len(of_host), ref, usual_ref)


def _torn(stated: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Versions of components that are the beginning of another one of the same component: they come from torn lines."""
    return {
        (name, version)
        for (name, version), (other, longer) in pairwise(sorted(stated))
        if name == other and longer.startswith(version)
    }
