"""What the report says of records of NCCL's Inspector."""

import json
from pathlib import Path

from nccl_doctor.app import analyze


def test_the_bandwidth_of_collectives_is_in_the_line_about_the_job(tmp_path: Path) -> None:
    path = tmp_path / "inspector.jsonl"
    path.write_text(
        "".join(
            '{"header":{"id":"0x9a1b","rank":0,"n_ranks":8,"nnodes":1},"metadata":{"hostname":"node01","pid":4711,'
            f'"dump_timestamp_us":{1748030377748202 + number}}},"coll_perf":{{"coll":"AllReduce","coll_sn":{number},'
            '"coll_msg_size_bytes":268435456,"coll_exec_time_us":1210,"coll_timing_source":"kernel_gpu",'
            '"coll_algobw_gbs":221.84,"coll_busbw_gbs":388.2}}\n'
            for number in range(3)
        )
    )
    report = analyze.analyze([str(path)])[0]
    assert "AllReduce 388.2 GB/s busbw at 256 MiB" in report.job_lines


def test_records_over_several_lines(tmp_path: Path) -> None:
    record = {
        "header": {"id": "0x9a1b", "rank": 3, "n_ranks": 8, "nnodes": 1},
        "metadata": {"hostname": "node01", "pid": 4711},
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": 4, "coll_msg_size_bytes": 268435456, "coll_exec_time_us": 1210,
            "coll_algobw_gbs": 221.84, "coll_busbw_gbs": 388.2,
        },
    }  # fmt: skip
    path = tmp_path / "inspector.json"
    path.write_text(2 * (json.dumps(record, indent=2) + "\n"))
    report = analyze.analyze([str(path)])[0]
    assert [("nccl-inspector", 2, "")] == [(one.kind, one.understood, one.note) for one in report.inputs]
    assert "AllReduce 388.2 GB/s busbw at 256 MiB" in report.job_lines
