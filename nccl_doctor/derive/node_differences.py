"""Nodes that were asked together: who differs from the others in what all nodes of a job should share."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Collection,
    Env,
    KernelSetting,
    Mount,
    NcclLibrary,
    NodeDriver,
    NodeGpu,
    NodeOdd,
    PluginFile,
    RdmaDevice,
    RdmaGid,
    RoceQos,
    SoftwareVersion,
)  # fmt: skip

# subject -> query for (host, name, value, ref); the values of one host and name are joined.
TRAITS = {
    "driver": "SELECT host, 'driver', driver, ref FROM node_driver WHERE driver IS NOT NULL GROUP BY host",
    "kernel": "SELECT host, 'kernel', value, ref FROM kernel_setting WHERE name = 'release'",
    "gpus": "SELECT host, 'gpus', model || ' x ' || count(*), min(ref) FROM node_gpu WHERE model IS NOT NULL GROUP BY host, model",
    "nccl": "SELECT host, 'nccl', version, ref FROM nccl_library WHERE place = 1 AND version IS NOT NULL",
    "framework": "SELECT host, name, version, ref FROM software_version"
    " WHERE name IN ('torch', 'tensorflow', 'horovod') AND origin = 'env' AND version IS NOT NULL",
    "firmware": "SELECT host, coalesce(board, model, 'card'), firmware, min(ref) FROM rdma_device"
    " WHERE rail = 1 AND firmware IS NOT NULL GROUP BY 1, 2, 3",
    "rails": "SELECT host, 'rails', kind || ' x ' || count(*), min(ref) FROM rdma_device WHERE rail = 1 GROUP BY host, kind",
    "gid": "SELECT DISTINCT host, 'gid', number, min(ref) FROM rdma_gid WHERE kind = 'RoCE v2' AND scope = 'ipv4' GROUP BY host, number",
    "mtu": "SELECT host, 'mtu', mtu, min(ref) FROM rdma_device WHERE rail = 1 AND kind = 'roce' AND mtu IS NOT NULL GROUP BY host, mtu",
    "roce": "SELECT q.host, 'roce', q.marks, min(q.ref) FROM roce_qos q"
    " JOIN rdma_device d ON d.host IS q.host AND d.device = q.device AND d.rail = 1 GROUP BY q.host, q.marks",
    "plugin": "SELECT host, 'plugin', path, ref FROM plugin_file WHERE problem = '' AND found_by IS NOT NULL",
    "mount": "SELECT host, path, fstype || ' ' || source, ref FROM mount WHERE kind = 'shared'",
    "setting": "SELECT host, name, value, ref FROM env WHERE name LIKE 'NCCL%' OR name LIKE 'FI%' OR name LIKE 'UCX%'",
}  # fmt: skip
LACKING = ("mount", "setting", "plugin", "rails", "roce")  # subjects in which having nothing counts as a value


@derivation(
    fills=[NodeOdd],
    needs=[Collection],
    reads=[
        NodeDriver, KernelSetting, NodeGpu, NcclLibrary, SoftwareVersion, RdmaDevice, RdmaGid, RoceQos, PluginFile, Mount, Env,
    ],
)  # fmt: skip
def node_differences(facts: Facts) -> Rows:
    """Nodes that differ from most others; None where fewer than two nodes were asked."""
    hosts = {host for (host,) in facts.query("SELECT DISTINCT host FROM collection WHERE source <> 'node'") if host}
    return _differences(facts, hosts) if len(hosts) > 1 else None


def _differences(facts: Facts, hosts: set[str]) -> Iterator[NodeOdd]:
    first: dict[str, int] = dict(facts.query("SELECT host, min(ref) FROM collection GROUP BY host"))
    for subject, query in TRAITS.items():
        values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        refs: dict[tuple[str, str], int] = {}
        for host, name, value, ref in facts.query(query):
            if host in hosts and value is not None:
                values[name][host].add(str(value))
                refs.setdefault((name, host), ref)
        for name, of_host in values.items():
            value_of = {host: ", ".join(sorted(found)) for host, found in of_host.items()}
            if subject in LACKING:
                value_of |= dict.fromkeys(hosts - value_of.keys(), "none")
            for host, value, common, same in odd(value_of):
                ref = refs.get((name, host)) or first[host]
                yield NodeOdd(host, subject, name, value, common, same, len(value_of), ref)


def odd(value_of: dict[str, str]) -> list[tuple[str, str, str, int]]:
    """(host, its value, the common value, how many have that) of each host that differs.

    Without a majority nobody can say who is right: then all but the holders of the most frequent value are named.
    """
    counts = Counter(value_of.values())
    if len(counts) < 2:
        return []
    common, same = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(host, value, common, same) for host, value in sorted(value_of.items()) if value != common]
