"""dcgmi diag and dcgmi health in files: all forms, what the report says, cut and hostile ones.

dcgmi needs NVIDIA's host engine; the tables follow DcgmiOutputTree and the JSON DcgmiOutputJson (dcgmi/DcgmiOutput.cpp of DCGM 4).
"""

import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import dcgm
from nccl_doctor.formats.registry import recognise

DIAG = (FIXTURES / "gpu" / "dcgmi_diag.txt").read_text()
HEALTH = (FIXTURES / "gpu" / "dcgmi_health.txt").read_text()
SYSTEM = {"value": "Failure", "overflow": ["12 uncorrectable errors", "on GPU 2"]}
HEALTH_JSON = {
    "body": {
        "GPU": {
            "children": {"2": {"value": "Failure", "children": {"Errors": {"children": {"Memory system": SYSTEM}}}}}
        },
        "Overall Health": {"value": "Failure"},
    },
    "header": ["Health Monitor Report"],
}


def read(text: str) -> tuple[list[ActiveTest], Reading]:
    facts = Facts()
    found = dcgm.read_format(io.BytesIO(text.encode()), "d.txt", facts)
    return facts.rows(ActiveTest), found


def outcomes(text: str) -> list[tuple[str, str | None, str]]:
    return [(row.test, row.device, row.outcome) for row in read(text)[0]]


def test_the_table_of_diag() -> None:
    assert [
        ("Denylist", None, "pass"), ("NVML Library", None, "pass"), ("PCIe", None, "skip"), ("Memory", "2", "fail"),
    ] == [one for one in outcomes(DIAG) if one[0] in ("Denylist", "NVML Library", "Memory", "PCIe")]  # fmt: skip


def test_the_tree_of_health_and_its_json() -> None:
    wanted = [("health of Memory system", "2", "fail")]
    for text in (HEALTH, json.dumps(HEALTH_JSON, indent=3)):
        rows, _ = read(text)
        assert wanted == [(row.test, row.device, row.outcome) for row in rows]
        assert "12 uncorrectable errors on GPU 2" == rows[0].text
    healthy = "+--+--+\n| Health Monitor Report    |\n| Overall Health            | Healthy          |\n+--+--+\n"
    assert [("health", None, "pass")] == outcomes(healthy)


@pytest.mark.parametrize(
    "text", [DIAG, HEALTH, json.dumps(HEALTH_JSON, indent=3), '{"DCGM Diagnostic": {"test_categories": []}}']
)
def test_each_is_recognised(text: str) -> None:
    assert "dcgm-results" == getattr(recognise(text.encode()), "kind", None)


def test_reports(tmp_path: Path) -> None:
    for name, finding in {"dcgmi_diag.txt": "dcgm-test-failed", "dcgmi_health.txt": "dcgm-test-failed"}.items():
        report, _, _ = analyze.analyze([str(FIXTURES / "gpu" / name)])
        assert [finding] == [one.name for one in report.findings], name
    (tmp_path / "good.txt").write_text(DIAG.replace("Fail - GPU: 2 ", "Pass - All    "))
    assert [] == analyze.analyze([str(tmp_path / "good.txt")])[0].findings


def test_inside_a_log_with_the_hosts_of_pdsh() -> None:
    lines = [f"node0{host}: {line}\n" for line in DIAG.splitlines() for host in (1, 2)]
    rows, found = read("starting\n" * 100 + "".join(lines))
    assert {"node01", "node02"} == {row.host for row in rows if row.outcome == "fail"}
    assert 100 + len(lines) == found.lines


@pytest.mark.parametrize("cut", [10, 300, 900])
def test_cut_files(cut: int) -> None:
    read(DIAG[:cut])
    assert "is not complete JSON" in (read(json.dumps(HEALTH_JSON, indent=3)[: cut // 3])[1].note or "")


def test_hostile_json() -> None:
    assert ([], "is not complete JSON; nothing of it was read") == (
        read('{"a":' * 50_000)[0],
        read('{"a":' * 50_000)[1].note,
    )
    assert (
        [] == read('{"DCGM Diagnostic": {"test_categories": [{"tests": 7}, null, {"tests": [{"results": "x"}]}]}}')[0]
    )


def test_one_test_with_two_results_and_remarks_about_one_gpu(tmp_path: Path) -> None:
    table = """+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| PCIe                      | Fail - GPU: 5                                  |
| Warning: GPU 5            | 210 replays on the link                        |
| Memory Bandwidth          | Pass - GPUs: 0, 1, 2, 3                        |
|                           | Fail - GPU: 5                                  |
| EUD Test                  | Skip - All                                     |
+---------------------------+------------------------------------------------+
"""
    assert [
        ("PCIe", "5", "fail"), ("Memory Bandwidth", "0, 1, 2, 3", "pass"), ("Memory Bandwidth", "5", "fail"),
        ("EUD Test", None, "skip"),
    ] == outcomes(table)  # fmt: skip
    (tmp_path / "diag.txt").write_text(table)
    report, _, _ = analyze.analyze([str(tmp_path / "diag.txt")])
    assert {
        "test PCIe of DCGM failed on GPU 5: 210 replays on the link",
        "test Memory Bandwidth of DCGM failed on GPU 5",
    } == {finding.message.removeprefix(": ") for finding in report.findings}


PART = """\
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Fail - All                                     |
| Warning                   | GPU 0: link 3 of NVLink is down since the las  |
|                           | t reset of the node, run a field diagnostic o  |
|                           |  n it or replace it.                           |
"""


def test_a_part_of_the_table_is_read_and_its_words_are_joined(tmp_path: Path) -> None:
    words = (
        "GPU 0: link 3 of NVLink is down since the last reset of the node, run a field diagnostic o n it or replace it."
    )
    memory = PART.partition("\n")[2].replace("PCIe      ", "GPU Memory").replace("Fail - All  ", "Fail - GPU: 0")
    for text, test in ((PART, "PCIe"), (memory, "GPU Memory")):
        (tmp_path / "part.txt").write_text(text)
        report, _, _ = analyze.analyze([str(tmp_path / "part.txt")])
        found = next(one for one in report.findings if one.name == "dcgm-test-failed")
        assert f"test {test} of DCGM failed" in found.message
        assert words in found.message
