"""The numbers of a block that are read together are those that are read line by line."""

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.record_series import LossValues

NUMBER = st.floats(0, 9)
RECORD = st.tuples(NUMBER, NUMBER, st.none() | NUMBER).map(
    lambda values: {
        name: value for name, value in zip(("loss", "grad_norm", "lr"), values, strict=True) if value is not None
    }
)


@given(st.lists(RECORD, min_size=40, max_size=60), st.booleans())
def test_many_lines_give_what_each_of_them_gives(records: list[dict[str, float]], ends: bool) -> None:
    lines = [f"[rank0] {record}".encode() for record in records]
    block = b"\n".join([b"no numbers", *lines]) + (b"\n" if ends else b"")
    offsets = [at for at in range(len(block)) if block.startswith(LossValues.LITERAL, at)]
    one, all_ = LossValues(), LossValues()
    for number, line in enumerate(lines, 11):
        one.line(line, number)
    assert all_.many(block, [at + len(LossValues.LITERAL) - 1 for at in offsets], 10)
    expected, got = Facts(), Facts()
    expected.add(one.rows(expected, "log", 1))
    got.add(all_.rows(got, "log", 1))
    query = "SELECT s.name, n, first, last, lowest, highest, not_finite, e.line, e.text FROM scalar s JOIN evidence e ON e.id = s.ref"
    assert sorted(expected.query(query)) == sorted(got.query(query))


def test_what_is_no_number_is_read_line_by_line() -> None:
    block = b"{'loss': nan, 'grad_norm': 1.0}\n" * 40
    offsets = [at + len(LossValues.LITERAL) - 1 for at in range(len(block)) if block.startswith(LossValues.LITERAL, at)]
    assert not LossValues().many(block, offsets, 1)
    assert not LossValues().many(block.replace(b"nan", b"1.0"), offsets[:3], 1)
