"""In what the topology files of one job differ."""

from collections import Counter
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TopoDifference, TopoFile, TopoGpu, TopoNet

_LISTS = (
    ("names of the network devices", "topo_net", "name", "dev, name"),
    ("rates of the network devices in Mb/s", "topo_net", "rate", "dev, name"),
    ("PCIe lanes of the network devices", "topo_net", "width", "dev, name"),
    ("NVLinks of the GPUs", "topo_gpu", "nvlinks", "gpu, bus"),
    ("PCIe lanes of the GPUs", "topo_gpu", "width", "gpu, bus"),
    ("paths from GPUs to the nearest network device", "topo_gpu", "nearest", "gpu, bus"),
)
_QUESTIONS = (
    ("number of GPUs", "SELECT file, CAST(gpus AS TEXT), ref FROM topo_file"),
    ("number of network devices", "SELECT file, CAST(nets AS TEXT), ref FROM topo_file"),
    *(
        (
            what,
            f"SELECT file, group_concat({column}, ' '), min(ref) FROM (SELECT * FROM {table} ORDER BY {order}) GROUP BY file",
        )
        for what, table, column, order in _LISTS
    ),
)


@derivation(fills=[TopoDifference], needs=[TopoFile], reads=[TopoNet, TopoGpu])
def topology_differences(facts: Facts) -> Iterator[TopoDifference]:
    """Every topology file that is not like most others, question by question."""
    for what, query in _QUESTIONS:
        found = [(file, value or "none", ref) for file, value, ref in facts.query(query)]
        counts = Counter(value for _, value, _ in found)
        if len(counts) < 2:
            continue
        usual, usual_file = next((value, file) for file, value, _ in found if value == counts.most_common(1)[0][0])
        for file, value, ref in found:
            if value != usual:
                yield TopoDifference(what, file, value, usual_file, usual, ref)
