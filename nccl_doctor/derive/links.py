"""What carries data between two hosts, or inside one."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Connection, Link

# The side that sends prints P2P, SHM and [send]; only [receive] is printed by the other one.
_LINKS = """
SELECT CASE direction WHEN 'receive' THEN peer_host ELSE host END AS src, CASE direction WHEN 'receive' THEN host ELSE peer_host END AS dst,
       host = peer_host, transport, method, network, gdr, sum(connections), sum(channels), nullif(count(DISTINCT device), 0), ref,
       min(rowid)
FROM connection GROUP BY src, dst, transport, method, network, gdr ORDER BY min(rowid)
"""


@derivation(fills=[Link], reads=[Connection])
def links(facts: Facts) -> Iterator[Link]:
    """Connections summed by the two hosts, transport and network."""
    for *columns, _ in facts.query(_LINKS):
        yield Link._make(columns)
