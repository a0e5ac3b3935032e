"""A short value a host, as pdsh prints it: the host that differs is named, and lists of counters are none."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.formats.registry import recognise


@pytest.mark.parametrize(
    ("value", "odd"), [("64", "32"), ("535.161.08", "535.129.03"), ("5.15.0-105-generic", "5.15.0-91-generic")]
)
def test_the_host_that_differs_is_named(tmp_path: Path, value: str, odd: str) -> None:
    path = tmp_path / "pdsh.txt"
    path.write_text("".join(f"node{n:02d}: {odd if n == 7 else value}\n" for n in range(1, 17)))
    (finding,) = analyze.analyze([str(path)])[0].findings
    assert ("host-value-differs", "node07") == (finding.name, finding.hosts)
    assert f"{odd}, on 15 of 16 hosts it is {value}" in finding.message


def test_several_lines_of_a_host_count_by_their_place(tmp_path: Path) -> None:
    path = tmp_path / "pdsh.txt"
    path.write_text(
        "".join(f"node{n:02d}: {line}\n" for n in range(1, 9) for line in ("64", "1024" if n != 3 else "512"))
    )
    (finding,) = analyze.analyze([str(path)])[0].findings
    assert ("node03", "512") == (finding.hosts, finding.values["value"])


@pytest.mark.parametrize("stem", ["rank", "step", "layer", "epoch", "eth"])
def test_counters_are_no_hosts(stem: str) -> None:
    known = recognise("".join(f"{stem}{n}: {n}.5\n" for n in range(9)).encode())
    assert known is None or known.kind != "host-values"


def test_values_that_differ_everywhere_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pdsh.txt"
    path.write_text("".join(f"node{n:02d}: 0.{n}1\n" for n in range(1, 9)))
    assert not analyze.analyze([str(path)])[0].findings
