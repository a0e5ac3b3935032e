"""Renders the state of all nodes as text, as JSON, and as metrics for Prometheus."""

import json
from dataclasses import asdict
from typing import Any

from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.watch.state import Device, Node, State, number, throttle
from nccl_doctor.watch.view.cells import Cell, Column, Line, Look, choose, row_line
from nccl_doctor.watch.view.gpus import gpu_columns, peers
from nccl_doctor.watch.view.nodes import node_state
from nccl_doctor.watch.view.overview import host_line
from nccl_doctor.watch.view.ports import PORTS


def render_text(state: State, findings: list[Finding], now: float, width: int, ascii_only: bool) -> str:
    """Returns one page of plain text."""
    look = Look(ascii_only)
    rows = [line for headline in state.headlines(now) for line in (headline, "")]
    for node in state.nodes.values():
        badness, description = node_state(node, now)
        rows.append(f"{node.name}: {description}" if badness else node.name)
        rows += _table(gpu_columns(peers(state, now), now), [(node, gpu) for gpu in node.gpus.values()], look, width)
        rows += _table(PORTS, [(node, port) for port in node.ports.values()], look, width)
        rows += [_plain(host_line(node, look, width, now)), ""]
    rows += [f"{f.severity.upper()} {f.rule} {f.name}: {f.message}" for f in findings if f.severity != "note"]
    return "\n".join(look.clean(row) for row in rows).rstrip() + "\n"


def _table(columns: tuple[Column, ...], rows: list[tuple[Node, Device]], look: Look, width: int) -> list[str]:
    if not rows:
        return []
    fitted = choose([column for column in columns if column.key not in ("node", "history")], width, rows, look)
    drawn = [[column.cell(row, look) for column, _ in fitted] for row in rows]
    titles = [Cell(column.title, "", first.right) for (column, _), first in zip(fitted, drawn[0], strict=True)]
    return [_plain(row_line(cells, fitted, look)) for cells in (titles, *drawn)]


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def document(state: State, findings: list[Finding], now: float) -> dict[str, Any]:
    """Returns the state and the findings as plain data."""
    return {
        "schema": "nccl-doctor/watch/1", "time": now,
        "nodes": [
            {
                "name": node.name, "state": node_state(node, now)[1],
                "gpus": [{**gpu.now, "throttle": throttle(gpu.now.get("clock_reasons"))} for gpu in node.gpus.values()],
                "ports": [{**port.now, "rx_gbps": port.last("rx"), "tx_gbps": port.last("tx")} for port in node.ports.values()],
                "host": node.host.now, "processes": node.processes,
            }
            for node in state.nodes.values()
        ],
        "jobs": [
            {"job": one.job, "state": one.state, "since": one.since, "kind": one.kind, "ranks": one.ranks, "waiting": one.waiting,
             "operation": one.operation, "suspects": [asdict(suspect) for suspect in one.suspects],
             "headline": one.sentence(now, named=True)}
            for one in state.jobs.values()
        ],
        "findings": [
            {"rule": f.rule, "name": f.name, "severity": f.severity, "hosts": f.hosts, "message": f.message} for f in findings
        ],
    }  # fmt: skip


def render_json(state: State, findings: list[Finding], now: float) -> str:
    return json.dumps(document(state, findings, now), indent=1, ensure_ascii=False, default=str) + "\n"


GAUGES = (
    ("nccl_doctor_gpu_utilization_ratio", "Share of time in which a kernel ran.", "utilization.gpu", 0.01),
    ("nccl_doctor_gpu_power_watts", "Power draw.", "power.draw", 1.0),
    ("nccl_doctor_gpu_power_limit_watts", "Enforced power limit.", "enforced.power.limit", 1.0),
    ("nccl_doctor_gpu_memory_used_bytes", "Memory in use.", "memory.used", 1 << 20),
    ("nccl_doctor_gpu_memory_total_bytes", "Memory of the GPU.", "memory.total", 1 << 20),
    ("nccl_doctor_gpu_temperature_celsius", "Temperature of the GPU.", "temperature.gpu", 1.0),
    ("nccl_doctor_gpu_sm_clock_hertz", "Clock of the SMs.", "clocks.sm", 1e6),
    ("nccl_doctor_gpu_clock_event_reasons", "Bits of NVML's clock event reasons.", "clock_reasons", 1.0),
)


def render_metrics(state: State, findings: list[Finding], now: float) -> str:
    """Returns the text exposition format 0.0.4. An unknown value has no line."""
    rows: list[str] = []
    for name, help_, key, unit in GAUGES:
        samples = [
            f'{name}{{node="{_label(node.name)}",gpu="{gpu.now.get("index")}"}} {value * unit:g}'
            for node, gpu in state.gpus() if (value := number(gpu.now.get(key))) is not None
        ]  # fmt: skip
        rows += _metric(name, help_, "gauge", samples)
    ports = [(node, port) for node in state.nodes.values() for port in node.ports.values()]
    for way, word in (("rx", "receive"), ("tx", "transmit")):
        name = f"nccl_doctor_port_{word}_bytes_total"
        samples = [
            f'{name}{{node="{_label(node.name)}",port="{_label(port.name)}"}} {port.now[way]}'
            for node, port in ports if isinstance(port.now.get(way), int)
        ]  # fmt: skip
        rows += _metric(name, "Bytes since the counter began.", "counter", samples)
    samples = [
        f'nccl_doctor_port_errors_total{{node="{_label(node.name)}",port="{_label(port.name)}",error="{_label(error)}"}} {count}'
        for node, port in ports for error, count in _counts(port.now.get("errors")).items()
    ]  # fmt: skip
    rows += _metric("nccl_doctor_port_errors_total", "Error counters of the port.", "counter", samples)
    samples = [
        f'nccl_doctor_node_up{{node="{_label(node.name)}"}} {int(node_state(node, now)[0] < 2)}'
        for node in state.nodes.values()
    ]
    rows += _metric("nccl_doctor_node_up", "1 where the node answers.", "gauge", samples)
    rows += _job_metrics(state, now)
    counts: dict[str, int] = {}
    for f in findings:
        labels = f'rule="{f.rule}",name="{f.name}",severity="{f.severity}",hosts="{_label(f.hosts)}"'
        counts[labels] = counts.get(labels, 0) + 1
    samples = [f"nccl_doctor_finding{{{labels}}} {count}" for labels, count in counts.items()]
    rows += _metric("nccl_doctor_finding", "Current findings of the rules.", "gauge", samples)
    return "\n".join(rows) + "\n"


def _job_metrics(state: State, now: float) -> list[str]:
    """Returns how long each job has stood still; a job that runs has no line."""
    jobs = dict(state.jobs)  # another thread adds records
    labels = {name: f'job="{_label(name)}",state="{job.state}",kind="{job.kind}"' for name, job in jobs.items()}
    seconds = [
        f"nccl_doctor_job_stopped_seconds{{{labels[name]}}} {max(now - job.since, 0.0):.0f}"
        for name, job in jobs.items()
    ]
    waiting = [f"nccl_doctor_job_waiting_ranks{{{labels[name]}}} {job.waiting}" for name, job in jobs.items()]
    return [
        *_metric(
            "nccl_doctor_job_stopped_seconds", "Seconds since the waiting ranks of a job moved last.", "gauge", seconds
        ),
        *_metric("nccl_doctor_job_waiting_ranks", "Ranks that wait in a job that stands still.", "gauge", waiting),
    ]


def _counts(errors: Any) -> dict[str, int]:
    return {k: v for k, v in errors.items() if isinstance(v, int)} if isinstance(errors, dict) else {}


def _metric(name: str, help_: str, kind: str, samples: list[str]) -> list[str]:
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *samples] if samples else []


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", " ")
