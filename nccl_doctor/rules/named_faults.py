"""Messages of the catalogue that name a fault: the rule of that name reports them, not the rule of their class."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from nccl_doctor.rules.answers import Answer
from nccl_doctor.rules.folding import Group, Row
from nccl_doctor.rules.schema import NODE, Rule
from nccl_doctor.rules.templates import placeholders


def hand_over(answers: Sequence[Answer]) -> list[Answer]:
    """The answers, where rows of the rules of a class went to the rules that their column `fault` names.

    A rule that found more than a note itself says what there is to say, and gets no rows; nor does it get those whose evidence
    it has judged itself.
    """
    named = {answer.rule.name: at for at, answer in enumerate(answers)}
    result = list(answers)
    for at, answer in enumerate(answers):
        if not answer.rule.unclaimed or answer.outcome != "found":
            continue
        kept: list[Group] = []
        for fault, group in chain.from_iterable(map(_parts, answer.groups)):
            if fault not in named:
                kept.append(group)
                continue
            own = answers[named[fault]]
            new = group.without({ref for row in own.rows for ref in row.refs}, echoes=True)
            if new is not None and all(row.severity == "note" for row in own.rows):
                taken = result[named[fault]]
                before = taken.groups if taken.rule.unclaimed else ()
                result[named[fault]] = _found(_speaking_for(own.rule, answer.rule), [*before, _of(own.rule, new)])
        result[at] = _found(answer.rule, kept)
    return result


def _parts(group: Group) -> Iterator[tuple[str, Group]]:
    """The group, or several where its rows name different faults."""
    faults = list(dict.fromkeys(row.values.get("fault") or "" for row in group.rows))
    if len(faults) == 1:
        yield faults[0], group
        return
    for fault in faults:
        part = Group([], mixed=group.mixed)
        for row in group.rows:
            if (row.values.get("fault") or "") == fault:
                part.add(row, keep=True)
        yield fault, part


def _speaking_for(owner: Rule, speaker: Rule) -> Rule:
    """The rule that owns the fault, with words and rank of the rule of the class: the words name columns of its rows."""
    why = speaker.why if placeholders(owner.why) else owner.why
    action = speaker.action if owner.group.startswith(NODE) else owner.action  # a line of a program condemns no node
    silent = replace(owner, explains=speaker.explains, group=speaker.group, action=action, unclaimed=True)
    return replace(silent, message=speaker.message, why=why, fix=speaker.fix)


def _of(owner: Rule, group: Group) -> Group:
    """The group with the role of its rule, and the severity that the site decided."""
    rows = [_row(owner, row) for row in group.rows]
    return replace(group, rows=rows)


def _row(owner: Rule, row: Row) -> Row:
    return row._replace(severity=owner.decided or row.severity, role=row.values.get("role") or owner.role)


def _found(rule: Rule, groups: Sequence[Group]) -> Answer:
    return Answer(rule, "found" if groups else "clear", [row for group in groups for row in group.rows], "", groups)
