"""Settings: what an environment variable does, in which versions it is read, and which of its values do harm."""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nccl_doctor.knowledge import entries, version_number

NEWEST = 23203  # NCCL release up to which the table is complete (2.32.3)
FIRST = "2.3.5"  # oldest release whose source was read; a setting "since" this one may be older
PROGRAMS = {
    "nccl": "NCCL",
    "torch": "PyTorch",
    "launch": "launchers",
    "cuda": "CUDA and its tools",
    "libfabric": "libfabric",
    "aws-ofi-nccl": "the aws-ofi-nccl plug-in",
    "ucx": "UCX",
    "ompi": "Open MPI",
    "horovod": "Horovod",
    "plugin": "a plug-in or tool",
    "build": "build scripts",
}
# Names that begin like this belong to programs whose settings are too many, or too new, to list.
FOREIGN = (
    "NCCL_TESTS_", "NCCL_TEST_", "NCCL_INSPECTOR_", "NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_SHIMNET_", "NCCL_UCX_",
    "NCCL_SHARP_", "NCCL_IBEXT_", "NCCL_GPUVIZ_", "NCCL_FASTSOCKET_", "NCCL_DOCTOR_",
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)")
_COMPARE = re.compile(r"(<=|>=|!=|<|>)(-?\d+)")


class Check(NamedTuple):
    """Values that deserve a word: what is wrong, for which values, why, and in which NCCL releases."""

    verdict: str
    when: tuple[str, ...]
    why: str
    since: str | None
    until: str | None

    def holds(self, value: str, nccl_number: int | None) -> bool:
        """True where the value is meant and the NCCL release, if known, too."""
        if nccl_number is not None:
            if self.since and nccl_number < version_number(self.since):
                return False
            if self.until and nccl_number > version_number(self.until):
                return False
        return any(fits(condition, value) for condition in self.when)


class Setting(NamedTuple):
    """One environment variable. Versions are those of NCCL and stand only where NCCL reads it."""

    name: str
    family: str  # key of PROGRAMS: who reads it
    kind: str  # int, bool, list, string, file
    since: str | None  # first release that reads it
    until: str | None  # last release that reads it; None = the newest known
    default: tuple[tuple[str | None, str], ...]  # (first release with this default, value)
    does: str
    danger: str  # none, debug, harmful, leftover
    deprecated: str | None  # first release that calls it deprecated
    replaced_by: str | None
    values: tuple[str, ...]  # the only values, where that is known
    range: tuple[int, int] | None
    note: str
    documented: bool
    checks: tuple[Check, ...]


def fits(condition: str, value: str) -> bool:
    """True where a value meets a condition: `*` any, `~regex`, `<18`, or the value itself; case does not matter."""
    if condition == "*":
        return True
    if condition.startswith("~"):
        return re.match(condition[1:], value, re.IGNORECASE) is not None
    compared = _COMPARE.fullmatch(condition)
    if compared:
        number = as_number(value)
        if number is None:
            return False
        limit = int(compared[2])
        return {
            "<": number < limit, ">": number > limit, "<=": number <= limit, ">=": number >= limit, "!=": number != limit,
        }[compared[1]]  # fmt: skip
    return condition.lower() == value.lower()


def as_number(value: str) -> int | None:
    """The number that C's strtoll with base 0 reads, as NCCL does; None where it would refuse."""
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        return None
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    try:
        number = int(digits, 8 if octal else 0)
    except ValueError:
        return None
    return -number if text.startswith("-") else number


@cache
def _raw() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in entries("env")}


@lru_cache(maxsize=2048)
def exact(name: str) -> Setting | None:
    """The setting of exactly this name, as programs look for it."""
    entry = _raw().get(name)
    if entry is None:
        return None
    return Setting(
        entry["name"], entry["family"], entry["kind"], entry["since"], entry["until"],
        tuple((since, value) for since, value in entry["default"]), entry["does"], entry["danger"],
        entry.get("deprecated"), entry.get("replaced_by"), tuple(entry.get("values", ())),
        (entry["range"][0], entry["range"][1]) if "range" in entry else None, entry.get("note", ""), entry["documented"],
        tuple(
            Check(check["verdict"], tuple(check["when"]), check["why"], check.get("since"), check.get("until"))
            for check in entry.get("checks", ())
        ),
    )  # fmt: skip


def table() -> dict[str, Setting]:
    """All settings by name."""
    return {name: setting for name in _raw() if (setting := exact(name)) is not None}


@cache
def _any_case() -> dict[str, str]:
    return {name.upper(): name for name in _raw()}


def find(name: str) -> Setting | None:
    """The setting of this name; case does not matter here, while programs insist on it."""
    return exact(_any_case().get(name.strip().upper(), ""))


def successor(name: str) -> str | None:
    """The name that took the place of one of a whole family of old names, else None."""
    upper = name.strip().upper()
    if upper.startswith("FI_OFI_RXR_"):
        return "FI_EFA_" + upper.removeprefix("FI_OFI_RXR_")
    return None


def suggest(name: str, cutoff: float = 0.8) -> list[str]:
    """Known names that look like this one, the nearest first."""
    from difflib import get_close_matches

    upper = name.strip().upper().replace("-", "_")
    return get_close_matches(upper, _raw(), n=3, cutoff=cutoff) if len(upper) < 80 else []


def default_in(setting: Setting, nccl_number: int | None) -> str | None:
    """The default in this NCCL release (the newest, where it is not known)."""
    value = None
    for since, text in setting.default:
        if since is None or nccl_number is None or nccl_number >= version_number(since):
            value = text
    return value


def flaw(setting: Setting, value: str) -> str:
    """Why a value cannot be meant so, in one clause; empty where it can. Only NCCL's own settings are judged."""
    if setting.family != "nccl":
        return ""
    if value and value.strip()[:1] in "\"'" and value.strip()[-1:] == value.strip()[:1]:
        return "the quotes belong to the value; NCCL's files know no quoting"
    if setting.kind in ("int", "bool"):
        number = as_number(value)
        if number is None:
            return "NCCL reads a number here and keeps its default where it finds something else"
        if setting.range and not setting.range[0] <= number <= setting.range[1]:
            return f"only {setting.range[0]} to {setting.range[1]} make sense"
        if setting.values and str(number) not in setting.values:
            return f"only {', '.join(setting.values)} make sense"
        return ""
    if setting.values:
        plain = value.strip().upper()
        known = plain in setting.values or (setting.name.endswith("_LEVEL") and as_number(plain) is not None)
        if not known:
            return f"NCCL knows {', '.join(setting.values)} here"
    return ""
