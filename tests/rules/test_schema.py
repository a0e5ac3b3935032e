"""Rule files of a site: whatever they hold, each wrong one is one line with its file and key, and the rest is asked."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_doctor.cli.main import main
from nccl_doctor.rules import loader, schema

GOOD = {
    "id": "'SITE001'", "name": "'site-rule'", "title": "'A rule of a site'", "severity": "'warning'", "role": "'cause'",
    "confidence": "'likely'", "since": "'0.1'", "needs": "['message']",
    "query": "'SELECT host, text, ref FROM message WHERE n > :most'", "params": "{ most = 3 }", "message": "'{host}: {text}'",
    "why": "'w'", "fix": "'f {host}'", "references": "['r']",
    "example": "[{ name = 'x', log = 'y', expect = [] }]",
}  # fmt: skip


def write(folder: Path, **changes: str) -> Path:
    path = folder / "site" / "site-rule.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} = {value}\n" for key, value in {**GOOD, **changes}.items()), "utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"title": "5"}, "title must be a text"),
        ({"needs": "'message'"}, "needs must be a list of texts"),
        ({"needs": "[1]"}, "needs must be a list of texts"),
        ({"params": "5"}, "params must be a table of texts and numbers"),
        ({"params": "{ most = [1] }"}, "params must be a table of texts and numbers"),
        ({"params": "{ most = 2026-01-01 }"}, "params must be a table of texts and numbers"),
        ({"params": "{ most = nan }"}, "params must be a table of texts and numbers"),
        ({"params": "{ most = 9223372036854775808 }"}, "params must be a table of texts and numbers"),
        ({"params": f"{{ most = {'9' * 400} }}"}, "params must be a table of texts and numbers"),
        ({"params": f"{{ most = {'9' * 5000} }}"}, "Exceeds the limit (4300 digits)"),
        ({"params": "{ other = 1 }"}, "query: "),
        ({"fallback": "1"}, "fallback must be true or false"),
        ({"example": "3"}, "example must be written as [[example]] tables"),
        ({"example": "['x']"}, "example must be written as [[example]] tables"),
        ({"example": "[{ name = 3, log = 'y', expect = [] }]"}, "example 1: name must be a text"),
        ({"example": "[{ name = 'x', log = 'y' }]"}, "example 1: key expect is missing"),
        ({"example": "[{ name = 'x', log = 'y', expect = [3] }]"}, "example 1: expect must be a list of rows"),
        ({"example": "[{ name = 'x', log = 'y', expect = [{}] }]"}, "which asserts nothing"),
        ({"example": "[{ name = 'x', rows = 5, expect = [] }]"}, "example 1: rows must be given as rows.TABLE"),
        ({"example": "[{ name = 'x', rows.message = [{ n = [1] }], expect = [] }]"}, "example 1: rows must be"),
        ({"example": "[{ name = 'x', log = 'y', expect = [{ hots = 'n' }] }]"}, "expects hots, which is not a column"),
        (
            {"message": "'{hots}'"},
            "message names {hots}, which is not a column of the query (columns: host, text, ref)",
        ),
        ({"message": "'{host:9999999999d}'"}, "message: placeholder {host:9999999999d} must be written as"),
        ({"message": "'{host:{text}}'"}, "message: placeholder {host} must be the plain name of a column"),
        ({"fix": "'{hots}'"}, "fix names {hots}"),
        ({"why": "'{hots:.1f}'"}, "why names {hots}"),
        ({"title": "'{host}'"}, "title is not a template"),
        ({"why": "' '"}, "why is empty"),
        ({"query": "'SELECT hots AS ref FROM message'"}, "query: no such column: hots"),
        ({"query": "'SELECT host, text FROM message'"}, "neither ref nor refs"),
        ({"explains": "['@nothing']"}, "no symptom class is called @nothing"),
        ({"symptom_of": "['@hang', '@nothing']"}, "no symptom class is called @nothing"),
        ({"colour": "'red'"}, "unknown key 'colour'"),
        ({"id": "'NET001'"}, "NET001 is already used by"),
        ({"why": "[" * 3000 + "]" * 3000}, "nested too deeply"),
        ({"why": "'\udcff'".encode("utf-8", "surrogateescape").decode("latin-1")}, ""),
    ],
)
def test_a_wrong_rule_of_a_site_is_left_out_with_one_line(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    path = write(tmp_path, **changes)
    found = loader.load_usable((tmp_path,))
    assert len(loader.load_rules()) == len(found.rules) - (not said)
    if said:
        (problem,) = found.problems
        assert problem.startswith(f"{path}: ")
        assert said in problem
        assert "\n" not in problem


def test_a_good_rule_of_a_site_is_asked(tmp_path: Path) -> None:
    write(tmp_path)
    found = loader.load_usable((tmp_path,))
    assert () == found.problems
    assert "SITE001" in [rule.id for rule in found.rules]


VALUES = st.recursive(
    st.sampled_from(["5", "1.5", "nan", "-inf", "true", "'x'", "''", "'{x}'", "'@hang'", "2026-01-01", "'SELECT 1 AS ref'", "'note'"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda members: f"[{', '.join(members)}]"),
        st.dictionaries(st.sampled_from(["name", "log", "expect", "rows", "x"]), inner, max_size=3).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        ),
    ),
    max_leaves=6,
)  # fmt: skip


KEYS = [*GOOD, "explains", "symptom_of", "aliases", "fallback", "action", "x"]


def refusal(path: Path) -> str | None:
    try:
        loader.read_rule(path)
    except schema.RuleProblem as problem:
        return str(problem)
    return None


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
def test_no_content_of_a_rule_file_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str]
) -> None:
    path = write(tmp_path_factory.mktemp("rules"), **changes)
    said = refusal(path)
    assert said is None or (said.startswith(f"{path}: ") and "\n" not in said)


def test_a_wrong_rule_does_not_end_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rules", title="5", params="3")
    log = tmp_path / "job.log"
    log.write_text("node01:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n")
    assert 0 == main(["analyze", "--rules", str(tmp_path / "rules"), str(log)])
    said = capsys.readouterr()
    assert f"rule left out: {path}: title must be a text; params must be a table of texts and numbers" in said.err
    assert "Traceback" not in said.err
