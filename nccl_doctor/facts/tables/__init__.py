"""The fact tables: one NamedTuple class a table.

A class docstring says what one row means. The comment beside a column gives its meaning and unit. ``None`` is "not known",
never zero. ``host`` is the host name as the program printed it, ``rank`` the rank in the job (the world communicator or the
launcher's label), ``pid`` the process id inside its own namespace, ``stamp`` seconds since the epoch where the line carried a
time, ``n`` how often the same row was seen, ``ref`` the number of the `Evidence` row that shows it.
"""

# A new module is named here and nowhere else: type checkers do not follow imports that a program computes.
from nccl_doctor.facts.tables.base import *
from nccl_doctor.facts.tables.captures import *
from nccl_doctor.facts.tables.derived.coverage import *
from nccl_doctor.facts.tables.derived.differences import *
from nccl_doctor.facts.tables.derived.hang import *
from nccl_doctor.facts.tables.derived.job import *
from nccl_doctor.facts.tables.derived.origin import *
from nccl_doctor.facts.tables.derived.recovery import *
from nccl_doctor.facts.tables.derived.speed import *
from nccl_doctor.facts.tables.derived.start import *
from nccl_doctor.facts.tables.derived.times import *
from nccl_doctor.facts.tables.errors import *
from nccl_doctor.facts.tables.gpu import *
from nccl_doctor.facts.tables.log import *
from nccl_doctor.facts.tables.node.collection import *
from nccl_doctor.facts.tables.node.gpu import *
from nccl_doctor.facts.tables.node.host import *
from nccl_doctor.facts.tables.node.network import *
from nccl_doctor.facts.tables.node.software import *
from nccl_doctor.facts.tables.node.storage import *
from nccl_doctor.facts.tables.recorded import *
from nccl_doctor.facts.tables.stacks import *
from nccl_doctor.facts.tables.throughput import *
from nccl_doctor.facts.tables.timeline import *
from nccl_doctor.facts.tables.topology import *
from nccl_doctor.facts.tables.torch import *

TABLES: tuple[type, ...] = tuple(
    value
    for value in list(globals().values())
    if isinstance(value, type) and value.__module__.startswith(f"{__name__}.")
)
"""Every table, in the order of the imports above and of the classes in a module."""
