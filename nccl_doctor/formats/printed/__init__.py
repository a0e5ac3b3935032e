"""Numbers of programs that no other reader knows, by the names and units that stand beside them."""

from nccl_doctor.formats.declaration import Format

FORMATS = (Format("printed-numbers", "printed_numbers", tables=("printed_number",), last=True),)
