"""Packet filters that refuse what other nodes send. Only root may read them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import Firewall
from nccl_doctor.node.runtime.root import Absent, Root

_SECONDS = 0.5
_ANY = re.compile(r"(?:counter (?:packets \d+ bytes \d+ )?)?(?:drop|reject(?: with .*)?)(?: comment .*)?")
_FROM = re.compile(r"\b(?:saddr|iifname|iif)\b.{0,400}\baccept\b")


class Chain(NamedTuple):
    """A chain that sees what arrives for this node."""

    name: str
    policy: str  # accept, drop
    closing: str  # the rule that refuses everything which no rule before it accepted; empty without one
    sources: int  # rules before it that accept by source address or interface, lo not counted


def nft(text: str) -> Iterator[Chain]:
    """Chains of `nft list ruleset` that are hooked to `input`."""
    table = ""
    for line, body in _blocks(text):
        if line.startswith("table "):
            table = line.removeprefix("table ").removesuffix("{").strip()
        hooked = re.search(r"type filter hook input priority [^;]{1,80};(?: policy (\w+);)?", body)
        if not line.startswith("chain ") or hooked is None:
            continue
        name = f"{table} {line.split()[1]}"
        yield _chain(name, hooked[1] or "accept", [row.strip() for row in body.splitlines()], _ANY, _FROM)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(head, body) of tables and chains; the body of a table is left empty."""
    lines = text.splitlines()[:20_000]
    for number, line in enumerate(lines):
        head = line.strip()
        if head.startswith("table "):
            yield head, ""
        elif head.startswith("chain "):
            body = []
            for row in lines[number + 1 :]:
                if row.strip() == "}":
                    break
                body.append(row)
            yield head, "\n".join(body)


def iptables(text: str) -> Iterator[Chain]:
    """The chain INPUT of `iptables-save -t filter`."""
    policy = re.search(r"^:INPUT (ACCEPT|DROP)\b", text, re.MULTILINE)
    if policy is None:
        return
    rules = re.findall(r"^-A INPUT(.*)$", text, re.MULTILINE)
    closes = re.compile(r"-j (?:DROP|REJECT(?: --reject-with \S+)?)")
    sources = re.compile(r".*(?:-s|-i) \S+.*-j ACCEPT")
    yield _chain("filter INPUT", policy[1].lower(), [rule.strip() for rule in rules], closes, sources)


def _chain(name: str, policy: str, rules: list[str], closes: re.Pattern[str], source: re.Pattern[str]) -> Chain:
    closing = next((rule for rule in rules if closes.fullmatch(rule)), "")
    before = rules[: rules.index(closing)] if closing else rules
    loops = re.compile(r"\"lo\"|-i lo\b|127\.0\.0|\bct state\b|ctstate")
    return Chain(name, policy, closing, sum(bool(source.search(rule)) and not loops.search(rule) for rule in before))


def collect(root: Root) -> Iterator[Firewall]:
    """Raises Absent where nothing may be read, so that no rows do not mean no filter."""
    answered = False
    for command, parse in ((("nft", "list", "ruleset"), nft), (("iptables-save", "-t", "filter"), iptables)):
        with suppress(TimeoutError):
            out = root.run(*command, seconds=_SECONDS)
            if out is None or out.status != 0:
                continue
            answered = True
            for chain in parse(out.text):
                text = f"{chain.name}: policy {chain.policy}{f', {chain.closing}' if chain.closing else ''}"
                yield Firewall(
                    None, command[0], chain.name, chain.policy, chain.closing, chain.sources,
                    Seen(" ".join(command), text),
                )  # fmt: skip
            return
    if not answered:
        raise Absent("no packet filter may be read")
