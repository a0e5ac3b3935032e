"""Views: columns as described, readable by rules and `sql`, and never part of a saved file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Xid
from nccl_doctor.facts.views import VIEWS, View
from tests.helpers.scaling import cost

LOG = (
    "node01:101:101 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.4<0>\n"
    "node02:201:201 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.5<0>\n"
    "node01:101:160 [0] transport/net_ib.cc:1310 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<38512>"
    " with status=12 opcode=0 len=0 vendor err 129 (Send)\n"
)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_view_has_the_columns_that_are_described(view: View) -> None:
    columns, _ = Facts().sql(f"SELECT * FROM {view.name}")
    assert list(view.columns) == columns


def test_a_failure_names_its_peer() -> None:
    facts = analyze.read_text(LOG)
    _, rows = facts.sql("SELECT host, peer_host, address, layer, inside, timed_out FROM rdma_failure")
    assert [("node01", "node02", "10.1.0.5", None, 0, 1)] == rows
    assert [(1,)] == facts.sql("SELECT links_up FROM rdma_state")[1]


def test_a_command_that_a_running_job_did_not_find_is_no_failed_launch() -> None:
    missing = "/bin/sh: gpustat: command not found\n"
    late = (
        "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST,"
        " Timeout(ms)=1800000) ran for 1803000 milliseconds before timing out.\n"
    )
    rows = "SELECT fault FROM reported_fault WHERE message = 'command-not-found'"
    assert [("launch-failed",)] == analyze.read_text(missing).sql(rows)[1]
    assert [] == analyze.read_text(missing + late).sql(rows)[1]


def test_a_command_that_a_script_did_not_find_is_a_note_where_it_went_on() -> None:
    missing = "/var/spool/slurmd/job00042/slurm_script: line 19: modle: command not found\n"
    rows = "SELECT severity FROM reported_fault WHERE message = 'command-not-found'"
    assert [("warning",)] == analyze.read_text(missing + "done\n" * 9).sql(rows)[1]
    assert [("note",)] == analyze.read_text(missing + "TIME PER STEP\t10\t0.38\n" * 300).sql(rows)[1]


def test_a_fault_names_the_ranks_of_its_lines_and_who_waited() -> None:
    log = "".join(
        f"DeepEP timeout check failed: rank = {rank}, thread = {thread}, value = 0)\n"
        for rank in (5, 1)
        for thread in range(3)
    )
    ((rank, said), *_) = analyze.read_text(log).sql("SELECT rank, said FROM reported_fault")[1]
    assert (None, True) == (rank, said.endswith(" Who waited: rank 1; rank 5."))
    log = "DeepEP combine RDMA sender timeout, channel: 2, RDMA: 1, nvl: 3, dst RDMA: 0, tail: 12\n"
    ((said,),) = analyze.read_text(log).sql("SELECT said FROM reported_fault")[1]
    assert said.endswith(" Who waited: RDMA: 1, nvl: 3.")
    log = "ABORT!!! Out of all 8 trainers, the trainer process with rank=[2, 6] was aborted. Please check its log.\n"
    ((said,),) = analyze.read_text(log).sql("SELECT said FROM reported_fault")[1]
    assert said.endswith(" Ranks: 2, 6.")
    log = (
        "EI0002: [PID: 77] 2026-03-01-03:16:15.787.356 The wait execution of the Notify register times out. Reason: The Notify register has"
        " not received the Notify record from remote rank: [24]. base information: [streamID:[109], taskID[38]]\n"
    )
    ((said,),) = analyze.read_text(log).sql("SELECT said FROM reported_fault")[1]
    assert said.endswith(" Rank 24 did not answer.")
    ((rank,),) = analyze.read_text("Hang detected on rank 3 in PyExecutor\n").sql("SELECT rank FROM reported_fault")[1]
    assert 3 == rank


def test_a_gpu_that_died_makes_the_failure_a_consequence() -> None:
    facts = analyze.read_text(LOG + "[12345.6] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    assert [(0,)] == facts.sql("SELECT links_up FROM rdma_state")[1]


def test_a_saved_file_holds_no_views_and_has_them_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "job.db"
    analyze.read_text(LOG).save(path)
    with closing(sqlite3.connect(path)) as plain:
        assert [] == plain.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    assert 1 == len(Facts.open(path).sql("SELECT * FROM rdma_failure")[1])


def test_a_query_cannot_drop_a_view() -> None:
    with pytest.raises(QueryProblem):
        Facts().sql("DROP VIEW rdma_failure")


def test_facts_lists_views_and_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["facts"])
    assert "rdma_failure" in capsys.readouterr().out
    assert 0 == main(["facts", "--table", "rdma_failure"])
    assert "peer_host" in capsys.readouterr().out


def test_a_line_of_clean_up_counts_as_the_xid_that_it_names_unless_that_has_its_own_line() -> None:
    cleanup = "NVRM: Xid (PCI:0000:1a:00): 45, pid=4321, name=python3, Ch 00000013 caused by previous Xid 149\n"
    seen = "SELECT code FROM xid_seen ORDER BY code"
    assert [(45,), (149,)] == analyze.read_text(cleanup).sql(seen)[1]
    own = "NVRM: Xid (PCI:0000:1a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x01100123 0x00000000)\n"
    assert [(45,), (149,)] == analyze.read_text(own + cleanup).sql(seen)[1]
    other = own.replace("1a:00", "3b:00")
    assert [(45,), (149,), (149,)] == analyze.read_text(other + cleanup).sql(seen)[1]


@pytest.mark.parametrize("view", ["xid_seen", "unreset_xid"])
def test_a_flood_of_errors_of_one_host_takes_steps_in_proportion(view: str) -> None:
    def errors(count: int) -> Facts:
        facts = Facts()
        facts.add(
            [
                Xid("node01", "xid", f"0000:{at % 8:02x}:00", 45, None, None, "", None, 100 + at, 1, float(at), at)
                for at in range(count)
            ]
        )
        facts.index()
        return facts

    query = f"SELECT count(*) FROM {view}"
    assert cost(errors(1_600), query).steps < 5 * cost(errors(400), query).steps
