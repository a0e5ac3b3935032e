"""The site's settings of preflight: strict types, and a file that cannot be used drains nothing."""

import dataclasses
import os
from pathlib import Path

import pytest
from helpers.examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nccl_doctor.app import preflight_config
from nccl_doctor.app.preflight_config import Settings, load


def write(folder: Path, content: str | bytes) -> Path:
    file = folder / "preflight.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_a_missing_file_leaves_the_defaults_and_a_named_one_observes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "absent" / "preflight.toml"
    assert Settings(observe=True) == load(absent).settings
    monkeypatch.setattr(preflight_config, "PLACE", absent)
    loaded = load()
    assert (Settings(), []) == (loaded.settings, loaded.problems)
    assert {"default"} == set(loaded.sources.values())


def test_values_of_the_file_hold(tmp_path: Path) -> None:
    file = write(tmp_path, 'observe = true\ntimeout = 7\ncommands = ["/opt/slurm/bin"]\n')
    loaded = load(file)
    assert Settings(observe=True, timeout=7.0, commands=("/opt/slurm/bin",)) == loaded.settings
    assert [] == loaded.problems
    assert (str(file), "default") == (loaded.sources["observe"], loaded.sources["expect"])


@pytest.mark.parametrize(
    "line", ["timeout = true", "timeout = 0", "timeout = nan", "timeout = 'x'", "expect = 1", "rules = [1]", "rules = 'x'",
             "teapot = 1", "[observed]"],
)  # fmt: skip
def test_a_wrong_key_is_left_out_and_the_others_hold(tmp_path: Path, line: str) -> None:
    loaded = load(write(tmp_path, f"config = 'c'\n{line}\n"))
    assert Settings(config="c") == loaded.settings
    assert 1 == len(loaded.problems)


@pytest.mark.parametrize(
    "content", ["observe = 'no'", "observe = 0", "observe = false\n[[[", b"\xff\xfe", "a = " + "[" * 5000]
)
def test_what_cannot_be_read_observes(tmp_path: Path, content: str | bytes) -> None:
    loaded = load(write(tmp_path, content))
    assert loaded.settings.observe
    assert 1 == len(loaded.problems)
    assert "\n" not in loaded.problems[0]


def test_a_folder_in_its_place_observes(tmp_path: Path) -> None:
    (tmp_path / "preflight.toml").mkdir()
    assert load(tmp_path / "preflight.toml").settings.observe


@pytest.mark.skipif(os.geteuid() != 0, reason="only root distrusts files")
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write_is_refused_and_observes(tmp_path: Path, mode: int) -> None:
    file = write(tmp_path, "observe = false\ntimeout = 9\n")
    file.chmod(mode)
    loaded = load(file)
    assert Settings(observe=True) == loaded.settings
    assert "writable" in loaded.problems[0]
    assert loaded.problems[0] in preflight_config.explain(loaded)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_content_raises(tmp_path: Path, content: bytes) -> None:
    loaded = load(write(tmp_path, content))
    assert isinstance(loaded.settings, Settings)


def test_every_setting_is_explained_with_value_source_and_meaning(tmp_path: Path) -> None:
    file = write(tmp_path, "observe = true\n")
    text = preflight_config.explain(load(file).with_options({"timeout": 3.0, "config": None}))
    rows = {line.partition("=")[0].strip(): " ".join(line.split()) for line in text.splitlines()}
    assert [one.name for one in dataclasses.fields(Settings)] == [name for name in rows if not name.startswith("#")]
    assert rows["observe"].startswith(f"observe = true # {file}: ")
    assert rows["timeout"].startswith("timeout = 3 # option: ")
    assert rows["config"].startswith('config = "" # default: ')
    assert all(one.metadata["meaning"] in rows[one.name] for one in dataclasses.fields(Settings))
