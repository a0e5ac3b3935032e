"""docs/formats.md says of every format what the program does."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.places import ROOT

from nccl_doctor.app import analyze
from nccl_doctor.facts.schema import by_name
from nccl_doctor.facts.views import VIEWS
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Format
from nccl_doctor.formats.registry import FORMATS
from nccl_doctor.inputs import conversions
from nccl_doctor.rules import loader

FIXTURES = ROOT / "fixtures"
TABLES = {*by_name(), *(view.name for view in VIEWS)}
ROWS = {
    cells[0].strip("` "): cells[1:]
    for line in (ROOT / "docs" / "formats.md").read_text("utf-8").splitlines()
    if line.startswith("| `") and (cells := line.strip("| ").split(" | "))
}
SAMPLES = {
    "kube-nodes-json": ["captures/kube_nodes.json"],
    "rank-timers": ["records/rank_timers.log"],
    "training-arrays": ["records/ranks.json"],
    "profile-summary": ["torch/nsys.csv", "torch/nvprof.txt"],
    "profiler-table": ["torch/key_averages.txt"],
    "mlflow-store": ["records/mlflow"],
    "kineto-trace": ["torch/gpu_slow1"],
    "function-profile": ["torch/cprofile.txt"],
    "slurm-controller": ["batch/sdiag.txt"],
    "lsf-history": ["batch/bhist.txt"],
    "switch-state": ["captures/ibswinfo.txt"],
    "listed-things": ["listings/sonic_show.txt"],
    "listed-faults": ["listings/zpool_status.txt"],
    "slurm-columns": ["listings/sinfo_columns.txt"],
    "job-lists": ["listings/qstat_ge.txt"],
    "accelerator-tables": ["gpu/hl_smi.txt"],
    "training-histories": ["records/histories.json"],
    "nsys-database": ["torch/nsys.sqlite"],
    "flight-recorder": ["torch/fr_desync_rank1"],
    "horovod-timeline": ["timeline/slow_rank2_4r.json", "timeline/input_gaps.json"],
    "gpu-samples": ["gpu/hot_gpu2.csv", "gpu/dmon.txt", "gpu/pmon_all_on_0.txt", "gpu/gpustat.json"],
    "amd-smi": ["gpu/amd_smi_metric.txt"],
    "gpu-metrics": ["gpu/dcgm_exporter.txt"],
    "nvidia-smi-q": ["captures/smi_q_gpu3.txt"],
    "nvidia-smi": ["gpu/smi_table.txt"],
    "tracker-events": [
        "records/trackers/messages.json",
        "records/trackers/metrics.jsonl",
        "records/trackers/data-1.log",
    ],
    "wandb-run": ["records/run-slow.wandb"],
    "nccl-topology": ["topology/node01.xml", "topology/node02.xml", "topology/graph_slow.xml"],
    "nccl-ras": ["topology/ras_behind.json"],
    "nccl-ras-text": ["topology/ras_healthy.txt"],
    "nccl-inspector": ["topology/inspector.log"],
    "nccl-inspector-metrics": ["topology/inspector.prom"],
    "nccl-profiler": ["topology/profiler_rank3.json"],
    "kubernetes": ["captures/mpijob_bad.yaml", "captures/describe_node.txt"],
    "pod-description": ["captures/describe_pod.txt"],
    "pbs-accounting": ["batch/qstat_f.txt", "batch/qstat_f.json"],
    "lsf-report": ["batch/lsf.out"],
    "tcp-test": ["bandwidth/iperf3_one.txt", "bandwidth/iperf3_reverse.json"],
    "netperf-test": ["bandwidth/netperf.txt"],
    "mpi-benchmark": ["benchmarks/osu_bw.txt"],
    "accelerator-samples": ["gpu/npu_smi.txt"],
    "metric-files": ["records/dvclive.tsv"],
    "printed-tables": ["records/skorch.log"],
    "cpu-exports": ["captures/sadf.csv"],
    "dcgm-job-stats": ["gpu/dcgmi_stats.txt"],
    "rate-benchmark": ["benchmarks/ior.txt"],
    "elbencho": ["benchmarks/elbencho.txt"],
    "metadata-benchmark": ["benchmarks/mdtest.txt"],
    "printed-rates": ["throughput/printed_rates.log"],
    "htcondor-log": ["batch/htcondor.log"],
    "superbench": ["benchmarks/superbench.jsonl"],
    "linpack": ["benchmarks/hpl.txt"],
    "message-benchmark": ["benchmarks/imb.txt"],
    "collective-benchmark": ["benchmarks/ds_bench.txt"],
    "own-progress": ["benchmarks/own_loop.log"],
    "printed-numbers": ["benchmarks/own_numbers.txt"],
    "gpu-burn": ["benchmarks/gpu_burn.txt"],
    "serving-benchmark": ["benchmarks/serving.txt", "benchmarks/serving.json"],
    "storage-test": ["bandwidth/fio_read.txt", "bandwidth/fio_read.json"],
    "environment-report": ["captures/collect_env.txt"],
    "packages": ["captures/conda_list.txt", "captures/pip_freeze.txt", "captures/efa_installed_packages"],
    "node-capture": ["captures/topo_nv18.txt", "captures/ibstat_bad.txt", "captures/fi_info_uneven.txt"],
    "host-commands": ["captures/host_commands.txt"],
    "shell-settings": ["captures/set_x.txt"],
    "host-values": ["captures/pdsh_nproc.txt"],
    "cpu-samples": ["captures/mpstat.txt", "captures/vmstat.txt"],
    "link-counters": ["network/perfquery_switch.txt", "network/ip_s_link.txt"],
    "dcgm-results": ["gpu/dcgmi_diag.txt", "gpu/dcgmi_health.txt"],
    "ip-json": ["network/ip_s_link.json"],
    "dcgm-nvlink": ["network/dcgmi_nvlink.json"],
    "link-metrics": ["network/node_exporter.txt.gz"],
    "link-quality": ["network/mlxlink.txt"],
    "fabric-links": ["network/iblinkinfo.txt", "network/ibnetdiscover_ports.txt", "network/ibnetdiscover.txt"],
    "protocol-counters": ["network/nstat_pdsh.txt", "network/tc_pdsh.txt", "network/netstat_clush.txt"],
    "fabric-checks": ["network/ibdiagnet.log"],
    "copy-bandwidth": ["bandwidth/nvbandwidth.txt"],
    "copy-lines": ["bandwidth/bandwidth_test.txt", "bandwidth/gpu_copy.txt"],
    "rdma-test": ["bandwidth/ib_write_bw.txt"],
    "nccl-tests": ["nccl_tests/a100_8.out", "nccl_tests/two.json"],
    "slurm-accounting": ["captures/sacct.txt"],
    "deepspeed-comms": ["records/recorded/deepspeed_times.log"],
    "slurm-json": ["slurm/recorded/sacct.json.gz"],
    "slurm-state-json": ["slurm/sinfo.json"],
    "kube-nodes": ["captures/kubectl_nodes.txt"],
    "panel-csv": ["gpu/GPU utilisation-data-2026-11-24 09_00_40.csv", "gpu/grafana_network.csv"],
    "gpu-list": ["gpu/nvidia_smi_L.txt"],
    "slurm-state": ["slurm/scontrol_node.txt", "slurm/squeue.txt", "slurm/sinfo_R.txt"],
    "gridengine-accounting": ["gridengine/qacct.txt"],
    "jobstats-report": ["batch/jobstats.txt"],
    "slurm-job": ["captures/scontrol_jobs.txt"],
    "stacks": ["stacks/stuck_rank0.txt"],
    "sampled-stacks": [
        "stacks/record_busy.raw.txt",
        "stacks/record_busy.speedscope.json",
        "stacks/record.svg",
        "stacks/record_threads.raw.txt",
    ],
    "training-records": ["records/mlperf_8.log", "records/dllogger_16.json", "records/trainer_state.json"],
    "tensorboard": ["records/events.out.tfevents.1795362399.node01.9730.0"],
    "training-table": ["records/lightning_metrics.csv"],
    "training-steps": ["throughput/deepspeed.log", "throughput/checkpoints.log"],
}
# What every reading fills, whatever the format.
GENERAL = {"evidence", "input", "job", "host", "rank", "message", "process", "progress", "hang", "package"} | {
    "job_fact", "captured", "measure", "coverage", "throttle_span", "idle_span", "env_lint", "run_writer", "step_number", "event_steps",
    "host_number",  # reports of the environment hold `lscpu`
}  # fmt: skip


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9_-]+)`", cell)


def test_every_format_has_a_row_and_no_other() -> None:
    assert {known.kind for known in FORMATS} == set(ROWS)
    assert {4} == {len(cells) for cells in ROWS.values()}


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.kind)
def test_declared_tables_exist_and_the_row_names_them(known: Format) -> None:
    assert known.tables
    assert set() == set(known.tables) - TABLES
    assert set() == set(known.tables) - set(names(ROWS[known.kind][2])) - GENERAL


def test_formats_come_after_those_they_name() -> None:
    places = {known.kind: place for place, known in enumerate(FORMATS)}
    assert len(FORMATS) == len(places)
    for known in FORMATS:
        assert all(places[kind] < places[known.kind] for kind in known.after)
    assert registry.ordered(reversed(FORMATS)) == tuple(FORMATS)


@pytest.mark.parametrize("after", [("b",), ("no-such-format",)])
def test_a_format_after_itself_or_an_unknown_one_is_refused(after: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a, b"):
        registry.ordered([Format("a", "a", (), after=after), Format("b", "b", (), after=("a",))])


def test_files_that_two_formats_match_have_a_declared_order() -> None:
    """Were the order a matter of names, a new format could take the files of another."""
    formats = {known.kind: known for known in FORMATS}

    def before(kind: str) -> set[str]:
        return {other for direct in formats[kind].after for other in (direct, *before(direct))}

    for path in sorted(path for path in FIXTURES.rglob("*") if path.is_file()):
        head = path.read_bytes()[: 1 << 16]
        matching = [known.kind for known in FORMATS if known.begins is not None and known.begins.search(head)]
        assert all(first in before(second) for first, second in pairwise(matching)), path
    inside = [known.kind for known in FORMATS if known.inside and not known.last]
    assert set(inside[:-1]) == before(inside[-1]) & set(inside)


@pytest.mark.parametrize("kind", ROWS)
def test_tables_and_rules_of_a_row_exist(kind: str) -> None:
    tables, judged = names(ROWS[kind][2]), names(ROWS[kind][3])
    assert tables
    assert judged
    assert set() == set(tables) - TABLES
    assert set() == set(judged) - {rule.name for rule in loader.load_rules()} - set(ROWS)


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples_are_of_that_kind_and_fill_its_tables_only(kind: str) -> None:
    report, facts, _ = analyze.analyze([str(FIXTURES / name) for name in SAMPLES[kind]])
    assert {kind} == {read.kind for read in report.inputs}
    filled = {name for name, number in facts.counts().items() if number}
    assert filled & set(names(ROWS[kind][2]))
    assert set() == filled - set(names(ROWS[kind][2])) - GENERAL


def test_every_format_but_our_own_has_a_sample() -> None:
    assert {"recording"} == set(ROWS) - set(SAMPLES)


@pytest.mark.parametrize(
    "head",
    [
        b" \n" * 400 + b"x\n",
        b"Using " + b"Using  " * 60 + b"x\n",
        b"#\r\n" * 40 + b"x\n",
        b"{" + b'"traceEvents"' * 4000,
        b'{"header":{' + b'"n_ranks":' * 6000,
        b"<!--a" + b"--><!--a" * 8000,
    ],
    ids=["blanks", "Using", "comments", "trace", "header", "XML comments"],
)
def test_no_head_of_a_file_takes_for_ever(head: bytes) -> None:
    """The first three once took longer than anybody waits, in the expressions by which formats are recognised."""
    assert registry.recognise(head) is None
    assert conversions.of_file(head, "job.log") is None


LEADS = [known.kind for known in FORMATS if known.leads]
JOB = (FIXTURES / "demo.log").read_text("utf-8")
STEPS = (FIXTURES / "throughput/deepspeed.log").read_text("utf-8")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, int]]:
    """Rows of each table that a file with this text gives; each text is read once."""
    path = tmp_path_factory.mktemp("counts") / "job.log"

    @cache
    def counted(text: str) -> dict[str, int]:
        path.write_text(text, "utf-8")
        return analyze.analyze([str(path)])[1].counts()

    return counted


@pytest.mark.parametrize("kind", LEADS)
@pytest.mark.parametrize("job", [JOB, STEPS], ids=["nccl", "steps"])
def test_a_log_behind_what_its_script_printed_is_read(
    kind: str, job: str, counts: Callable[[str], dict[str, int]]
) -> None:
    """Both are in the report: rows of the tables of the output, and those of the log alone."""
    lead = (FIXTURES / SAMPLES[kind][0]).read_text("utf-8")
    known = next(known for known in FORMATS if known.kind == kind)
    alone, of_job = counts(lead), counts(job)
    wanted = ("process", "communicator", "throughput_run", "step")
    assert any(of_job.get(name) for name in wanted)
    texts = [lead.rstrip("\n") + "\n" + job]
    texts += [job + lead] * bool(known.inside)
    for text in texts:
        both = counts(text)
        assert [name for name in known.tables if alone.get(name, 0) > both.get(name, 0)] == []
        assert [name for name in wanted if of_job.get(name, 0) > both.get(name, 0)] == []


@pytest.mark.parametrize(
    "kind", ["stacks", "nvidia-smi", "node-capture", "rdma-test", "copy-bandwidth", "nccl-tests", "profiler-table"]
)
@pytest.mark.parametrize("first", ["[rank0]: started\n", "{'loss': 2.5}\n"])
def test_a_section_is_read_whatever_the_log_begins_with(kind: str, first: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(first + (FIXTURES / SAMPLES[kind][0]).read_text("utf-8"), "utf-8")
    facts = analyze.analyze([str(path)])[1]
    tables = next(known.tables for known in FORMATS if known.kind == kind)
    assert any(facts.counts().get(name) for name in tables)


def test_a_capture_with_no_line_of_a_job_stays_one(tmp_path: Path) -> None:
    for kind in LEADS:
        data = (FIXTURES / SAMPLES[kind][0]).read_bytes()
        assert registry.recognise(data) is not None, kind
