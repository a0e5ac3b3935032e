"""The numbers of the Hugging Face Trainer's lines, read together, are those that Python reads in each."""

import io

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.storable import LARGEST
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.steps import step_lines

NUMBER = st.floats(-9, 9) | st.integers(0, 10**17) | st.floats(allow_infinity=True, allow_nan=True)
RECORD = st.fixed_dictionaries({"loss": NUMBER}, optional={"grad_norm": NUMBER, "lr": NUMBER}).map(
    lambda record: {"loss": record["loss"], **record}
)


@given(st.lists(RECORD, min_size=1, max_size=60), st.booleans(), st.booleans())
def test_lines_give_the_numbers_of_their_dictionaries(
    records: list[dict[str, float]], ends: bool, quoted: bool
) -> None:
    shown = [{name: str(value) for name, value in record.items()} for record in records] if quoted else records
    lines = [f"[rank0] {record}".encode() for record in shown]
    block = b"\n".join([b"no numbers", *lines]) + (b"\n" if ends else b"")
    facts = Facts()

    reading = step_lines.read_format(io.BytesIO(block), "log", facts)

    assert len(records) == reading.understood
    query = "SELECT s.name, n, first, last, lowest, highest, not_finite, e.line FROM scalar s JOIN evidence e ON e.id = s.ref"
    found = {name: rest for name, *rest in facts.query(query)}
    assert {name for record in records for name in record} == found.keys()
    for name, (n, first, last, lowest, highest, not_finite, line) in found.items():
        written = [(float(record[name]), at) for at, record in enumerate(records, 2) if name in record]
        finite = [value for value, _ in written if abs(value) < LARGEST]
        odd = [at for value, at in written if not abs(value) < LARGEST]
        assert (len(written), len(odd)) == (n, not_finite)
        assert (odd[0] if odd else written[-1][1]) == line
        if finite:
            assert [finite[0], finite[-1], min(finite), max(finite)] == [first, last, lowest, highest]
        else:
            assert [None] * 4 == [first, last, lowest, highest]
