"""Functions of our own that queries use, on what damaged logs hold."""

import pytest

from nccl_doctor.facts.store import Facts


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2.21.5+cuda12.4", 22105),
        ("12.9", 120900),
        ("", None),
        (None, None),
        ("9" * 30 + ".1", None),
        ("2." + "9" * 30, None),
    ],
)
def test_a_version_is_a_number_that_sqlite_can_hold(text: str | None, number: int | None) -> None:
    assert [(number,)] == Facts().query("SELECT version_number(?)", (text,))


@pytest.mark.parametrize("text", ["node01", "node01" * 100, "", None])
def test_regexp_answers_the_same_again_for_texts_of_any_length(text: str | None) -> None:
    facts = Facts()
    for pattern, found in (("node0[12]", bool(text)), ("^node0[12]$", text == "node01"), ("^$", not text)):
        assert [(int(found),)] * 2 == facts.query("SELECT ? REGEXP ? UNION ALL SELECT ? REGEXP ?", (text, pattern) * 2)
