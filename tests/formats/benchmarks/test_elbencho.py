"""Results of elbencho."""

import io

from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, Measure
from nccl_doctor.formats.benchmarks import elbencho

PATH = FIXTURES / "benchmarks" / "elbencho.txt"


def test_what_counts_is_the_end_of_the_last_thread() -> None:
    facts = analyze.analyze([str(PATH)])[1]
    told = {(row.name, row.of): (row.value, row.unit) for row in facts.rows(Measure)}
    assert (31240.0, "MiB/s") == told["storage_bandwidth", "write throughput"]
    assert (249920.0, "ops/s") == told["storage_operations", "write IOPS"]
    assert (4120.0, "MiB/s") == told["storage_bandwidth", "read throughput"]


def test_damage_is_survived_and_other_lines_tell_nothing() -> None:
    text = PATH.read_text()
    for cut in range(0, len(text), 31):
        facts = Facts()
        elbencho.read_format(io.BytesIO(text[:cut].encode()), "e.txt", facts)
        assert len(facts.rows(ActiveTest)) <= 5
    facts = Facts()
    assert 0 == elbencho.read_format(io.BytesIO(b"WRITE  IOPS : 1 2\n"), "e.txt", facts).understood
