"""What drains a node: what lasts, what only a reset cures, and never more nodes than the cap."""

from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_doctor.app import drain_policy, preflight
from nccl_doctor.app.drain_policy import Cap, Check
from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Collection,
    GpuHealth,
    KernelLog,
    Mount,
    MountProbe,
    NodeGpu,
    NodeMachine,
    PciDevice,
    Xid,
)
from nccl_doctor.node.runtime import state
from nccl_doctor.rules import loader, schema

BOOT = 1_700_000_000.0
HOUR = 3600.0
BUS = "0000:48:00"


def row(table: Any, **values: Any) -> Any:
    return table(**{**dict.fromkeys(table._fields), **values})


def healthy(*rows: Any, gpu: str = "ok", now: float = BOOT, boot: float = BOOT) -> Facts:
    """A node that was looked at, with these facts on top. Another time of the boot: the clock was set."""
    facts = Facts()
    facts.mark_covered(
        "xid", "kernel_log", "mount_probe", "mount", "pci_device", "collection", "gpu_health", "node_gpu"
    )
    ref = facts.evidence("collector gpu", 1, gpu)
    facts.add([Collection("node01", "gpu", gpu, 0.1, None, ref)])
    facts.add([KernelLog("node01", "/dev/kmsg", 900, boot, now, boot, facts.evidence("/dev/kmsg", 1, "900 lines"))])
    facts.add(rows)
    return facts


def xid(facts: Facts, code: int, at: float, text: str = "halted") -> Facts:
    line = f"[{at - BOOT:.6f}] NVRM: Xid (PCI:{BUS}): {code}, {text}"
    ref = facts.text_evidence("/dev/kmsg", line)
    facts.add([row(Xid, host="node01", kind="xid", pci=BUS, code=code, text=text, n=1, stamp=at, ref=ref)])
    return facts


def hung_mount(facts: Facts) -> Facts:
    ref = facts.text_evidence("stat /scratch", "stat /scratch: hung after 2.0 s")
    facts.add([
        row(Mount, host="node01", path="/scratch", fstype="nfs4", source="fs01:/s", kind="shared", read_only=0, ref=ref)
        if "read_only" in Mount._fields else Mount("node01", "/scratch", "nfs4", "fs01:/s", "shared", 0, 0, "rw", ref),
        row(MountProbe, host="node01", path="/scratch", operation="stat", outcome="hung", seconds=2.0, wanted=1, ref=ref),
    ])  # fmt: skip
    return facts


class Node:
    """A node that is looked at again and again."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.folder = folder
        self.settings = Settings(**changed)
        self.boot = "boot-1"
        self.looks = 0

    def check(self, facts: Facts, now: float, look: str | None = None) -> preflight.Judged:
        self.looks += 1
        check = Check(self.boot, look or str(self.looks), now)
        memory = preflight.Memory(self.folder, "prolog", self.settings, check)
        return preflight.judge(facts, {}, memory=memory)

    def fitness(self, facts: Facts, now: float, look: str | None = None) -> str:
        return self.check(facts, now, look).report.fitness

    def forget(self, rule: str | None = None, now: float = BOOT) -> str:
        with state.opened(self.folder) as kept:
            return drain_policy.forget(kept, loader.find_rule(rule) if rule else None, Check(self.boot, "", now))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "state")


def stopped(now: float) -> Facts:
    """Xid 62 an hour after the boot, looked at `now`."""
    return xid(healthy(now=now), 62, BOOT + HOUR)


def test_an_xid_that_needs_a_reset_stays_after_it_left_the_log_and_the_day(node: Node) -> None:
    assert "fit" == node.fitness(healthy(), BOOT)
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    for hours in (20, 27, 200):
        later = BOOT + hours * HOUR
        assert "drain" == node.fitness(stopped(later), later), hours
        report = node.check(healthy(now=later), later).report
        assert "drain" == report.fitness, hours
    (found,) = (one for one in report.findings if one.action == "drain")
    assert "HOST053" == found.rule
    assert "NVRM: Xid" in found.evidence[0].text
    assert "--forget xid-gpu-stopped" in found.fix


def test_a_boot_ends_it(node: Node) -> None:
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    node.boot = "boot-2"
    assert "fit" == node.fitness(healthy(), BOOT + 3 * HOUR)


def test_the_driver_that_says_that_the_gpu_was_reset_ends_it(node: Node) -> None:
    now = BOOT + 30 * HOUR
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    text = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert "drain" == node.fitness(xid(healthy(now=now), 154, BOOT + 0.5 * HOUR, text), now)
    assert "fit" == node.fitness(xid(healthy(now=now), 154, BOOT + 29 * HOUR, text), now)
    assert "fit" == node.fitness(healthy(now=now), now)


@pytest.mark.parametrize("set_by", [-26 * HOUR, 26 * HOUR])
def test_a_clock_that_is_set_neither_hides_a_reset_nor_invents_one(node: Node, set_by: float) -> None:
    text = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    for hours, fitness in ((0.5, "drain"), (2.5, "fit")):  # the first reset was before the fault
        now = BOOT + 3 * HOUR + set_by
        facts = healthy(now=now, boot=BOOT + set_by)
        assert fitness == node.fitness(xid(facts, 154, BOOT + set_by + hours * HOUR, text), now)


@pytest.mark.parametrize("set_by", [-26 * HOUR, -60.0, 1200.0])
def test_a_clock_that_is_set_does_not_end_a_grace_period(node: Node, set_by: float) -> None:
    for after, fitness in ((0, "fit"), (5, "fit"), (121, "drain")):
        shift = set_by if after else 0.0
        now = BOOT + HOUR + shift + after
        assert fitness == node.fitness(hung_mount(healthy(now=now, boot=BOOT + shift)), now), after


def recovery(facts: Facts, action: int) -> Facts:
    ref = facts.text_evidence("nvml", f"recovery {action}")
    facts.add([row(NodeGpu, host="node01", gpu=4, pci=f"{BUS}.0", ref=ref),
               row(GpuHealth, host="node01", gpu=4, recovery=action, ref=ref)])  # fmt: skip
    return facts


def test_nvml_that_asks_for_nothing_ends_it_only_where_it_asked_before(node: Node) -> None:
    now = BOOT + 30 * HOUR
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    assert "drain" == node.fitness(recovery(healthy(now=now), 0), now)
    assert "drain" == node.fitness(recovery(stopped(BOOT + 2 * HOUR), 1), now)
    assert "fit" == node.fitness(recovery(healthy(now=now), 0), now)


def test_an_administrator_ends_it_until_there_is_a_new_one(node: Node) -> None:
    now = BOOT + 2 * HOUR
    assert "drain" == node.fitness(stopped(now), now)
    assert "forgot HOST053 xid-gpu-stopped" == node.forget("xid-gpu-stopped")
    assert "nothing was remembered" in node.forget("xid-gpu-stopped")
    report = node.check(stopped(now), now).report
    assert "fit" == report.fitness
    assert any("forgotten" in one.message for one in report.findings)
    assert "drain" == node.fitness(xid(stopped(now), 110, BOOT + 1.5 * HOUR), now)
    node.forget()
    assert "fit" == node.fitness(healthy(now=now), now)


def test_a_fault_that_cures_itself_is_not_kept(node: Node) -> None:
    facts = xid(healthy(), 13, BOOT + HOUR, "Graphics SM Warp Exception")
    assert "fit" == node.fitness(facts, BOOT + 2 * HOUR)
    assert "fit" == node.fitness(healthy(), BOOT + 2 * HOUR)


def test_a_file_server_that_stumbles_drains_nobody(node: Node) -> None:
    report = node.check(hung_mount(healthy()), BOOT).report
    assert "fit" == report.fitness
    (found,) = (one for one in report.findings if one.name == "mount-hung")
    assert ("warn", True) == (found.action, "seen for 0 of 120 s, check 1 of 2" in found.message)
    assert "fit" == node.fitness(hung_mount(healthy()), BOOT + 60)  # often enough, not long enough
    assert "fit" == node.fitness(healthy(), BOOT + 90)
    assert "fit" == node.fitness(hung_mount(healthy()), BOOT + 130)  # it answered in between


def test_a_file_server_that_stays_away_drains(node: Node) -> None:
    assert ["fit", "fit", "drain", "drain"] == [
        node.fitness(hung_mount(healthy()), BOOT + seconds) for seconds in (0, 60, 120, 180)
    ]


def test_one_look_that_many_share_counts_once(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", grace=0.0, grace_checks=3)
    assert {"fit"} == {node.fitness(hung_mount(healthy()), BOOT, "same") for _ in range(8)}
    assert "fit" == node.fitness(hung_mount(healthy()), BOOT + 1, "second")
    assert "drain" == node.fitness(hung_mount(healthy()), BOOT + 2, "third")


def test_checks_that_are_hours_apart_are_not_in_a_row(node: Node) -> None:
    assert ["fit", "fit"] == [node.fitness(hung_mount(healthy()), BOOT + hours * HOUR) for hours in (0, 5)]


def test_a_fault_of_the_node_itself_drains_at_once(node: Node) -> None:
    assert "drain" == node.fitness(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)


def test_a_driver_that_hangs_again_and_again_drains(node: Node) -> None:
    seen = [node.fitness(healthy(gpu="hung"), BOOT + 60 * n) for n in range(6)]
    assert ["unknown"] * 4 + ["drain"] * 2 == seen
    assert "unknown" == Node(node.folder.parent / "other", hung_checks=0).fitness(healthy(gpu="hung"), BOOT)


def test_a_driver_that_answers_in_between_does_not(node: Node) -> None:
    seen = [node.fitness(healthy(gpu="ok" if n == 3 else "hung"), BOOT + 60 * n) for n in range(8)]
    assert "drain" not in seen


def test_a_storm_of_prologs_is_not_a_driver_that_hangs_for_long(node: Node) -> None:
    assert {"unknown"} == {node.fitness(healthy(gpu="hung"), BOOT + n) for n in range(20)}


def test_clean_checks_are_counted_in_a_row(node: Node) -> None:
    assert [1, 2] == [node.check(healthy(), BOOT + n).clean for n in range(2)]
    assert 2 == node.check(healthy(), BOOT + 2, "2").clean  # shares the look before
    assert 0 == node.check(healthy(gpu="hung"), BOOT + 3).clean
    assert 1 == node.check(healthy(), BOOT + 4).clean
    node.check(stopped(BOOT + 2 * HOUR), BOOT + 2 * HOUR)
    assert 0 == node.check(healthy(now=BOOT + 2 * HOUR), BOOT + 2 * HOUR).clean


def gpus(facts: Facts, number: int, product: str = "Some Server 9000") -> Facts:
    ref = facts.text_evidence("/sys/class/dmi/id/product_name", product)
    facts.add([row(NodeMachine, host="node01", vendor="Somebody", product=product, ref=ref)])
    slots = [facts.text_evidence(f"/sys/bus/pci/devices/0000:{n:02x}:00.0", f"gpu {n}") for n in range(number)]
    facts.add(row(PciDevice, host="node01", pci=f"0000:{n:02x}:00.0", kind="gpu", ref=ref) if "pci" in PciDevice._fields
              else row(PciDevice, host="node01", kind="gpu", ref=ref) for n, ref in enumerate(slots))  # fmt: skip
    return facts


def names(judged: preflight.Judged) -> set[str]:
    return {one.name for one in judged.report.findings if one.action == "drain"}


def test_gpus_of_the_last_good_check_are_expected(node: Node) -> None:
    assert set() == names(node.check(gpus(healthy(), 8), BOOT))
    assert {"gpu-missing-on-bus"} == names(node.check(gpus(healthy(), 7), BOOT + 60))
    node.boot = "boot-2"
    assert {"gpu-missing-on-bus"} == names(node.check(gpus(healthy(), 7), BOOT + 120))
    assert set() == names(
        node.check(gpus(healthy(), 4, "Another Server"), BOOT + 180)
    )  # the disk moved to another machine
    node.forget()
    assert set() == names(node.check(gpus(healthy(), 7), BOOT + 240))


@pytest.mark.parametrize(
    ("cap", "fitness"),
    [(Cap(0, 5), "drain"), (Cap(4, 5), "drain"), (Cap(5, 5), "fit"), (Cap(500, 5), "fit"), (None, "drain")],
)
def test_beyond_the_cap_a_node_only_warns(cap: Cap | None, fitness: str) -> None:
    assert fitness == capped(stopped(BOOT + HOUR), cap).fitness


def test_a_shared_fault_drains_only_where_the_others_can_be_counted() -> None:
    assert "fit" == capped(hung_mount(healthy()), None).fitness
    assert "drain" == capped(hung_mount(healthy()), Cap(0, 5)).fitness
    (found,) = capped(hung_mount(healthy()), Cap(5, 5)).findings
    assert "5 other nodes were drained for HOST101 within 60 min and 5 is the most" in found.message


def capped(facts: Facts, cap: Cap | None) -> Any:
    report = preflight.report_of(facts)
    assert "drain" == report.fitness
    rules = loader.load_usable((), schema.NODE).rules
    drain_policy.limit(report, rules, Settings(), lambda rule: cap)
    report.fitness = preflight.fitness(report, facts.rows(Collection))
    return report


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["HOST053", "HOST101", "first", "last", "checks", "at", "evidence", "gpus", "asked", "message"]),
        inner, max_size=4,
    ),
    max_leaves=6,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    st.dictionaries(st.sampled_from(["latched", "seen", "hung", "clean", "look", "inventory", "forgotten"]), GARBAGE)
)
def test_any_memory_is_no_error_and_hides_no_fault(tmp_path: Path, memory: dict[str, Any]) -> None:
    node = Node(tmp_path / "state")
    with state.opened(node.folder) as kept:
        kept.write(drain_policy.NAME, {**memory, "boot_id": node.boot, "forgotten": None})
    assert "drain" == node.fitness(stopped(BOOT + HOUR), BOOT + HOUR)
    with state.opened(node.folder) as kept:
        kept.write(drain_policy.NAME, {**memory, "boot_id": node.boot})
    node.check(hung_mount(healthy(gpu="hung")), BOOT)
    node.forget()


def test_rules_say_which_faults_are_shared_and_which_need_a_reset() -> None:
    rules = loader.load_usable((), schema.NODE).rules
    assert {"mount-hung", "rail-without-subnet-manager"} <= {rule.name for rule in rules if rule.shared}
    assert {"xid-gpu-stopped", "sxid-fatal"} <= {rule.name for rule in rules if rule.until_reset}
    assert [] == [rule.name for rule in rules if rule.shared and rule.until_reset]


def test_the_page_about_decisions_names_each_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "preflight-decisions.md").read_text()
    for name, value in vars(Settings()).items():
        if name.startswith(("grace", "cap", "hung", "clean")):
            assert f"`{name}`" in text, name
            if isinstance(value, int | float) and name.startswith(("grace", "cap")):
                assert f"`{name}` {value:g}" in text, name
