"""Lists of packages: `conda list`, `pip list`, `pip freeze`, /opt/amazon/efa_installed_packages, alone or inside a log.

Only those that matter are kept.
"""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import Package
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_KEPT = re.compile(
    r"(?:torch|torchvision|pytorch|tensorflow(?:-gpu|-cpu)?|horovod|deepspeed|lightning|pytorch-lightning|megatron-core|accelerate|transformer-engine"
    r"|nvidia-nccl-cu\d+|nccl|cupy[\w-]*|jax|jaxlib|cudatoolkit|cuda-toolkit|cuda-version|nvidia-cuda-runtime(?:-cu\d+)?|pytorch-cuda|mpi4py|openmpi|mpich"
    r"|ucx|libfabric[\w-]*|aws-ofi-nccl[\w-]*|efa[\w-]*|rdma-core[\w-]*|openmpi[\w-]*|apex|mxnet[\w-]*|flash-attn|xformers|vllm)$",
    re.IGNORECASE,
)
_FREEZE = re.compile(r"([A-Za-z0-9][\w.-]{0,80})==([\w.+!-]{1,60})\s*(?:;|#|$)")
_COLUMNS = re.compile(r"([A-Za-z0-9_][\w.-]{0,80})\s+([\w.+!-]{1,60})(?:\s|$)")
_EFA = re.compile(r"([a-z][a-z0-9-]{0,60}?)[_-](\d[\w.~+-]{0,80})\s*$")
_TITLES = re.compile(r"Package +Version\b")  # of `pip list`
_RULE = re.compile(r"-{4,}(?: -{4,}){0,3}\s*$")
_INSTALLER = re.compile(r"# EFA installer version: ([\w.]{1,20})")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lists of a file.

    Source: `pip freeze`, `pip list`, `conda list`, and the file that AWS's EFA installer writes::

        nvidia-nccl-cu12==2.21.5
        # EFA installer version: 1.34.0
    """
    rows: list[Package] = []
    number = used = 0
    source = "freeze"  # whose list goes on; lines of `pip freeze` have no title
    for number, _, line in plain_lines(stream):
        if (installer := _INSTALLER.match(line)) is not None:
            source = "efa"
            rows.append(Package(name, source, "efa-installer", installer[1], facts.evidence(name, number, line)))
        elif line.startswith("# packages in environment"):
            source = "conda"
        elif _TITLES.match(line):
            source = "pip"
        if line.startswith("#") or _RULE.match(line):
            continue
        found = _found(line, source)
        used += bool(found)
        if not found and source in ("conda", "pip"):
            source = "freeze"
        for package, version in found:
            if is_kept(package):
                of = (
                    "conda"
                    if source == "conda" and not line.rstrip().endswith(" pypi")
                    else "efa"
                    if source == "efa"
                    else "pip"
                )
                rows.append(
                    Package(name, of, package.lower().replace("_", "-"), version, facts.evidence(name, number, line))
                )
    facts.add(rows)
    facts.mark_covered("package")
    return Reading(number, used)


def is_kept(package: str) -> bool:
    """Whether a package has to do with distributed training on GPUs."""
    return _KEPT.match(package.replace("_", "-")) is not None


def _found(line: str, source: str) -> list[tuple[str, str]]:
    """(name, version) of the packages in a line; the EFA installer writes many into one."""
    if source == "efa":
        return [(match[1], match[2]) for word in line.split()[:1000] if (match := _EFA.match(word)) is not None]
    match = _FREEZE.match(line) or (_COLUMNS.match(line) if source != "freeze" else None)
    return [(match[1], match[2])] if match is not None else []
