"""Signs that a machine should have GPUs, for one that shows none: its type, NVSwitches, installed drivers.

/sys/class/dmi/id/product_name              g5.48xlarge
/run/cloud-init/instance-data.json          "vmSize": "Standard_ND96isr_H100_v5"   (Azure: DMI says only "Virtual Machine")
"""

import re
from collections.abc import Iterator, Sequence

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import GpuHint
from nccl_doctor.node.runtime.root import Root

PRODUCT = "/sys/class/dmi/id/product_name"
CLOUD = "/run/cloud-init/instance-data.json"
_SIZE = re.compile(r'"(?:instance[-_]type|vmSize|shape|machine[-_]type)":\s*"([\w./-]{3,120})"')
_TYPES = re.compile(
    r"(?:p[2-6]|g[3-7])[a-z]*(?:-[a-z0-9]+)?\.\w+"  # Amazon EC2
    r"|Standard_N[CDGV]\w*"  # Azure
    r"|(?:\S*/)?(?:a[2-4]|g2)-\w[\w-]*"  # Google
    r"|(?:BM|VM)\.GPU[\w.]*"  # Oracle
    r"|DGX ?(?:-?[12]\b|[ABGHV]\w*)|.{0,200}\bHGX\b.*"
)
_INSTALLED = (
    "/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced", "/opt/rocm/bin/rocm-smi", "/opt/rocm/bin/amd-smi",
)  # fmt: skip


def collect(root: Root, kinds: Sequence[str]) -> Iterator[GpuHint]:
    """Signs on a node whose PCI bus shows devices of these kinds and no GPU."""
    for path, names in ((PRODUCT, [root.value(PRODUCT) or ""]), (CLOUD, parse_sizes(root.text(CLOUD) or ""))):
        for name in names:
            if is_gpu_type(name):
                yield GpuHint(None, "instance", name, Seen(path, name))
    if switches := kinds.count("nvswitch"):
        yield GpuHint(
            None, "nvswitch", f"{switches} NVSwitches", Seen("/sys/bus/pci/devices", f"{switches} NVSwitches")
        )
    for path in _INSTALLED:
        if root.exists(path):
            yield GpuHint(None, "packages", path, Seen(path, "installed"))


def parse_sizes(text: str) -> list[str]:
    """The types that cloud-init keeps of an instance, each once."""
    return list(dict.fromkeys(_SIZE.findall(text)))[:8]


def is_gpu_type(name: str) -> bool:
    """Whether an instance type or product is one with GPUs: `p4d.24xlarge`, `Standard_ND96asr_v4`, `DGXH100`."""
    return _TYPES.fullmatch(name) is not None
