"""Broken and hostile answers, nvidia-smi in place of the library, and the site's expectations."""

from pathlib import Path
from typing import Any

import pytest
from helpers.gpu_nodes import alarms, look, planted

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import smi_xml
from nccl_doctor.node.runtime import expectations
from nccl_doctor.rules import loader, schema
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import bus

# Broken and hostile content


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "{}", '{"gpus": 7}', '{"gpus": [1, null, "x", {}, {"gpu": "0"}, {"gpu": -3}, {"gpu": 1e400}]}',
        '{"gpus": [{"gpu": 0, "model": 5, "power": "much", "memory_total": 1e999, "nvlinks": [1, {"link": "a"}], "tasks": {"pid": 1}}]}',
        '{"gpus": [{"gpu": 0, "pci": "x", "uuid": ["y"], "clock_sm": 123456789012345678901234567890, "tasks": [3, {"pid": 4e30}]}]}',
        '{"gpus": [], "pairs": [[0], [0, 1, 2, 3, 4, 5], [0, "1", 2, 3, 4], [99999999999999999999, 1, 2, 3, 4], [0, 1, 9e99, null, "x"]]}',
        '{"errors": [{"code": "x"}, {"code": 99999999999999999999}, {"call": 3, "text": null}], "system": [], "seconds": "NaN"}',
        '{"gpus": [{"gpu": true, "model": "\\u0000\\ud800", "counters": {"' + "a" * 500 + '": 3}}]}',
    ],
    ids=range(12),
)  # fmt: skip
def test_answers_that_nobody_would_believe(tmp_path: Path, content: str) -> None:
    tree = node.build("p5")
    del tree.extra["nvml"]
    tree.write(tmp_path)
    (tmp_path / ".nccl-doctor").mkdir(exist_ok=True)
    (tmp_path / ".nccl-doctor" / "nvml.json").write_text(content)
    report, facts = look(tmp_path)
    assert "failed" not in {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}
    assert "broken" not in {
        check.outcome for check in report.checks if check.name in {rule.name for rule in _own_rules()}
    }


def _own_rules() -> list[schema.Rule]:
    return [rule for rule in loader.load_rules((), schema.NODE) if rule.group == "node-gpu"]


@pytest.mark.parametrize(
    "garbage", [b"", b"\0\xff\xfe" * 50, b"9" * 5000, b"-1", b"\n\n\n", "ünïcode".encode()], ids=range(6)
)
def test_garbage_in_every_file(tmp_path: Path, garbage: bytes) -> None:
    node.build("dgx-h100").write(tmp_path)
    place = bus.gpus(node.MACHINES["dgx-h100"])[0]
    names = (
        "current_link_width",
        "max_link_width",
        "current_link_speed",
        "numa_node",
        "config",
        "aer_dev_fatal",
        "device",
    )
    files = [f"{place.folder}/{name}" for name in names]
    files += [
        "/proc/driver/nvidia/version",
        f"/proc/driver/nvidia/gpus/{place.pci}/information",
        "/proc/devices",
        "/proc/modules",
    ]
    files += ["/sys/class/dmi/id/product_name", "/proc/1/cgroup"]
    for file in files:
        path = tmp_path / file.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(garbage)
    _, facts = look(tmp_path)
    assert {"ok"} == {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    tree = node.build("p4d")
    place = bus.gpus(node.MACHINES["p4d"])[0]
    tree.link(f"{bus.BUS}/{place.pci}", "../../../../../../../../../../etc")
    tree.link(f"{bus.BUS}/0000:ff:00.0", "0000:ff:00.0")
    tree.write(tmp_path)
    _, facts = look(tmp_path)
    assert {"ok"} == {outcome for (outcome,) in facts.query("SELECT outcome FROM collection")}


# nvidia-smi instead of the library

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Mon Jun  3 09:12:44 2024</timestamp>
  <driver_version>550.54.15</driver_version>
  <cuda_version>12.4</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:13:00.0">
    <product_name>NVIDIA A100-SXM4-40GB</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
    <uuid>GPU-aa</uuid>
    <minor_number>0</minor_number>
    <vbios_version>92.00.45.00.03</vbios_version>
    <gpu_recovery_action>GPU Reset</gpu_recovery_action>
    <pci><pci_gpu_link_info>
      <pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
    </pci_gpu_link_info><replay_counter>7</replay_counter></pci>
    <performance_state>P0</performance_state>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>40960 MiB</total><reserved>569 MiB</reserved><used>2 MiB</used></fb_memory_usage>
    <bar1_memory_usage><total>65536 MiB</total></bar1_memory_usage>
    <compute_mode>Default</compute_mode>
    <utilization><gpu_util>3 %</gpu_util><memory_util>0 %</memory_util></utilization>
    <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
    <ecc_errors>
      <volatile><sram_correctable>1</sram_correctable><sram_uncorrectable>2</sram_uncorrectable>
        <dram_correctable>3</dram_correctable><dram_uncorrectable>4</dram_uncorrectable></volatile>
      <aggregate><sram_uncorrectable_parity>5</sram_uncorrectable_parity><sram_uncorrectable_secded>6</sram_uncorrectable_secded>
        <dram_uncorrectable>7</dram_uncorrectable><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
    </ecc_errors>
    <retired_pages><multiple_single_bit_retirement><retired_count>N/A</retired_count></multiple_single_bit_retirement></retired_pages>
    <remapped_rows><remapped_row_corr>1</remapped_row_corr><remapped_row_unc>2</remapped_row_unc>
      <remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>
    <temperature><gpu_temp>91 C</gpu_temp><gpu_temp_slow_threshold>92 C</gpu_temp_slow_threshold></temperature>
    <gpu_power_readings><power_draw>61.42 W</power_draw><current_power_limit>300.00 W</current_power_limit>
      <default_power_limit>400.00 W</default_power_limit></gpu_power_readings>
    <clocks><sm_clock>210 MHz</sm_clock><mem_clock>1215 MHz</mem_clock></clocks>
    <applications_clocks><graphics_clock>1095 MHz</graphics_clock></applications_clocks>
    <default_applications_clocks><graphics_clock>1095 MHz</graphics_clock></default_applications_clocks>
    <max_clocks><sm_clock>1410 MHz</sm_clock><mem_clock>1215 MHz</mem_clock></max_clocks>
    <fabric><state>N/A</state></fabric>
    <processes><process_info><pid>4242</pid><type>C</type><process_name>python</process_name>
      <used_memory>812 MiB</used_memory></process_info></processes>
  </gpu>
  <gpu id="00000000:2B:00.0"><product_name>NVIDIA A100-SXM4-40GB</product_name><uuid>GPU-bb</uuid></gpu>
</nvidia_smi_log>
"""


def test_the_command_says_the_same_as_the_library() -> None:
    found = smi_xml.parse(XML)
    assert {"driver": "550.54.15", "cuda": 12040} == found["system"]
    first, second = found["gpus"]
    expected = {
        "pci": "0000:13:00.0", "uuid": "GPU-aa", "minor": 0, "vbios": "92.00.45.00.03", "persistence": 1, "mig": 0, "mig_pending": 1,
        "recovery": 1, "pcie_generation": 1, "pcie_generation_max": 4, "pcie_width": 8, "pcie_width_max": 16, "pstate": 0,
        "reasons": 0x48, "memory_total": 40960.0, "memory_used": 2.0, "memory_reserved": 569.0, "bar1_total": 65536.0,
        "compute_mode": 0, "util": 3, "ecc": 1, "corrected": 4, "uncorrected": 6, "sram_uncorrected": 2, "uncorrected_total": 18,
        "sram_uncorrected_total": 11, "sram_threshold": 0, "remapped_corrected": 1, "remapped_uncorrected": 2, "remap_pending": 1,
        "remap_failed": 0, "temperature": 91, "slowdown": 92, "power": 61.42, "power_limit": 300.0, "power_default": 400.0,
        "clock_sm": 210, "clock_sm_max": 1410, "clock_app": 1095, "clock_app_default": 1095, "counters": {"pcie-replay": 7},
        "tasks": [{"pid": 4242, "kind": "C", "memory": 812 << 20}],
    }  # fmt: skip
    assert expected == {name: first.get(name) for name in expected}
    assert "retired_single" not in first
    assert "fabric_state" not in first
    assert ("0000:2b:00.0", 1) == (second["pci"], second["gpu"])


@pytest.mark.parametrize("cut", [0, 40, 200, 1200, 2500])
def test_a_torn_document_gives_what_stood_before(cut: int) -> None:
    found = smi_xml.parse(XML[:cut])
    assert len(found["gpus"]) <= 1
    assert found["errors"] == []


def test_entities_are_refused() -> None:
    head = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]>'
    bomb = f"{head}<nvidia_smi_log><driver_version>&b;</driver_version></nvidia_smi_log>"
    assert {} == smi_xml.parse(bomb)["system"]


def test_the_command_stands_in_for_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    tree = node.build("p4d", "nvml-library-missing")
    tree.command("nvidia-smi -q -x", XML)
    tree.write(tmp_path)
    report, facts = look(tmp_path)
    assert 2 == facts.query("SELECT count(*) FROM node_gpu")[0][0]
    assert [("nvidia-smi", "550.54.15")] == facts.query("SELECT source, driver FROM node_driver WHERE source != 'pci'")
    assert {"gpu-row-remap-pending-now", "gpu-thermal-slowdown", "gpu-recovery-asked"} <= set(alarms(report))


def test_a_command_that_fails_leaves_the_library_s_own_words(tmp_path: Path) -> None:
    tree = node.build("p4d", "nvml-library-missing")
    tree.command("nvidia-smi -q -x", "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12)
    tree.write(tmp_path)
    report, _ = look(tmp_path)
    assert ["nvml-library-missing"] == alarms(report)


# Expectations


def expect(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "expect.toml"
    file.write_text(text)
    return expectations.read(file)


def test_the_site_s_file_comes_before_the_data(tmp_path: Path) -> None:
    node.build("l40s-pcie").write(tmp_path / "tree")
    wanted = expect(
        tmp_path,
        "[gpu]\ncount = 10\npower = 250\ndriver = '550'\n[nic]\ncount = 2\nrate = 200\n[mount]\n'/scratch' = 'lustre'\n",
    )
    report, facts = look(tmp_path / "tree", wanted=wanted)
    assert "8 GPUs on the PCI bus, the site expects 10" in report.findings[0].message
    rows = set(facts.query("SELECT subject, name, value, source FROM expected"))
    assert {
        ("gpu", "count", "10", "file"),
        ("gpu", "power", "250", "file"),
        ("gpu", "memory", "46068", "model"),
    } <= rows
    assert {("nic", "rate", "200", "file"), ("mount", "/scratch", "lustre", "file")} <= rows


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[gpus]\ncount = 8", "unknown key gpus"),
        ("[gpu]\nnumber = 8", "unknown key gpu.number"),
        ("gpu = 8", "must be a table"),
        ("[gpu]\ncount = [8]", "must be a number"),
        ("[gpu", "expect.toml"),
        ("mount = [3]", "must be a table"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(UsageProblem, match=word):
        expect(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No such file"):
        expectations.read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageProblem):
        expectations.read(tmp_path / "binary.toml")


@pytest.mark.parametrize("machine", ["p3dn", "p5", "b200-roce", "l40s-pcie"])
def test_what_is_learnt_of_a_good_node_fits_it_and_not_a_broken_one(tmp_path: Path, machine: str) -> None:
    _, facts = planted(tmp_path / "good", machine)
    wanted = expect(tmp_path, expectations.learn(facts))
    kind = node.MACHINES[machine]
    assert (kind.gpus, kind.gpu, kind.power) == (wanted["gpu"]["count"], wanted["gpu"]["model"], wanted["gpu"]["power"])
    assert [] == alarms(look(tmp_path / "good", wanted=wanted)[0])
    tree = node.build(machine)
    bus.take_out(tree, bus.gpus(kind)[0])
    tree.extra["nvml"]["gpus"] = tree.extra["nvml"]["gpus"][1:]
    tree.write(tmp_path / "bad")
    assert "gpu-missing-on-bus" == alarms(look(tmp_path / "bad", wanted=wanted)[0])[0]


def test_nothing_is_learnt_of_nothing(tmp_path: Path) -> None:
    assert {} == expect(tmp_path, expectations.learn(Facts()))
