"""`analyze --expect`: runs of nccl-tests beside the bandwidth that the user expects."""

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.app.expected import parse
from nccl_doctor.cli.main import main
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchLimit

LOG = str(FIXTURES / "nccl_tests" / "a100_8.out")
NCCL = "node01:4100:4200 [0] NCCL INFO NET/IB: [{0}] mlx5_{0}:uverbs{0}:1/IB provider=Mlx5 speed=400000 context=0x7f pciPath=/sys ar=0\n"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["--expect", "all_reduce=300"], 1),
        (["--expect", "300"], 1),
        (["--expect", "100"], 0),
        (["--expect", "300", "--expect", "all_reduce_perf=100"], 0),
        (["--expect", "all_gather=300"], 0),
        (["--expect", "fast"], 2),
        (["--expect", "allreduce=300"], 2),
        (["--expect", "0"], 2),
    ],
)
def test_exit_status(given: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert status == main(["analyze", LOG, *given])
    assert (status == 1) == ("GB/s that are expected" in " ".join(capsys.readouterr().out.split()))


def test_each_job_of_a_folder_is_compared() -> None:
    report, _, _ = analyze.analyze(
        [LOG, str(FIXTURES / "nccl_tests" / "two.json")], apart="each", expect=parse(["9000"])
    )
    assert 2 == sum(finding.name == "busbw-below-expected" for job in report.jobs for finding in job.findings)


def test_saved_facts_are_refused(tmp_path: object) -> None:
    facts, _ = analyze.read_facts([LOG])
    facts.save(tmp_path / "job.db")  # type: ignore[operator]
    with pytest.raises(UsageProblem, match="needs the logs"):
        analyze.analyze([f"{tmp_path}/job.db"], expect={None: 1.0})


def test_the_list_of_devices_gives_the_limit_between_nodes() -> None:
    """NCCL 2.27 and newer print the speed of each port: two of 400 Gb/s carry 100 GB/s."""
    text = (FIXTURES / "nccl_tests" / "a100_8.out").read_text()
    hosts = [line for line in text.splitlines() if " on " in line and "device" in line]
    for line in hosts[4:]:
        text = text.replace(line, line.replace(line.split(" on ")[1].split()[0], "node99"))
    facts: Facts = analyze.read_text("".join(NCCL.format(card) for card in (0, 1)) + text)
    (row,) = facts.rows(BenchLimit)
    assert (100.0, "network") == (row.limit_, row.basis)
    assert "the list of devices that NCCL printed" in (row.why or "")
