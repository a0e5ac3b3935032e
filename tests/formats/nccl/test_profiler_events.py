"""Events of NCCL's example profiler plug-in in the words of each release, Inspector records, and RAS reports as text."""

import io
import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import RasGroup
from nccl_doctor.formats import registry
from nccl_doctor.formats.nccl import inspector, profiler_events, ras_text

HASH = 1493613951195738943


def trace(
    rank: int, kernel_us: list[float], *, type_: str = '"ncclFloat32"', clocks: bool = True, api: bool = True
) -> bytes:
    """What the plug-in of one release writes for all-reduces of 1 MiB; `api` is 2.28.3, with values that lack quotes."""
    lines = ["["]

    def event(name: str, category: str, phase: str, at: float, arguments: str = "") -> None:
        more = f', "args": {{{arguments}}}' if arguments else ""
        lines.append(
            f'{{"name": "{name}", "cat": "{category}", "ph": "{phase}", "id": 0, "pid": {4000 + rank}, "tid": 1, "ts": {at:f}{more}}},'
        )

    for number, took in enumerate(kernel_us):
        at = 10_000.0 * number
        if api:
            event("Group API", "GROUP_API", "b", at, '"groupApiId": 0, "groupDepth":1')
            event(
                "AllReduce",
                "COLL_API",
                "b",
                at,
                '"count": 262144, "datatype": ncclFloat32, "root": 0, "GraphCaptured":0, "Stream": 0x5020',
            )
        else:
            event("Group", "GROUP", "b", at, '"groupId": 0')
        head = f'"SeqNum": {number}, "CommHash": {HASH}, "Rank": {rank}, "Count": 262144, "Datatype": {type_}'
        event("AllReduce", "COLL", "b", at, head + ', "Algorithm": "RING", "Protocol": "SIMPLE", "nChannels": 2')
        if clocks:
            start = 1_756_135_989_724_672_000 + 10_000_000 * number
            for channel, late in ((0, 0), (1, 2000)):  # the second channel begins later and ends with the first
                stop = start + int(1000 * took)
                event(
                    "KernelCh",
                    "GPU",
                    "b",
                    at,
                    f'"Channel": {channel}, "StartGpuClk": {start + late}, "StopGpuClk": {stop}',
                )
        event(
            "ProgressSend",
            "PROXY",
            "b",
            at,
            '"Channel": 0, "Peer": 1, "Steps": 4, "ChunkSize": 4194304, "transSize": 524288',
        )
        event("ProgressSend", "PROXY", "e", at + took)
        event("AllReduce", "COLL", "e", at + 7)
    return "\n".join([*lines, "{}]"]).encode()


@pytest.mark.parametrize(
    ("options", "timing"),
    [
        ({}, "kernel_gpu"),
        ({"api": False, "clocks": False}, "proxy"),
        ({"api": False, "clocks": False, "type_": "7"}, "proxy"),  # 2.23
    ],
)
def test_events_of_all_releases(options: dict[str, object], timing: str) -> None:
    data = trace(3, [400.0, 500.0, 900.0], **options)  # type: ignore[arg-type]
    known = registry.recognise(data)
    assert known is not None
    assert known.kind == "nccl-profiler"
    facts = Facts()
    reading = profiler_events.read_format(io.BytesIO(data), "t.json", facts)
    assert (None, True) == (reading.note, reading.understood > 9)
    row = facts.query(
        "SELECT rank, pid, comm, op, size, n, time_median, time_max, timing, round(algbw_median, 3) FROM inspector_coll"
    )
    assert [(3, 4003, f"0x{HASH:x}", "AllReduce", 1 << 20, 3, 500.0, 900.0, timing, 2.097)] == row
    cut = profiler_events.read_format(io.BytesIO(data[: len(data) // 2]), "t.json", Facts())
    assert "ends before the end of the list" in (cut.note or "")


def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"trace_{rank}.json").write_bytes(
            trace(rank, [300.0 if rank == 2 else 1200.0 + number % 3 for number in range(30)])
        )
    report, facts, _ = analyze.analyze([str(tmp_path)])
    assert [("inspector-late-rank", "2")] == [(f.name, f.ranks) for f in report.findings]
    assert [("collective_time", 1201.0, "us"), ("algbw", pytest.approx(0.873, abs=0.001), "GB/s")] == facts.query(
        "SELECT name, value, unit FROM measure WHERE scope = 'collective'"
    )


def test_inspector_transfers_to_a_peer() -> None:
    record = {
        "header": {"id": "0x7f", "rank": 1, "n_ranks": 4, "nnodes": 2},
        "metadata": {"pid": 7, "hostname": "node01"},
    }
    transfer = {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 2, "p2p_msg_size_bytes": 65536, "p2p_exec_time_us": 41}
    more = {"p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 1.5, "p2p_busbw_gbs": 1.5}
    facts = Facts()
    inspector.read_format(io.BytesIO(json.dumps({**record, "p2p_perf": {**transfer, **more}}).encode()), "i.log", facts)
    assert [("Send", 65536, "kernel_gpu", 41.0, 1.5)] == facts.query(
        "SELECT op, size, timing, time_median, algbw_median FROM inspector_coll"
    )


RAS = """NCCL version {version} compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         8         4         1         4        32   RUNNING      OK
    1         1         4       6-8        30        30  INIT,RUNNING  {errors}

Errors
======

Warnings
========

"""


@pytest.mark.parametrize("prefix", ["", "node07: ", "2026-05-07T12:00:00.123Z "])
def test_ras_table_in_text(prefix: str) -> None:
    text = "".join(
        f"{prefix}{line}\n" for line in RAS.format(version="2.24.3", errors="INCOMPLETE,MISMATCH").splitlines()
    )
    facts = Facts()
    ras_text.read_format(io.BytesIO(text.encode()), "ras.txt", facts)
    rows = [row[2:10] for row in facts.rows(RasGroup)]
    assert [
        (0, 8, 4, "1", 4, 32, "RUNNING", "OK"),
        (1, 1, 4, "6-8", 30, 30, "INIT,RUNNING", "INCOMPLETE,MISMATCH"),
    ] == rows
    assert [prefix.startswith("node07")] * 2 == [row.host == "node07" for row in facts.rows(RasGroup)]


def test_healthy_ras_report_shows_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(RAS.format(version="2.30.7", errors="OK").replace("INIT,", ""))
    report, facts, _ = analyze.analyze([str(tmp_path / "ras.txt")])
    assert ("nothing-found", []) == (report.verdict, report.findings)
    text = facts.query("SELECT shows FROM captured")[0][0]
    assert "RAS report: 9 communicators of up to 30 ranks on 4 nodes, RUNNING, OK" == text
