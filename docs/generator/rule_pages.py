"""A page for each rule, one for each group, and one for the classes of symptoms."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from markup import block, code, listing, page, prose, table

from nccl_doctor.app.explain import message_form
from nccl_doctor.reporters.advice import steps
from nccl_doctor.rules import loader, symptoms
from nccl_doctor.rules.schema import GROUPS, NODE, Rule

INDEX, CLASSES = "rules/index.md", "rules/symptom-classes.md"
GROUP_TITLES = {
    "resource": "Limits of memory, files, processes and locked memory",
    "hardware": "GPUs, links and machines that fail",
    "cuda": "Errors of CUDA and of the use of devices",
    "version": "Programs and libraries that do not fit together",
    "desync": "Ranks that do not call the same collectives",
    "network": "Connections, RDMA, sockets and their settings",
    "config": "NCCL variables and options of launchers",
    "input": "Data loading",
    "peer": "Ranks that complain because another one has gone",
    "scheduler": "Launchers, Slurm, Kubernetes, MPI",
    "start": "Jobs of which ranks, nodes or pods never came up",
    "message": "What programs report and no other rule explains",
    "performance": "Jobs that run, and too slowly",
    "context": "Facts that explain others and are not faults",
    "node-gpu": "GPUs of a node and their driver",
    "node-host": "Memory, processors, PCI, kernel, clock, limits and storage of a node",
    "node-network": "Network cards, ports, routes and logins of a node",
    "node-software": "Libraries, containers and variables of a node",
}
_SHOWN = 30  # of the rules that a page names


def place(rule: Rule) -> str:
    """The page of a rule: its name is for ever, its group is not."""
    return f"rules/{rule.name}.md"


def group_place(group: str) -> str:
    return f"rules/groups/{group}.md"


def ordered_groups() -> list[str]:
    """Groups of rules: those of logs, then those of nodes."""
    return sorted(GROUPS, key=lambda group: group.startswith(NODE))


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about rules."""
    rules = sorted(loader.load_rules(), key=lambda rule: rule.id)
    explained = _explained_by(rules)
    by_group = defaultdict(list)
    for rule in rules:
        by_group[rule.group].append(rule)
        yield place(rule), _rule(rule, explained[rule.name])
    yield INDEX, _index(by_group)
    yield CLASSES, _classes(rules)
    for group, members in by_group.items():
        title = GROUP_TITLES[group]
        yield group_place(group), page(f"# {title}", f"The {len(members)} rules of the group `{group}`.", rows(members))


def rows(rules: Iterable[Rule]) -> str:
    """A table of rules."""
    cells = ((rule.id, code(rule.name), prose(rule.title), rule.severity, rule.role) for rule in rules)
    return table(("id", "name", "finds", "severity", "role"), cells)


def targets() -> Iterator[tuple[str, str]]:
    """(name, place) by which a page may name a rule: its id, its name and former ones, but for plain words."""
    for rule in loader.load_rules():
        for key in rule.keys:
            if not key.isalpha():
                yield key, place(rule)


def _explained_by(rules: Iterable[Rule]) -> dict[str, list[str]]:
    """For each rule the names of those that account for it, by name or by a class that it belongs to."""
    found: dict[str, list[str]] = defaultdict(list)
    known = [(rule, {rule.name} | symptoms.with_including(rule.symptom_of)) for rule in rules]
    for cause, _ in known:
        for rule, names in known:
            if rule is not cause and not names.isdisjoint(cause.explains):
                found[rule.name].append(cause.name)
    return found


def _index(by_group: dict[str, list[Rule]]) -> str:
    number = sum(map(len, by_group.values()))
    cells = (
        (f"[{GROUP_TITLES[group]}](groups/{group}.md)", code(group), str(len(by_group[group])))
        for group in ordered_groups()
    )
    return page(
        "# Rules",
        f"nccl-doctor has {number} rules. Each is a file with a query on the facts, the words of its finding and its own "
        "examples. `nccl-doctor explain NAME` prints the words of a rule, `nccl-doctor rules show NAME` its file.",
        "A **cause** comes before the **symptoms** that it accounts for; **context** explains others and is not a fault. "
        "Rules refer to [classes of symptoms](symptom-classes.md). [Contributing](../contributing.md) shows how to write a rule.",
        table(("group", "folder", "rules"), cells),
        "A site keeps its rules in `/etc/nccl-doctor/rules`, `~/.config/nccl-doctor/rules` or a folder named with `--rules`.",
        "Groups `node-*` are asked by `preflight`, and by `analyze` where a node is among its inputs.",
    )


def _classes(rules: Iterable[Rule]) -> str:
    rules = list(rules)
    parts = []
    for known in symptoms.load_classes().values():
        members = [rule for rule in rules if known.name in rule.symptom_of]
        causes = [rule for rule in rules if known.name in rule.explains]
        parts += [
            f"## {code(known.name)} {{ #{known.name.lstrip('@')} }}",
            prose(known.meaning),
            f"Includes {', '.join(f'[`{name}`](#{name.lstrip(chr(64))})' for name in known.includes)}."
            if known.includes
            else "",
            _named("Symptoms of this class", [rule.name for rule in members]),
            _named("Causes that account for it", [rule.name for rule in causes]),
        ]
    return page(
        "# Classes of symptoms",
        "A symptom says to which classes it belongs, a cause which classes it accounts for. In a report the symptoms that a "
        "found cause accounts for are shown below it.",
        *parts,
    )


def _named(title: str, names: list[str]) -> str:
    """A sentence that lists rules; the count is said of those that are left out."""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{title}: {', '.join(map(code, names[:_SHOWN]))}{more}." if names else ""


def _rule(rule: Rule, causes: list[str]) -> str:
    facts = f"{code(rule.id)} · {code(rule.name)} · **{rule.severity}** · {rule.role} · {rule.confidence}"
    if rule.action != "warn":
        facts += f" · `preflight` answers **{rule.action}**"
    classes = [f"[`{name}`](symptom-classes.md#{name[1:]})" if name[0] == "@" else code(name) for name in rule.explains]
    example = next((one for one in rule.example if one.log and one.expect), None)
    return page(
        f"# {prose(rule.title)}",
        f"{facts} · group [`{rule.group}`](groups/{rule.group}.md) · since {rule.since}",
        "## What it says",
        f"> {prose(message_form(rule.message))}",
        "## Why it matters",
        prose(message_form(rule.why)),
        "## What to do",
        *_advice(message_form(rule.fix)),
        "## What it needs",
        f"Tables {', '.join(map(code, rule.needs))}. Where one was never filled, the rule is skipped and the report says so.",
        _params(rule),
        "## Related" if classes or causes or rule.symptom_of else "",
        f"Accounts for: {', '.join(classes)}." if classes else "",
        _named("Accounted for by", causes),
        f"Belongs to: {', '.join(f'[`{one}`](symptom-classes.md#{one[1:]})' for one in rule.symptom_of)}."
        if rule.symptom_of
        else "",
        "## References" if rule.references else "",
        listing(f"<{one}>" if one.startswith("https://") else prose(one) for one in rule.references),
        "## Example { data-search-exclude }" if example else "",
        f"{prose(example.name)}:" if example else "",
        block(example.log) if example else "",
        "## Query { data-search-exclude }",
        block(rule.query, "sql"),
    )


def _advice(fix: str) -> Iterator[str]:
    """Sentences, and commands as blocks that can be copied."""
    for step in steps(fix):
        yield block(step.text, "sh") if step.is_command else prose(step.text)


def _params(rule: Rule) -> str:
    if not rule.params:
        return ""
    values = ", ".join(f"{code(name)} = {code(str(value))}" for name, value in rule.params.items())
    return f"A site may change with `--config`: {values}."
