"""Numbers of programs that no other reader knows, by the names and units that stand beside them."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

_KEY = rb"\"[\w ./-]{1,80}\"\s{0,9}:\s{0,9}"
FORMATS = (
    Format(
        "training-histories",
        "histories",
        tables=("scalar", "printed_number"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{(?=[\s\S]{0,60000}?\"[\w ./-]{0,40}[Ll]oss\"\s{0,9}:\s{0,9}\[)"
            rb"\s{0,100}" + _KEY + rb"(?:\{\s{0,100}" + _KEY + rb")?\[\s{0,100}-?\d"
        ),
        after=("metric-files", "training-arrays", "training-records"),
    ),
    Format(
        "printed-numbers",
        "printed_numbers",
        tables=("printed_number", "throughput_run", "step", "scalar"),
        last=True,
        after=("listed-things",),
    ),
    Format(
        "own-progress",
        "progress_lines",
        tables=("throughput_run", "step", "scalar"),
        inside=(b"loss", b"Loss", b"LOSS", b" trl:", b" l_pix: "),
        last=True,
        after=("training-steps",),
    ),
    Format(
        "printed-rates",
        "rate_lines",
        tables=("printed_number",),
        inside=(
            b"hroughput",
            b"HROUGHPUT",
            b" images/s",
            b" samples/s",
            b" tokens/s",
            b" img/s",
            b" imgs/s",
            b"(MB/s)",
            b"(GB/s)",
            b"igure of merit",
            b"igure of Merit",
            b"igure Of Merit",
            b"FOM",
            b"GF/s",
            b"GFLOPS",
            b"TFLOPS",
            b"FLOP/s",
            b"flop/s",
            b"Flop/s",
            b"ns/day",
        ),
        reach=400,
        last=True,
        after=("own-progress",),
    ),
)
