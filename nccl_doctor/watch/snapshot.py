"""Renders the state of all nodes as text and as JSON."""

import json
from dataclasses import asdict
from math import isfinite
from textwrap import wrap
from typing import Any

from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.watch.state import State, throttle
from nccl_doctor.watch.view.cells import Cell, Column, Line, Look, choose, row_line
from nccl_doctor.watch.view.gpus import gpu_columns, peers
from nccl_doctor.watch.view.nodes import node_state
from nccl_doctor.watch.view.overview import host_line
from nccl_doctor.watch.view.ports import PORTS
from nccl_doctor.watch.view.processes import PROCESSES


def render_text(state: State, findings: list[Finding], now: float, width: int, ascii_only: bool) -> str:
    """Returns one page of plain text."""
    look = Look(ascii_only)
    rows = [line for headline in state.headlines(now) for line in (*wrap(headline, width), "")]
    rows += [f"{one.name}: {one.sentence(now)[0]}" for one in state.steps.values()]
    for node in state.nodes.values():
        badness, description = node_state(node, now)
        versions = ", ".join(f"{name} {version}" for name, version in node.versions.items())
        rows.append(": ".join(part for part in (node.name, versions, description if badness else "") if part))
        rows += _table(gpu_columns(peers(state, now), now), [(node, gpu) for gpu in node.gpus.values()], look, width)
        rows += _table(PORTS, [(node, port) for port in node.ports.values()], look, width)
        processes = [(node, one) for one in node.processes if one.get("role") != "other"]
        rows += ["", *_table(PROCESSES, processes, look, width), ""] if processes else []
        rows += [_plain(host_line(node, look, width, now)), ""]
    rows += [f"{f.severity.upper()} {f.rule} {f.name}: {f.message}" for f in findings if f.severity != "note"]
    return "\n".join(look.clean(row) for row in rows).rstrip() + "\n"


def _table(columns: tuple[Column, ...], rows: list[Any], look: Look, width: int) -> list[str]:
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
                "name": node.name, "state": node_state(node, now)[1], "versions": node.versions,
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
        "steps": [
            {"job": one.name, "step": one.step, "at": one.at, "seconds": one.seconds, "before": one.before}
            for one in state.steps.values()
        ],
        "findings": [
            {"rule": f.rule, "name": f.name, "severity": f.severity, "hosts": f.hosts, "message": f.message} for f in findings
        ],
    }  # fmt: skip


def render_json(state: State, findings: list[Finding], now: float) -> str:
    # In ASCII: a node may send any sign in a name or as a key, and the text may be shown on a terminal.
    return json.dumps(_finite(document(state, findings, now)), indent=1, default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The value with null for the numbers of a node that JSON does not have: NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value if not isinstance(value, float) or isfinite(value) else None
