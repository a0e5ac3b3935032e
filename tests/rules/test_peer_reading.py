"""Logs on which other tools fail to read something: prefixes, torn lines, many communicators."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.peer_logs import FAULTY, HEALTHY, life, run, told
from helpers.places import FIXTURES

from nccl_doctor.app import analyze

# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_bare_log_needs_no_description_of_the_job_beside_it(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(HEALTHY)
    assert 0 == run("analyze", "job.log", folder=tmp_path).returncode


def test_a_relative_path_will_do_and_so_does_standard_input(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(FAULTY)
    by_path = run("analyze", "./job.log", "--format", "json", folder=tmp_path)
    by_pipe = run("analyze", "-", "--format", "json", folder=tmp_path, text=FAULTY)
    assert (1, 1) == (by_path.returncode, by_pipe.returncode)
    assert json.loads(by_path.stdout)["findings"][0]["name"] == json.loads(by_pipe.stdout)["findings"][0]["name"]


PREFIXES: dict[str, Callable[[int], str]] = {
    "srun": lambda rank: f"{rank}: ",
    "mpirun": lambda rank: f"[1,{rank}]<stdout>:",
    "mpirun without space": lambda rank: f"[1,{rank}]<stderr>:",
    "torchrun": lambda rank: f"[default{rank}]:",
    "rank": lambda rank: f"[rank{rank}]: ",
    "cloudwatch": lambda rank: "2026-05-05T06:16:47.123Z ",
    "nccl time stamp": lambda rank: "[2026-05-05 06:16:47] ",
    "ray": lambda rank: f"(RayTrainWorker pid={900 + rank}) ",
    "docker-compose": lambda rank: f"worker-{rank}  | ",
    "ansi": lambda rank: "\x1b[32m",
    "box of a terminal": lambda rank: "│ ",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_a_launcher_prefix_neither_hides_the_lines_nor_names_the_host(name: str) -> None:
    text = "".join(
        f"{PREFIXES[name](rank)}node0{rank + 1}:101:140 [0] NCCL INFO ncclCommInitRank comm 0x55aa rank {rank} nranks 2 "
        "cudaDev 0 nvmlDev 0 busId 1a000 commId 0xc0ffee - Init COMPLETE\n"
        for rank in (0, 1)
    )
    report = told(text)
    assert ("node[01-02]", 2, 2) == (report.job["host_names"], report.inputs[0].nccl_lines, report.job["ranks"])


def test_carriage_returns_are_no_part_of_a_value() -> None:
    report = told(HEALTHY.replace("\n", "\r\n"))
    assert told(HEALTHY).job == report.job


def test_the_host_is_the_one_in_the_line_not_the_name_of_the_file() -> None:
    report = analyze.report_of(analyze.read_text(life("node01", 0, 1), name="slurm-8384637.out"))
    assert "node01" == report.job["host_names"]


def test_a_fork_that_writes_the_host_in_brackets_is_understood() -> None:
    line = "[node01][101:140][0][init.cc:1234] NCCL INFO comm 0x55aa rank 0 nranks 1 cudaDev 0 busId 1a000 commId 0xab - Init COMPLETE"
    assert "node01" == told(line + "\n").job["host_names"]


def test_two_records_on_one_line_are_two_records() -> None:
    more = "".join(f"node02:101:141 [0] NCCL INFO Channel 0{n}/0 : 1[0] -> 0[0] via P2P/IPC\n" for n in range(5))
    report = told(life("node01", 0, 2).rstrip("\n") + life("node02", 1, 2) + more)
    assert ("node[01-02]", 2) == (report.job["host_names"], report.job["ranks"])


def test_a_warning_broken_over_two_lines_is_one_warning() -> None:
    text = (
        "node01:101:140 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<33927> with status=12 \n"
        "opcode=32612 len=0 vendor err 129 (Send)\n"
    )
    assert "ib-peer-unreachable" in [finding.name for finding in told(text).findings]


def test_files_of_several_communicators_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(life("node01", 0, 2) + life("node01", 0, 1, comm="0xbeef"))
    (tmp_path / "b.log").write_text(life("node02", 1, 2))
    report, _, problems = analyze.analyze([str(tmp_path)])
    assert ([], "node[01-02]", 2) == (problems, report.job["host_names"], report.job["ranks"])


@pytest.mark.parametrize("call", ["ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommInitAll"])
def test_every_call_that_makes_a_communicator_counts(call: str) -> None:
    assert 2 == told(life("node01", 0, 2, call=call) + life("node02", 1, 2, call=call)).job["ranks"]


def test_a_log_and_json_lines_in_one_folder_are_both_read(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(HEALTHY)
    (tmp_path / "inspector.jsonl").write_bytes((FIXTURES / "topology" / "inspector.log").read_bytes())
    report, _, problems = analyze.analyze([str(tmp_path)])
    assert ([], 2) == (problems, len(report.inputs))


def test_the_lines_of_the_oldest_releases_count() -> None:
    text = "node01:101:140 [0] NCCL INFO Ring 02 : 13 -> 4 [send] via NET/IB/2\n"
    facts = analyze.read_text(text)
    assert [(13, "4", "NET", "IB", 2)] == facts.query("SELECT own, peers, transport, network, device FROM connection")


def test_the_name_of_a_network_is_not_cut_at_its_blank() -> None:
    text = (
        "node01:101:140 [0] NCCL INFO Using network AWS Libfabric\n"
        "node01:101:140 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[0] [send] via NET/AWS Libfabric/1(2)/GDRDMA/Shared\n"
    )
    facts = analyze.read_text(text)
    assert [("AWS Libfabric",)] == facts.query("SELECT name FROM network")
    assert [("AWS Libfabric", 1, 1)] == facts.query("SELECT network, gdr, shared FROM connection")


def test_a_statement_that_gpudirect_is_off_is_read() -> None:
    text = "node01:101:140 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 1a000 / HCA 0 (distance 5 >= 4)\n"
    assert [(0,)] == analyze.read_text(text).query("SELECT DISTINCT enabled FROM gdr")


def test_nccl_is_not_called_rccl() -> None:
    assert ["2.21.5"] == told(HEALTHY).job["nccl_versions"]
    assert [] == analyze.read_text(HEALTHY).query("SELECT * FROM library WHERE name = 'rccl'")


def test_collectives_are_counted_as_they_stand_and_their_absence_breaks_nothing() -> None:
    line = (
        "node01:101:101 [0] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f00 recvbuff 0x7f00 count 1024 datatype 7 op 0 root 0 "
        "comm 0x55aa [nranks=3] stream 0x60\n"
    )
    facts = analyze.read_text("".join(line.format(n=n) for n in range(5)))
    assert [(5,)] == facts.query("SELECT sum(n) FROM collective")
    assert [] == analyze.read_text(HEALTHY).query("SELECT * FROM collective")
