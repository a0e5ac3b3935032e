"""No reader takes more steps for each line where a file has more of them: calls of functions are counted, not seconds."""

from pathlib import Path

import pytest
from helpers.scaling import called

from nccl_doctor.app.analyze import read_facts
from nccl_doctor.common.errors import UsageProblem

FIXTURES = Path(__file__).parents[2] / "fixtures"
FEW = 10_000  # bytes at least
GROWTH = 4
MOST = 1.02  # steps for a byte of the larger file, by those for one of the smaller


def fixtures() -> list[str]:
    found = (path for path in FIXTURES.rglob("*") if path.is_file() and 40 < path.stat().st_size < 2 * FEW)
    texts = (path for path in found if path.suffix not in (".md", ".py") and b"\0" not in path.read_bytes())
    return sorted(str(path.relative_to(FIXTURES)) for path in texts)


def steps(path: Path) -> int:
    return called(lambda: read_facts([str(path)]))


@pytest.mark.parametrize("name", fixtures())
def test_a_file_that_repeats_takes_steps_by_its_length(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / name).read_bytes().rstrip(b"\n") + b"\n"
    data *= FEW // len(data) + 1
    path = tmp_path / Path(name).name
    try:
        path.write_bytes(data)
        steps(path)  # imports
        few = steps(path)
        path.write_bytes(data * GROWTH)
        many = steps(path)
    except UsageProblem:
        pytest.skip("is not read by itself")
    assert many / few < MOST * GROWTH
