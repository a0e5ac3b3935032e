"""One section of a command in a long log costs no reading of each line of the log, and is found wherever it is."""

import io

import pytest
from helpers.scaling import called

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import HostNumber
from nccl_doctor.formats import registry, windows
from nccl_doctor.formats.declaration import Format
from nccl_doctor.formats.registry import FORMATS
from nccl_doctor.formats.windows import Windows
from nccl_doctor.inputs import text_lines

FILLER = "[rank{}]: 2026-05-07 00:00:0{},123 epoch {} of 90 ended, loss 2.3{} lr 0.0{} memory 4{}.1GB\n"
LINES = 5_000
DF = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sd{0}1        10G  9.9G  0.1G  99% /scratch{0}\n\n"
EVERY_LINE = {"training-steps", "own-progress"}  # any line may be a step


def filler(first: int, lines: int) -> str:
    return "".join(FILLER.format(*(f"{number % 10}" for _ in range(6))) for number in range(first, first + lines))


TEXT = filler(0, LINES).encode()


@pytest.mark.parametrize(
    "known", [known for known in FORMATS if known.inside and known.kind not in EVERY_LINE], ids=lambda known: known.kind
)
def test_lines_far_from_a_section_take_no_step(known: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """With windows as small as the text is, since it stands for one of gigabytes."""
    small = len(TEXT) // 20
    monkeypatch.setattr(windows, "SIZE", small)
    monkeypatch.setattr(text_lines, "_SECTION_BLOCK", small)
    monkeypatch.setattr(registry, "Windows", lambda stream, literals, _, name: Windows(stream, literals, small, name))

    def steps(times: int) -> int:
        text = b"a first line\n" + known.inside[0] + b" 1 2\nlast\n\n" + times * TEXT
        return called(lambda: registry.read_inside(known, io.BytesIO(text), "log", Facts()))

    steps(1)  # imports
    assert steps(3) - steps(1) < LINES  # of twice as many lines more


def test_sections_far_from_each_other_are_found_with_their_lines() -> None:
    many = 4 * windows.SIZE // len(FILLER)
    text = DF.format("a") + filler(0, many) + DF.format("b") + filler(0, many) + DF.format("c")
    facts = Facts()
    known = next(known for known in FORMATS if known.kind == "host-commands")
    reading = registry.read_inside(known, io.BytesIO(text.encode()), "log", facts)
    assert reading.lines == text.count("\n")
    places = facts.evidence_rows([row.ref for row in facts.rows(HostNumber)])
    assert [text.split("\n")[place.line - 1] for place in places] == [place.text for place in places]
    assert len(places) == 3
