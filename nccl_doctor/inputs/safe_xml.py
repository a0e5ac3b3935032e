"""XML as a stream of elements, without document types, entities, external references, or depth without end."""

from collections.abc import Callable
from xml.parsers import expat

from nccl_doctor.common import budgets
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 16
_MAX_BYTES = 64 << 20

Start = Callable[[str, dict[str, str], int], None]
End = Callable[[str], None]


class _Refused(Exception):
    """Something that a file of NCCL never holds."""


def parse(stream: Readable, start: Start, end: End) -> tuple[int, str | None]:
    """Call `start(name, attributes, line)` and `end(name)` for every element.

    Returns the number of the last line and, where reading stopped early, why.
    """
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    depth = count = 0
    deepest, most = max(budgets.limit("depth") // 8, 1), budgets.limit("elements")

    def started(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, count
        depth += 1
        count += 1
        if depth > deepest:
            raise _Refused(f"nests elements more than {deepest:,} deep; {budgets.reached('depth')}")
        if count > most:
            raise _Refused(f"holds more than {most:,} elements; {budgets.reached('elements')}")
        start(name, attributes, parser.CurrentLineNumber)

    def ended(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name)

    def refuse(*_: object) -> None:
        raise _Refused("declares a document type or entities, which are not expanded")

    parser.StartElementHandler = started
    parser.EndElementHandler = ended
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    size = 0
    try:
        while data := stream.read(_BLOCK):
            size += len(data)
            if size > _MAX_BYTES:
                raise _Refused(f"is larger than {_MAX_BYTES >> 20} MiB")
            parser.Parse(data, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        cut = (
            error.code in (3, 4, 5, 6) and parser.CurrentByteIndex >= size - 1
        )  # no element, or the input ended inside one
        what = "ends in the middle of the document" if cut else f"is not well-formed ({expat.ErrorString(error.code)})"
        return error.lineno, f"{what} in line {error.lineno}"
    except _Refused as refused:
        return parser.CurrentLineNumber, f"{refused}; line {parser.CurrentLineNumber}"
    return parser.CurrentLineNumber, None
