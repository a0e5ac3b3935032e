"""Lists of Slurm without their titles or with `|` between the columns, and single objects of JSON."""

import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts

JOBS = "SELECT job, state, reason, nodes FROM queued_job ORDER BY job"
NODES = "SELECT host, state, reason FROM scheduler_node ORDER BY host"


def _read(tmp_path: Path, text: str) -> Facts:
    path = tmp_path / "list.txt"
    path.write_text(text)
    return analyze.analyze([str(path)])[1]


def test_a_queue_without_titles(tmp_path: Path) -> None:
    text = (
        "  4711 gpu train_llm alice PD 0:00 16 (BadConstraints)\n  4712 gpu fine tune bob R 1-01:22:10 4 gpu[01-04]\n"
    )
    assert [("4711", "PD", "BadConstraints", 16), ("4712", "R", None, 4)] == _read(tmp_path, text).query(JOBS)


@pytest.mark.parametrize("title", ["NODELIST(REASON)", "REASON"])
def test_a_queue_with_bars(title: str, tmp_path: Path) -> None:
    text = f"JOBID|NAME|ST|NODES|{title}|NODELIST\n4711|train llm|PD|16|(BadConstraints)|\n4712|x|R|4|(None)|gpu[01-04]\nend\n"
    assert ("4711", "PD", "BadConstraints", 16) == _read(tmp_path, text).query(JOBS)[0]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("gpu* up infinite 2 down* gpu[03-04]\ngpu* up 1-00:00:00 12 mix gpu[08-19]\n",
         [("gpu[03-04]", "DOWN*", None), ("gpu[08-19]", "MIX", None)]),
        ("gpu07     163840      193000     16/0/0/16      mixed\ngpu08     327680      386000     0/0/32/32      down*  \n",
         [("gpu07", "MIXED", None), ("gpu08", "DOWN*", None)]),
        ("gpu07 drain GPU fell off\ngpu08 idle none\n", [("gpu07", "DRAIN", "GPU fell off"), ("gpu08", "IDLE", None)]),
        ("NODELIST|STATE|REASON\ngpu07|drained|GPU fell off\ngpu08|idle|none\n",
         [("gpu07", "DRAINED", "GPU fell off"), ("gpu08", "IDLE", None)]),
        ("REASON             NODELIST       \nLow RealMemory     gpu[07-09]     \nGPU fell off       gpu11          \n",
         [("gpu11", "DOWN OR DRAINED", "GPU fell off"), ("gpu[07-09]", "DOWN OR DRAINED", "Low RealMemory")]),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      1  drain gpu11\n\n"
         "REASON             NODELIST       \nGPU fell off       gpu11          \n", [("gpu11", "DRAIN", "GPU fell off")]),
        ("NODELIST            STATE               REASON              \ngpu07               drained             GPU fell off        \n",
         [("gpu07", "DRAINED", "GPU fell off")]),
        ("AVAIL|S:C:T|NODES(A/I) |STATE|REASON |NODELIST |STATE |USER\nup|2:20:2|0/0 |drain*|GPU fell off |gpu07 |drained* |root |\n",
         [("gpu07", "DRAINED*", "GPU fell off")]),
    ],
)  # fmt: skip
def test_nodes_without_titles_and_with_bars(text: str, rows: list[tuple[str, str, str | None]], tmp_path: Path) -> None:
    assert rows == _read(tmp_path, text).query(NODES)


def test_a_single_job_and_a_single_node(tmp_path: Path) -> None:
    job = {
        "job_id": 4711,
        "name": "train",
        "job_state": ["PENDING"],
        "state_reason": "BadConstraints",
        "node_count": {"set": True, "number": 16},
    }
    assert [("4711", "PENDING", "BadConstraints", 16)] == _read(tmp_path, json.dumps(job, indent=1)).query(JOBS)
    node = {
        "name": "gpu07",
        "architecture": "x86_64",
        "state": ["IDLE", "DRAIN"],
        "reason": "GPU fell off",
        "cpus": 128,
        "real_memory": 2000,
    }
    assert [("gpu07", "IDLE+DRAIN", "GPU fell off")] == _read(tmp_path, json.dumps(node)).query(NODES)


def test_nodes_of_kubernetes_as_json(tmp_path: Path) -> None:
    text = (FIXTURES / "captures/kube_nodes.json").read_text()
    path = tmp_path / "nodes.json"
    path.write_text(text)
    report, facts, _ = analyze.analyze([str(path)])
    assert {("kube-node-not-ready", "node03"), ("kube-gpu-not-allocatable", "node02")} == {
        (finding.name, finding.hosts) for finding in report.findings
    }
    assert [("node04",)] == facts.query("SELECT host FROM kube_node WHERE condition = 'SchedulingDisabled'")
    assert [("node02", "7")] == facts.query("SELECT node, allocatable FROM kube_resource WHERE allocatable <> capacity")
    single = json.dumps(json.loads(text)["items"][2])
    assert [(1,)] == _read(tmp_path, single).query("SELECT bad FROM kube_node WHERE condition = 'Ready'")


@pytest.mark.parametrize("between", [",", "|"])
def test_numbers_and_states_alone(between: str, tmp_path: Path) -> None:
    jobs = "".join(
        f"47{at}{between}{state}\n" for at, state in enumerate(("RUNNING", "RUNNING", "PENDING", "NODE_FAIL"))
    )
    assert [("470", "RUNNING"), ("471", "RUNNING"), ("472", "PENDING"), ("473", "NODE_FAIL")] == [
        row[:2] for row in _read(tmp_path, jobs).query(JOBS)
    ]
    nodes = "".join(f"gpu{at}{between}{state}\n" for at, state in enumerate(("idle", "mixed", "down*", "allocated")))
    assert ["gpu0", "gpu1", "gpu2", "gpu3"] == [row[0] for row in _read(tmp_path, nodes).query(NODES)]
