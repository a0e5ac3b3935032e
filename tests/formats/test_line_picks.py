"""Lines that one expression finds among many are those that it matches alone."""

import re
from random import Random

import pytest

from nccl_doctor.formats.line_picks import line_picker

SEED = 7
PARTS = ("a", "b", ": ", "    ", "=", "====", "\t", "node", "7", "ü", "two\nlines")
EXPRESSIONS = ("={4}|(a|b)([^\\n]*)", r"(?! {4}|\n|\Z)", "node", r"(?!a)[^\n]*7")


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_same_as_alone(expression: str, count: int) -> None:
    random = Random(SEED)
    texts = ["".join(random.choices(PARTS, k=random.randrange(5))) for _ in range(count)]
    alone = [
        (number, match)
        for number, text in enumerate(texts, 11)
        if (match := re.match(expression, text.replace("\n", " ")))
    ]
    found = list(line_picker(expression)(texts, 11))
    assert [(number, "\n" + match[0], match.groups()) for number, match in alone] == [
        (number, match[0], match.groups()) for number, match in found
    ]
    assert count < 300 or alone
