"""One place reads dates: ISO and asctime, with and without a zone."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common.timestamps import asctime_seconds, iso_seconds

NOON = datetime(2024, 5, 7, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-05-07T12:00:00", NOON),
        ("2024/05/07 12:00:00.250", NOON + 0.25),
        ("2024-05-07 12:00:00,5", NOON + 0.5),
        ("2024-05-07T14:00:00+02:00", NOON),
        ("2024-05-07T12:00:00Z", NOON),
        ("2024-05-07 12:00:00 UTC", NOON),
        ("2024-13-07 12:00:00", None),
        ("0000-00-00", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_iso(text: str, seconds: float | None) -> None:
    assert seconds == iso_seconds(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("Tue May  7 12:00:00 2024", NOON), ("Tue Mai  7 12:00:00 2024", None), ("May 7 2024", None), ("", None)],
)
def test_asctime(text: str, seconds: float | None) -> None:
    assert seconds == asctime_seconds(text)


def test_local_time_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    try:
        assert NOON - 3 * 3600 == iso_seconds("2024-05-07T12:00:00", local=True)
        assert NOON - 3 * 3600 == asctime_seconds("Tue May  7 12:00:00 2024", local=True)
        assert NOON == iso_seconds("2024-05-07T12:00:00Z", local=True)
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    for seconds in (iso_seconds(text), iso_seconds(text, local=True), asctime_seconds(text)):
        assert seconds is None or isinstance(seconds, float)


@given(st.datetimes(min_value=datetime(1980, 1, 1), max_value=datetime(2100, 1, 1)))
def test_what_was_printed_is_read(when: datetime) -> None:
    whole = when.replace(microsecond=0)
    assert whole.replace(tzinfo=UTC).timestamp() == iso_seconds(whole.isoformat())
    assert whole.replace(tzinfo=UTC).timestamp() == asctime_seconds(whole.ctime())
