"""Hosts of a job that differ from nearly all others in what NCCL prints: networks, cards, interfaces, plug-ins, GPUs, links.

Versions and settings have tables of their own (`version_mix`, `env_difference`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Gdr, HostOdd, Interface, Link, NetDevice, Network, Plugin

_MOST = 0.7  # of the hosts that must agree, so that another one is odd
_FEWEST = 3  # hosts that must show something

# subject -> query for (host, value, ref); the values of one host are joined in order.
_SHOWN = {
    "network": "SELECT DISTINCT host, name, min(ref) FROM network GROUP BY host, name",
    "cards": "SELECT host, count(DISTINCT name || ':' || coalesce(port, 1)) || ' x ' || coalesce(link_layer, 'card'), min(ref)"
    " FROM net_device WHERE name NOT LIKE '%\\_an%' ESCAPE '\\' GROUP BY host, link_layer",
    "interface": "SELECT host, name, min(ref) FROM interface WHERE purpose = 'bootstrap' AND coalesce(position, 0) = 0 GROUP BY host, name",
    "plugin": "SELECT host, coalesce(name, 'NET plug-in') || ' ' || outcome, min(ref) FROM plugin"
    " WHERE kind = 'NET' AND outcome IN ('loaded', 'failed', 'rejected', 'missing') GROUP BY 1, 2",
    "gpus": "SELECT host, count(DISTINCT bus_id) || '', min(ref) FROM communicator WHERE length(bus_id) > 2"
    " AND nranks = (SELECT max(nranks) FROM communicator) GROUP BY host",
    "inside": "SELECT src_host, transport || coalesce('/' || method, ''), min(ref) FROM link WHERE same_host = 1"
    " AND transport IN ('P2P', 'SHM') GROUP BY 1, 2",
    "gpudirect": "SELECT host, iif(max(enabled), 'on', 'off'), min(ref) FROM gdr GROUP BY host",
}  # fmt: skip


@derivation(
    fills=[HostOdd], needs=[Communicator, Network], reads=[Gdr, Interface, Link, NetDevice, Plugin]
)  # fmt: skip
def host_differences(facts: Facts) -> Iterator[HostOdd]:
    """One row for each host and subject in which it is alone, or one of few."""
    for subject, query in _SHOWN.items():
        values: dict[str, set[str]] = defaultdict(set)
        refs: dict[str, int] = {}
        for host, value, ref in facts.query(query):
            if host is not None and value is not None:
                values[host].add(value)
                refs[host] = min(ref, refs.get(host, ref))
        yield from _odd(subject, {host: ", ".join(sorted(found)) for host, found in values.items()}, refs)


def _odd(subject: str, value_of: dict[str, str], refs: dict[str, int]) -> Iterator[HostOdd]:
    if len(value_of) < _FEWEST:
        return
    common, same = min(Counter(value_of.values()).items(), key=lambda item: (-item[1], item[0]))
    if same < _MOST * len(value_of) and not (len(value_of) == _FEWEST and same == _FEWEST - 1):
        return
    shown = min(refs[host] for host, value in value_of.items() if value == common)
    for host, value in sorted(value_of.items()):
        if value != common:
            yield HostOdd(
                host=host, subject=subject, value=value, common=common, same=same, hosts=len(value_of), ref=refs[host],
                common_ref=shown,
            )  # fmt: skip
