"""Rows of the message rules whose message names a fault are reported by the rule of that name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.rules import loader
from nccl_doctor.rules.answers import Answer
from nccl_doctor.rules.folding import Group, Row
from nccl_doctor.rules.named_faults import hand_over
from nccl_doctor.rules.schema import Rule

WAITS = "(raylet) No available node types can fulfill resource request {'GPU': 8.0}.\n"


def a_rule(name: str, **more: object) -> Rule:
    values = {"id": "X001", "title": "T", "severity": "error", "role": "cause", "confidence": "likely", "since": "0.1"}
    words = {"needs": [], "query": "", "message": "{title}", "why": f"why {name}", "fix": "{command}"}
    return Rule(**{**values, **words, "name": name, **more})  # type: ignore[arg-type]


def an_answer(rule: Rule, *faults: str | None, severity: str = "error") -> Answer:
    group = Group([])
    for ref, fault in enumerate(faults, 1):
        group.add(Row({"fault": fault, "host": f"n{ref}"}, [ref], severity, "cause", "likely", "warn"), keep=True)
    return Answer(rule, "found" if faults else "clear", group.rows, "", [group] if faults else [])


GENERIC = a_rule("setting-rejected", unclaimed=True)


def test_every_fault_of_the_catalogue_is_the_name_of_a_rule() -> None:
    names = set(loader.shipped_names())
    assert {message.fault for message in catalogue().messages} - {""} <= names


def test_a_line_is_reported_under_the_name_of_its_fault(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(WAITS)
    report, _, _ = analyze.analyze([str(tmp_path / "log")])
    assert ["ray-resources-missing"] == [finding.name for finding in report.findings if finding.severity != "note"]
    assert {"ray-resources-missing": "found", "setting-rejected": "clear"} == {
        check.name: check.outcome
        for check in report.checks
        if check.name in ("ray-resources-missing", "setting-rejected")
    }


@given(st.lists(st.sampled_from([None, "a", "b", "nobody"]), min_size=1))
def test_no_row_is_lost_and_none_goes_elsewhere(faults: list[str | None]) -> None:
    answers = hand_over([an_answer(GENERIC, *faults), an_answer(a_rule("a")), an_answer(a_rule("b"))])
    for answer, names in zip(answers, [{None, "nobody"}, {"a"}, {"b"}], strict=True):
        assert {row.values["fault"] for row in answer.rows} <= names
        assert answer.outcome == ("found" if answer.rows else "clear")
    assert len(faults) == sum(answer.total for answer in answers)


@pytest.mark.parametrize(("severity", "shown"), [("error", [1]), ("warning", [1]), ("note", [2])])
def test_a_rule_gets_no_rows_that_it_has_judged_and_none_beside_an_alarm(severity: str, shown: list[int]) -> None:
    _, owner = hand_over([an_answer(GENERIC, "a", "a"), an_answer(a_rule("a"), None, severity=severity)])
    assert shown == [ref for row in owner.rows for ref in row.refs]


def test_a_line_that_its_rule_calls_a_note_stays_one() -> None:
    _, owner = hand_over([an_answer(GENERIC, "a"), an_answer(a_rule("a"), None, severity="note")])
    assert ["note"] == [row.severity for row in owner.rows]


def test_the_severity_that_the_site_decided_holds() -> None:
    _, owner = hand_over([an_answer(GENERIC, "a"), an_answer(a_rule("a", decided="warning"))])
    assert ["warning"] == [row.severity for row in owner.rows]


def test_a_job_that_was_cancelled_in_flux_did_not_fail(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    ended = "flux-job: task(s) exited with exit code 143\n"
    log.write_text("91.402s: job.exception type=cancel severity=0 interrupted by ctrl-C\n" + ended)
    assert [("scheduler-cancelled", "note")] == [
        (found.name, found.severity) for found in analyze.analyze([str(log)])[0].findings
    ]
    log.write_text(ended)
    assert ["rank-exited"] == [found.name for found in analyze.analyze([str(log)])[0].findings]


def test_ranks_that_were_waited_for_came_where_the_job_made_steps(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    waits = "not ready endpoints:['10.0.0.2:6170']\n"
    log.write_text(waits)
    assert ["ranks-not-started"] == [found.name for found in analyze.analyze([str(log)])[0].findings]
    steps = "".join(
        f"epoch: 1, iter: {step}/40, loss: 0.5, batch_cost: 0.32{step}, ips: 12.5 samples/sec\n"
        for step in range(1, 21)
    )
    log.write_text(waits + steps)
    assert not analyze.analyze([str(log)])[0].findings


def test_a_script_that_a_running_job_did_not_find_is_a_note(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    steps = "".join(f"step {step} loss 2.5 tokens/s {1000 + step}\n" for step in range(1, 21))
    log.write_text("python: can't open file 'get_rank.py': [Errno 2] No such file or directory\n" + steps)
    assert {"note"} == {found.severity for found in analyze.analyze([str(log)])[0].findings}


def test_the_name_of_a_file_for_errors_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("Elapsed time: 6 seconds\n  Standard error: /data/run/app.stderr\n")
    assert "nothing-found" == analyze.analyze([str(log)])[0].verdict
