"""Every regular expression of the package takes linear time on every text: proven from the expression, not tried."""

import re

import pytest
from helpers import expressions
from helpers.ambiguity import Ambiguity, ambiguity
from helpers.automaton import ALPHABET, Automaton, NotUnderstood

from nccl_doctor.log.line_patterns import load

# Not linear for the module that proves it, and yet harmless. Each entry is the beginning of the expression, and why.
EXPLAINED = {
    r"\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?(?:<!--(?:[^-]|-(?!->))": "a comment ends at its first -->, "
    "because of the assertion",
    r"(?<=, name=)((?:\\x[0-9a-f]{2}|.){1,15}), ": "of at most 15 characters",
    r"(?:(?<!`)`[^`\n]+`(?!`)|(?!": "a clause may end anywhere, so that no other way is tried",
    r"(?P<before>(?:(?!(?<!`)`[^`\n]+`(?!`)).)*)(?P<list>": "asked of clauses of the advice of a rule",
    r"([\w.-]{1,252}: )[^\n]*(?:\n\1": "what is behind the word may be missing, so that nothing is tried again",
    r"( {0,5}[A-Za-z0-9][\w.-]{0,252}: )[^\n]*(?:\n\1": "the same",
    r"[^\s`]*`[^`\s][^`]*`\S*|\S+": "the second alternative matches every word, so that no other place is tried",
}
SOURCES = {
    "modules": expressions.of_modules,
    "calls": expressions.of_calls,
    "kernel forms": expressions.of_kernel_forms,
    "line patterns": expressions.of_lines,
    "rules": expressions.of_rules,
    "derivations": expressions.of_derivations,
    "catalogue": expressions.of_catalogue,
}
LEAST = {
    "modules": 300,
    "calls": 100,
    "kernel forms": 20,
    "line patterns": 600,
    "rules": 100,
    "derivations": 3,
    "catalogue": 5_000,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_expression_is_linear(source: str) -> None:
    asked = expressions.once(SOURCES[source]())
    assert len(asked) >= LEAST[source]
    found = [
        (one.place, one.regex, problem)
        for one in asked
        if not one.regex.startswith(tuple(EXPLAINED))
        and (problem := ambiguity(one.regex, one.flags, searched=one.searched)) is not None
    ]
    assert [] == found


def test_every_explanation_is_needed() -> None:
    texts = [one.regex for one in expressions.of_modules()]
    assert [] == [start for start in EXPLAINED if not any(text.startswith(start) for text in texts)]


@pytest.mark.parametrize(
    ("regex", "searched", "kind"),
    [
        ("(a+)+b", False, "exponential"),
        ("(a|a)*b", False, "exponential"),
        (r"(\w{1,9},?){1,9};", False, "exponential"),
        (r"(?:#[^\n]*\r?\n){0,40}x", False, "exponential"),
        (r"\s*(?:\s+){0,20}x", False, "exponential"),
        ("a*a*b", False, "polynomial"),
        ("a.*b.*c", False, "polynomial"),
        (r"\d+x", True, "polynomial"),
        (r"foo(\w+)bar", True, "polynomial"),
        ("(?=.*x)y", True, "polynomial"),
        (r"(?m)^\s*x", True, "polynomial"),
        (r"\d+x", False, None),
        (r"\d{1,9}x", True, None),
        (r"^foo .* bar (.*)$", True, None),
        (r"(\S+) (\S+) x", False, None),
        (r"\s*(.*)$", False, None),
        ("x(.*)", True, None),
        (r"x(?: \([^)]*\))?", True, None),
        (r"\b\w+x", True, None),
        (r"(?:^|\s)\d+x", True, None),
        (r"(?m)^[ \t]*x", True, None),
        ("(?>.*?foo)(?>.*?bar)", False, None),
        ("a++a*b", False, None),
        (r"(?:\d{1,3}\.){3}\d{1,3}", True, None),
    ],
)
def test_what_is_known_of_some_expressions(regex: str, searched: bool, kind: str | None) -> None:
    found = ambiguity(regex, searched=searched)
    assert kind == (found.kind if found else None)


def steps(regex: str, text: str, searched: bool) -> int:
    """How many ways a matcher that goes back has into the positions of an expression over a text that does not match."""
    automaton = Automaton(regex, 0, searched=searched, bounded_loops=False)
    ways = dict.fromkeys(automaton.starts, 1)
    total = 0
    for sign in text:
        bit = 1 << ALPHABET.index(sign)
        after: dict[int, int] = {}
        for place, count in ways.items():
            if automaton.masks[place] & bit:
                total += count
                for target in automaton.follow[place]:
                    after[target] = after.get(target, 0) + count
        ways = after
    return total


@pytest.mark.parametrize(
    ("regex", "searched"), [("a*a*b", False), ("a.*b.*c", False), (r"\d+x", True), (r"foo(\w+)bar", True)]
)
def test_the_text_of_a_find_shows_it(regex: str, searched: bool) -> None:
    found = ambiguity(regex, searched=searched)
    assert isinstance(found, Ambiguity)
    few, many = (steps(regex, found.before + found.pump * times, searched) for times in (20, 80))
    assert many > 10 * few
    assert steps(r"\d{1,9}x", "1" * 80, True) < 5 * steps(r"\d{1,9}x", "1" * 20, True)


def test_the_automaton_of_a_pattern_takes_its_samples() -> None:
    """A reader of expressions that misses a part would miss what is wrong with it."""
    patterns = [pattern for pattern in load() if pattern.where == "nccl" and pattern.regex]
    assert len(patterns) > 200
    refused = [
        (pattern.name, sample)
        for pattern in patterns
        for sample in pattern.sample
        if set(sample) <= set(ALPHABET) and re.match(pattern.regex, sample)
        if not Automaton(pattern.regex, 0, searched=False, bounded_loops=True).matches(sample)
    ]
    assert [] == refused


@pytest.mark.parametrize("regex", ["(?(1)a|b)", "(a", "a)"])
def test_what_it_does_not_know_is_an_error(regex: str) -> None:
    with pytest.raises(NotUnderstood):
        ambiguity(regex)
