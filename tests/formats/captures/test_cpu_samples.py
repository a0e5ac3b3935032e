"""Samples of the processors that sysstat 12.6 and procps-ng 4 printed on two busy processors, and changed ones."""

import io

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse
from nccl_doctor.formats.captures import cpu_samples

CAPTURES = FIXTURES / "captures"


def read(text: str) -> list[HostUse]:
    facts = Facts()
    cpu_samples.read_format(io.BytesIO(text.encode()), "sar.txt", facts)
    return facts.rows(HostUse)


def idle_of(name: str) -> list[float]:
    """Of each sample, by the last column of its table; iostat and vmstat begin with the mean since the start."""
    rows = [line.split() for line in (CAPTURES / name).read_text().splitlines()]
    if name in ("mpstat.txt", "sar.txt"):
        return [float(row[-1]) for row in rows if row[1:2] == ["all"] and row[0] != "Average:"]
    if name == "iostat.txt":
        return [float(row[-1]) for row in rows if len(row) == 6 and row[0][0].isdigit()][1:]
    return [float(row[14]) for row in rows if len(row) == 17 and row[0].isdigit()][1:]


@pytest.mark.parametrize("name", ["mpstat.txt", "sar.txt", "iostat.txt", "vmstat.txt"])
def test_every_sample_counts_once(name: str) -> None:
    (use,) = read((CAPTURES / name).read_text())
    idle = idle_of(name)
    assert (len(idle), None if name == "vmstat.txt" else 2) == (use.samples, use.cpus)
    assert 100 - sum(idle) / len(idle) == pytest.approx(use.cpu_mean, abs=0.01)


def test_a_host_without_a_free_processor_is_told() -> None:
    report, _, _ = analyze.analyze([str(CAPTURES / name) for name in ("sar.txt", "vmstat.txt")])
    assert [("host-cpu-saturated", "vm")] == [(finding.name, finding.hosts) for finding in report.findings]
    assert ["CPUs of 1 host 100 % busy"] == report.job["captured"]


def test_clocks_of_twelve_hours_and_means_in_another_language() -> None:
    text = (
        "Linux 6.1.0 (node03) \t03/04/2026 \t_x86_64_\t(96 CPU)\n\n"
        "08:00:01 AM     CPU     %user     %nice   %system   %iowait    %steal     %idle\n"
        "08:00:11 AM     all     20.00      0.00      5.00     10.00      0.00     65.00\n"
        "Moyenne :       all     99.00      0.00      0.00      0.00      0.00      1.00\n"
    )
    assert [("node03", 1, 96, 25.0)] == [(use.host, use.samples, use.cpus, use.cpu_mean) for use in read(text)]


CELLS = "all 20.00 0.00 5.00 10.00 0.00 65.00"


@pytest.mark.parametrize("time", ["", "08:00:11 ", "08:00:11 AM ", "AM ", "08:00:11 AM AM ", "Moyenne : ", "0 "])
@pytest.mark.parametrize("cells", [CELLS, f"{CELLS} 0.00", CELLS[:-6], "eth0" + 8 * " 0.00", ""])
def test_a_row_is_as_wide_as_its_titles_behind_its_time(time: str, cells: str) -> None:
    head = cpu_samples._parse_head("08:00:01 AM CPU %user %nice %system %iowait %steal %idle")
    assert head is not None
    is_row = cells == CELLS and time in ("", "08:00:11 ", "08:00:11 AM ", "AM ")
    assert (cpu_samples._parse_row(head, time + cells) == (65.0, 10.0)) is is_row


def test_hosts_behind_the_prefixes_of_pdsh() -> None:
    text = (CAPTURES / "mpstat.txt").read_text()
    both = "".join(f"{host}: {line}\n" for host in ("node01", "node02") for line in text.splitlines())
    assert [("node01", 12), ("node02", 12)] == [(use.host, use.samples) for use in read(both)]


@pytest.mark.parametrize("row", ["all 1 2 3 4 5 1e9", "all - - - - - -", "all 0 0 0 0 0 101.00", "all"])
def test_rows_that_are_none(row: str) -> None:
    assert [] == read(f"08:00:01 CPU %user %nice %system %iowait %steal %idle\n08:00:11 {row}\n")


def test_a_lone_iostat_since_the_start_counts_its_processors_and_not_its_disks() -> None:
    text = (
        "Linux 6.1.0-18-amd64 (node01) \t03/04/26 \t_x86_64_\t(96 CPU)\n\n"
        "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n"
        "           0.30    0.00    0.20    0.10    0.00   99.40\n\n"
        "Device:            tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\n"
        "sda               0.24         5.28         1.10     203305      42368\n"
        "dm-1              0.00         0.06         0.00       2204          0\n"
    )
    facts = Facts()
    cpu_samples.read_format(io.BytesIO(text.encode()), "iostat.txt", facts)
    (use,) = facts.rows(HostUse)
    assert 1 == use.samples
    assert 0.5 == pytest.approx(use.cpu_mean, abs=0.01)
    later = text + text.replace("99.40", "20.40").replace("0.30", "79.30")
    facts = Facts()
    cpu_samples.read_format(io.BytesIO(later[later.index("avg-cpu") :].encode()), "iostat.txt", facts)
    assert [1] == [use.samples for use in facts.rows(HostUse)]
