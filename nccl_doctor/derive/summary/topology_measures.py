"""The numbers of topology and graph files of NCCL: links of GPUs, rates of network cards, and what a search found."""

_GRAPHS = ("ring", "tree", "collnet chain", "NVLS", "collnet direct")  # by their number (src/graph/search.cc)
_GRAPH = (
    "CASE graph "
    + " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(_GRAPHS))
    + " ELSE 'graph ' || graph END"
)
QUERIES = (
    f"SELECT 'channels', channels, 'channels', 'run', {_GRAPH}, ref FROM topo_graph WHERE channels > 0 LIMIT 200",
    *(
        f"SELECT 'planned_busbw_{where}', channels * speed_{column}, 'GB/s', 'run', {_GRAPH}, ref FROM topo_graph"
        f" WHERE channels > 0 AND speed_{column} > 0 LIMIT 200"
        for where, column in (("inside", "intra"), ("between", "inter"))
    ),
    "SELECT 'nvlinks', nvlinks, 'links', 'gpu', file || ' GPU ' || coalesce(gpu, bus, ''), ref FROM topo_gpu"
    " WHERE nvlinks > 0 LIMIT 2000",
    "SELECT 'network_rate', rate / 1000.0, 'Gbit/s', 'link', file || ' ' || coalesce(name, bus, dev, ''), ref FROM topo_net"
    " WHERE rate > 0 LIMIT 2000",
)
"""Each yields the columns of `measure` in their order. A graph's bandwidth is that of all its channels, inside a node and between nodes."""
