"""Lines of the job's communicator: Init START, topology, graph, COMPLETE, destroy (NCCL src/init.cc)."""

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.graph import Ring, Trees
from nccl_doctor.simulate.nccl_format import info


def _call(v: tuple[int, int, int], framework: str) -> str:
    """Returns the name of the API call in the Init lines."""
    if v < (2, 21):
        return ""
    if v < (2, 23) or framework == "horovod":
        return "ncclCommInitRank "
    return "ncclCommInitRankConfig "


def _comm(cluster: Cluster, rank: Rank) -> str:
    v = rank.host.version
    total = len(cluster.ranks)
    text = f"comm 0x{rank.comm:x} rank {rank.number} nranks {total} cudaDev {rank.device}"
    if v < (2, 5):
        return f"{text} nvmlDev {rank.nvml}"
    if v >= (2, 18, 3):
        text += f" nvmlDev {rank.nvml}"
    text += f" busId {rank.bus:x}"
    return f"{text} commId 0x{cluster.comm_id:x}" if v >= (2, 16) else text


def start(cluster: Cluster, rank: Rank) -> list[str]:
    """Returns the lines of Init START and the rendezvous."""
    v = rank.host.version
    lines = []
    if v >= (2, 18, 3):
        head = f"[Rank {rank.number}] " if v >= (2, 29) else ""
        lines.append(info(rank, f"{head}{_call(v, cluster.spec.framework)}{_comm(cluster, rank)} - Init START"))
    if v >= (2, 24) and rank.local == 0:
        lines.append(info(rank, "RAS client listening socket at ::1<28028>"))
    if v >= (2, 23) and rank.host.rendezvous:
        rng = cluster.rng
        ring = rng.uniform(0.0005, 0.04)
        send, recv = rng.uniform(0.0002, 0.002), rng.uniform(0.0005, 0.06)
        total = ring + send + recv + 0.00003
        lines.append(
            info(
                rank,
                f"Bootstrap timings total {total:.6f} (create 0.000026, send {send:.6f}, recv {recv:.6f}, "
                f"ring {ring:.6f}, delay 0.000000)",
            )
        )
    return lines


def graph(cluster: Cluster, rank: Rank, rings: list[Ring], trees: Trees) -> list[str]:
    """Returns the lines about topology, rings and trees."""
    v = rank.host.version
    lines = _placement(cluster, rank)
    if rank.number == 0:
        lines += [_ring_list(v, ring, len(rings)) for ring in rings]
    if v < (2, 5):
        size = "disabled" if cluster.one_host else "enabled up to size 110000"
        lines.append(f"Using 256 threads, Min Comp Cap 7, Trees {size}")
    lines.append("Trees" + "".join(_tree(v, trees, ring, rank) for ring in rings))
    if v >= (2, 16):
        lines.append(f"P2P Chunksize set to {524288 if cluster.one_host else 131072}")
    if v >= (2, 26):
        lines.append("PROFILER/Plugin: Could not find: libnccl-profiler.so" + (". " if v < (2, 28) else ""))
    if v >= (2, 24):
        lines.append(_p2p_type(v, rank.host.p2p))
    return [info(rank, line) for line in lines]


def _placement(cluster: Cluster, rank: Rank) -> list[str]:
    """The texts about CPU affinity, NVLink SHARP and the place of the rank in the communicator."""
    v, gpus = rank.host.version, len(rank.host.ranks)
    lines = []
    if v < (2, 28):
        mask = "ffffffff,ffffffff" if rank.local * 2 < gpus else "ffffffff,ffffffff,00000000,00000000"
        lines.append(f"Setting affinity for GPU {rank.local} to {mask}")
    if v >= (2, 17) and cluster.gpu == "H100":
        extra = " (NVLS_NCHANNELS 16)" if (2, 27) <= v < (2, 30) else ""
        lines.append(f"NVLS multicast support is available on dev {rank.local}{extra}")
    if v >= (2, 20):
        lines.append(
            f"comm 0x{rank.comm:x} rank {rank.number} nRanks {len(cluster.ranks)} nNodes {len(cluster.hosts)} "
            f"localRanks {gpus} localRank {rank.local} MNNVL 0"
        )
    if (2, 6) <= v < (2, 8):
        lines.append("threadThresholds 8/8/64 | 512/8/64 | 8/8/64")
    return lines


def _p2p_type(v: tuple[int, int, int], p2p: bool) -> str:
    if v < (2, 27):
        return f"Check P2P Type intraNodeP2pSupport {int(p2p)} directMode 0"
    return f"Check P2P Type isAllDirectP2p {int(p2p)} directMode 0" + (
        f" isAllCudaP2p {int(p2p)}" if v >= (2, 28) else ""
    )


def _ring_list(v: tuple[int, int, int], ring: Ring, count: int) -> str:
    head = f"Channel {ring.channel:02d} :" if v < (2, 5) else f"Channel {ring.channel:02d}/{count:02d} :"
    if v < (2, 23):
        numbers = []
        for number in ring.order():
            numbers.append(f"{number:4d}")
            if len(numbers) == 20:
                break
        return f"{head} " + "".join(numbers)
    text = ""
    for number in ring.order():
        text += f" {number}"
        if len(text) > 120:
            return head + text + " ..."
    return head + text


def _tree(v: tuple[int, int, int], trees: Trees, ring: Ring, rank: Rank) -> str:
    up, downs = trees.links(ring, rank)
    parent = up.number if up else -1
    below = [down.number for down in downs] + [-1] * (3 - len(downs))
    down_text = f"{below[0]}/{below[1]}/{below[2]}"
    if v < (2, 5):
        return f" [{ring.channel}] {parent}->{rank.number}->{down_text}"
    text = f" [{ring.channel}] {down_text}->{rank.number}->{parent}"
    return f"{text}|{parent}->{rank.number}->{down_text}" if v < (2, 8) else text


def complete(cluster: Cluster, rank: Rank, count: int) -> list[str]:
    """Returns the lines about tuning limits, channel counts, Init COMPLETE and its timings."""
    v = rank.host.version
    total = len(cluster.ranks)
    lines = []
    if v >= (2, 23):
        core = rank.local * 12 + 5
        for name, offset in (("Proxy Service", 0), ("Proxy Service UDS", 1)):
            lines.append(info(rank, f"[{name}] Device {rank.local} CPU core {core + offset}", "proxy"))
    texts = []
    if (2, 8) <= v < (2, 14):
        texts.append(f"threadThresholds 8/8/64 | {8 * total}/8/64 | 8/8/512")
    elif v >= (2, 14):
        texts.append(f"threadThresholds 8/8/64 | {8 * total}/8/64 | 512 | 512")
    if (2, 7) <= v < (2, 17):
        texts.append(
            f"{count} coll channels, {count} p2p channels, {1 if len(cluster.hosts) > 1 else count} p2p channels per peer"
        )
    elif (2, 17) <= v < (2, 20):
        texts.append(
            f"{count} coll channels, {_nvls(cluster)} nvls channels, {count} p2p channels, 1 p2p channels per peer"
        )
    elif v >= (2, 20):
        texts.append(
            f"{count} coll channels, {0 if v < (2, 27) else count} collnet channels, {_nvls(cluster)} nvls channels, "
            f"{count} p2p channels, 1 p2p channels per peer"
        )
    if (2, 22) <= v < (2, 24):
        texts.append("CC Off, Multi-GPU CC Off, workFifoBytes 1048576")
    elif v >= (2, 24):
        texts.append("CC Off, workFifoBytes 1048576")
    texts += _tuner(v)
    texts.append(f"{_call(v, cluster.spec.framework)}{_comm(cluster, rank)} - Init COMPLETE")
    if v >= (2, 22):
        texts.append(_timings(cluster, rank))
    return lines + [info(rank, text) for text in texts]


def _nvls(cluster: Cluster) -> int:
    return 16 if cluster.gpu == "H100" and cluster.spec.gpus > 1 else 0


def _tuner(v: tuple[int, int, int]) -> list[str]:
    name = "libnccl-tuner.so"
    if v < (2, 21):
        return []
    if v < (2, 22):
        error = "cannot open shared object file: No such file or directory"
        return [
            f"TUNER/Plugin: Plugin load returned 2 : {name}: {error} : when loading {name}",
            "TUNER/Plugin: Using internal tuner plugin.",
        ]
    if v < (2, 26):
        return [f"TUNER/Plugin: Could not find: {name}. Using internal tuner plugin."]
    return [
        f"TUNER/Plugin: Could not find: {name}"
        + (" libnccl-net.so. Using internal tuner plugin." if v < (2, 28) else "")
    ]


def _timings(cluster: Cluster, rank: Rank) -> str:
    v, rng = rank.host.version, cluster.rng
    kernels, bootstrap = rng.uniform(0.15, 0.4), rng.uniform(0.02, 0.3)
    topo, graphs = rng.uniform(0.05, 0.2), rng.uniform(0.01, 0.1)
    rest = f"allgathers 0.01, topo {topo:.2f}, graphs {graphs:.2f}, connections 0.03, rest 0.02)"
    head = f"rank {rank.number} nranks {len(cluster.ranks)}"
    if v < (2, 23):
        total = kernels + bootstrap + topo + graphs + 0.06
        return f"Init timings: {head} total {total:.2f} (kernels {kernels:.2f}, bootstrap {bootstrap:.2f}, {rest}"
    total = kernels + bootstrap + topo + graphs + 0.07
    name = _call(v, cluster.spec.framework).strip()
    return (
        f"Init timings - {name}: {head} total {total:.2f} (kernels {kernels:.2f}, alloc 0.01, "
        f"bootstrap {bootstrap:.2f}, {rest}"
    )


def destroyed(cluster: Cluster, rank: Rank, how: str) -> list[str]:
    """Returns the lines of a destroyed or aborted communicator (`how` is Destroy or Abort), if this version prints them."""
    v = rank.host.version
    if v < (2, 12) or v >= (2, 30):
        return []
    text = (
        f"comm 0x{rank.comm:x} rank {rank.number} nranks {len(cluster.ranks)} cudaDev {rank.device} busId {rank.bus:x}"
    )
    lines = [info(rank, f"{text} - {how} COMPLETE", "main")]
    if how == "Abort" and v >= (2, 28, 3):
        lines.insert(0, info(rank, text.replace("nranks", "nRanks") + " - Abort START", "main"))
    return lines
