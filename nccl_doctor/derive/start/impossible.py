"""Values that nothing of their kind can have: addresses that are no host's, ranks beyond the number of ranks, ports beyond 65535."""

import re
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Env, ImpossibleValue, Message

PORTS = 65_535
_RANKS = 10_000_000  # more ranks than any job has: garbage of a torn line

_ASKED = """
SELECT host, rank, coalesce(field(fields, 'host_name'), field(fields, 'name')), CAST(field(fields, 'port') AS INTEGER), ref
FROM message WHERE kind IN ('tcpstore-connect-timeout', 'name-unresolved')
"""
_PRINTED = """
SELECT host, rank, kind, coalesce(field(fields, 'value'), field(fields, 'of_rank')),
       CAST(field(fields, 'top') AS INTEGER), CAST(field(fields, 'size') AS INTEGER), ref
FROM message WHERE kind IN ('rank-out-of-range', 'rank-out-of-range-text', 'port-out-of-range')
"""
_ANNOUNCED = """
SELECT host, CAST(coalesce(field(fields, 'member'), field(fields, 'process')) AS INTEGER),
       CAST(coalesce(field(fields, 'size'), field(fields, 'total')) AS INTEGER), ref
FROM message WHERE kind = 'rank-announced'
"""
_IN_COMMUNICATOR = """  -- a larger communicator has that rank: the number of ranks was cut off at the end of a torn line
SELECT host, rank, nranks, min(ref) FROM communicator
WHERE comm_rank >= nranks AND nranks > 0 AND comm_rank >= (SELECT max(nranks) FROM communicator)
GROUP BY host, rank, nranks
"""
_SET = """
SELECT host, rank, pid, name, value, ref FROM env
WHERE name IN ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_PORT') AND value <> ''
"""
_WITHIN = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))

_NOT_A_HOST = (  # expression, subject, why, whether the text proves it
    (r"0\.(?!0\.0\.0$)\d+\.\d+\.\d+", "address", "a number was read as an IPv4 address, so the name was cut off or is only digits", 1),
    (r"(?:22[4-9]|2[345]\d)\.\d+\.\d+\.\d+", "address", "no host has an address of this range", 1),
    (r"[^:<]{0,255}[\[\]{}$%*][^:<]{0,255}", "name", "a list of nodes or a variable was not expanded", 1),
    (r"None|null|nil|undefined", "name", "the variable was empty where the address was made", 1),
    (r"[^:<]{0,255}[A-Za-z0-9][-.]", "name", "the name ends in a hyphen or a dot, so it is probably cut off", 0),
)  # fmt: skip
_CHECKS = tuple((re.compile(text), subject, why, proved) for text, subject, why, proved in _NOT_A_HOST)


@derivation(fills=[ImpossibleValue], reads=[Communicator, Env], needs=[Message])
def impossible_values(facts: Facts) -> Iterator[ImpossibleValue]:
    """One row for each place where such a value was printed or set."""
    for host, rank, name, port, ref in facts.query(_ASKED):
        if name and (found := not_a_host(name)) is not None:
            yield _row(host, rank, found[0], name, found[1], None, ref, certain=found[2])
        if port is not None and port > PORTS:
            yield _row(host, rank, "port", port, f"ports end at {PORTS}", PORTS, ref)
    for host, rank, kind, value, top, size, ref in facts.query(_PRINTED):
        if kind == "port-out-of-range":
            yield _row(host, rank, "port", value or "not an integer up to 65535", f"ports end at {PORTS}", PORTS, ref)
        elif (most := size - 1 if size is not None else top) is not None:
            yield _rank(host, rank, int(value), most + 1, ref)
    for host, number, size, ref in facts.query(_ANNOUNCED):
        if number is not None and size and number >= size:
            yield _rank(host, number, number, size, ref)
    for host, number, size, ref in facts.query(_IN_COMMUNICATOR):
        if number is not None and size <= number < _RANKS:
            yield _rank(host, number, number, size, ref)
    yield from _settings(facts)


def not_a_host(name: str) -> tuple[str, str, int] | None:
    """Subject, reason and certainty where a text cannot be the name or address of a host."""
    if ":" in name or "<" in name:  # an IPv6 address, or a placeholder of who posted the log
        return None
    return next(((subject, why, proved) for text, subject, why, proved in _CHECKS if text.fullmatch(name)), None)


def _row(
    host: str | None, rank: int | None, subject: str, value: object, why: str, limit: int | None, ref: int, certain: int = 1
) -> ImpossibleValue:  # fmt: skip
    return ImpossibleValue(
        host=host, rank=rank, subject=subject, value=str(value), why=why, limit_=limit, certain=certain, ref=ref
    )


def _rank(host: str | None, rank: int | None, value: int, size: int, ref: int) -> ImpossibleValue:
    ranks = "a job of one process has only rank 0" if size == 1 else f"the ranks of {size} are 0 to {size - 1}"
    return _row(host, rank, "rank", value, ranks, size - 1, ref)


def _settings(facts: Facts) -> Iterator[ImpossibleValue]:
    """Settings of one process that contradict each other or that cannot be."""
    of_process: dict[tuple[str | None, int | None, int | None], dict[str, tuple[int, int]]] = defaultdict(dict)
    for host, rank, pid, name, value, ref in facts.query(_SET):
        if re.fullmatch(r"-?\d{1,9}", value):
            of_process[host, rank, pid][name] = int(value), ref
    for (host, rank, pid), given in of_process.items():
        port = given.get("MASTER_PORT")
        if port is not None and not 0 <= port[0] <= PORTS:
            yield _row(host, rank, "port", port[0], f"ports end at {PORTS}", PORTS, port[1])
        for own, of in _WITHIN if pid is not None or rank is not None else ():
            if own in given and of in given and 0 < given[of][0] <= given[own][0]:
                yield _rank(host, rank, given[own][0], given[of][0], given[own][1])
