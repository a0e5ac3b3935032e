"""The matrix of transports between hosts: over what each pair of hosts talks, the odd pairs marked."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Cell, Grid
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

HOSTS = 40  # rows and columns that are shown; those of odd pairs come first where there are more
ALIKE = 16  # that are shown where no pair is odd
_DIGITS = re.compile(r"(\d+)")
_LINKS = """
SELECT src_host, dst_host, same_host, transport, coalesce(method, ''), coalesce(network, ''), gdr, sum(connections)
FROM link WHERE src_host IS NOT NULL AND dst_host IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2
"""


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Grid]:
    """The matrix, where connections between hosts are known."""
    pairs: dict[tuple[str, str], Counter[str]] = {}
    for source, target, same, transport, method, network, gdr, count in facts.query(_LINKS):
        pairs.setdefault((source, target), Counter())[_words(same, transport, method, network, gdr)] += count or 1
    hosts = sorted({host for pair in pairs for host in pair}, key=_by_number)
    if len(hosts) < 2:
        return
    usual = {
        inside: Counter(words for (a, b), counts in pairs.items() if (a == b) is inside for words in counts)
        for inside in (True, False)
    }
    odd = {pair for pair, counts in pairs.items() if _is_odd(counts, usual[pair[0] == pair[1]])}
    most = HOSTS if odd else ALIKE
    shown = hosts
    summary = f"{len(hosts):,} hosts"
    if len(hosts) > most:
        first = {host for pair in odd for host in pair}
        chosen = [*(host for host in hosts if host in first), *(host for host in hosts if host not in first)][:most]
        shown = sorted(chosen, key=_by_number)
        summary += f"; {most} are shown, those of odd pairs first" if odd else f"; no pair is odd, {most} are shown"
    words = sorted({one for counts in usual.values() for one in counts})
    short = {one: _short(one) for one in words}
    yield Grid(
        name="transports",
        title="Transports between hosts",
        summary=f"{summary}. A row sends to a column; inside a host on the diagonal.",
        corner="from \\ to",
        columns=tuple(shown),
        rows=tuple((a, tuple(_cell(a, b, pairs.get((a, b)), short, (a, b) in odd) for b in shown)) for a in shown),
        legend=(
            *((_state(one), f"{short[one]}: {one}") for one in words),
            *([("odd", "! unlike most pairs")] if odd else []),
        ),
        tables=("link", "connection", "fell_back", "network"),
    )


def _by_number(host: str) -> list[tuple[int, str]]:
    """Sorts `n9` before `n10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(host[:200])]


def _words(same: int | None, transport: str, method: str, network: str, gdr: int | None) -> str:
    """`IB with GPUDirect RDMA`, `P2P/CUMEM`."""
    if transport != "NET":
        return f"{transport}/{method}" if method else transport
    if network == "Socket":
        return "TCP sockets"
    return f"{network or 'network'} {'with' if gdr else 'without'} GPUDirect RDMA"


def _short(words: str) -> str:
    """At most eight signs for a cell."""
    if words == "TCP sockets":
        return "TCP"
    if words.endswith("GPUDirect RDMA"):
        name = {"AWS Libfabric": "EFA"}.get(words.split(" with")[0], words.split(" with")[0].split("_")[0])
        return f"{name[:6]}+G" if " with " in words else name[:8]
    return words.split("/")[0]


def _state(words: str) -> str:
    """Whether a path is one of the fast ones: its data goes past the processor."""
    return "wait" if words == "TCP sockets" or words.endswith("without GPUDirect RDMA") else "good"


def _is_odd(counts: Counter[str], usual: Counter[str]) -> bool:
    """Whether a pair has a transport that fewer than a third of the pairs have, where one prevails."""
    most = usual.most_common(1)[0][1]
    return any(usual[words] * 3 <= most for words in counts)


def _cell(source: str, target: str, counts: Counter[str] | None, short: dict[str, str], odd: bool) -> Cell:
    if counts is None:
        return Cell(state="none", says=f"{source} to {target}: no connection was printed")
    kinds = [words for words, _ in counts.most_common()]
    text = ", ".join(dict.fromkeys(short[words] for words in kinds)) + (" !" if odd else "")
    listed = ", ".join(f"{words} ({counts[words]:,} connections)" for words in kinds)
    state = "odd" if odd else max(map(_state, kinds), key=("good", "wait").index)
    return Cell(text, state, f"{source} to {target}: {listed}")
