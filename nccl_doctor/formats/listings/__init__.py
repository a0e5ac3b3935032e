"""Tables in which commands list parts of machines and clusters, and what no other family reads of them."""

from nccl_doctor.formats.declaration import Format

_TABLES = ("listed_state", "listed_number", "link_counter")
FORMATS = (
    Format("listed-things", "listed_things", tables=_TABLES, last=True, after=("host-values",)),
    Format(
        "listed-faults",  # the same in a text in which a line looks like an error
        "listed_things",
        tables=_TABLES,
        inside=(
            b" READ WRITE CKSUM",
            b" Raid Level : ",
            b":HEADER:version:reserved:",
            b"IFACE    STATE ",
            b"Status    LED",
        ),
        last=True,
        after=("listed-things",),
    ),
)
