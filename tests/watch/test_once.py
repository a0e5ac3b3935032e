"""One page of `watch`, made while records come."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_doctor.cli.commands import watch
from nccl_doctor.cli.main import main
from nccl_doctor.watch import snapshot
from nccl_doctor.watch.state import State


class Watched:
    """A lock that tells whether it is held."""

    held = False

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_page_is_made_of_a_state_that_nobody_changes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread adds the records of nodes: it and the page take the same lock."""
    lock = Watched()

    def under(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            assert lock.held
            return function(*given)

        return call

    monkeypatch.setattr(watch, "threading", SimpleNamespace(Event=threading.Event, Lock=lambda: lock))
    monkeypatch.setattr(State, "add_record", under(State.add_record))
    monkeypatch.setattr(snapshot, f"render_{form}", under(getattr(snapshot, f"render_{form}")))

    assert 1 == main(["watch", "--once", "--demo", "--format", form])
