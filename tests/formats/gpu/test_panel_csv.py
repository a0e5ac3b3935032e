"""Downloads of Grafana's panels: samples of GPUs by labels, legends and panels; other series by their means."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.analyze import report_of
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import panel_csv

USES = "SELECT host, gpu, samples, round(util_mean, 3), power_median FROM gpu_use ORDER BY host, gpu"
SERIES = "SELECT name, host, n, round(mean, 3), least, most FROM panel_series ORDER BY name"


def read(text: str, name: str = "panel.csv") -> tuple[Facts, Reading]:
    facts = Facts()
    known = registry.recognise(text.encode())
    assert known is not None
    assert "panel-csv" == known.kind
    return facts, panel_csv.read_format(io.BytesIO(text.encode()), name, facts)


@pytest.mark.parametrize("times", [("2026-11-24 09:00:00", "2026-11-24 09:00:15"), ("1795510800000", "1795510815000")])
def test_labels_say_which_gpu_and_what(times: tuple[str, str]) -> None:
    titles = ",".join(
        f'"{{Hostname=""n{host}"", __name__=""{metric}"", gpu=""{gpu}""}}"'
        for metric in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE")
        for host in (1, 2)
        for gpu in (0, 1)
    )
    facts, reading = read(
        f'"Time",{titles}\n{times[0]},98,97,96,2,600,601,602,100\n{times[1]},100,99,98,4,600,601,602,102\n'
    )
    assert [
        ("n1", 0, 2, 99.0, 600.0),
        ("n1", 1, 2, 98.0, 601.0),
        ("n2", 0, 2, 97.0, 602.0),
        ("n2", 1, 2, 3.0, 101.0),
    ] == facts.query(USES)
    assert [] == facts.query(SERIES)
    assert (3, 2, None) == reading


@pytest.mark.parametrize(
    ("legend", "host", "gpu"),
    [
        ("GPU 3", None, 3),
        ("node07 GPU-3", "node07", 3),
        ("gpu3 - n1.example.org:9400", "n1.example.org", 3),
        ("gpu07: GPU 0", "gpu07", 0),
    ],
)
def test_legends_name_the_gpu_where_the_panel_says_what(legend: str, host: str | None, gpu: int) -> None:
    text = f'sep=,\r\n"Time","{legend}"\r\n2026-11-24 09:00:00,50%\r\n2026-11-24 09:00:15,70 %\r\n'
    facts, _ = read(text, "x/GPU Utilization-data-as-joinbyfield-2026-11-24 09_01_00.csv")
    assert [(host, gpu, 2, 60.0)] == [row[:4] for row in facts.query(USES)]
    assert [] == read(text, "download.csv")[0].query(USES)


def test_the_series_that_is_far_from_the_others_is_named() -> None:
    rows = "".join(f"2026-11-24 09:00:{second:02},{900 + second},905,,130,899\n" for second in range(20))
    facts, _ = read(f'"Time",n1,n2,n3,n4,n5\n{rows}')
    assert [("n1", "n1", 20, 909.5, 900.0, 919.0)] == facts.query(SERIES)[:1]
    found = report_of(facts).findings
    assert [("panel-series-unlike-others", "n4")] == [(finding.name, finding.hosts) for finding in found]


def test_what_is_cut_or_torn_is_told() -> None:
    head = '"Time",a1,a2\n2026-11-24 09:00:00,1,2\n'
    assert "ends in the middle of line 3" == read(f"{head}2026-11-24 09:0")[1].note
    torn = read(f"{head}2026-11-24 09:00:01,1\n2026-11-24 09:00:02,3,x\n")
    assert "line 3 has another number of cells than the titles; such lines were left out" == torn[1].note
    assert [("a1", "a1", 2, 2.0, 1.0, 3.0), ("a2", "a2", 1, 2.0, 2.0, 2.0)] == torn[0].query(SERIES)
    wide = ",".join(f"s{at}" for at in range(4_200))
    assert "columns and was left out" in str(
        panel_csv.read_format(io.BytesIO(f"Time,{wide}\n".encode()), "w", Facts()).note
    )


CELLS = st.one_of(
    st.integers(-5, 10**17).map(str),
    st.floats(0, 1e6).map(lambda value: f"{value:.3f}"),
    st.sampled_from(["", "NaN", "95 %", "1.5GHz", "1e3", "-", ".5", "1.2.3", " 7", "x" * 30, "0.1"]),
)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=9))
def test_rows_at_once_hold_what_each_cell_holds(rows: list[tuple[str, ...]]) -> None:
    found = panel_csv._plain([f"{number},{','.join(row)}" for number, row in enumerate(rows)], 3)
    if found is None:
        assert any(len(cell) > 24 for row in rows for cell in row)
        return
    assert [str(number) for number in range(len(rows))] == found[0]
    assert repr([[panel_csv._number(cell) for cell in row] for row in rows]) == repr(found[1].tolist())
