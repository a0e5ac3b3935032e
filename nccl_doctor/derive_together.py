"""Tables that need several sources at once: hosts of kernel lines, what happened before the job, who holds up a hang."""

from nccl_doctor.derive_earlier import derive_earlier
from nccl_doctor.derive_hang import derive_hang
from nccl_doctor.derive_hosts import locate
from nccl_doctor.derive_opcount import derive_opcount
from nccl_doctor.derive_stalls import derive_stalls
from nccl_doctor.facts.store import Facts


def derive_together(facts: Facts) -> None:
    """Call after all other tables are there."""
    locate(facts)
    derive_earlier(facts)
    derive_stalls(facts)
    derive_opcount(facts)
    derive_hang(facts)
