"""Every rule file, its examples and the guard around it."""

import re
import tomllib
from pathlib import Path

import pytest

from nccl_doctor.app import rule_examples
from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import engine, loader, schema, templates
from nccl_doctor.rules.folder import rule_files, shipped_folder
from nccl_doctor.rules.rule_text import rule_text
from nccl_doctor.rules.symptoms import load_classes, with_including

FILES = rule_files(shipped_folder())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rule_loads_and_is_complete(path: Path) -> None:
    rule = loader.read_rule(path)
    assert rule.group in schema.GROUPS
    assert [] == list(schema.lint(rule))
    assert path.read_text("utf-8") == rule_text(tomllib.loads(path.read_text("utf-8"))), "run nccl-doctor rules format"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rule_says_what_its_examples_expect(path: Path) -> None:
    assert [] == list(rule_examples.problems(loader.read_rule(path)))


EXAMPLE = """
[[example]]
name = "x"
log = "NCCL version 2.21.5+cuda12.4"
expect = {expect}
"""


@pytest.mark.parametrize(
    ("expect", "message", "said"),
    [
        ("[{ ref = 1 }]", "m", []),
        ("[{ ref = 2 }]", "m", ["no row like {'ref': 2}", "unexpected row {'ref': 1}"]),
        ("[]", "m", ["unexpected row {'ref': 1}"]),
    ],
)
def test_an_example_that_fails_says_why(tmp_path: Path, expect: str, message: str, said: list[str]) -> None:
    rule = loader.read_rule(write(tmp_path, message=message, more=EXAMPLE.format(expect=expect)))
    assert [f"example 'x': {text}" for text in said] == list(rule_examples.problems(rule))


def test_ids_and_names_are_used_once_and_explains_names_rules() -> None:
    loaded = loader.load_rules()
    names = {rule.name for rule in loaded} | {alias for rule in loaded for alias in rule.aliases}
    titles = [rule.title.lower() for rule in loaded]
    assert [] == sorted({title for title in titles if titles.count(title) > 1})
    classes = load_classes()
    for rule in loaded:
        assert set(rule.explains) <= names | set(classes), f"{rule.path.name} explains {set(rule.explains) - names}"
    explained = {name for rule in loaded for name in rule.explains}
    for name in classes:
        assert with_including([name]) & explained, f"nothing explains {name}"
        assert any(name in with_including(rule.symptom_of) for rule in loaded), f"no rule belongs to {name}"
    assert sum(len(rule.explains) for rule in loaded) < 1.5 * len(loaded), "use a class instead of a list of names"


RULE = """
id = "ZZZ001"
name = "a-rule"
title = "A rule"
severity = "error"
role = "cause"
confidence = "certain"
since = "0.1"
needs = []
query = "{query}"
message = "{message}"
why = "w"
fix = "f"
{more}
"""


def write(folder: Path, query: str = "SELECT 1 AS ref", message: str = "m", more: str = "") -> Path:
    path = folder / "a-rule.toml"
    path.write_text(RULE.format(query=query, message=message, more=more))
    return path


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"more": "colour = 'red'"}, "unknown key .colour."),
        ({"query": "DELETE FROM message"}, "query must be a SELECT"),
        ({"message": "{0.__class__}"}, "plain name"),
        ({"message": "{host!r}"}, "plain name"),
        ({"more": "action = 'reboot'"}, "action"),
        ({"more": "[[example]]\nname = 'x'\nexpect = []"}, "either log or rows"),
        ({"more": "[[example]]\nname = 'x'\nexpect = []\nlog = 'x'\nfoo = 1"}, "foo"),
        ({"more": "= broken"}, "a-rule.toml"),
    ],
)
def test_a_wrong_rule_file_is_refused_with_its_name(tmp_path: Path, change: dict[str, str], word: str) -> None:
    with pytest.raises(schema.RuleProblem, match=word):
        loader.read_rule(write(tmp_path, **change))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT load_extension('x') AS ref",
        "SELECT 1 AS ref FROM pragma_table_info('message')",
        "SELECT no_such_column AS ref FROM message",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) AS ref FROM c",
        "SELECT 1 AS host",
        "SELECT 1 AS ref, 'loud' AS severity",
    ],
)
def test_a_query_that_oversteps_breaks_its_rule_and_nothing_else(tmp_path: Path, query: str) -> None:
    facts = Facts()
    rule = loader.read_rule(write(tmp_path, query))
    answer = engine.ask(rule, facts, steps=1_000_000)
    assert ("broken", []) == (answer.outcome, answer.rows)
    assert answer.reason
    assert ["clear"] == [engine.ask(loader.read_rule(write(tmp_path, "SELECT 1 AS ref WHERE 0")), facts).outcome]


def test_a_rule_cannot_write(tmp_path: Path) -> None:
    facts = Facts()
    facts.add([tables.Input("a", "nccl-log", 1, 1, 1, 1, None)])
    rule = loader.read_rule(write(tmp_path, "WITH x AS (SELECT 1 AS ref) SELECT ref FROM x"))
    rule.query = "WITH x AS (SELECT 1) DELETE FROM input"
    assert "broken" == engine.ask(rule, facts).outcome
    assert 1 == facts.counts()["input"]


def test_a_rule_without_its_table_is_skipped_and_says_which(tmp_path: Path) -> None:
    rule = loader.read_rule(write(tmp_path))
    rule.needs = ["gdr"]
    assert ("skipped", "no facts in table gdr") == engine.ask(rule, Facts())[1::2]


def test_values_in_messages_lose_control_characters() -> None:
    assert "a b [31m" == templates.fill_template("{host}", {"host": "a\nb\x1b[31m"}).replace("  ", " ")


@pytest.mark.parametrize("spec", ["9999999999d", "999999999.1f", ".999999999f", "c", "\x1b>9d", "^9", "1_"])
def test_no_width_of_a_placeholder_takes_the_memory(spec: str) -> None:
    assert "27" == templates.fill_template(f"{{n:{spec}}}", {"n": 27})
    assert 1 == len(list(templates.template_problems(f"{{n:{spec}}}")))
    assert [] == [one for one in (".1f", ",d", ",.0f", "g", ".0%") if list(templates.template_problems(f"{{n:{one}}}"))]


def test_yaml_in_the_text_of_a_rule_is_no_placeholder() -> None:
    template = "{name}: add `volumeMounts: [{name: shm, mountPath: /dev/shm}]`, {seconds:.1f} s, {other}"
    filled = templates.fill_template(template, {"name": "train", "seconds": 2.04})
    assert "train: add `volumeMounts: [{name: shm, mountPath: /dev/shm}]`, 2.0 s, {other}" == filled


def test_a_rank_that_nobody_numbers_is_a_rank() -> None:
    assert "a kernel of a rank, ?, rank 3" == templates.fill_template(
        "a kernel of rank {rank}, {host}, rank {other}", {"rank": None, "host": None, "other": 3}
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "1 other GPU idles, 1 process was killed, 1 pair of ranks, 1 NVSwitch on node01"),
        (2, "2 other GPUs idle, 2 processes were killed, 2 pairs of ranks, 2 NVSwitches on node01"),
        ("0-1", "0-1 other GPUs idle, 0-1 processes were killed, 0-1 pairs of ranks, 0-1 NVSwitches on node01"),
    ],
)
def test_a_noun_agrees_with_its_number(number: object, expected: str) -> None:
    template = "{n} other GPUs idle, {n} processes were killed, {n} pairs of ranks, {n} NVSwitches on {host}"
    assert expected == templates.fill_template(template, {"n": number, "host": "node01"})


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "1 uncorrectable memory error, 1 different NVLink domain, 1 PCIe lane, 1 pair of ranks uses SHM, 1 bridge above GPUs"),
        (2, "2 uncorrectable memory errors, 2 different NVLink domains, 2 PCIe lanes, 2 pairs of ranks use SHM, 2 bridges above GPUs"),
    ],
)  # fmt: skip
def test_a_noun_agrees_behind_adjectives_and_with_of(number: int, expected: str) -> None:
    template = (
        "{n} uncorrectable memory errors, {n} different NVLink domains, {n} PCIe lanes, {n} pairs of ranks use SHM, "
        "{n} bridges above GPUs"
    )
    assert expected == templates.fill_template(template, {"n": number})


# Words behind a number that end like a plural and are none.
_SINGULAR = {
    "is", "was", "has", "does", "its", "this", "process", "addresses", "says", "shows", "stops", "idles", "reports", "waits",
    "shares", "uses", "calls", "needs", "runs", "fails", "spends", "takes", "reaches", "aggregates", "gives",
}  # fmt: skip


@pytest.mark.parametrize("rule", loader.load_rules(), ids=lambda rule: rule.id)
def test_no_message_counts_one_in_the_plural(rule: schema.Rule) -> None:
    numbers = {
        key for one in rule.example for row in one.expect for key, value in row.items() if isinstance(value, int)
    }
    found = []
    for match in re.finditer(r"(?:\b(\w+) )?(\{([a-z_][a-z0-9_]*)(?::[^{}\s]+)?\}(?: [A-Za-z-]+){1,3})", rule.message):
        before, phrase, name = match.groups()
        if name in numbers and before not in ("rank", "Rank", "GPU", "port", "NVSwitch"):
            filled = templates.fill_template(phrase, {name: 1})
            word = re.match(r"1 (?:(?!of |with |or |that |and )[\w-]+ ){0,2}?(\w{2,}s)\b", filled)
            if word and word[1] not in _SINGULAR:
                found.append(filled)
        assert "rank ?" not in templates.fill_template(phrase, {name: None})
    assert [] == found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_pattern_of_like_comes_from_a_log(path: Path) -> None:
    """A name of 50,000 characters would break the rule, and `_` in a name means any letter; `instr` compares as it is."""
    query = tomllib.loads(path.read_text("utf-8"))["query"]
    assert not re.search(r"\b(?:LIKE|GLOB)\s+(?!'[^']*'(?!\s*\|\|)|:)", query, re.IGNORECASE)
