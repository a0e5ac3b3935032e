"""The table of nodes, by verdict."""

from collections.abc import Callable, Iterable

from nccl_doctor.watch.state import KINDS, Node, State
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, GOOD, Cell, Column, Look, cell, degrees, grade, percent, whole
from nccl_doctor.watch.view.findings import SEVERITY_RANKS, Group

Verdicts = dict[str, list[Group]]  # current errors and warnings of each node, the worst first
VERDICT_STYLES = {"no answer": BAD, "error": BAD, "partly": FAIR, "warning": FAIR, "ok": GOOD}


def verdicts(groups: Iterable[Group]) -> Verdicts:
    """Returns the current errors and warnings by node."""
    found: Verdicts = {}
    for group in groups:
        if not group.over and SEVERITY_RANKS.get(group.finding.severity, 2) < 2:
            for name in group.nodes:
                found.setdefault(name, []).append(group)
    return found


def node_state(node: Node, now: float) -> tuple[int, str]:
    """Returns how bad the state of a node is (0 to 3) and a description: `(3, "gone: Connection refused")`."""
    if node.gone is not None:
        return 3, f"gone: {node.gone}"
    silent = {kind: seconds for kind in KINDS if (seconds := node.silent(kind, now)) is not None}
    if len(silent) == len(KINDS):
        return 3, f"no answer for {min(silent.values()):.0f} s"
    if silent:
        kind, seconds = max(silent.items(), key=lambda item: item[1])
        return 2, f"{kind}: no answer for {seconds:.0f} s"
    if node.problems:
        kind, problem = next(iter(node.problems.items()))
        return 1, f"{kind}: {' '.join(problem.split())}"
    return 0, "ok"


def verdict(node: Node, found: Verdicts, now: float) -> str:
    """Returns `no answer`, `error`, `partly` (a kind of values is missing), `warning` or `ok`."""
    badness, _ = node_state(node, now)
    if badness == 3:
        return "no answer"
    own = found.get(node.name, [])
    if own and own[0].finding.severity == "error":
        return "error"
    return "partly" if badness == 2 else "warning" if own or badness else "ok"


def worst_first(state: State, now: float, found: Verdicts | None = None) -> list[Node]:
    """Returns nodes by verdict, then by the least busy GPU."""
    order = list(VERDICT_STYLES)
    return sorted(
        state.nodes.values(),
        key=lambda node: (order.index(verdict(node, found or {}, now)), _lowest(node) or 0.0, node.name),
    )


def bad_first(state: State, now: float) -> list[Node]:
    """Returns nodes that do not answer before the others, which keep their order."""
    return sorted(state.nodes.values(), key=lambda node: -node_state(node, now)[0])


def _known(node: Node, name: str) -> list[float]:
    return [value for gpu in node.gpus.values() if (value := gpu.last(name)) is not None]


def _mean(node: Node) -> float | None:
    values = _known(node, "util")
    return sum(values) / len(values) if values else None


def _lowest(node: Node) -> float | None:
    return min(_known(node, "util"), default=None)


def _watts(node: Node) -> float | None:
    return sum(values) if (values := _known(node, "power")) else None


def _hottest(node: Node) -> float | None:
    return max(_known(node, "temperature"), default=None)


def _traffic(node: Node) -> float | None:
    values = [value for port in node.ports.values() for way in ("rx", "tx") if (value := port.last(way)) is not None]
    return sum(values) if values else None


def _new_errors(node: Node) -> int:
    return sum(sum(port.errors.values()) for port in node.ports.values())


def _rank_numbers(node: Node) -> list[int]:
    return sorted({one["rank"] for one in node.processes if isinstance(one.get("rank"), int)})


def node_columns(now: float, found: Verdicts) -> tuple[Column, ...]:
    """Returns the columns of the table of nodes; values that are out of date are left out."""

    def fresh(kind: str, value: Callable[[Node], float | None]) -> Callable[[Node], float | None]:
        return lambda node: value(node) if node.age(kind, now) is None else None

    def number(key: str, title: str, width: int, value: Callable[[Node], float | None], text: Callable[[float | None], str | None],
               rank: int, letter: str) -> Column:  # fmt: skip
        return Column(
            key,
            title,
            width,
            lambda n, _: cell(text(value(n)), right=True),
            lambda n: value(n) or 0,
            rank,
            letter=letter,
        )

    def lowest(node: Node, look: Look) -> Cell:
        value = low(node)
        return cell(percent(value), BAD if value is not None and value < 25 else "", True)

    def judged(node: Node, look: Look) -> Cell:
        word = verdict(node, found, now)
        return cell(word, VERDICT_STYLES[word])

    def why(node: Node, look: Look) -> Cell:
        badness, description = node_state(node, now)
        if badness:
            return cell(description, ("", FAIR, BAD, BAD)[badness])
        return cell(", ".join(dict.fromkeys(group.finding.name for group in found.get(node.name, []))) or "ok", DIM)

    def ranks(node: Node, look: Look) -> Cell:
        own = _rank_numbers(node)
        return cell(f"{own[0]}-{own[-1]}" if len(own) > 1 else own[0] if own else None, right=True)

    low, hottest = fresh("gpu", _lowest), fresh("gpu", _hottest)
    return (
        Column("node", "node", 10, lambda n, _: cell(n.name), lambda n: n.name, 0, 24, "n"),
        Column("verdict", "verdict", 9, judged, lambda n: list(VERDICT_STYLES).index(verdict(n, found, now)), 0, letter="v"),
        Column("gpus", "GPUs", 4, lambda n, _: cell(len(n.gpus), right=True), lambda n: len(n.gpus), 1, letter="g"),
        Column("ranks", "ranks", 5, ranks, lambda n: min(_rank_numbers(n), default=-1), 4, 9, "r"),
        number("util", "util", 5, fresh("gpu", _mean), percent, 0, "u"),
        Column("lowest", "low", 5, lowest, lambda n: low(n) or 0, 1, letter="l"),
        number("power", "watt", 5, fresh("gpu", _watts), whole, 5, "w"),
        Column("temp", "hottest", 7, lambda n, _: cell(degrees(hottest(n)), grade(hottest(n), 80, 87), True),
               lambda n: hottest(n) or 0, 4, letter="h"),
        number("net", "net Gb/s", 8, fresh("port", _traffic), lambda x: None if x is None else f"{x:.1f}", 3, "t"),
        Column("errors", "errors", 6, lambda n, _: cell(_new_errors(n) or "", BAD, True), _new_errors, 6, letter="e"),
        number("CPU", "CPU", 5, fresh("host", lambda n: n.host.last("cpu")), percent, 7, "c"),
        Column("state", "why", 26, why, lambda n: node_state(n, now), 2, 100, "y"),
    )  # fmt: skip
