"""Numbers of lines of one form are those that each line has at these places."""

import re

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats.line_forms import LineForms

NUMBERS = re.compile("[0-9]+")
TEXTS = st.text(
    alphabet=st.sampled_from([*"019 a:", "\N{DEGREE SIGN}", "\N{SNOWMAN}", "\N{ARABIC-INDIC DIGIT THREE}"]), max_size=12
)


def _spans(line: str) -> list[tuple[int, int]] | None:
    return [match.span() for match in NUMBERS.finditer(line)] or None


@given(st.lists(TEXTS, max_size=20))
def test_numbers_are_those_of_each_line(lines: list[str]) -> None:
    groups, others = LineForms(_spans).groups(lines)
    assert [at for at, line in enumerate(lines) if _spans(line) is None] == others
    assert len(lines) == len(others) + sum(len(group.rows) for group in groups)
    for group in groups:
        columns = [column.tolist() for column in group.whole_numbers(group.form)]
        for number, (row, line) in enumerate(zip(group.rows, group.lines, strict=True)):
            assert lines[row] == line
            assert list(map(int, NUMBERS.findall(line))) == [column[number] for column in columns]
