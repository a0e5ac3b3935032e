"""Settings: what an environment variable does, which versions read it, and which of its values are harmful."""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nccl_doctor.knowledge import entries, version_number

NEWEST = 23203  # NCCL release up to which the table is complete (2.32.3)
FIRST = "2.3.5"  # oldest release that was examined; a setting "since" this one may be older
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
# Prefixes of programs whose settings are not listed.
FOREIGN = (
    "NCCL_TESTS_", "NCCL_TEST_", "NCCL_INSPECTOR_", "NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_SHIMNET_", "NCCL_UCX_",
    "NCCL_SHARP_", "NCCL_IBEXT_", "NCCL_GPUVIZ_", "NCCL_FASTSOCKET_", "NCCL_DOCTOR_",
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)")
_COMPARE = re.compile(r"(<=|>=|!=|<|>)(-?\d+)")


class Check(NamedTuple):
    """A check of values: what is wrong, for which values, why, and in which NCCL releases."""

    verdict: str
    when: tuple[str, ...]
    why: str
    since: str | None
    until: str | None

    def applies(self, value: str, nccl_number: int | None) -> bool:
        """Returns whether the check applies to this value and to this NCCL release, if known."""
        if nccl_number is not None:
            if self.since and nccl_number < version_number(self.since):
                return False
            if self.until and nccl_number > version_number(self.until):
                return False
        return any(fits(condition, value) for condition in self.when)


class Setting(NamedTuple):
    """One environment variable. Versions are NCCL releases and are set only if NCCL reads it."""

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
    values: tuple[str, ...]  # the only valid values, if known
    range: tuple[int, int] | None
    note: str
    documented: bool
    checks: tuple[Check, ...]


def fits(condition: str, value: str) -> bool:
    """Returns whether a value meets a condition: `*` any, `~regex`, `<18`, or the value itself, in any case."""
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
    """Returns the number that C's strtoll with base 0 reads, as NCCL does; None if it rejects the text."""
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
    """Returns the setting of exactly this name, as programs look it up; else None."""
    entry = _raw().get(name)
    if entry is None:
        return None
    return Setting(
        name=entry["name"], family=entry["family"], kind=entry["kind"], since=entry["since"], until=entry["until"],
        default=tuple((since, value) for since, value in entry["default"]), does=entry["does"],
        danger=entry["danger"], deprecated=entry.get("deprecated"), replaced_by=entry.get("replaced_by"),
        values=tuple(entry.get("values", ())),
        range=(entry["range"][0], entry["range"][1]) if "range" in entry else None, note=entry.get("note", ""),
        documented=entry["documented"],
        checks=tuple(
            Check(check["verdict"], tuple(check["when"]), check["why"], check.get("since"), check.get("until"))
            for check in entry.get("checks", ())
        ),
    )  # fmt: skip


def table() -> dict[str, Setting]:
    """Returns all settings by name."""
    return {name: setting for name in _raw() if (setting := exact(name)) is not None}


@cache
def _any_case() -> dict[str, str]:
    return {name.upper(): name for name in _raw()}


def find(name: str) -> Setting | None:
    """Returns the setting of this name in any case (programs distinguish case); else None."""
    return exact(_any_case().get(name.strip().upper(), ""))


def successor(name: str) -> str | None:
    """Returns the new name of a setting whose whole family was renamed, else None."""
    upper = name.strip().upper()
    if upper.startswith("FI_OFI_RXR_"):
        return "FI_EFA_" + upper.removeprefix("FI_OFI_RXR_")
    return None


def suggest(name: str, cutoff: float = 0.8) -> list[str]:
    """Returns known names that are similar to this one, the most similar first."""
    from difflib import get_close_matches

    upper = name.strip().upper().replace("-", "_")
    return get_close_matches(upper, _raw(), n=3, cutoff=cutoff) if len(upper) < 80 else []


def default_in(setting: Setting, nccl_number: int | None) -> str | None:
    """Returns the default in this NCCL release (in the newest if None)."""
    value = None
    for since, text in setting.default:
        if since is None or nccl_number is None or nccl_number >= version_number(since):
            value = text
    return value


def invalid_value(setting: Setting, value: str) -> str:
    """Returns why a value of an NCCL setting is invalid, in one clause; empty if it is valid or of another program."""
    if setting.family != "nccl":
        return ""
    if value and value.strip()[:1] in "\"'" and value.strip()[-1:] == value.strip()[:1]:
        return "the quotes become part of the value; NCCL's files have no quoting"
    if setting.kind in ("int", "bool"):
        return _invalid_number(setting, as_number(value))
    if setting.values:
        upper = value.strip().upper()
        known = upper in setting.values or (setting.name.endswith("_LEVEL") and as_number(upper) is not None)
        if not known:
            return f"the valid values are {', '.join(setting.values)}"
    return ""


def _invalid_number(setting: Setting, number: int | None) -> str:
    if number is None:
        return "NCCL expects a number and keeps its default for anything else"
    if setting.range and not setting.range[0] <= number <= setting.range[1]:
        return f"only {setting.range[0]} to {setting.range[1]} make sense"
    if setting.values and str(number) not in setting.values:
        return f"only {', '.join(setting.values)} make sense"
    return ""
