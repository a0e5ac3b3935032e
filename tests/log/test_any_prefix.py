"""One log behind any launcher or collector: the same findings on the same hosts and ranks."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers.log_prefixes import FORMS, Said, analysed

from nccl_doctor.simulate import PREFIXES, Spec, fit, write_log
from nccl_doctor.simulate.cluster import Host, Rank
from nccl_doctor.simulate.prefixes import Place

FAULTS = (
    None,
    "cuda-oom",
    "connection-refused",
    "rank-sigkill",
    "missing-rank-in-collective",
    "ib-link-flapping",
    "python-exception",
)


@cache
def simulated(fault: str | None) -> list[Said]:
    """The lines of an invented job with who wrote each."""
    lines: list[Said] = []

    def prefix(place: Place) -> str:
        source = place.source
        host = source.host if isinstance(source, Rank) else source
        rank = source if isinstance(source, Rank) else None
        lines.append(
            Said(
                "",
                place.when,
                host.name if isinstance(host, Host) else None,
                host.index if isinstance(host, Host) else None,
                rank.number if rank else None,
                rank.local if rank else 0,
                rank.pid if rank else 0,
            )
        )
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PREFIXES, "none", prefix)
        spec = fit(Spec(nodes=2, gpus=4, steps=4, fault=fault, seed=5, version="2.27.7"))
        texts = list(write_log(spec))
    return [said._replace(text=text) for said, text in zip(lines, texts, strict=True)]


@pytest.fixture(scope="module", params=FAULTS, ids=lambda fault: fault or "healthy")
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Said], tuple[Any, ...]]:
    lines = simulated(request.param)
    bare = "".join(f"{said.text}\n" for said in lines)
    return lines, analysed(bare, tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_changes_no_finding(job: tuple[list[Said], tuple[Any, ...]], form: str, tmp_path: Path) -> None:
    lines, expected = job
    assert expected == analysed("".join(f"{FORMS[form](said)}\n" for said in lines), tmp_path)
