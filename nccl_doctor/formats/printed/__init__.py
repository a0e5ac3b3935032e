"""Numbers of programs that no other reader knows, by the names and units that stand beside them."""

from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "printed-numbers", "printed_numbers", tables=("printed_number", "throughput_run", "step", "scalar"), last=True
    ),
    Format(
        "own-progress",
        "progress_lines",
        tables=("throughput_run", "step", "scalar"),
        inside=(b"loss", b"Loss", b"LOSS", b" trl:"),
        last=True,
        after=("training-steps",),
    ),
)
