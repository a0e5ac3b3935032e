"""Settings of a job as a shell shows them: `env`, `export` in a script or a trace of `set -x`, `-x NAME=VALUE` of a launcher.

Only variables that NCCL, its plug-ins and the frameworks read are kept, and none whose name looks like a secret.
"""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env
from nccl_doctor.formats.captures import SETTINGS
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import Cursor, blocks, newlines
from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.inputs.streams import Readable

_MOST = 10_000  # settings kept
_LONGEST = 1 << 16  # bytes of a line that are looked at
_NAME = (
    r"(?:(?:NCCL|RCCL|OFI_NCCL|FI|UCX|OMPI_MCA|TORCH|PYTORCH|HOROVOD|CUDA|RDMAV|GLOO|NVSHMEM|HSA|HIP|ROCR)_[A-Z0-9_a-z]{1,80}"
    r"|TP_SOCKET_IFNAME|MASTER_ADDR|MASTER_PORT)"
)
_VALUE = r"(?:\"[^\"$`\n]{0,400}\"|'[^'$`\n]{0,400}'|[^\s\"'$`;&|()<>]{0,400})"
# A line of `env`, of a script, or of a trace; what follows the settings must be their command, or nothing.
_PROGRAM = r"(?:\S{0,200}/)?(?:python\d?|torchrun|mpirun|mpiexec|srun|accelerate|deepspeed|horovodrun|bash|exec|numactl)\b.{0,4000}"
_ASSIGNMENTS = compiled(
    r"[ \t]{0,40}(?:\+{1,8} ?)?(?:(?:export|setenv|declare -x|local) )?"
    rf"(?P<settings>{_NAME}[= ]{_VALUE}(?:[ \t]{{1,8}}{_NAME}={_VALUE}){{0,60}})"
    rf"[ \t]{{0,40}}(?:\\|;.{{0,200}}|#.{{0,200}}|{_PROGRAM})?$"
)
_OPTION = compiled(rf"(?:^|[ \t])(?:-x|-e|--env|-env|-genv)[ =](?P<setting>{_NAME}[= ]{_VALUE})(?=[ \t\\]|$)")
_SETTING = compiled(rf"(?P<name>{_NAME})(?P<sign>[= ])(?P<value>{_VALUE})")
_SECRET = compiled(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY|AUTH")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the settings of each host and rank, each value once.

    Source: env(1) of coreutils, `export -p` and `set -x` of bash, the options of mpirun, srun and docker::

        NCCL_SOCKET_IFNAME=eth0
        + export NCCL_IB_DISABLE=1
        mpirun -np 16 -x NCCL_DEBUG=INFO -x NCCL_IB_HCA=mlx5_0 python train.py
    """
    found: dict[tuple[str | None, int | None, str, str], tuple[int, int, str]] = {}
    gate = prefilter(frozenset(SETTINGS), name="shell-settings")
    lines = used = 0
    for block, first in blocks(stream):
        cursor = Cursor(block, first)
        for place in (gate.places(b"\n" + block)[0] - 1).tolist():  # the first line is behind a line break, too
            if place <= cursor.used:
                continue
            line, number = cursor.line(place)
            cursor.done()
            label, text = prefixes.split(prefixes.clean(line[:_LONGEST].decode("utf-8", "replace")))
            settings = list(parse_line(text))
            used += bool(settings)
            for variable, value in settings:
                key = label.host, label.rank, variable, value
                n, at, shown = found.get(key, (0, number, text))
                if n or len(found) < _MOST:
                    found[key] = n + 1, at, shown
        lines = first + newlines(block) - block.endswith(b"\n")
    if found:
        facts.mark_covered("env")
    facts.add(
        Env(host, rank, None, variable, value, n, facts.evidence(name, line, text.strip()[:600]))
        for (host, rank, variable, value), (n, line, text) in found.items()
    )
    note = f"holds more than {_MOST:,} settings; the others were left out" if len(found) >= _MOST else None
    return Reading(lines, used, note)


def parse_line(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the settings in a line; none where a sentence only mentions one."""
    line = _ASSIGNMENTS.match(text)
    parts = [line["settings"]] if line is not None else [option["setting"] for option in _OPTION.finditer(text)]
    is_setenv = line is not None and "setenv " in text[: line.start("settings")]
    for part in parts:
        for setting in _SETTING.finditer(part):
            if setting["sign"] == "=" or is_setenv:
                value = setting["value"].strip("\"'")
                if _SECRET.search(setting["name"]) is None:
                    yield setting["name"], value
