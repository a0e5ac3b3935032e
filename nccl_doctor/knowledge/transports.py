"""Meaning of the text after `via` in a channel line, for example `NET/IB/0/GDRDMA/Shared` or `P2P/CUMEM/read`."""

import re
from typing import NamedTuple

from nccl_doctor.knowledge import entries

_NET = re.compile(
    r"(?P<kind>NET|COLLNET)/(?P<name>[^/\n]+?)/(?P<device>\d+)(?:\((?P<proxy>\d+)\))?"
    r"(?P<gdr>/GDRDMA)?(?P<pci>\(PCI\))?(?P<shared>/Shared)?(?P<flush>/flush=\w+)?"
)
_P2P = re.compile(
    r"P2P/(?P<method>IPC|CUMEM|MNNVL|direct pointer|common device|indirect/(?P<via>\d+)(?:\[\w+\])?)(?P<read>/read)?(?P<ce>/CE)?"
)
_SHM = re.compile(r"SHM/(?P<sender>direct|CE)(?:/(?P<receiver>direct|CE))?|direct shared memory")
STARTS = ("P2P/", "SHM/", "NET/", "COLLNET/", "direct shared memory")


class Transport(NamedTuple):
    """A transport string: the matched part, and sentences that explain it."""

    text: str
    sentences: list[str]


def _meaning(transport: str, method: str) -> str:
    for entry in entries("transport"):
        if entry["transport"] == transport and entry["method"] == method:
            return str(entry["meaning"])
    if method.startswith("IBext"):
        return _meaning("NET", "IBext")
    if method.startswith("GPUDirectTCPX"):
        return _meaning("NET", "GPUDirectTCPX")
    return f"Over the network plug-in {method}." if transport == "NET" else ""


def _suffix(text: str) -> str:
    return next(str(entry["meaning"]) for entry in entries("transport_suffix") if entry["text"] == text)


def parse_transport(text: str) -> Transport | None:
    """Returns the first transport string in a text, else None."""
    found = _P2P.search(text)
    if found:
        sentences = [_meaning("P2P", found["method"].split("/")[0])]
        if found["via"]:
            sentences.append(f"The GPU between is that of rank {found['via']}.")
        sentences += [_suffix("/read")] * bool(found["read"]) + [_suffix("/CE")] * bool(found["ce"])
        if found["method"] in ("IPC", "CUMEM", "direct pointer"):
            sentences.append("The line does not show whether this is NVLink or PCIe; `nvidia-smi topo -m` does.")
        return Transport(found[0], sentences)
    found = _SHM.search(text)
    if found:
        parts = (found["sender"], found["receiver"])
        sentences = [_meaning("SHM", "CE" if "CE" in parts else "direct")]
        sentences.append(
            "Between GPUs of one node this is slower than P2P. It is normal where peer access is impossible (GeForce, "
            "other CPU socket, some VMs); on NVLink machines look for NCCL_P2P_DISABLE, MIG, or containers with separate GPUs."
        )
        return Transport(found[0], sentences)
    found = _NET.search(text)
    return _net(found) if found else None


def _net(found: re.Match[str]) -> Transport:
    name, gdr = found["name"], found["gdr"]
    if found["kind"] == "COLLNET":
        sentences = [_meaning("COLLNET", ""), f"The network is {name}."]
    else:
        sentences = [_meaning("NET", name)]
    sentences.append(f"Device {found['device']} in the list of this rank; the other side may number it otherwise.")
    if found["proxy"]:
        sentences.append(f"The proxy of rank {found['proxy']} sends, through the NIC next to its GPU (PXN).")
    if gdr:
        sentences.append(_suffix("/GDRDMA"))
    elif name not in ("Socket", "FastSocket"):
        sentences.append("No /GDRDMA: data passes through host memory, GPUDirect RDMA is not used here.")
    sentences += [_suffix("(PCI)")] * bool(found["pci"]) + [_suffix("/Shared")] * bool(found["shared"])
    sentences += [_suffix("/flush=")] * bool(found["flush"])
    return Transport(found[0].strip(), sentences)
