"""A recorded stall of Horovod names the rank that is missing."""

from helpers.places import SHARED

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import HorovodStall


def test_a_recorded_stall_of_horovod() -> None:
    facts = analyze.read_facts([str(SHARED / "artifacts" / "horovod" / "mpi_stall_shutdown_2r.out")])[0]
    rows = [row for row in facts.rows(HorovodStall) if row.state == "missing"]
    assert ({1}, 6, {1}) == ({row.rank for row in rows}, len(rows), {row.doomed for row in rows})
