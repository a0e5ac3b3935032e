"""Lints settings: finds those that are misspelt, removed, without effect, left over from debugging, or dangerous."""

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.knowledge import version_number, version_text
from nccl_doctor.knowledge.settings import (
    FOREIGN,
    NEWEST,
    Setting,
    as_number,
    exact,
    find,
    invalid_value,
    successor,
    suggest,
)

VERDICTS = ("unknown", "deprecated", "removed", "no-effect", "debug-leftover", "dangerous", "bad-value")
# Prefixes whose settings are listed completely enough that a similar unknown name is a typo.
_LISTED = ("TORCH_NCCL_", "HOROVOD_", "OFI_NCCL_", "FI_EFA_")
_SOCKETS = {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}
_INTERFACES = {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"}
_PAIRED = _SOCKETS | _INTERFACES
_TYPO = 0.87  # similarity from which an unknown name counts as a typo of a known one

SettingRow = tuple[str | None, int | None, str, str, int]


class Verdict(NamedTuple):
    """A problem of a setting on a host or rank: what is wrong and why."""

    host: str | None
    rank: int | None
    name: str
    value: str
    verdict: str
    detail: str
    ref: int


def lint_settings(
    settings: Iterable[SettingRow], nccl_number: int | None, read: Set[str] = frozenset()
) -> Iterator[Verdict]:
    """Check (host, rank, name, value, ref) of every setting and yield one row per problem.

    ``nccl_number`` is 22105 for NCCL 2.21.5; with None, checks that depend on the release are skipped.
    ``read`` holds the names that NCCL itself reports as read.
    """
    pairs: dict[tuple[str | None, int | None], dict[str, tuple[str, int]]] = {}
    for host, rank, name, value, ref in settings:
        for verdict, detail in lint_setting(name, value, nccl_number, name in read):
            yield Verdict(host, rank, name, value, verdict, detail, ref)
        if name in _PAIRED:
            pairs.setdefault((host, rank), {})[name] = (value, ref)
    for (host, rank), given in pairs.items():
        for name, verdict, detail in _combined({key: value for key, (value, _) in given.items()}):
            value, ref = given[name]
            yield Verdict(host, rank, name, value, verdict, detail, ref)


def _combined(given: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    if given.keys() >= _SOCKETS:
        product = 1
        for name in _SOCKETS:
            product *= as_number(given[name]) or 0
        if product > 64:
            detail = f"NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD is {product}; NCCL cuts it to 64"
            yield "NCCL_SOCKET_NTHREADS", "bad-value", detail
    if given.keys() >= _INTERFACES:
        yield "OMPI_MCA_btl_tcp_if_include", "bad-value", "Open MPI refuses include and exclude lists together"


@lru_cache(maxsize=4096)
def lint_setting(name: str, value: str, nccl_number: int | None, read: bool = False) -> tuple[tuple[str, str], ...]:
    """Returns (verdict, why) for each problem of one setting. With ``read``, NCCL reports that it reads the setting."""
    setting = exact(name)
    if setting is None:
        return () if read else tuple(_unknown(name, nccl_number))
    unread = None if read else _unread(setting, nccl_number)  # vendors backport settings of later releases
    if unread:
        return (unread,)
    problems = [deprecated] if (deprecated := _deprecated(setting, nccl_number)) else []
    wrong = invalid_value(setting, value)
    if wrong:
        return (*problems, ("bad-value", wrong))
    for check in setting.checks:
        if check.applies(value.strip().rstrip("."), nccl_number):
            return (*problems, (check.verdict, check.why))
    return tuple(problems)


def _unread(setting: Setting, nccl_number: int | None) -> tuple[str, str] | None:
    """Returns (verdict, why) if this NCCL release does not read the setting."""
    if setting.family != "nccl" or nccl_number is None:
        return None
    instead = f"; {setting.replaced_by} replaces it" if setting.replaced_by else ""
    if setting.until and nccl_number > version_number(setting.until):
        return (
            "removed",
            f"NCCL {version_text(nccl_number)} does not read it; the last release that did was {setting.until}{instead}",
        )
    if setting.since and nccl_number < version_number(setting.since):
        return (
            "no-effect",
            f"NCCL {version_text(nccl_number)} does not read it; the first release that does is {setting.since}",
        )
    return None


def _deprecated(setting: Setting, nccl_number: int | None) -> tuple[str, str] | None:
    if setting.deprecated and (nccl_number is None or nccl_number >= version_number(setting.deprecated)):
        instead = f"; use {setting.replaced_by}" if setting.replaced_by else ""
        return "deprecated", f"deprecated since NCCL {setting.deprecated}{instead}"
    return None


def _unknown(name: str, nccl_number: int | None) -> Iterator[tuple[str, str]]:
    """Yields (verdict, why) for a name that is not in the table."""
    new = successor(name)
    if new:
        known = f"; the setting is now called {new}" if find(new) else ""
        yield "removed", f"no released libfabric with an EFA provider (1.8 and newer) reads it{known}"
    elif name != name.strip() and find(name):
        yield "unknown", f"the name contains a blank, so nothing reads it; write {name.strip()}=value without blanks"
    else:
        yield from _typo(name, nccl_number)


def _typo(name: str, nccl_number: int | None) -> Iterator[tuple[str, str]]:
    """Yields a verdict if the name looks like a setting of NCCL or of a program whose settings are listed."""
    of_nccl = name.upper().startswith("NCCL_") and not name.upper().startswith(FOREIGN)
    if not of_nccl and not name.startswith(_LISTED) and find(name) is None:
        return
    if of_nccl and nccl_number is not None and nccl_number > NEWEST:
        return
    similar = suggest(name, _TYPO)
    if similar:
        yield "unknown", f"nothing reads this name; {similar[0]} is probably meant"
    elif of_nccl:
        yield "unknown", f"no NCCL up to {version_text(NEWEST)} reads it; a plug-in or wrapper of yours may"
