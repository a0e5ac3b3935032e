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


RULE = "-" * 15


def test_values_under_headings_of_clush(tmp_path: Path) -> None:
    path = tmp_path / "clush.txt"
    path.write_text(
        f"{RULE}\nnode[01-04] (4)\n{RULE}\nRate: 400\nState: Active\n{RULE}\nnode05\n{RULE}\nRate: 200\nState: Active\n"
    )
    (finding,) = analyze.analyze([str(path)])[0].findings
    assert ("host-value-differs", "node05") == (finding.name, finding.hosts)
    assert "Rate: 200, on 4 of 5 hosts it is Rate: 400" in finding.message


@pytest.mark.parametrize("lines", [1, 40])
def test_equal_values_and_long_output_under_headings_are_no_fault(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "clush.txt"
    body = "".join(f"line {n} of some text\n" for n in range(lines))
    path.write_text(f"{RULE}\nnode[01-04] (4)\n{RULE}\n{body}{RULE}\nnode05\n{RULE}\n{body}")
    assert not analyze.analyze([str(path)])[0].findings


def test_other_text_with_words_before_colons_is_no_list_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Title: something\nlayer1: 3\nlayer2: 4\nlayer3: 4\nlayer4: 4\nThe end of this text.\n")
    assert not analyze.analyze([str(path)])[0].findings
