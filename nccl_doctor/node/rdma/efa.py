"""Amazon's Elastic Fabric Adapter: module, devices, libfabric's provider, installed software, and NCCL's plug-in for it."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import EfaNode, OfiDomain, PluginFile
from nccl_doctor.node.gpu import pci_path
from nccl_doctor.node.runtime.root import Absent, Output, Root
from nccl_doctor.node.software import elf
from nccl_doctor.node.software.variables import folders, variables

TABLES = (EfaNode, OfiDomain, PluginFile)
AMAZON = "0x1d0f"
INSTALLED = "/opt/amazon/efa_installed_packages"
COMMAND = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")
_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB"
_PLACES = (
    "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib", "/opt/aws-ofi-nccl/install/lib", "/opt/amazon/aws-ofi-nccl/lib", "/opt/amazon/aws-ofi-nccl/lib64",
)  # fmt: skip
_FABRIC = ("/opt/amazon/efa/lib", "/opt/amazon/efa/lib64")
_DEFAULT = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib")  # fmt: skip
_PLUGIN = re.compile(r"libnccl-net[\w-]*\.so[\d.]*")
_FIELD = re.compile(r"\s{1,80}(domain|protocol):\s{0,80}(\S{1,80})")
SECONDS = 3.0  # that fi_info may take; 32 devices need most of one


class Info(NamedTuple):
    """What `fi_info` said."""

    status: int | None  # None where it is not installed, 124 where it gave no answer
    domains: dict[str, str | None]  # domain -> protocol
    text: str | None


def collect(root: Root) -> Iterator[Any]:
    """Rows of an Amazon machine. Raises TimeoutError, after the other rows, where `fi_info` hangs."""
    cards = sum(re.fullmatch(r"0xefa\d", card.device) is not None for card in pci_path.cards(root, (AMAZON,)))
    vendor = root.value("/sys/class/dmi/id/sys_vendor") or ""
    if not cards and "Amazon" not in vendor and not root.exists("/sys/module/efa"):
        raise Absent("no machine of Amazon's")
    devices = [name for name in root.names("/sys/class/infiniband") if _is_efa(root, name)]
    info = _ask(root) if devices or cards else Info(None, {}, None)
    installed = root.text(INSTALLED) or ""
    module = root.value("/sys/module/efa/version") or ("?" if root.exists("/sys/module/efa") else None)
    row = EfaNode(
        host=None, product=root.value("/sys/class/dmi/id/product_name"), cards=cards, devices=len(devices),
        module=module, uverbs=int(root.exists("/sys/module/ib_uverbs")), installer=installer(installed),
        libfabric=package(installed, "libfabric"), status=info.status,
        domains=len(info.domains) if info.status is not None else None, text=info.text,
        hugepages=root.number(f"{_PAGES}/nr_hugepages"), hugepages_free=root.number(f"{_PAGES}/free_hugepages"),
        gdrcopy=int(root.exists("/sys/module/gdrdrv")), ref=Seen("/sys/bus/pci/devices", ""),
    )  # fmt: skip
    parsed = f"EFA on the PCI bus: {cards}, devices: {row.devices}, module: {module}, installer: {row.installer}"
    if info.status is not None:
        parsed += f", fi_info: status {info.status}, {row.domains} domains{f', {info.text}' if info.status else ''}"
    yield row._replace(ref=Seen("/sys/bus/pci/devices", parsed))
    for domain, protocol in info.domains.items():
        seen = Seen(" ".join(COMMAND), f"domain: {domain} protocol: {protocol}")
        yield OfiDomain(None, None, " ".join(COMMAND), "efa", domain, protocol, seen)
    yield from _plugins(root)
    if info.status == 124:
        raise TimeoutError(f"`{' '.join(COMMAND)}` gave no answer within {SECONDS:g} s")


def _is_efa(root: Root, name: str) -> bool:
    driver = re.search(r"^DRIVER=(\S+)", root.text(f"/sys/class/infiniband/{name}/device/uevent") or "", re.MULTILINE)
    return driver[1] == "efa" if driver else name.startswith(("efa_", "rdmap"))


def _ask(root: Root) -> Info:
    try:
        output = root.run(*COMMAND, seconds=SECONDS)
    except TimeoutError:
        return Info(124, {}, "no answer")
    return parse_info(output) if output is not None else Info(None, {}, None)


def parse_info(said: Output) -> Info:
    """The different domains: newer versions list each device once a fabric, efa and efa-direct."""
    domains: dict[str, str | None] = {}
    last = None
    for line in said.text.splitlines():
        field = _FIELD.match(line)
        if field is not None and field[1] == "domain":
            last = field[2]
            domains.setdefault(last, None)
        elif field is not None and last is not None and domains[last] is None:
            domains[last] = field[2]
    return Info(said.status, domains, said.text.strip().partition("\n")[0].strip() or None)


def installer(text: str) -> str | None:
    """`# EFA installer version: 1.34.0` -> 1.34.0."""
    match = re.search(r"^# EFA installer version:\s*(\d[\d.]{0,15})", text, re.MULTILINE)
    return match[1] if match else None


def package(text: str, name: str) -> str | None:
    """The version of a package in the installer's list: `libfabric-aws-1.22.0amzn4.0-1.amzn2.x86_64`, `libfabric1_1.8.0…`."""
    match = re.search(rf"^{name}(?:1|-aws|1-aws|-aws-bin|-aws-devel)?[_-](\d+(?:\.\d+){{1,2}})", text, re.MULTILINE)
    return match[1] if match else None


def _plugins(root: Root) -> Iterator[PluginFile]:
    environ = variables(root)
    own = dict.fromkeys(folders(environ.get("LD_LIBRARY_PATH")), "LD_LIBRARY_PATH")
    cached = dict.fromkeys(_configured(root), "ld.so.conf")
    searched = {**dict.fromkeys(_DEFAULT, "default folder"), **cached, **own}
    seen: set[str] = set()
    for folder in dict.fromkeys([*own, *cached, *_DEFAULT, *_PLACES]):
        for name in root.names(folder) if folder.startswith("/") else ():
            path = f"{folder}/{name}"
            target = root.target(path) or path
            if _PLUGIN.fullmatch(name) is None or target in seen:
                continue
            seen.add(target)
            problem = _problem(root, path, (*searched, *_FABRIC))
            how = searched.get(folder)
            text = f"{path}: {f'found by {how}' if how else 'not searched by the loader'}{f', {problem}' if problem else ''}"
            yield PluginFile(None, path, how, problem, *elf.span(elf.library(root, path)), Seen(path, text))


def _configured(root: Root) -> list[str]:
    """Folders that /etc/ld.so.conf.d adds for every program."""
    files = [f"/etc/ld.so.conf.d/{name}" for name in root.names("/etc/ld.so.conf.d") if name.endswith(".conf")]
    lines = [line.strip() for file in ["/etc/ld.so.conf", *files] for line in (root.text(file) or "").splitlines()]
    return [line.rstrip("/") for line in lines if line.startswith("/")]


def _problem(root: Root, path: str, searched: tuple[str, ...]) -> str:
    parsed = elf.library(root, path)
    if parsed is None:
        return ""
    if not parsed.size:
        return "empty-file"
    if not parsed.elf:
        return "not-elf"
    lacks = [name for name in parsed.needed if name.startswith("libfabric.so")]
    places = (*parsed.rpath, *parsed.runpath, *searched)
    if lacks and not any(root.exists(f"{folder}/{lacks[0]}") for folder in places if folder.startswith("/")):
        return "libfabric-missing"
    return ""
