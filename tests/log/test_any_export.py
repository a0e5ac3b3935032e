"""One log in any form that log services and JSON loggers give it: the same findings as from the lines themselves."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.log_prefixes import FAULTS, Said, analysed, simulated


def _iso(said: Said) -> str:
    return datetime.fromtimestamp(said.when, UTC).isoformat().replace("+00:00", "Z")


def _lines(record: Callable[[Said], dict[str, Any]]) -> Callable[[list[Said]], str]:
    return lambda lines: "".join(json.dumps(record(said), ensure_ascii=False) + "\n" for said in lines)


def _document(record: Callable[[Said], dict[str, Any]], **layout: Any) -> Callable[[list[Said]], str]:
    return lambda lines: json.dumps([record(said) for said in lines], **layout)


def _newest_first(write: Callable[[list[Said]], str]) -> Callable[[list[Said]], str]:
    return lambda lines: write(lines[::-1])


def _table(*names: str, sign: str = ",", time: Callable[[Said], str] = _iso) -> Callable[[list[Said]], str]:
    def write(lines: list[Said]) -> str:
        text = io.StringIO(newline="")
        table = csv.writer(text, delimiter=sign)
        table.writerow(names)
        table.writerows((time(said), said.text) for said in lines)
        return text.getvalue()

    return write


def _streams(lines: list[Said]) -> str:
    pairs = [[str(int(said.when * 1e6) * 1000), said.text] for said in lines]
    return json.dumps(
        {"status": "success", "data": {"resultType": "streams", "result": [{"stream": {}, "values": pairs}]}}
    )


def _journal(lines: list[Said]) -> str:
    return "".join(
        f"__CURSOR=s=1;i={number}\n__REALTIME_TIMESTAMP={int(said.when * 1e6)}\nPRIORITY=6\nMESSAGE={said.text}\n\n"
        for number, said in enumerate(lines)
    )


def _mixed(lines: list[Said]) -> str:
    """A program that logs JSON, with the lines of NCCL as they are."""
    texts = (said.text if "NCCL" in said.text else json.dumps({"event": said.text, "level": "info"}) for said in lines)
    return "".join(f"{text}\n" for text in texts)


def _behind_time(lines: list[Said]) -> str:
    return "".join(f"{_iso(said)} {json.dumps({'msg': said.text, 'level': 'INFO'})}\n" for said in lines)


def _kibana(said: Said) -> str:
    return f"{datetime.fromtimestamp(said.when, UTC):%b %d, %Y @ %H:%M:%S.%f}"[:-3]


SHAPES: dict[str, Callable[[list[Said]], str]] = {
    "structlog": _lines(lambda said: {"event": said.text, "level": "info", "timestamp": _iso(said)}),
    "python-json-logger": _lines(lambda said: {"asctime": "2026-05-07 12:00:00,123", "message": said.text}),
    "loguru": _lines(lambda said: {"text": said.text + "\n", "record": {"level": {"name": "INFO"}}}),
    "fluent-bit": _lines(lambda said: {"log": said.text + "\n", "kubernetes": {"container_name": "pytorch"}}),
    "rank-beside": _lines(
        lambda said: (
            {"message": said.text} | ({} if said.rank is None else {"rank": said.rank, "local_rank": said.local})
        )
    ),
    "message-in-message": _lines(lambda said: {"time": _iso(said), "log": json.dumps({"msg": said.text})}),
    "logcli": _lines(lambda said: {"labels": {"app": "train"}, "line": said.text, "timestamp": _iso(said)}),
    "elasticsearch": _lines(lambda said: {"_id": "1", "_source": {"message": said.text, "@timestamp": _iso(said)}}),
    "journal-json": _lines(lambda said: {"MESSAGE": said.text, "PRIORITY": "6"}),
    "journal-bytes": _lines(lambda said: {"MESSAGE": list(said.text.encode()), "PRIORITY": "6"}),
    "journal-export": _journal,
    "behind-time": _behind_time,
    "mixed": _mixed,
    "loki": _streams,
    "cloud-logging": _document(lambda said: {"textPayload": said.text, "timestamp": _iso(said)}, indent=2),
    "cloud-logging-json": _document(lambda said: {"jsonPayload": {"message": said.text}, "timestamp": _iso(said)}),
    "cloudwatch": lambda lines: json.dumps(
        {"events": [{"timestamp": int(said.when * 1000), "message": said.text, "eventId": "1"} for said in lines]},
        indent=1,
    ),
    "csv": _table("@timestamp", "@message"),
    "csv-kibana": _table("@timestamp", "message", time=_kibana),
    "csv-semicolon": _table("Time", "Line", sign=";"),
    "tsv": _table("timestamp", "message", sign="\t"),
}
SHAPES |= {f"{name}-newest-first": _newest_first(SHAPES[name]) for name in ("cloud-logging", "csv")}


@pytest.fixture(scope="module", params=FAULTS, ids=lambda fault: fault or "healthy")
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Said], tuple[Any, ...]]:
    lines = simulated(request.param)
    ordered = [
        said._replace(when=said.when + at * 1e-3) for at, said in enumerate(sorted(lines, key=lambda one: one.when))
    ]
    return ordered, analysed("".join(f"{said.text}\n" for said in ordered), tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_export_changes_no_finding(job: tuple[list[Said], tuple[Any, ...]], shape: str, tmp_path: Path) -> None:
    lines, expected = job
    found = analysed(SHAPES[shape](lines), tmp_path)
    if shape == "rank-beside":  # which says more about lines without a header
        expected, found = ((*whole[:4], *whole[4][:1]) for whole in (expected, found))
    assert expected == found
