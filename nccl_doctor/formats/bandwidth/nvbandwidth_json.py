"""What `nvbandwidth --json` prints: one object with the version, the GPUs and the tests."""

import json
import re
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.bandwidth.matrix import Device, Matrix, without_matrix
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import read_head

_LARGEST = 64 << 20
_DEVICE = re.compile(r"(\d{1,4}): (.{1,120}?)(?: \([\da-fA-F:]{8,20}\))?(?:: \((\S{1,253})\))?$")
_TITLE = re.compile(r"(.{2,120}?) ?\((GB/s|ns)\)$")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?(?:e[+-]\d{1,3})?$")
_MOST = 4096  # GPUs


def read_json(stream: Readable, name: str, facts: Facts, number: int) -> Reading:
    """Read one answer; tests get numbers from `number` on.

    Source: NVIDIA/nvbandwidth `json_output.cpp` (0.4 to 0.9); numbers of a matrix are written as text::

        {"nvbandwidth": {"GPU Device list": ["0: NVIDIA … (00000000:1b:00): (node01)"],
         "testcases": [{"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.63", "N/A"]], "status": "Passed"}]}}
    """
    content = read_head(stream, _LARGEST)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    text = content.decode("utf-8-sig", "replace").lstrip()
    note = None
    try:
        top, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        top, note = _closed(text), f"is no complete JSON: {str(error)[:100]}"
    found = top.get("nvbandwidth") if isinstance(top, dict) else None
    body: dict[str, Any] = found if isinstance(found, dict) else {}
    tests, devices = body.get("testcases"), _devices(body)
    used = 0
    for test in tests if isinstance(tests, list) else []:
        if not isinstance(test, dict) or not isinstance(test.get("name"), str):
            continue
        used += 1
        matrix = _matrix(test)
        status = str(test.get("status") or "").lower()
        if matrix is not None and "error" not in test:
            facts.add(matrix.facts(facts, name, number, "nvbandwidth", devices))
        elif status not in ("running", "not found"):
            said = f"{test['name']}: {test.get('status')} {test.get('error') or body.get('error') or ''}".strip()
            kind = "waived" if status == "waived" else "error"
            ref = facts.evidence(name, 1, said)
            facts.add([without_matrix(number, name, test["name"], kind, said, devices, ref)])
        number += 1
    failed = body.get("error")
    if isinstance(failed, str) and failed:
        ref = facts.evidence(name, 1, failed)
        facts.add([without_matrix(number, name, "", "error", failed, devices, ref)])
    return Reading(lines, used, note)


def _devices(body: dict[str, Any]) -> dict[int, Device]:
    found: dict[int, Device] = {}
    listed = body.get("GPU Device list", body.get("GPU Device info"))
    for place, one in enumerate(listed[:_MOST] if isinstance(listed, list) else []):
        if isinstance(one, str) and (match := _DEVICE.match(one)) is not None:
            host = match[3] or (body["Hostname"] if isinstance(body.get("Hostname"), str) else None)
            found[place] = Device(host.partition(".")[0] if host else None, int(match[1]), match[2])
    return found


def _matrix(test: dict[str, Any]) -> Matrix | None:
    """The numbers of a test; None where it has none."""
    rows = test.get("bandwidth_matrix")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        return None
    described = str(test.get("bandwidth_description") or "")
    match = _TITLE.match(described)
    matrix = Matrix(match[1] if match else described, match[2] if match else "GB/s", test["name"])
    matrix.columns = len(rows[0])
    half = len(rows) // 2
    for label, row in enumerate(rows[:_MOST]):
        partner = (label + half) % len(rows) if "bisect" in described.lower() else None
        if len(row) == matrix.columns:
            shown = f"{test['name']} row {label}: {' '.join(map(str, row))}"
            matrix.rows.append((label, partner, [_cell(cell) for cell in row[:_MOST]], 1, shown[:500]))
    total = test.get("sum")
    matrix.total = (
        float(total) if isinstance(total, int | float) and not isinstance(total, bool) and abs(total) < 1e15 else None
    )
    return matrix if matrix.rows and matrix.columns else None


def _cell(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and _NUMBER.match(value) else None


def _closed(text: str) -> Any:
    """What a text that was cut holds, up to its last whole test; None where there is none."""
    for end in [match.start() for match in re.finditer(r"\}\s{0,40},", text)][::-1][:3]:
        try:
            return json.loads(text[: end + 1] + "]}}")
        except (ValueError, RecursionError):
            continue
    return None
