"""Lines from the first NCCL line of a process to the chosen network."""

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.nccl_format import info, warn

_NUMERIC = {
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_TIMEOUT",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLE",
}
_NO_FILE = "cannot open shared object file: No such file or directory"


def env_line(rank: Rank, name: str, thread: str = "init") -> str:
    """Returns NCCL's line about a variable that it has read."""
    value = rank.host.env[name]
    if name == "NCCL_IB_HCA":
        return info(rank, f"{name} set to {value}", thread)
    if name == "NCCL_P2P_DISABLE" and (2, 11) <= rank.host.version < (2, 19):
        return info(rank, "NCCL_P2P_LEVEL set by environment to LOC", thread)
    return info(rank, f"{name} set by environment to {value}{'.' if name in _NUMERIC else ''}", thread)


def _envs(rank: Rank, names: tuple[str, ...], thread: str) -> list[str]:
    return [env_line(rank, name, thread) for name in names if name in rank.host.env]


def bootstrap(cluster: Cluster, rank: Rank) -> list[str]:
    """Returns the lines about versions, the bootstrap interface and the variables read so far."""
    host, v = rank.host, rank.host.version
    lines = []
    driver = info(rank, f"cudaDriverVersion {_driver(host.version_text)}", "main")
    if v >= (2, 28):
        lines.append(info(rank, "ENV/Plugin: Could not find: libnccl-env.so", "main"))
    if v >= (2, 13) and v < (2, 22):
        lines.append(driver)
    lines += _envs(rank, ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"), "main")
    if not host.bootstrap:
        return lines
    mark = "Bootstrap:" if v >= (2, 24) else "Bootstrap :"
    if v < (2, 8):
        every = [(host.interface, host.address), *host.more_interfaces]
        listed = " ".join(f"[{n}]{name}:{address}<0>" for n, (name, address) in enumerate(every))
        lines.append(info(rank, f"{mark} Using {listed}", "main"))
    else:
        lines.append(info(rank, f"{mark} Using {host.interface}:{host.address}<0>", "main"))
    if v >= (2, 30, 7):
        lines.append(info(rank, "Socket handshake magic 0x564ab9f2fc4b9d6c (built-in default)", "proxy"))
    if v >= (2, 22):
        lines += [driver, info(rank, f"NCCL version {host.version_text}", "main")]
    return lines


def _driver(version_text: str) -> int:
    major, minor = version_text.rsplit("cuda", 1)[1].split(".")
    return max(int(major) * 1000 + int(minor) * 10, 11040)


def network(cluster: Cluster, rank: Rank) -> list[str]:
    """Returns the lines about the plug-in search, network devices and the chosen network."""
    host, v = rank.host, rank.host.version
    early = "main" if v < (2, 22) else "init"
    late = "main" if v < (2, 13) else "init"
    lines = _envs(rank, ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_CUMEM_ENABLE"), early) + _plugin(rank, early)
    if host.plugin == "ofi":
        for where, text in host.plugin_lines or [("", text) for text in ofi(cluster, v)]:
            text = f"NET/OFI {text}"
            lines.append(warn(rank, where, text, thread=late) if where else info(rank, text, late))
        if host.network == cluster.ofi_name():
            if v >= (2, 13):
                lines.append(info(rank, f"NET/Plugin: Loaded net plugin {host.network} ({_plugin_api(v)})", late))
            return lines + _chosen(rank, late)
    lines += _ib(rank, late)
    if host.network == "Socket":
        every = [(host.interface, host.address), *host.more_interfaces]
        listed = " ".join(f"[{n}]{name}:{address}<0>" for n, (name, address) in enumerate(every))
        lines.append(info(rank, f"NET/Socket : Using {listed}", late))
    lines += _chosen(rank, late)
    if cluster.net_debug:
        lines += _gdr(rank)
    return lines


def _plugin(rank: Rank, thread: str) -> list[str]:
    """The search for a network plug-in that is missing or broken; the libfabric plug-in prints its own lines."""
    if rank.host.plugin == "ofi":
        return []
    texts = _plugin_search(rank.host.version, None if rank.host.plugin == "none" else rank.host.plugin)
    return [info(rank, text, thread) for text in texts]


def _plugin_search(v: tuple[int, int, int], broken: str | None) -> list[str]:
    """The texts of the search; `broken` is the error of a plug-in that cannot be loaded, None without a plug-in."""
    name = "libnccl-net.so"
    error = broken or f"{name}: {_NO_FILE}"
    code = 17 if broken else 2
    if v < (2, 17):
        if broken:
            return [f"NET/Plugin : Plugin load returned 17 : {error}."]
        return [f"NET/Plugin : No plugin found ({name})" + ("." if v < (2, 5) else ", using internal implementation")]
    if v < (2, 19):
        return [
            f"NET/Plugin : Plugin load ({name}) returned {code} : {error}",
            "NET/Plugin : No plugin found, using internal implementation",
        ]
    if v < (2, 21):
        return [f"NET/Plugin : dlerror={error} No plugin found ({name}), using internal implementation"]
    if v < (2, 22):
        return [
            f"NET/Plugin: No plugin found ({name})",
            f"NET/Plugin: Plugin load returned {code} : {error} : when loading {name}",
            "NET/Plugin: Using internal network plugin.",
        ]
    end = ". Using internal network plugin." if v < (2, 26) else ". " if v < (2, 28) else ""
    not_found = f"NET/Plugin: Could not find: {name}{end}"
    if broken:
        return [f"NET/Plugin: {name}: {error}" if v >= (2, 28) else f"NET/Plugin: {error}", not_found]
    if v >= (2, 30):
        return [f"ncclOsDlopen({name}) failed: {name}: {_NO_FILE}", not_found]
    return [not_found]


def _plugin_api(v: tuple[int, int, int]) -> str:
    return "v5" if v < (2, 19) else "v6" if v < (2, 20) else "v8" if v < (2, 24) else "v9" if v < (2, 26) else "v10"


def ofi(cluster: Cluster, v: tuple[int, int, int]) -> list[str]:
    """Returns the lines of the libfabric plug-in, without NET/OFI."""
    nics = cluster.nics
    topo = "/opt/aws-ofi-nccl/share/aws-ofi-nccl/xml/p4d-24xl-topo.xml"
    if v < (2, 18):
        return [
            "Using aws-ofi-nccl 1.4.0aws",
            f"Running on p4d.24xlarge platform, Setting NCCL_TOPO_FILE environment variable to {topo}",
            "Setting FI_EFA_FORK_SAFE environment variable to 1",
            "Selected Provider is efa",
        ]
    if v < (2, 23):
        return [
            "Initializing aws-ofi-nccl 1.9.1-aws",
            "Using Libfabric version 1.20",
            "Using CUDA driver version 12020",
            "Configuring AWS-specific options",
            "Setting provider_filter to efa",
            "Using transport protocol RDMA",
            f"Selected Provider is efa (found {nics} nics)",
        ]
    return [
        "Initializing aws-ofi-nccl 1.14.0",
        "Using Libfabric version 1.22",
        "Using CUDA driver version 12080 with runtime 12080",
        "Configuring AWS-specific options",
        "Setting provider_filter to efa",
        "Using transport protocol RDMA (platform set)",
        f"Selected provider is efa, fabric is efa (found {nics} nics)",
    ]


def _ib(rank: Rank, thread: str) -> list[str]:
    host, v = rank.host, rank.host.version
    lines = _envs(rank, ("NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX"), thread)
    oob = f"OOB {host.interface}:{host.address}<0>"
    relaxed = "[RO]" if v >= (2, 12) else ""
    if host.ib == "disabled":
        return lines + _refused(rank, thread)
    if host.ib == "no-library":
        if v >= (2, 30):
            lines += [info(rank, f"Count not open {name}", thread) for name in ("libibverbs.so", "libibverbs.so.1")]
        elif v >= (2, 11):
            lines.append(info(rank, "Failed to open libibverbs.so[.1]", thread))
        else:
            lines.append(warn(rank, "misc/ibvwrap.cc:63", "Failed to open libibverbs.so[.1]", thread=thread))
        return lines + _refused(rank, thread)
    lines += _envs(rank, ("NCCL_IB_HCA",), thread)
    if host.ib == "open-failed":
        file = "transport/net_ib/init.cc:412" if v >= (2, 29) else "transport/net_ib.cc:191"
        for name, _, _ in host.hcas:
            lines.append(
                warn(rank, "misc/ibvwrap.cc:94", "Call to ibv_open_device failed", "wrap_ibv_open_device", thread)
            )
            lines.append(warn(rank, file, f"NET/IB : Unable to open device {name}", "ncclIbInitDevices", thread))
    if host.ib in ("no-device", "open-failed"):
        lines.append(info(rank, "NET/IB : No device found.", thread))
        if v >= (2, 24):
            lines.append(info(rank, f"NET/IB : Using {relaxed}; {oob}", thread))
        return lines + _refused(rank, thread)
    listed = " ".join(f"[{n}]{name}:{port}/{link}" for n, (name, port, link) in enumerate(host.hcas))
    lines.append(info(rank, f"NET/IB : Using {listed} {relaxed}; {oob}", thread))
    return lines


def _refused(rank: Rank, thread: str) -> list[str]:
    return [info(rank, "Failed to initialize NET plugin IB", thread)] if rank.host.version >= (2, 27) else []


def _chosen(rank: Rank, thread: str) -> list[str]:
    host, v = rank.host, rank.host.version
    lines = []
    if v >= (2, 28) and host.plugin == "ofi" and host.network != "Socket":
        lines.append(f"Successfully loaded external network plugin {host.network}")
    if v >= (2, 27):
        lines += [f"Initialized NET plugin {host.network}", f"Assigned NET plugin {host.network} to comm"]
    if (2, 19) <= v < (2, 22):
        lines.append("Using non-device net plugin version 0")
    if v >= (2, 6):
        lines.append(f"Using network {host.network}")
    if v >= (2, 13) and host.network == "IB" and host.peermem:
        lines.append(f"DMA-BUF is available on GPU device {rank.local}")
    return [info(rank, line, thread) for line in lines]


def _gdr(rank: Rank) -> list[str]:
    host, v = rank.host, rank.host.version
    state = "Enabled" if host.peermem else "Disabled"
    if v >= (2, 13):
        return [
            info(rank, f"NET/IB : GPU Direct RDMA {state} for HCA {n} '{hca[0]}'") for n, hca in enumerate(host.hcas)
        ]
    if host.peermem:
        return []
    if v < (2, 5):
        return [
            info(
                rank,
                f"NET/IB : GPU Direct RDMA Disabled for GPU {rank.local}[{rank.nvml}] / HCA {n} '{hca[0]}' "
                "(no module or not supported by GPU)",
            )
            for n, hca in enumerate(host.hcas)
        ]
    return [
        info(rank, f"NET/IB : GPU Direct RDMA Disabled for HCA {n} '{hca[0]}' (no module)")
        for n, hca in enumerate(host.hcas)
    ]
