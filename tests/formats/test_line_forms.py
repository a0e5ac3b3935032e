"""Numbers of lines of one form are those that each line has at these places."""

import random
import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats import line_forms
from nccl_doctor.formats.benchmarks import gpu_burn
from nccl_doctor.formats.cluster import slurm_state
from nccl_doctor.formats.gpu import gpu_list
from nccl_doctor.formats.line_forms import FormMemo, LineForms, RowSpans

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
        assert (None if found is None else found.regs[1:]) == spans.of(line)


LINES = (
    "10.8%  proc'd: 324 (41800 Gflop/s) - 320 (41610 Gflop/s)   errors: 0 - 0   temps: 61 C - 64 C",
    "9.8%  proc'd: 32 (1 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - -1 (DIED!)  temps: 61 C - --\r"
    "10.8%  proc'd: 324 (41800 Gflop/s) - 320 (41610 Gflop/s)   errors: 0 - 0   temps: 61 C - 64 C",
    "Tested 2 GPUs:",
    "\tGPU 0: OK",
    "        GPU 11: FAULTY",
    "GPU 0: NVIDIA A30 (UUID: GPU-5c0ffee0-0000-4000-8000-000000000000)",
    "  MIG 1g.6gb      Device  0: (UUID: MIG-5c0ffee0-0000-4000-8000-000000000010)",
    "| 0      | Name: NVIDIA H200                                                    |",
    "|        | PCI Bus ID: 00000000:19:00.0                                         |",
    "|   0  MIG 1g.10gb         19       13          6:1     |",
    "Agent 2",
    "  Marketing Name:          AMD Instinct MI250X",
    "\t Link 0: Replay Errors: 0",
    "grün 7",
    "",
)


@given(
    st.sampled_from([gpu_burn._parse_line, gpu_list._is_listed]),
    st.lists(st.sampled_from(LINES), max_size=20),
    st.randoms(),
)
def test_lines_that_differ_in_digits_say_what_each_says(
    parse: Callable[[str], object], rows: list[str], chance: random.Random
) -> None:
    lines = [re.sub("[0-9]", lambda _: str(chance.randrange(10)), row) for row in rows]
    memo = FormMemo(parse)
    for _ in range(2):
        assert list(map(parse, lines)) == memo.of_all(lines)
    assert list(map(parse, lines)) == list(map(memo.of, lines))


def test_few_forms_are_remembered_and_none_of_long_lines() -> None:
    memo = FormMemo(len)
    lines = ["a" * (number % 700) + "b" * (number // 700) for number in range(20_000)]
    for at in range(0, len(lines), 100):
        some = lines[at : at + 100]
        assert list(map(len, some)) == memo.of_all(some)
        assert len(memo._known) <= line_forms._MOST
    assert [5_000, 3] == memo.of_all(["c" * 5_000, "7 8"])
    assert max(map(len, memo._known)) < 5_000
