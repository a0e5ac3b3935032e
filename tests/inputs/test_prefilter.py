"""The automaton of the prefilter: kept between runs, made anew where it does not fit, the same in both cases."""

from pathlib import Path

import pytest

from nccl_doctor.common import parse_cache
from nccl_doctor.inputs import prefilter
from nccl_doctor.inputs.prefilter import Prefilter

hyperscan = pytest.importorskip("hyperscan")
TEXT = b"a Xid b head,er Xid head,er"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "compiled"
    monkeypatch.setattr(prefilter, "remembered_bytes", lambda *args: parse_cache.remembered_bytes(*args, folder))
    return folder / "prefilter-test.bin"


def scan(literals: list[bytes]) -> tuple[list[tuple[int, int]], set[bytes]]:
    return Prefilter(literals, [b"head,er"], "test").scan(TEXT)


def test_a_kept_automaton_finds_what_a_new_one_finds(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Prefilter([b"Xid"], [b"head,er"]).scan(TEXT)
    assert new == scan([b"Xid"])
    content = kept.read_bytes()
    monkeypatch.setattr(Prefilter, "_compiled", None)  # it is only loaded now
    assert new == scan([b"Xid"])
    assert content == kept.read_bytes()


def test_other_literals_and_damage_make_a_new_one(kept: Path) -> None:
    assert ([(4, 0), (18, 0)], {b"head,er"}) == scan([b"Xid"])
    assert ([(6, 0)], {b"head,er"}) == scan([b"b"])
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40] + bytes(len(whole) - 40), b"x" * len(whole)):
        kept.write_bytes(damaged)
        assert ([(6, 0)], {b"head,er"}) == scan([b"b"])
        assert whole[:32] == kept.read_bytes()[:32]


def test_an_automaton_of_another_processor_is_not_used(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise hyperscan.DatabasePlatformError("error code -5")

    monkeypatch.setattr(hyperscan, "loadb", refuse)
    assert ([(4, 0), (18, 0)], {b"head,er"}) == scan([b"Xid"])
