"""Foreign queries can only read, and neither their time nor their memory is without end."""

import signal
import threading
from contextlib import suppress
from functools import partial

import pytest

from nccl_doctor.facts import guard
from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.store import Facts


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM input",
        "PRAGMA query_only = OFF",
        "ATTACH 'x' AS y",
        "VACUUM",
        "SELECT load_extension('x')",
        "CREATE TABLE t (x)",
    ],
)
def test_a_query_can_only_read(query: str) -> None:
    with pytest.raises(QueryProblem):
        Facts().sql(query)


def test_an_expression_that_does_not_return_ends_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STUCK_SECONDS", 0.2)
    with pytest.raises(QueryProblem, match=r"a function took more than 0\.2 s of processor time"):
        Facts().sql(f"SELECT '{'a' * 60}!' REGEXP '^(a|a|aa)+$'")
    assert [(1,)] == Facts().sql("SELECT 'aab' REGEXP '^a+b$'")[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT printf('%.*c', 100000000, 'x')",
        "SELECT length(zeroblob(1000000000))",
        "SELECT replace(printf('%.*c', 10000000, 'x'), 'x', 'yyyyyyyy')",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400) SELECT printf('%.*c', 10000000 + i, 'x') FROM n",
    ],
)
def test_no_value_and_no_answer_takes_the_memory(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LARGEST", 50 << 20)
    sizes = []
    with suppress(QueryProblem):  # or NULL, as printf of some releases of SQLite gives
        sizes = [len(value or "") for row in Facts().sql(query)[1] for value in row if not isinstance(value, int)]
    assert sum(sizes) <= 50 << 20
    assert max(sizes, default=0) <= guard.LONGEST


def test_other_threads_may_ask() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(Facts().sql("SELECT 1")[1]))
    thread.start()
    thread.join()
    assert [[(1,)]] == found


def _interrupted() -> None:
    with Facts().asked("SELECT 1") as (_, rows):
        assert [(1,)] == list(rows)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(3)], ids=["interrupt", "exit"])
def test_signals_are_noted_once_around_many_queries(
    ending: BaseException, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def end(number: int, _: object) -> None:
        assert number == signal.SIGINT
        raise ending

    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, end)))
    monkeypatch.setattr(guard, "STUCK_SECONDS", 0.2)
    before = {number: signal.getsignal(number) for number in (signal.SIGPROF, *guard.ENDING)}
    with guard.signals_noted():
        noting = signal.getsignal(signal.SIGPROF)
        with pytest.raises(QueryProblem, match="a function took"):
            Facts().sql(f"SELECT '{'a' * 60}!' REGEXP '^(a|a|aa)+$'")
        assert [(1,)] == Facts().sql("SELECT 1")[1]
        assert noting == signal.getsignal(signal.SIGPROF)
        signal.raise_signal(signal.SIGPROF)  # late: no query runs
        with pytest.raises(type(ending)):
            _interrupted()
    assert before == {number: signal.getsignal(number) for number in before}
