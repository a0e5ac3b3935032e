"""Expressions out of kept code are those that `re` compiles."""

import marshal
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_doctor.common import expressions, parse_cache
from nccl_doctor.common.expressions import Store
from nccl_doctor.formats import registry
from nccl_doctor.log import line_patterns

MORE = [
    ("a(?P<number>\\d+)|(?i:b)", 0),
    ("ä+", re.IGNORECASE),
    (rb"\A(x)?(?(1)y|z)", re.MULTILINE),
    (r"(?x) a  # b", 0),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "compiled"
    folder.mkdir()
    return folder / "expressions.bin"


def test_kept_code_is_that_of_re(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [(pattern.regex, 0) for pattern in line_patterns.load() if pattern.regex]
    formats = [(known.begins.pattern, known.begins.flags) for known in registry.FORMATS if known.begins is not None]
    monkeypatch.setattr(expressions, "_MOST", 10_000)
    first = Store(file)
    for expression, flags in [*ours, *formats, *MORE]:
        first.pattern(expression, int(flags))
    first.save()
    second = Store(file)
    for expression, flags in [*ours, *formats, *MORE]:
        expected, kept = re.compile(expression, flags), second.pattern(expression, int(flags))
        assert (kept, kept.groupindex, kept.groups) == (expected, expected.groupindex, expected.groups)
    assert second._new == {}


def test_samples_match_with_kept_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MOST", 10_000)
    known = [pattern for pattern in line_patterns.load() if pattern.regex and pattern.sample]
    for _ in range(2):
        store = Store(file)
        for pattern in known:
            code = store.pattern(pattern.regex, 0)
            for sample in pattern.sample:
                expected, found = pattern.compiled.search(sample), code.search(sample)
                assert (found and found.groupdict()) == (expected and expected.groupdict()), pattern.name
        store.save()


@pytest.mark.parametrize("damage", [b"", b"x" * 60, marshal.dumps({("a", 0): b"x"})])
def test_a_damaged_file_is_made_anew(file: Path, damage: bytes) -> None:
    file.write_bytes(damage)
    store = Store(file)
    assert store.pattern("a(b)", 0).fullmatch("ab")
    store.save()
    assert list(Store(file)._kept) == [("a(b)", 0)]


def test_code_of_another_python_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(file)
    store.pattern("a", 0)
    store.save()
    monkeypatch.setattr(expressions, "_MACHINE", b"another")
    assert Store(file)._kept == {}


def test_without_the_internals_of_re(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MACHINE", b"")
    store = Store(file)
    assert store.pattern("a", re.IGNORECASE).match("A")
    store.save()
    assert store.pattern("a", 0) == re.compile("a")


def test_broken_expressions_raise(file: Path) -> None:
    with pytest.raises(re.error):
        Store(file).pattern("a(", 0)


def test_what_parses_all_data_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MOST", 3)
    for names in ("ab", "cd", "efghi"):
        store = Store(file)
        for name in names:
            store.pattern(name, 0)
        store.save()
    assert {name for name, _ in Store(file)._kept} == {"c", "d"}


def test_what_was_not_used_goes_where_there_is_too_much(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MOST", 3)
    for names in ("abc", "bd"):
        store = Store(file)
        for name in names:
            store.pattern(name, 0)
        store.save()
    assert {name for name, _ in Store(file)._kept} == {"b", "d"}


def test_a_signal_while_code_is_kept_at_the_end_leaves_no_traceback(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[Callable[[], object]] = []

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(expressions.atexit, "register", registered.append)
    monkeypatch.setattr(parse_cache, "keep", interrupt)
    Store(file).pattern("a+b", 0)

    assert [None] == [at_exit() for at_exit in registered]
