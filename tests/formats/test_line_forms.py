"""Numbers of lines of one form are those that each line has at these places."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats.cluster import slurm_state
from nccl_doctor.formats.line_forms import LineForms, RowSpans

NUMBERS = re.compile("[0-9]+")
TEXTS = st.text(
    alphabet=st.sampled_from([*"019 a:", "\N{DEGREE SIGN}", "\N{SNOWMAN}", "\N{ARABIC-INDIC DIGIT THREE}"]), max_size=12
)

ROWS = (
    "               481       gpu train-ll      ada PD       0:00      1 (Nodes required for job are DOWN, DRAINED)",
    "          4810_[7]       gpu  sft-7b2    grace  R 1-02:13:14     12 node[001-012]",
    "                 1         p train-ll     root  R       0:01      1 n1",
    "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
    "0: 5 of 7 done",
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


@given(st.lists(st.sampled_from(ROWS), max_size=8), st.randoms())
def test_rows_that_differ_in_digits_have_their_groups_at_the_same_places(
    rows: list[str], chance: random.Random
) -> None:
    spans = RowSpans(slurm_state._QUEUE_ROW)
    for row in rows:
        line = re.sub("[0-9]", lambda _: str(chance.randrange(10)), row)
        found = slurm_state._QUEUE_ROW.match(line)
        assert (None if found is None else found.regs[1:]) == spans.match(line)
