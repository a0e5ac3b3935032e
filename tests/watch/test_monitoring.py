"""Metrics, and the alert rules and the dashboard in docs/monitoring that use them."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from helpers.places import ROOT

from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.metrics import render_metrics
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.state import State

FOLDER = ROOT / "docs" / "monitoring"
PROMTOOL = shutil.which("promtool") or os.environ.get("PROMTOOL")
NAME = re.compile(r"\bnccl_doctor_\w+")


@pytest.fixture(scope="module")
def page() -> str:
    state, diagnosis, invented = State(), LiveDiagnosis(), Demo()
    for _ in range(200):
        for record in invented.step():
            state.add_record(record)
            diagnosis.add_record(record)
    return render_metrics(state, diagnosis.diagnose(state), state.now)


def test_metrics_of_jobs_ranks_hosts_links_and_findings(page: str) -> None:
    for line in (
        'nccl_doctor_job_stopped_seconds{job="81234",state="stopped",kind="dataloader"} 80',
        'nccl_doctor_job_suspect{job="81234",node="gpu-b",rank="13"} 1',
        'nccl_doctor_rank_cpu_ratio{node="gpu-b",job="81234",rank="13"} 0.003',
        'nccl_doctor_host_shm_total_bytes{node="gpu-a"} 1081081856000',
        'nccl_doctor_gpu_nvlink_receive_bytes_per_second{node="gpu-a",gpu="0"} 0',
        'nccl_doctor_port_up{node="gpu-a",port="mlx5_0/1",kind="ib"} 1',
        'nccl_doctor_finding{rule="SYN123",name="spinning-in-collective",severity="error",node="gpu-a"} 1',
        "nccl_doctor_rules_up 1",
    ):
        assert line in page.splitlines()
    assert "ipykernel" not in page  # nothing that a process can choose


def test_values_that_are_out_of_date_have_no_line() -> None:
    state = State()
    for record in Demo().step():
        state.add_record(record, 100.0)
    page = render_metrics(state, [], 200.0, judged=False)
    assert 'nccl_doctor_node_up{node="gpu-a"} 0' in page
    assert 'nccl_doctor_node_values_fresh{node="gpu-a",kind="gpu"} 0' in page
    assert "gpu_power_watts" not in page
    assert "nccl_doctor_rules_up 0" in page


def test_equal_labels_are_one_sample_and_numbers_are_bounded() -> None:
    state = State()
    one = {"rank": 0, "pid": 1, "job": None, "cpu": 50.0}
    ports = [{"name": "p", "kind": "ib", "errors": {"a" * n: n for n in range(50)}, "rx": 10**400}]
    state.add_record(
        {"kind": "process", "hostname": "a", "processes": [one] * 2 + [{**one, "rank": n} for n in range(999)]}, 1.0
    )
    state.add_record({"kind": "port", "hostname": "a", "ports": ports}, 1.0)
    samples = [line.rpartition(" ")[0] for line in render_metrics(state, [], 1.0).splitlines() if line[0] != "#"]
    assert len(samples) == len(set(samples)) < 1100
    assert not any("port_errors_total" in line for line in samples)


def test_alerts_and_dashboard_use_metrics_that_there_are(page: str) -> None:
    exported = set(NAME.findall(page))
    rules = yaml.safe_load((FOLDER / "nccl-doctor.rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert all(alert["labels"]["severity"] in ("warning", "critical") for alert in alerts)
    assert all({"summary", "description"} == set(alert["annotations"]) for alert in alerts)
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len(panels) == len({panel["id"] for panel in panels}) == len({str(panel["gridPos"]) for panel in panels})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    queries += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    for expression in [*queries, *(alert["expr"] for alert in alerts)]:
        assert set(NAME.findall(expression)) <= exported, expression


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here; it is in the package prometheus")
def test_promtool_finds_nothing(page: str) -> None:
    def ask(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [str(PROMTOOL), *words], cwd=FOLDER, input=text, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "" == ask("check", "metrics", text=page)
    assert "SUCCESS" in ask("check", "rules", "nccl-doctor.rules.yml")
    assert "SUCCESS" in ask("test", "rules", "nccl-doctor.rules.test.yml")
