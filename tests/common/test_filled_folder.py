"""A folder that is filled or not there."""

from pathlib import Path

import pytest

from nccl_doctor.common.atomic_write import filled
from nccl_doctor.common.errors import UsageProblem


def test_a_filled_folder_stays(tmp_path: Path) -> None:
    with filled(tmp_path / "a" / "b") as folder:
        (folder / "one").write_text("1")
    assert ["one"] == [path.name for path in (tmp_path / "a" / "b").iterdir()]


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt(), UsageProblem("no")])
def test_nothing_is_left_of_a_folder_that_could_not_be_filled(problem: BaseException, tmp_path: Path) -> None:
    def fill() -> None:
        with filled(tmp_path / "a" / "b") as folder:
            (folder / "one").write_text("1")
            raise problem

    with pytest.raises(UsageProblem if isinstance(problem, OSError) else type(problem)):
        fill()
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No space"), filled(tmp_path):
        raise OSError(28, "No space left on device")
    assert tmp_path.is_dir()


def test_a_folder_with_files_and_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (tmp_path, file):
        with pytest.raises(UsageProblem, match="exists and is not an empty folder"), filled(place):
            pytest.fail("it was to be refused")
    assert "mine" == file.read_text()
