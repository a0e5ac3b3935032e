"""Sections of a pasted text that nothing reads are named, and ordinary logs have none."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.inputs.conversions import sections
from nccl_doctor.simulate import FRAMEWORKS, PREFIXES, Spec, write_log

PASTED = """\
{0} nvidia-smi topo -m{1}
        GPU0    GPU1    CPU Affinity
GPU0     X      NV12    0-15
GPU1    NV12     X      0-15
{0} lspci -vv{1}
17:00.0 3D controller: NVIDIA Corporation Device 20b5
{0} ibstat{1}
CA 'mlx5_0'
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 200
"""


@pytest.mark.parametrize(
    ("before", "behind"),
    [("===", " ==="), ("###", ""), ("+", ""), ("$", ""), ("[root@node01 ~]#", ""), ("root@node01:/tmp#", "")],
)
def test_a_section_that_nothing_reads_is_named(tmp_path: Path, before: str, behind: str) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text(PASTED.format(before, behind))
    report, _, problems = analyze.analyze([str(path)])
    assert 1 == len(problems)
    assert problems[0].startswith(f"{path}:5: the output of `lspci -vv` is not read; `nccl-doctor preflight --save")
    assert [f"{path}:5"] == [one.path for one in report.inputs if one.kind == "unread"]
    assert "nothing-found" == report.verdict


@settings(max_examples=20, deadline=None)
@given(
    st.builds(
        Spec, nodes=st.just(2), gpus=st.just(2), framework=st.sampled_from(FRAMEWORKS), prefix=st.sampled_from(sorted(PREFIXES)),
        seed=st.integers(0, 99), steps=st.just(4),
    )
)  # fmt: skip
def test_a_job_log_has_no_such_section(spec: Spec) -> None:
    assert [] == list(sections("\n".join(write_log(spec))))


@given(st.text(alphabet="=#+$@: []ip\nlspci", max_size=200))
def test_any_text_has_sections_in_order(text: str) -> None:
    found = list(sections(text))
    assert all(one.last is None or one.first < one.last for one in found)
    assert sorted(found, key=lambda one: one.first) == found
