"""Tables that need several sources at once: hosts of kernel lines, what happened before the job, who holds up a hang."""

from nccl_doctor.derive.hang.horovod_stalls import derive_stalls
from nccl_doctor.derive.hang.missing_ranks import derive_hang
from nccl_doctor.derive.hang.opcount import derive_opcount
from nccl_doctor.derive.hosts import locate
from nccl_doctor.derive.prejob_kernel_events import derive_earlier
from nccl_doctor.facts.store import Facts


def derive_together(facts: Facts) -> None:
    """Call after all other tables are there."""
    locate(facts)
    derive_earlier(facts)
    derive_stalls(facts)
    derive_opcount(facts)
    derive_hang(facts)
