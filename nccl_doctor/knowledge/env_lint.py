"""The lint of settings: which are misspelt, gone, without effect, left over from debugging, or dangerous."""

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.knowledge import version_number, version_text
from nccl_doctor.knowledge.settings import FOREIGN, NEWEST, Setting, as_number, exact, find, flaw, successor, suggest

VERDICTS = ("unknown", "deprecated", "removed", "no-effect", "debug-leftover", "dangerous", "bad-value")
# The tables for these names are complete enough that a near miss is a slip of the pen.
_LISTED = ("TORCH_NCCL_", "HOROVOD_", "OFI_NCCL_", "FI_EFA_")
_SOCKETS = {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}
_INTERFACES = {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"}
_PAIRED = _SOCKETS | _INTERFACES
_TYPO = 0.87  # similarity from which a suggestion is good enough to blame the pen

SettingRow = tuple[str | None, int | None, str, str, int]


class Verdict(NamedTuple):
    """A row of the lint: a setting of a host or rank, what is wrong with it and why."""

    host: str | None
    rank: int | None
    name: str
    value: str
    verdict: str
    detail: str
    ref: int


def rows(settings: Iterable[SettingRow], nccl_number: int | None, read: Set[str] = frozenset()) -> Iterator[Verdict]:
    """Judge (host, rank, name, value, ref) of every setting; one without fault gives no row.

    ``nccl_number`` is 22105 for NCCL 2.21.5; None where the release is not known, and then nothing is said that depends on it.
    ``read`` are the names that NCCL says it has read.
    """
    pairs: dict[tuple[str | None, int | None], dict[str, tuple[str, int]]] = {}
    for host, rank, name, value, ref in settings:
        for verdict, detail in judge(name, value, nccl_number, name in read):
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
def judge(name: str, value: str, nccl_number: int | None, read: bool = False) -> tuple[tuple[str, str], ...]:
    """(verdict, why) of one setting; empty where nothing is wrong. What NCCL says it has read is not without a reader."""
    setting = exact(name)
    if setting is None:
        return () if read else tuple(_stranger(name, nccl_number))
    gone = None if read else _version(setting, nccl_number)  # vendors build releases with settings of later ones
    if gone:
        return (gone,)
    found = [old] if (old := _old(setting, nccl_number)) else []
    wrong = flaw(setting, value)
    if wrong:
        return (*found, ("bad-value", wrong))
    for check in setting.checks:
        if check.holds(value.strip().rstrip("."), nccl_number):
            return (*found, (check.verdict, check.why))
    return tuple(found)


def _version(setting: Setting, nccl_number: int | None) -> tuple[str, str] | None:
    if setting.family != "nccl" or nccl_number is None:
        return None
    instead = f"; {setting.replaced_by} took its place" if setting.replaced_by else ""
    if setting.until and nccl_number > version_number(setting.until):
        return (
            "removed",
            f"NCCL {version_text(nccl_number)} does not read it, the last to do so was {setting.until}{instead}",
        )
    if setting.since and nccl_number < version_number(setting.since):
        return "no-effect", f"NCCL {version_text(nccl_number)} does not read it, the first to do so is {setting.since}"
    return None


def _old(setting: Setting, nccl_number: int | None) -> tuple[str, str] | None:
    if setting.deprecated and (nccl_number is None or nccl_number >= version_number(setting.deprecated)):
        instead = f"; use {setting.replaced_by}" if setting.replaced_by else ""
        return "deprecated", f"deprecated since NCCL {setting.deprecated}{instead}"
    return None


def _stranger(name: str, nccl_number: int | None) -> Iterator[tuple[str, str]]:
    new = successor(name)
    if new:
        known = f"; the setting is called {new}" if find(new) else ""
        yield "removed", f"no released libfabric with an EFA provider (1.8 and newer) reads it{known}"
        return
    if name != name.strip() and find(name):
        yield (
            "unknown",
            f"a blank belongs to the name, so that nobody reads it; write {name.strip()}=value without blanks",
        )
        return
    ours = name.upper().startswith("NCCL_") and not name.upper().startswith(FOREIGN)
    if not ours and not name.startswith(_LISTED) and find(name) is None:
        return
    if ours and nccl_number is not None and nccl_number > NEWEST:
        return
    near = suggest(name, _TYPO)
    if near:
        yield "unknown", f"nothing reads this name; {near[0]} is probably meant"
    elif ours:
        yield "unknown", f"no NCCL up to {version_text(NEWEST)} reads it; a plug-in or wrapper of yours may"
