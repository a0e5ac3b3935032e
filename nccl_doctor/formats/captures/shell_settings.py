"""Settings of a job as a shell, a launcher or a container shows them: `env`, `export` in a script or a trace of `set -x`,
`-x NAME=VALUE`, `--export=ALL,NAME=VALUE`, and the environment of a container in YAML or JSON.
"""

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env
from nccl_doctor.formats.captures import SETTINGS
from nccl_doctor.formats.captures.setting_lines import (
    Setting,
    exported,
    exports_all,
    is_own_variable,
    parse_line,
    parse_name,
    parse_value,
)
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import Cursor, blocks, newlines
from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.inputs.streams import Readable

_MOST = 10_000  # settings kept
_LONGEST = 1 << 16  # bytes of a line that are looked at
_ALL = (b"+ set -", b"+set -")  # `set -a`
_Key = tuple[str | None, int | None, str, str]


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the settings of each host and rank, each value once. What a traced shell keeps for itself is no setting of the job.

    Source: env(1) of coreutils, `export -p` and `set -x` of bash, the options of mpirun, srun and docker, `env` of containers::

        NCCL_SOCKET_IFNAME=eth0
        node01: NCCL_SOCKET_IFNAME=eth0
        mpirun -np 16 -x NCCL_DEBUG=INFO -x NCCL_IB_HCA=mlx5_0 python train.py
    """
    found: dict[_Key, tuple[int, int, str]] = {}
    own: dict[_Key, tuple[int, int, str]] = {}  # of shells, until one exports them
    names: set[str] = set()  # that were exported
    all_are = False
    gate = prefilter(frozenset((*SETTINGS, *_ALL)), name="shell-settings")
    lines = used = 0
    for block, first in blocks(stream):
        cursor = Cursor(block, first)
        for place in (gate.places(b"\n" + block)[0] - 1).tolist():  # the first line is behind a line break, too
            if place <= cursor.used:
                continue
            line, number = cursor.line(place)
            cursor.done()
            label, text = _split(line)
            all_are = all_are or exports_all(text)
            names.update(exported(text))
            settings = list(parse_line(text)) or _in_two_lines(text, block, cursor.end)
            used += bool(settings)
            into = own if settings and not all_are and is_own_variable(text) else found
            for variable, value in settings:
                key = label.host, label.rank, variable, value
                n, at, shown = into.get(key, (0, number, text))
                if n or len(into) < _MOST:
                    into[key] = n + 1, at, shown
        lines = first + newlines(block) - block.endswith(b"\n")
    for key, seen in own.items():
        if key[2] in names:
            found.setdefault(key, seen)
    if found:
        facts.mark_covered("env")
    facts.add(
        Env(host, rank, None, variable, value, n, facts.evidence(name, line, text.strip()[:600]))
        for (host, rank, variable, value), (n, line, text) in found.items()
    )
    note = f"holds more than {_MOST:,} settings; the others were left out" if len(found) >= _MOST else None
    return Reading(lines, used, note)


def _split(line: bytes) -> tuple[prefixes.Label, str]:
    return prefixes.split(prefixes.clean(line[:_LONGEST].decode("utf-8", "replace")))


def _in_two_lines(text: str, block: bytes, end: int) -> list[Setting]:
    """The setting whose name is in this line and whose value in the next one."""
    variable = parse_name(text)
    if variable is None:
        return []
    stop = block.find(b"\n", end + 1, end + _LONGEST)
    value = parse_value(_split(block[end + 1 : stop if stop >= 0 else end + _LONGEST].rstrip(b"\r"))[1])
    return [] if value is None else [(variable, value)]
