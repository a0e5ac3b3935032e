"""Nodes and queue of a real Slurm 22.05 of two nodes, one of them drained: each command against its own text."""

import io
import json
import re
from pathlib import Path

import pytest
from helpers.places import FIXTURES as ALL

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, QueuedJob, SchedulerNode
from nccl_doctor.formats.cluster import slurm_accounting, slurm_state
from nccl_doctor.formats.declaration import Reading

FIXTURES = ALL / "slurm"


def read(text: str) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, slurm_state.read_format(io.BytesIO(text.encode()), "s.txt", facts)


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("scontrol_node", [("n1", "ALLOCATED", None), ("n2", "IDLE+DRAIN", "GPU 3 fell off the bus")]),
        ("sinfo_R", [("n2", "DOWN OR DRAINED", "GPU 3 fell off the b")]),
        ("sinfo_Nl", [("n1", "ALLOCATED", None), ("n2", "DRAINED", "GPU 3 fell off the b")]),
        ("sinfo", [("n1", "ALLOC", None), ("n2", "DRAIN", None)]),
    ],
)
def test_nodes_of_each_command(name: str, states: list[tuple[str, str, str | None]]) -> None:
    text = (FIXTURES / f"{name}.txt").read_text()
    facts, reading = read(text)
    assert states == sorted((row.host, row.state, row.reason) for row in facts.rows(SchedulerNode))
    assert text.count("\n") == reading.lines
    report, _, _ = analyze.analyze([str(FIXTURES / f"{name}.txt")])
    assert ["node-out-of-service"] == [finding.name for finding in report.findings]


def test_numbers_of_a_node_agree_with_its_text_in_one_line_or_many() -> None:
    text = (FIXTURES / "scontrol_node.txt").read_text()
    folded = re.sub(r"\n +", " ", text).replace("\n\n", "\n")
    for form in (text, folded):
        first = read(form)[0].rows(SchedulerNode)[0]
        assert (1, 1, 100.0) == (first.cpus, first.cpus_used, first.memory)
        load = re.search(r"CPULoad=([\d.]+)", text)
        assert load is not None
        assert float(load[1]) == first.load


def test_gpus_of_a_node() -> None:
    text = (
        "NodeName=g1 Arch=x86_64 CoresPerSocket=32\n   Gres=gpu:h100:8(S:0-1)\n   State=MIXED\n"
        "   CfgTRES=cpu=64,gres/gpu=8\n   AllocTRES=cpu=8,gres/gpu=2\n"
    )
    (row,) = read(text)[0].rows(SchedulerNode)
    assert (8, 2) == (row.gpus, row.gpus_used)


@pytest.mark.parametrize("name", ["squeue", "squeue_l"])
def test_the_queue_and_the_job_that_cannot_start(name: str) -> None:
    facts, _ = read((FIXTURES / f"{name}.txt").read_text())
    jobs = {row.job: (row.state[0], row.reason) for row in facts.rows(QueuedJob)}
    assert {"1", "2", "4", "5", "6"} == set(jobs)
    assert ("R", None) == jobs["1"]
    assert ("P", "Priority") == jobs["6"]
    report, _, _ = analyze.analyze([str(FIXTURES / f"{name}.txt")])
    assert ["job-cannot-start"] == [finding.name for finding in report.findings]


def test_steps_of_sstat_whose_numbers_are_not_gathered() -> None:
    facts = Facts()
    slurm_accounting.read_format(io.BytesIO((FIXTURES / "sstat.txt").read_bytes()), "sstat.txt", facts)
    assert [("1.batch", None)] == [(row.job, row.max_rss) for row in facts.rows(AccountedJob)]


@pytest.mark.parametrize("cut", [3, 40, 400, 1500])
def test_a_cut_list_and_one_among_other_lines(cut: int) -> None:
    text = (FIXTURES / "scontrol_node.txt").read_text()
    assert len(read(text[:cut])[0].rows(SchedulerNode)) <= 2
    noise = "epoch 1 loss 0.5\n" * 500
    facts, reading = read(noise + text + noise)
    assert 2 == len(facts.rows(SchedulerNode))
    assert 1000 + text.count("\n") == reading.lines


def test_hostile_lists_stay_small() -> None:
    facts, _ = read(
        "NodeName=a CoresPerSocket=1\n" + "   State=" + "X" * 100_000 + "\n" + "NodeName=b CoresPerSocket=1\n" * 2000
    )
    assert len(facts.rows(SchedulerNode)) <= 1


@pytest.mark.parametrize("name", ["scontrol_node", "sinfo_R", "sinfo_Nl", "sinfo"])
def test_a_list_that_ansible_printed_reads_as_the_lines_in_it(name: str) -> None:
    lines = (FIXTURES / f"{name}.txt").read_text().splitlines()
    listed = json.dumps({"stdout_lines": [*lines, 'echo "done"']}, indent=4)
    plain, inside = (read(text)[0].rows(SchedulerNode) for text in ("\n".join(lines), listed))
    assert [(row.host, row.state, row.reason) for row in plain] == [(row.host, row.state, row.reason) for row in inside]


LONG = """\
NODELIST                      NODES       PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON
gpu-node-with-a-long-name-01      1            gpu*       mixed  96    2:48:1 206400        0      1   (null) none
gpu-node-with-a-long-name-02      1            gpu*    drained*  96    2:48:1 206400        0      1   (null) GPU fell off bus
"""
QUEUE = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
              7201       gpu    train     anna PD       0:00     16 (Resources)
              7190       gpu pretrain      ben  R 1-02:11:40     32 node[05-36]
"""


@pytest.mark.parametrize(
    ("text", "line", "findings"),
    [
        (LONG, "Slurm: 2 nodes (1 drained, 1 mixed)", ["node-out-of-service"]),
        (QUEUE, "queue: 2 jobs (1 waiting, 1 running)", []),
    ],
)
def test_nodes_and_jobs_are_counted_in_the_line_about_the_job(
    tmp_path: Path, text: str, line: str, findings: list[str]
) -> None:
    path = tmp_path / "state.txt"
    path.write_text(text)
    report = analyze.analyze([str(path)])[0]
    assert line in report.job_lines
    assert findings == [finding.name for finding in report.findings]
