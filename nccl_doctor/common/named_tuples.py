"""`NamedTuple` for the classes of fact tables: as `typing.NamedTuple`, but a class takes a tenth of the time to make.

`typing.NamedTuple` compiles a constructor for each class, which takes 0.1 ms. There are more than 200 tables, and most runs make
rows of a few, so a constructor is compiled here when the first row of its class is made.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple
    from collections.abc import Iterable

    _WIDEST = 80  # columns of a table
    _Widest = namedtuple("_Widest", [f"column_{number}" for number in range(_WIDEST)])
    _COLUMNS = [vars(_Widest)[name] for name in _Widest._fields]  # each reads one place of any tuple

    class _RowClass(type):
        """Makes the columns of a class from its annotations."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            made = super().__new__(cls, name, bases, {"__slots__": (), **namespace})
            if bases != (tuple,):
                made._fields = made.__match_args__ = tuple(made.__annotations__)
                made._field_defaults = {column: namespace[column] for column in made._fields if column in namespace}
                for place, column in enumerate(made._fields):
                    setattr(made, column, _COLUMNS[place])
            return made

    class NamedTuple(tuple, metaclass=_RowClass):
        """A base class, used as `typing.NamedTuple`."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """Compile the constructor of the class, which takes the place of this one, and call it."""
            compiled = namedtuple(cls.__name__, cls._fields, defaults=cls._field_defaults.values())
            cls.__new__ = staticmethod(compiled.__new__)
            return cls.__new__(cls, *args, **kwargs)

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            row = tuple.__new__(cls, values)
            if len(row) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} columns, not {len(row)}")
            return row

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **values: Any) -> Any:
            row, place = list(self), self._fields.index  # rows of a capture get their host and evidence when it ends
            try:
                for column in values:
                    row[place(column)] = values[column]
            except ValueError:
                unknown = [column for column in values if column not in self._fields]
                raise ValueError(f"{type(self).__name__} has no column {', '.join(unknown)}") from None
            return tuple.__new__(type(self), row)

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
