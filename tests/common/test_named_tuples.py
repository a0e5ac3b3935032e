"""NamedTuple of the fact tables does what typing.NamedTuple does."""

import pickle
from typing import NamedTuple as Typing

import pytest

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.tables import TABLES


class Ours(NamedTuple):
    """A row."""

    host: str
    rank: int | None
    note: str = "none"


class Theirs(Typing):
    """A row."""

    host: str
    rank: int | None
    note: str = "none"


@pytest.mark.parametrize("given", [("n1", 3), ("n1", None, "x")])
def test_rows_are_those_of_typing(given: tuple[str, int]) -> None:
    ours, theirs = Ours(*given), Theirs(*given)
    assert (tuple(ours), ours.host, ours.rank, ours.note) == (tuple(theirs), theirs.host, theirs.rank, theirs.note)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(rank=9) == theirs._replace(rank=9)
    assert Ours._make(ours) == Ours(host=ours.host, rank=ours.rank, note=ours.note) == ours
    assert type(pickle.loads(pickle.dumps(ours))) is type(ours._replace(rank=1)) is type(Ours._make(ours)) is Ours
    match ours:
        case Ours(host, rank):
            assert (host, rank) == given[:2]


def test_wrong_rows_are_refused_as_typing_refuses_them() -> None:
    for table in (Ours, Theirs):
        with pytest.raises(TypeError, match="host"):
            table(rank=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="4"):
            table("a", 1, "b", "c")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            table._make(["a"])
        with pytest.raises((TypeError, ValueError), match="wrong"):
            table("a", 1)._replace(wrong=1)  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            table("a", 1).other = 1  # type: ignore[attr-defined]
    assert (Ours._fields, Ours._field_defaults, Ours.__doc__) == (
        Theirs._fields,
        Theirs._field_defaults,
        Theirs.__doc__,
    )


def test_each_table_has_the_columns_that_it_declares() -> None:
    for table in TABLES:
        columns = list(table.__annotations__)
        row = table(*columns)
        assert [getattr(row, column) for column in columns] == columns == list(row._asdict())
