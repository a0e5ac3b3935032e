"""The settings files of NCCL, read as NCCL reads them (src/misc/param.cc): no trimming, no quotes, comments only in column one."""

import re
from collections.abc import Iterator, Mapping

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import NcclSettingLine
from nccl_doctor.node.runtime.root import Root

_LONGEST = 1023  # characters of a value that NCCL keeps
SYSTEM = "/etc/nccl.conf"


def files(environment: Mapping[str, str]) -> list[str]:
    """The files in the order in which NCCL (2.23 and newer) reads them; the first to set a name wins."""
    named = environment.get("NCCL_CONF_FILE")
    home = environment.get("HOME")
    own = named or (f"{home}/.nccl.conf" if home else None)
    return [own, SYSTEM] if own else [SYSTEM]


def lines(root: Root, environment: Mapping[str, str]) -> Iterator[NcclSettingLine]:
    """The lines of all files that are there; `overridden` where the environment or an earlier file set the name."""
    known = set(environment)
    for file in files(environment):
        text = root.text(file)
        if text is not None:
            for row in parse(text, file):
                if row.problem in ("", "not-nccl") and row.name in known:
                    row = row._replace(problem="overridden")
                known.add(row.name)
                yield row


def parse(text: str, file: str) -> Iterator[NcclSettingLine]:
    """Every line except comments and empty lines."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        name, mark, value = line.partition("=")
        problem = _problem(name, value) if mark else "no-setting"
        seen = Seen(file, line.rstrip("\r"), number)
        yield NcclSettingLine(None, file, number, name[:200], value[:_LONGEST], problem, seen)


def _problem(name: str, value: str) -> str:
    if name != name.strip():
        return "blank-in-name"
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return "no-setting"
    if value.endswith("\r"):
        return "carriage-return"
    if len(value) > _LONGEST:
        return "too-long"
    if value[:1] in ("'", '"'):
        return "quotes"
    if re.search(r"\s#", value):
        return "comment"
    if value != value.strip() or re.search(r",\s|\s,", value):
        return "blank-in-value"
    return "" if name.startswith(("NCCL_", "OFI_NCCL_", "RCCL_", "AWS_OFI_")) else "not-nccl"
