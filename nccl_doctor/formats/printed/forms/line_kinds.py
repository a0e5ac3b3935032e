"""Which readers of printed numbers may take a line: found once for all lines that differ in their numbers only."""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.exposed_metrics import is_exposed
from nccl_doctor.formats.printed.forms.bar_tables import titles_of as bar_titles_of
from nccl_doctor.formats.printed.forms.comma_tables import titles_of as comma_titles_of
from nccl_doctor.formats.printed.forms.described import may_begin
from nccl_doctor.formats.printed.forms.loop_columns import LoopColumns, loop_columns_of
from nccl_doctor.formats.printed.forms.number_columns import Column, columns_of
from nccl_doctor.formats.printed.hardware_list import begins_device
from nccl_doctor.formats.printed.loop_marks import may_be_progress
from nccl_doctor.formats.printed.magma_tables import titles_of as magma_titles_of
from nccl_doctor.formats.printed.named_numbers import measured
from nccl_doctor.formats.printed.series import Place
from nccl_doctor.formats.printed.step_tables import titles_of as step_titles_of
from nccl_doctor.formats.printed.unit_tables import titles_of as unit_titles_of
from nccl_doctor.inputs.prefixes import ZEROS

NUMBERS, PROGRESS, TITLES, METRIC, DEVICE = (1 << bit for bit in range(5))
EVERY = (1 << 5) - 1
_MOST = 1 << 13  # forms that are remembered
_LONGEST = 1_000  # bytes of a line whose form is remembered
# of hexadecimal digits, behind `0x` or a part of a UUID, which are another word in each line
_CODE = compiled(rb"(?<![\w.])(?!\d{1,15}e[-+]\d)(?:0x)?(?=\d{0,64}[a-f])(?=[a-f]{0,64}\d)[\da-f]{4,64}(?![\w.])")
_COMMON = 8  # of so many lines one has a code, where those of a block are looked for at once
_WORD = b"x"  # in its place
_OF_CODES = b"\0"  # in front of forms of lines with codes


class Form:
    """Lines that differ in their numbers only."""

    __slots__ = ("columns", "kinds", "loop", "plain", "waiting")

    def __init__(
        self,
        kinds: int,
        columns: tuple[Column, ...] | None = None,
        loop: LoopColumns | None = None,
    ) -> None:
        self.kinds = kinds  # a sum; 0 of a line that tells nothing but as a row of an open table
        self.columns = columns  # of its numbers, where all lines have them at the same places
        self.loop = loop  # of what it tells of a loop, likewise
        self.waiting: list[Place] = []  # lines whose columns are read later
        self.plain: list[bytes] = []  # the same without codes of hexadecimal digits, in which lines also differ

    @property
    def may_tell_epochs(self) -> bool:
        """Whether a line may tell which epoch it is."""
        if self.loop is None:
            return bool(self.kinds & PROGRESS)
        return any(name == "epoch" for name, _ in self.loop.numbers)


_ANY = Form(EVERY)


class LineKinds:
    """The forms of lines that came before."""

    def __init__(self) -> None:
        self._known: dict[bytes, Form] = {}  # line with each number as one 0
        self._are_codes_common = False  # in the block before

    def of_lines(self, data: bytes) -> Iterator[tuple[bytes, Form, bytes]]:
        """The lines of a block, their forms, and the lines without codes of hexadecimal digits."""
        known, with_codes = self._known, 0
        plain_data = _CODE.sub(_WORD, data) if self._are_codes_common else data
        columns = (text.split(b"\n") for text in (data, plain_data, _one_digit(plain_data)))
        for line, plain, form in zip(*columns, strict=True):
            found = known.get(form if plain == line else _OF_CODES + form)
            if found is None:
                found, plain = self._new(line, plain, form)
            with_codes += plain != line
            yield line, found, plain
        self._are_codes_common = with_codes * _COMMON > data.count(b"\n")

    def _new(self, line: bytes, plain: bytes, form: bytes) -> tuple[Form, bytes]:
        if len(line) > _LONGEST or (line[:1] == b"{" and b'"' in line):  # a record of JSON, perhaps
            return _ANY, line
        if plain == line:
            plain = _CODE.sub(_WORD, line)
            form = form if plain == line else _one_digit(plain)
        key = form if plain == line else _OF_CODES + form
        if (known := self._known.get(key)) is not None:
            return known, plain
        # what counts digits may find the form alone, or the line alone
        kinds = _kinds(form) | (_kinds(line) if line != form else 0)
        if len(self._known) >= _MOST:
            self._known.clear()
        found = self._known[key] = Form(
            kinds,
            columns_of(line, plain, form) if kinds & NUMBERS else None,
            loop_columns_of(line, plain, form) if kinds & PROGRESS else None,
        )
        return found, plain


def _one_digit(data: bytes) -> bytes:
    """The data with each run of digits as one 0."""
    data = data.translate(ZEROS)
    while b"00" in data:
        data = data.replace(b"00", b"0")
    return data


def _kinds(line: bytes) -> int:
    return (
        NUMBERS * any(True for _ in measured(line))
        | PROGRESS * may_be_progress(line)
        | TITLES * _are_titles(line)
        | METRIC * is_exposed(line)
        | DEVICE * begins_device(line)
    )


def _are_titles(line: bytes) -> bool:
    titles = (titles_of(line) for titles_of in (step_titles_of, unit_titles_of, comma_titles_of))
    return any(found is not None for found in titles) or any(
        (magma_titles_of(line), bar_titles_of(line), may_begin(line))
    )
