"""A text that holds outputs of commands: a document, an issue, a mail, or what a terminal showed."""

from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats import pastes, registry
from nccl_doctor.formats.declaration import Format, Reading
from nccl_doctor.log import parallel


class Pasted(NamedTuple):
    """The outputs in a text that a reader knows, and what else it holds."""

    outputs: tuple[tuple[Format, pastes.Piece], ...]
    rest: bytes  # the text without them, read as a log; its lines keep their numbers

    @classmethod
    def found(cls, text: bytes) -> "Pasted | None":
        """What a text holds; None of one that is too long, or without marks of quotes and fences and without such outputs."""
        if len(text) > pastes.LONGEST:
            return None
        plain, pieces = pastes.opened(text)
        known: list[tuple[Format, pastes.Piece]] = []
        end = 0  # of the last one
        for piece in pieces:
            if piece.above >= end and (found := _known(piece)) is not None:
                known.append(found)
                end = found[1].above + found[1].lines
        if not known and plain == text:
            return None
        return cls(tuple(known), pastes.without(plain, [piece for _, piece in known]))

    def read(self, name: str, facts: Facts) -> list[tuple[Format, Reading]]:
        """Add what the outputs hold."""
        return [(format_, registry.read_piece(format_, piece, name, facts)) for format_, piece in self.outputs]


def is_pasted(head: bytes) -> bool:
    """Whether a text that begins like a file of a format is rather a session of a terminal, or indented as a whole."""
    if pastes.is_dressed(head):
        return True
    plain = pastes.unindented(head)
    return pastes.is_session(head) or (plain is not None and registry.recognise(plain) is not None)


def _known(piece: pastes.Piece) -> tuple[Format, pastes.Piece] | None:
    """An output and its format; None of one that is read as a part of the log around it."""
    for output in filter(None, (piece, piece.behind_command())):
        format_ = registry.recognise(output.text[: parallel.HEAD])
        if format_ is not None:
            return None if registry.is_logged(format_, output.text) else (format_, output)
    return None
