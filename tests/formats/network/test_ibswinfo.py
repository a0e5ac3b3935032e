"""Power supplies and fans of InfiniBand switches."""

import io

from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, SwitchPart
from nccl_doctor.formats.network import ibswinfo

PATH = FIXTURES / "captures" / "ibswinfo.txt"
REPORT = PATH.read_text()
WELL = REPORT.replace("ERROR", "OK").replace("| 0\n", "| 5120\n").replace("leaf01", "leaf02")


def read(text: str) -> tuple[set[tuple[str, str, str]], dict[str, float]]:
    facts = Facts()
    ibswinfo.read_format(io.BytesIO(text.encode()), "ibswinfo.txt", facts)
    parts = {(row.switch, row.part, row.state) for row in facts.rows(SwitchPart)}
    return parts, {row.name: row.value for row in facts.rows(HostNumber)}


def test_parts_that_failed_are_named() -> None:
    (finding,) = analyze.analyze([str(PATH)])[0].findings
    assert "switch-part-failed" == finding.name
    assert "switch leaf01: PSU1: ERROR, PSU1 DC power: ERROR, fan#9: 0 rpm" in finding.message


def test_of_several_switches_each_part_belongs_to_its_own() -> None:
    parts, told = read(WELL + REPORT)
    assert {
        ("leaf02", "PSU1", "OK"),
        ("leaf01", "PSU1", "ERROR"),
        ("leaf01", "fan#9", "0 rpm"),
        ("leaf01", "fans", "OK"),
    } <= parts
    assert not any(switch == "leaf02" and state != "OK" for switch, _, state in parts)
    assert 61.0 == told["temperature of leaf01"]


def test_fans_of_which_none_tells_its_speed_are_no_fault() -> None:
    stopped = "\n".join(
        f"fan#{n} (rpm)        | 0" if line.startswith("fan#") else line for n, line in enumerate(WELL.split("\n"))
    )
    assert {"OK"} == {state for _, _, state in read(stopped)[0]}


def test_a_healthy_switch_has_no_finding_and_damage_is_survived(tmp_path: object) -> None:
    assert {"OK"} == {state for _, _, state in read(WELL)[0]}
    for cut in range(0, len(REPORT), 97):
        read(REPORT[:cut])


def test_a_supply_whose_state_is_not_told_keeps_its_own_numbers() -> None:
    text = REPORT.replace("PSU1 status        | ERROR", "PSU1 status        | ")
    parts, _ = read(text)
    assert ("leaf01", "PSU1 DC power", "ERROR") in parts
    assert ("leaf01", "PSU1", "ERROR") not in parts
    assert "ERROR" not in {state for _, part, state in parts if part.startswith("PSU0")}
