"""Metrics for Prometheus: text exposition format 0.0.4. An unknown or outdated value has no line.

Labels are bounded: names of nodes, GPUs, ports, ranks and rules; nothing that a process can choose, such as its command.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from nccl_doctor.app import sample
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.watch.series import dicts, number
from nccl_doctor.watch.state import Node, State
from nccl_doctor.watch.view.findings import expand
from nccl_doctor.watch.view.nodes import node_state

RANKS = 256  # of a node, at most
DEVICES = 128  # GPUs or ports of a node, at most
ERRORS = frozenset({*sample.ERRORS, *sample.HARDWARE_ERRORS, *sample.NET_ERRORS})
Labels = dict[str, object]


class Metric(NamedTuple):
    """What one metric means, and the key of its value in a record with the factor to its unit."""

    name: str
    help: str
    key: str = ""
    factor: float = 1.0


GPU = (
    Metric("gpu_utilization_ratio", "Share of time in which a kernel ran.", "utilization.gpu", 0.01),
    Metric(
        "gpu_memory_utilization_ratio", "Share of time in which memory was read or written.", "utilization.memory", 0.01
    ),
    Metric("gpu_power_watts", "Power draw.", "power.draw"),
    Metric("gpu_power_limit_watts", "Enforced power limit.", "enforced.power.limit"),
    Metric("gpu_memory_used_bytes", "Memory in use.", "memory.used", 1 << 20),
    Metric("gpu_memory_total_bytes", "Memory of the GPU.", "memory.total", 1 << 20),
    Metric("gpu_temperature_celsius", "Temperature of the GPU.", "temperature.gpu"),
    Metric("gpu_sm_clock_hertz", "Clock of the SMs.", "clocks.sm", 1e6),
    Metric("gpu_clock_event_reasons", "Bits of NVML's clock event reasons.", "clock_reasons"),
    Metric("gpu_nvlink_receive_bytes_per_second", "Bytes received over NVLink.", "nvlink_rx"),
    Metric("gpu_nvlink_transmit_bytes_per_second", "Bytes sent over NVLink.", "nvlink_tx"),
    Metric("gpu_pcie_receive_bytes_per_second", "Bytes received over PCIe.", "pcie_rx"),
    Metric("gpu_pcie_transmit_bytes_per_second", "Bytes sent over PCIe.", "pcie_tx"),
)
HOST = (
    Metric("host_cpu_ratio", "Share of all processors in use.", "cpu", 0.01),
    Metric("host_memory_used_bytes", "Memory in use.", "memory_used", 1 << 20),
    Metric("host_memory_total_bytes", "Memory of the node.", "memory_total", 1 << 20),
    Metric("host_swap_used_bytes", "Swap in use.", "swap_used", 1 << 20),
    Metric("host_shm_used_bytes", "Used part of /dev/shm.", "shm_used", 1 << 20),
    Metric("host_shm_total_bytes", "Size of /dev/shm.", "shm_total", 1 << 20),
    Metric("host_load1", "Load average over one minute.", "load"),
)
DISK = (
    Metric("host_disk_read_bytes_total", "Bytes read from disks.", "disk_read"),
    Metric("host_disk_written_bytes_total", "Bytes written to disks.", "disk_write"),
)
PORT = (
    Metric("port_receive_bytes_total", "Bytes received since the counter began.", "rx"),
    Metric("port_transmit_bytes_total", "Bytes sent since the counter began.", "tx"),
)
RANK = (
    Metric("rank_cpu_ratio", "Use of one processor.", "cpu", 0.01),
    Metric("rank_memory_bytes", "Resident memory.", "memory", 1 << 20),
    Metric("rank_output_age_seconds", "Time since the rank wrote to its output file.", "quiet"),
)


class Page:
    """Collects samples by metric; equal labels give one sample, the last."""

    def __init__(self) -> None:
        self._types: dict[str, tuple[str, str]] = {}
        self._samples: dict[str, dict[str, str]] = {}

    def add(self, kind: str, metric: Metric, labels: Labels, value: float | None) -> None:
        """Add a sample; a value that is unknown adds nothing."""
        if value is None:
            return
        text = ",".join(f'{name}="{_label(str(word))}"' for name, word in labels.items())
        self._types.setdefault(metric.name, (kind, metric.help))
        self._samples.setdefault(metric.name, {})[text] = f"{value:.15g}"

    def add_each(self, kind: str, metrics: Iterable[Metric], labels: Labels, record: dict[str, Any]) -> None:
        """Add the samples of a record."""
        for metric in metrics:
            value = number(record.get(metric.key))
            self.add(kind, metric, labels, None if value is None else value * metric.factor)

    def render(self) -> str:
        """Returns the page."""
        rows: list[str] = []
        for name, (kind, help_) in self._types.items():
            rows += [f"# HELP nccl_doctor_{name} {help_}", f"# TYPE nccl_doctor_{name} {kind}"]
            rows += [
                f"nccl_doctor_{name}{{{labels}}} {value}" if labels else f"nccl_doctor_{name} {value}"
                for labels, value in self._samples[name].items()
            ]
        return "\n".join(rows) + "\n"


def render_metrics(state: State, findings: list[Finding], now: float, *, judged: bool = True) -> str:
    """Returns the page of all nodes; `judged` is whether the rules ran."""
    page = Page()
    for node in list(state.nodes.values()):  # another thread adds records
        labels: Labels = {"node": node.name}
        page.add("gauge", Metric("node_up", "1 where the node answers."), labels, int(node_state(node, now)[0] < 3))
        for kind in ("gpu", "port", "host", "process"):
            fresh = node.age(kind, now) is None and kind in node.last_received
            page.add(
                "gauge",
                Metric("node_values_fresh", "1 where this kind of values arrives."),
                {**labels, "kind": kind},
                int(fresh),
            )
        if node.age("gpu", now) is None:
            _gpus(page, node)
        if node.age("port", now) is None:
            _ports(page, node)
        if node.age("host", now) is None:
            page.add_each("gauge", HOST, labels, node.host.now)
            page.add_each("counter", DISK, labels, node.host.now)
        if node.age("process", now) is None:
            _ranks(page, node)
    _jobs(page, state, now)
    _findings(page, state, findings)
    page.add("gauge", Metric("rules_up", "1 where the last run of the rules succeeded."), {}, int(judged))
    return page.render()


def _gpus(page: Page, node: Node) -> None:
    for gpu in list(node.gpus.values())[:DEVICES]:
        labels: Labels = {"node": node.name, "gpu": gpu.now.get("index")}
        page.add_each("gauge", GPU, labels, gpu.now)
        name = {"model": gpu.now.get("name") or "", "uuid": gpu.now.get("uuid") or ""}
        page.add("gauge", Metric("gpu_info", "Model and UUID, always 1."), {**labels, **name}, 1)
        page.add(
            "gauge", Metric("gpu_processes", "Processes on the GPU."), labels, len(dicts(gpu.now.get("processes")))
        )
        page.add(
            "gauge", Metric("gpu_lost", "1 where the GPU does not answer."), labels, int(bool(gpu.now.get("error")))
        )


def _ports(page: Page, node: Node) -> None:
    for port in list(node.ports.values())[:DEVICES]:
        labels: Labels = {"node": node.name, "port": port.name, "kind": port.now.get("kind")}
        page.add_each(
            "counter",
            PORT,
            labels,
            {way: port.now.get(way) for way in ("rx", "tx") if isinstance(port.now.get(way), int)},
        )
        up = port.now.get("state")
        page.add(
            "gauge",
            Metric("port_up", "1 where the link is active."),
            labels,
            None if up is None else int(up in ("ACTIVE", "UP")),
        )
        speed = number(port.now.get("speed"))
        page.add(
            "gauge",
            Metric("port_speed_bytes_per_second", "Speed of the link."),
            labels,
            None if speed is None else speed * 1.25e8,
        )
        errors = port.now.get("errors")
        for error, count in errors.items() if isinstance(errors, dict) else ():
            if error in ERRORS and isinstance(count, int):
                page.add(
                    "counter",
                    Metric("port_errors_total", "Error counters of the port."),
                    {**labels, "error": error},
                    number(count),
                )


def _ranks(page: Page, node: Node) -> None:
    ranks = [one for one in node.processes if isinstance(one.get("rank"), int)][:RANKS]
    for one in ranks:
        labels: Labels = {"node": node.name, "job": one.get("job") or "", "rank": one["rank"]}
        page.add_each("gauge", RANK, labels, one)
        blocked = one.get("state") in ("disk-sleep", "stopped", "zombie")
        page.add("gauge", Metric("rank_blocked", "1 where the process is in state D, T or Z."), labels, int(blocked))
    page.add("gauge", Metric("node_ranks", "Ranks of jobs on the node."), {"node": node.name}, len(ranks))


def _jobs(page: Page, state: State, now: float) -> None:
    """Add the jobs that stopped or wait; a job that runs has no line of its own."""
    words = {"stopped": 0, "waiting": 0}
    for job in list(state.jobs.values()):
        words[job.state] = words.get(job.state, 0) + 1
        labels: Labels = {"job": job.job, "state": job.state, "kind": job.kind}
        page.add(
            "gauge", Metric("job_stopped_seconds", "How long a job has stood still."), labels, max(now - job.since, 0.0)
        )
        page.add("gauge", Metric("job_waiting_ranks", "Ranks that wait for others."), labels, job.waiting)
        for suspect in job.suspects[:8]:
            where: Labels = {
                "job": job.job,
                "node": suspect.host or "",
                "rank": "" if suspect.rank is None else suspect.rank,
            }
            page.add("gauge", Metric("job_suspect", "A rank for which the others wait, always 1."), where, 1)
    for name, progress in list(state.steps.items())[:DEVICES]:
        page.add("gauge", Metric("job_step", "Newest step in the log of the job."), {"job": name}, progress.step)
        page.add(
            "gauge", Metric("job_step_seconds", "Time of a step, median of 30 s."), {"job": name}, progress.seconds
        )
        age = max(now - progress.at, 0.0)
        page.add("gauge", Metric("job_step_age_seconds", "Time since the newest step."), {"job": name}, age)
    for word, count in words.items():
        page.add("gauge", Metric("jobs", "Jobs that stand still, by state."), {"state": word}, count)


def _findings(page: Page, state: State, findings: list[Finding]) -> None:
    """Add the findings of each node; those about no single node have an empty label."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for finding in findings:
        for name in expand(finding.hosts) if finding.hosts else ("",):
            node = name if name in state.nodes else ""
            key = finding.rule, finding.name, finding.severity, node
            counts[key] = counts.get(key, 0) + 1
    for (rule, name, severity, node), count in counts.items():
        labels: Labels = {"rule": rule, "name": name, "severity": severity, "node": node}
        page.add("gauge", Metric("finding", "Current findings of the rules."), labels, count)


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
