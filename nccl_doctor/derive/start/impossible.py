"""Values that nothing of their kind can have.

Addresses that are no host's, ranks beyond the number of ranks, ports beyond 65535, two sizes of one communicator, more processes on
a node than in the job, numbers of NVLinks that the GPU model does not have.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Env, ImpossibleValue, Message, NvlinkState
from nccl_doctor.knowledge import machines

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
_LOOPBACK = """  -- one host alone can be its own master
SELECT host, min(rank), name, count(*) OVER (), min(ref) FROM (
  SELECT host, rank, field(fields, 'host_name') AS name, ref FROM message
  WHERE kind = 'tcpstore-connect-timeout' AND host IS NOT NULL
) WHERE name LIKE '127.%' OR name IN ('localhost', '::1') GROUP BY host
"""
_SIZES = """  -- communicators that were split off had one number together before NCCL 2.20
SELECT comm_id, group_concat(DISTINCT nranks), max(nranks), min(ref) FROM communicator
WHERE call LIKE 'ncclCommInit%' AND comm_id IS NOT NULL AND nranks > 0
GROUP BY comm_id HAVING min(nranks) < max(nranks)
"""
_LINKS = """  -- the list of the last GPU may be cut
SELECT n.host, n.gpu, n.model, n.active, n.active + n.inactive, n.active < b.most, n.ref = b.last AND n.inactive = 0, n.ref
FROM nvlink_state n JOIN (
  SELECT host, file, max(active) AS most, max(ref) AS last FROM nvlink_state GROUP BY host, file
) b ON b.host IS n.host AND b.file = n.file
WHERE n.model IS NOT NULL AND n.active > 0
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
_CHECKS = tuple((compiled(text), subject, why, proved) for text, subject, why, proved in _NOT_A_HOST)


@derivation(fills=[ImpossibleValue], reads=[Communicator, Env], needs=[Message, NvlinkState])
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
    yield from _loopback(facts)
    yield from _sizes(facts)
    yield from _links(facts)


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
        world, local = given.get("WORLD_SIZE"), given.get("LOCAL_WORLD_SIZE")
        if world is not None and local is not None and 0 < world[0] < local[0]:
            why = f"LOCAL_WORLD_SIZE is {local[0]}, and a node cannot have more processes than the whole job"
            yield _row(host, rank, "size", world[0], why, None, world[1])
        for own, of in _WITHIN if pid is not None or rank is not None else ():
            if own in given and of in given and 0 < given[of][0] <= given[own][0]:
                yield _rank(host, rank, given[own][0], given[of][0], given[own][1])


def _loopback(facts: Facts) -> Iterator[ImpossibleValue]:
    """A master on the loopback address that several hosts look for: each of them means itself."""
    for host, rank, name, hosts, ref in facts.query(_LOOPBACK):
        if hosts > 1:
            why = f"{hosts} hosts look for it, and each means itself"
            yield _row(host, rank, "address", name, why, None, ref)


def _sizes(facts: Facts) -> Iterator[ImpossibleValue]:
    """Numbers of ranks that processes gave for one communicator."""
    for comm, sizes, most, ref in facts.query(_SIZES):
        listed = " and ".join(sorted(str(sizes).split(","), key=int))
        yield _row(None, None, "size", listed, f"all ranks of communicator {comm} have to give the same", most, ref)


def _links(facts: Facts) -> Iterator[ImpossibleValue]:
    """GPUs with more NVLinks than their model, or with fewer on the whole node; GPUs that differ have a rule of their own."""
    for host, gpu, name, active, listed, differs, may_be_cut, ref in facts.query(_LINKS):
        model = machines.model(name)
        links = model.get("links") if model is not None else None
        if model is None or not links:
            continue
        why = f"a {model['model']} has {links}"
        if listed > links:
            yield _row(host, None, "links", f"GPU {gpu}: {listed}", why, links, ref)
        elif active < links and not differs and not may_be_cut:
            yield _row(host, None, "links", f"GPU {gpu}: {active}", why, links, ref, certain=0)
