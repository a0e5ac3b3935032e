"""Proves of a regular expression that a backtracking matcher takes linear time, or finds a text for which it does not.

An expression becomes the automaton of its positions (Glushkov). A matcher takes exponential time where a state is reached
again over one text in two ways, and polynomial time where two loops, one behind the other, can both take the same text: then
each way to share it is tried (Weideman and others, "Analyzing matching time behavior of backtracking regular expression
matchers", 2016). In a search the beginning of the expression counts as a loop over anything, because each place is tried.

Assertions other than `^` and `\\b` are taken as if they held, so that what is called linear is linear, and what is called
ambiguous may be better than that.
"""

from collections.abc import Iterator
from typing import NamedTuple

from helpers.automaton import Automaton, readable


class Ambiguity(NamedTuple):
    """Why an expression is not linear, and a text that shows it: `before`, then `pump` again and again."""

    kind: str  # exponential, polynomial
    before: str
    pump: str


def exponential(regex: str, flags: int = 0, *, searched: bool = True) -> Ambiguity | None:
    """Why an expression takes exponential time, bounded repetitions counted as loops; None where it does not."""
    automaton = Automaton(regex, flags, searched=searched, bounded_loops=True)
    for group in automaton.loops():
        for source, target in automaton.twice:
            if {source, target} <= group and (around := automaton.path((target,), (target,), (group,))):
                return Ambiguity("exponential", automaton.beginning(target), around)
        for place in group - automaton.sure:  # where a match is sure, no other way is tried
            for apart, sign in _apart(automaton, place, group):
                back = automaton.path(apart, (place, place), (group, group))
                if back is not None:
                    return Ambiguity("exponential", automaton.beginning(place), sign + back)
    return None


def _apart(automaton: Automaton, place: int, group: set[int]) -> Iterator[tuple[tuple[int, int], str]]:
    """Where two runs from one position part over the same character."""
    following = sorted(automaton.follow[place] & group)
    for number, one in enumerate(following):
        for other in following[number + 1 :]:
            if both := automaton.masks[one] & automaton.masks[other]:
                yield (one, other), readable(both)


def polynomial(regex: str, flags: int = 0, *, searched: bool = True) -> Ambiguity | None:
    """Why an expression takes the square of a text's length or more; None where it does not."""
    automaton = Automaton(regex, flags, searched=searched, bounded_loops=False)
    unsure = set(range(len(automaton.masks))) - automaton.sure  # once a match is sure, no other way is tried
    groups = automaton.loops()
    for early in groups:
        reached = automaton.reachable(min(early))
        for late in (late for late in groups if late is not early and late <= reached):
            for a in sorted(early & unsure):
                for b in sorted(late & unsure):
                    if not set(automaton.atomic[a]) <= set(automaton.atomic[b]):
                        continue  # the first way through an atomic group is the only one
                    pump = automaton.path((a, a, b), (a, b, b), (early, unsure, late))
                    if pump is not None:
                        return Ambiguity("polynomial", automaton.beginning(a), pump)
    return None


def ambiguity(regex: str, flags: int = 0, *, searched: bool = True) -> Ambiguity | None:
    """The worst that can happen with an expression; None where it is linear."""
    return exponential(regex, flags, searched=searched) or polynomial(regex, flags, searched=searched)
