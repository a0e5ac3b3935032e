"""Exported logs: which files are taken for one, what lines come out of their records, and where these lines were."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import exports

STACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\nRuntimeError: no space'
HOSTILE = (
    b"{" * 100_000,
    b'{"message": "a"' * 2_000,
    b'[{"message": ' + b"[" * 100_000,
    b'{"message": "a", "time": 1e400}\n',
    b'{"message": "a", "time": "9999-99-99T99:99:99"}\n{"message": "b", "rank": -1}\n',
    b'message,timestamp\n"a,1\n',
    b"message,timestamp\n" + b'"' * 300_001,
    b"__CURSOR=1\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff",
    b'{"values": [["1700000000000000000", 7], [], 3]}',
    b'2026-05-07T12:00:00Z {a="' + b'\\"' * 40_000,
    b'{"_STREAM_ID": "a", "_LINE_BREAK": "line-max", "MESSAGE": "a"}\n' * 200,
)


def lines(data: bytes | str) -> list[tuple[int, str]]:
    """(number in the file, text) of the lines inside an export."""
    data = data.encode() if isinstance(data, str) else data
    kind = exports.recognise(data)
    assert kind is not None
    stream = exports.Exported(io.BytesIO(data), kind)
    texts = stream.read(1 << 30).decode().splitlines()
    return [(stream.source_line(number), text) for number, text in enumerate(texts, 1)]


def texts(data: bytes | str) -> list[str]:
    return [text for _, text in lines(data)]


@pytest.mark.parametrize(
    "head",
    [
        "node01:101:140 [0] NCCL INFO Using network IB\n",
        '{"log":"node01:101:140 [0] NCCL INFO Using network IB\\n","stream":"stdout","time":"2026-05-07T12:00:00Z"}\n',
        '{"train_batch_size": 8, "fp16": {"enabled": true}}\n',
        '{"loss": 0.5, "step": 3}\n{"loss": 0.4, "step": 4}\n',
        "name, gpu, message of the day\nnode01\n",
        "timestamp, index, utilization.gpu [%]\n2026/05/07 12:00:00.000, 0, 98 %\n",
        "Epoch 1, loss 0.5, message passing layers 3\nEpoch 2, loss 0.4, message passing layers 3\n",
    ],
)
def test_other_files_are_no_exports(head: str) -> None:
    assert exports.recognise(head.encode()) is None


def test_a_record_of_several_lines_keeps_the_numbers_of_the_file() -> None:
    rows = [{"event": "start"}, {"event": "failed", "exception": STACK}, {"event": "end"}]
    expected = [(1, "start"), (2, "failed"), *((2, line) for line in STACK.split("\n")), (3, "end")]
    assert expected == lines("".join(json.dumps(row) + "\n" for row in rows))


def test_a_document_keeps_the_numbers_of_the_file() -> None:
    assert [(3, "one"), (6, "two")] == lines(json.dumps([{"message": "one"}, {"message": "two"}], indent=1))


def test_a_cell_of_several_lines_keeps_the_number_of_its_row() -> None:
    assert [(2, "one"), (2, "more"), (4, "two")] == lines('level,message\ninfo,"one\nmore"\ninfo,two\n')


def test_the_newest_first_is_turned_round() -> None:
    text = "@timestamp,@message\n2026-05-07 12:00:02.000,two\n2026-05-07 12:00:01.000,one\n"
    assert [(3, "2026-05-07 12:00:01.000 one"), (2, "2026-05-07 12:00:02.000 two")] == lines(text)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"message": "a", "ts": 1778155200.5}, "2026-05-07T12:00:00.500000Z a"),
        ({"message": "a", "timestamp": 1778155200000}, "2026-05-07T12:00:00Z a"),
        ({"message": "a", "time": "soon", "rank": 3}, "[rank3]: a"),
        ({"log": "a\n", "kubernetes": {"pod_name": "job-0"}}, "[pod/job-0/log] a"),
        ({"message": "a", "hostname": "node01"}, "node01: a"),
        ({"event": "step done", "step": 7, "loss": 0.5}, "step done step=7 loss=0.5"),
        ({"jsonPayload": {"message": "a"}, "severity": "ERROR"}, "a"),
        ({"log": '{"msg": "a"}'}, "a"),
        (
            {
                "MESSAGE": "NVRM: x",
                "_HOSTNAME": "node01",
                "SYSLOG_IDENTIFIER": "kernel",
                "time": "2026-05-07T12:00:00Z",
            },
            "2026-05-07T12:00:00Z node01 kernel: NVRM: x",
        ),
        (
            {
                "involvedObject": {"kind": "Pod", "name": "job-0"},
                "reason": "FailedScheduling",
                "type": "Warning",
                "message": "0/3 nodes are available",
            },
            "Warning   FailedScheduling   pod/job-0   0/3 nodes are available",
        ),
    ],
)
def test_a_record_says_when_where_and_which_rank(row: dict[str, object], expected: str) -> None:
    assert [expected] == texts(json.dumps(row) + "\n")


def pod(name: str, state: dict[str, object], **status: object) -> dict[str, object]:
    containers = [{"name": "train", "ready": "running" in state, "restartCount": 2, "state": state, "lastState": {}}]
    return {
        "kind": "Pod",
        "metadata": {"name": name},
        "status": {"phase": "Running", "containerStatuses": containers, **status},
    }


def test_pods_are_read_as_get_and_describe_print_them() -> None:
    items = [
        pod("worker-0", {"running": {"startedAt": "2026-05-07T12:00:00Z"}}),
        pod("worker-1", {"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
        pod(
            "worker-2",
            {},
            reason="Evicted",
            message="The node was low on resource: memory.",
            startTime="2026-05-07T12:00:00Z",
        ),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)
    assert [
        "[pod/worker-0/log] worker-0   1/1   Running   2",
        "[pod/worker-1/log] worker-1   0/1   OOMKilled   2",
        "[pod/worker-1/log]       Reason:       OOMKilled",
        "[pod/worker-1/log]       Exit Code:    137",
        "2026-05-07T12:00:00Z [pod/worker-2/log] worker-2   0/1   Evicted   2",
        "2026-05-07T12:00:00Z [pod/worker-2/log] Message:      The node was low on resource: memory.",
    ] == texts(text)


def test_a_pod_without_node_says_why() -> None:
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    row = {"kind": "Pod", "metadata": {"name": "w-0"}, "status": {"phase": "Pending", "conditions": [why, 7]}}
    assert [
        "[pod/w-0/log] w-0   0/0   Pending   0",
        "[pod/w-0/log] Warning   FailedScheduling   pod/w-0   0/4 nodes are available",
    ] == texts(json.dumps(row))


@pytest.mark.parametrize(
    "status", [[], {"containerStatuses": [7, {"state": [], "lastState": {"terminated": 1}}]}, {"containerStatuses": 1}]
)
def test_a_pod_with_another_status(status: object) -> None:
    texts(json.dumps({"kind": "Pod", "metadata": {"name": "x"}, "status": status}))


def test_the_stack_of_structlog_is_written_as_python_does() -> None:
    frames = [{"filename": "train.py", "lineno": 7, "name": "main"}]
    row = {"event": "failed", "exception": [{"exc_type": "RuntimeError", "exc_value": "no space", "frames": frames}]}
    assert ["failed", *STACK.split("\n")] == texts(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"msg": "no GPUs", "err": "driver not loaded"}, "no GPUs: driver not loaded"),
        ({"event": "Test failed", "detail": "GPU 0 fell off"}, "Test failed: GPU 0 fell off"),
        ({"msg": "no GPUs: driver not loaded", "error": "driver not loaded"}, "no GPUs: driver not loaded"),
        ({"msg": "step 7", "error": "0.25", "err": None}, "step 7"),
        ({"msg": "a", "error": ["b c"], "err": {"d": "e f"}}, "a"),
    ],
)
def test_the_reason_of_a_structured_logger_stands_behind_its_message(row: dict[str, object], expected: str) -> None:
    assert [expected] == texts("".join(f"{json.dumps({'level': 'error', **row})}\n" for _ in range(2)))[:1]


def test_a_document_that_was_cut_off_gives_what_is_whole() -> None:
    assert ["one"] == texts('[{"message": "one"}, {"message": "tw')


def test_text_between_records_stays() -> None:
    assert ["one", "plain {text}", "two"] == texts('{"message": "one"}\nplain {text}\n{"message": "two"}\n')


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records_end_in_text(data: bytes) -> None:
    kind = exports.recognise(data[: 1 << 16])
    for known in (kind, "lines", "document", "journal", "table", "logcli"):
        stream = exports.Exported(io.BytesIO(data), known or "lines")
        assert len(stream.read(1 << 30)) <= 2 * len(data) + 100


@given(st.binary(max_size=200), st.sampled_from(["lines", "document", "journal", "table", "logcli"]))
def test_any_bytes_are_read_to_their_end(data: bytes, kind: str) -> None:
    stream = exports.Exported(io.BytesIO(data), kind)
    while stream.read(64):
        pass
    assert b"" == stream.read(64)


LONG = "node01:101:140 [0] NCCL WARN Call to ibv_modify_qp failed, and " + "so on " * 30


def pieces(count: int) -> list[str]:
    step = -(-len(LONG) // count)
    return [LONG[at : at + step] for at in range(0, len(LONG), step)]


MARKS = {  # what the first pieces and the last one carry
    "the journal": ({"_LINE_BREAK": "line-max"}, {}, {"_STREAM_ID": "4be1"}, "MESSAGE"),
    "Docker to the journal": (
        {"CONTAINER_PARTIAL_MESSAGE": "true", "CONTAINER_PARTIAL_LAST": "false"},
        {"CONTAINER_PARTIAL_LAST": "true"},
        {"CONTAINER_PARTIAL_ID": "9f"},
        "MESSAGE",
    ),
    "Docker to Fluentd": ({"partial_last": "false"}, {"partial_last": "true"}, {"partial_id": "9f"}, "log"),
    "Fluent Bit": ({"logtag": "P"}, {"logtag": "F"}, {"stream": "stderr"}, "log"),
}


@pytest.mark.parametrize("form", ["lines", "document", "journal"])
@pytest.mark.parametrize("writer", MARKS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_pieces_of_a_record_are_joined(writer: str, form: str, count: int) -> None:
    first, last, all_, name = MARKS[writer]
    parts = pieces(count)
    rows = [{**(last if part is parts[-1] else first), **all_, name: part} for part in parts]
    rows.insert(1, {"MESSAGE": "of another"})
    if form == "journal":
        data = "".join(
            "__CURSOR=1\n" + "".join(f"{key}={value}\n" for key, value in row.items()) + "\n" for row in rows
        )
    else:
        data = "\n".join(json.dumps(row) for row in rows) if form == "lines" else json.dumps(rows)
    found = texts(data + "\n")
    assert sorted([LONG.strip(), "of another"]) == sorted(text.strip() for text in found)


def test_pieces_of_a_journal_that_was_printed_backwards_stay_apart() -> None:
    rows = [
        {"_STREAM_ID": "4be1", "_LINE_BREAK": "line-max", "MESSAGE": str(at), "__REALTIME_TIMESTAMP": str(at)}
        for at in (9, 8)
    ]
    assert {"9", "8"} == {text.split()[-1] for text in texts("".join(json.dumps(row) + "\n" for row in rows))}


def test_messages_that_the_journal_left_out_are_counted() -> None:
    rows = [{"MESSAGE": "a", "__REALTIME_TIMESTAMP": "1"}, {"MESSAGE": None, "__REALTIME_TIMESTAMP": "2"}]
    for data in (json.dumps(rows), "".join(json.dumps(row) + "\n" for row in rows)):
        kind = exports.recognise(data.encode())
        assert kind is not None
        stream = exports.Exported(io.BytesIO(data.encode()), kind)
        assert b"a\n" == stream.read(1 << 20)
        assert stream.problem is not None
        assert stream.problem.startswith("1 message is too long for it and null")


def test_logcli_is_turned_round_and_names_its_pods() -> None:
    text = (
        'http://loki:3100/loki/api/v1/query_range?limit=30\nCommon labels: {app="train"}\n'
        '2026-05-07T12:00:01Z {pod="job-0", x="a, \\"b\\" {}"} two\n  of two\n2026-05-07T12:00:00Z {pod="job-0"}   one\n'
    )
    assert [
        "http://loki:3100/loki/api/v1/query_range?limit=30",
        "2026-05-07T12:00:00Z [pod/job-0/log] one",
        "2026-05-07T12:00:01Z [pod/job-0/log] two",
        "2026-05-07T12:00:01Z [pod/job-0/log]   of two",
    ] == sorted(texts(text), key=lambda line: (line[:4] != "http", line[:20]))


def test_logcli_names_the_pod_that_all_lines_share() -> None:
    text = 'Common labels: {pod="job-0"}\n2026-05-07T12:00:00+02:00 {} {"msg": "one"}\n'
    assert ["2026-05-07T12:00:00+02:00 [pod/job-0/log] one"] == texts(text)


def test_a_table_of_cloud_logging_with_the_message_in_one_of_two_columns() -> None:
    text = (
        'insertId,jsonPayload.message,"labels.""k8s-pod/job-name""",resource.labels.pod_name,textPayload,timestamp\n'
        "a,one,j,job-0,,2026-05-07T12:00:00Z\nb,,j,job-0,two,2026-05-07T12:00:01Z\n"
    )
    assert [
        "2026-05-07T12:00:00Z [pod/job-0/log] one",
        "2026-05-07T12:00:01Z [pod/job-0/log] two",
    ] == texts(text)
