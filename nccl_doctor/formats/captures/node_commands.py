"""Output of commands of a node, in a file of its own or pasted into a log.

`nvidia-smi topo -m`, `nvidia-smi nvlink -s`, `-gt d` and `-c`, `nvidia-smi c2c -s`, `ibstat`, `ibstatus`, `ibv_devinfo`, `lsmod`,
`fi_info`, and errors in the log of the Fabric Manager. Lines may carry the prefix of pdsh, mpirun or srun; then each host is kept apart.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, cast

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import (
    C2cState,
    FabricEvent,
    GpuMatrix,
    IbPort,
    KernelModule,
    NvlinkState,
    NvlinkUse,
    OfiDomain,
)
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_DEVICE = r"(?:GPU\d{1,3}|NIC\d{1,3}|mlx\d_\w{1,20}|bnxt_re\w{0,16}|rdmap\w{1,16})"
_TOPO_HEAD = re.compile(rf"\s+({_DEVICE}(?:\s+{_DEVICE})*)\s*(?:CPU Affinity.*)?$")
_TOPO_ROW = re.compile(rf"({_DEVICE})\s+(.*)")
_PATH = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|C2C|\*")
_NVLINK_GPU = re.compile(r"GPU (\d{1,3}): (.{2,60}?) \(UUID: (?:GPU|MIG)-")
_NVLINK = re.compile(r"\s*Link \d{1,2}: (?:(?P<speed>\d{1,8}(?:\.\d{0,8})?) GB/s|(?P<inactive><inactive>))\s*$")
_C2C = re.compile(r"\s*C2C Link \d{1,2}: (?:(?P<speed>\d{1,8}(?:\.\d{0,8})?) GB/s|(?P<inactive><?[Ii]nactive>?))\s*$")
_NVLINK_TRAFFIC = re.compile(r"\s*Link (?P<link>\d{1,2}): Data (?P<way>Tx|Rx): (?:(?P<kib>\d{1,18}) KiB|N/A)\s*$")
_NVLINK_CAPABLE = re.compile(r"\s*Link (?P<link>\d{1,2}), P2P is supported: (?P<p2p>true|false)\s*$")
_CA = re.compile(r"CA '([\w.-]{1,40})'")
_STATUS = re.compile(r"Infiniband device '([\w.-]{1,40})' port (\d{1,3}) status:")
_HCA = re.compile(r"hca_id:\s*([\w.-]{1,40})")
_PORT = re.compile(r"\s*(?:Port (\d{1,3}):|port:\s*(\d{1,3}))\s*$")
_STATE = re.compile(r"\s*[Ss]tate:\s*(?:\d:\s*)?(?:PORT_)?(\w{2,20})")
_PHYSICAL = re.compile(r"\s*(?:Physical state:\s*(\w{2,20})|phys[_ ]state:\s*(?:\d:\s*)?(\w{2,20}))")
_RATE = re.compile(r"\s{0,40}[Rr]ate:\s{0,40}(\d{1,4}(?:\.\d)?)")
_MTU = re.compile(r"\s*active_mtu:\s*(\d{3,4})\b")
_LAYER = re.compile(r"\s*[Ll]ink[_ ]layer:\s*(\w{2,20})")
_LSMOD = re.compile(r"Module\s+Size\s+Used by")
_MODULE = re.compile(r"(\w{2,60})\s+\d{3,12}\s+-?\d{1,6}(?:\s|$)")
_MODULES = {
    "nvidia", "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "nvidia_fs", "gdrdrv", "mlx5_core", "mlx5_ib", "ib_uverbs",
    "ib_umad", "rdma_ucm", "efa", "bnxt_re", "irdma", "nouveau", "amdgpu",
}  # fmt: skip
_PROVIDER = re.compile(r"provider:\s*([\w;-]{1,40})\s*$")
_FIELD = re.compile(r"\s{1,40}(domain|protocol):\s{0,40}(\S{1,60})")
_FABRIC = re.compile(r".{0,80}\[(?:ERROR|FATAL|CRITICAL)\] \[tid \d{1,8}\] (.{1,300})")
_WORDS = re.compile(
    r"GPU|Link \d{1,2}(?:: (?:Data |<inactive>|[\d.]{1,8} GB/s)|, P2P )|CA '|Infiniband device|hca_id|[Pp]ort:? {0,40}\d|port:"
    r"|[Ss]tate:|[Rr]ate:|active_mtu|[Ll]ink[_ ]layer|Module|provider:|domain:|protocol:|\[tid "
)  # of which every line has one that says something by itself
_NAMES = re.compile(r"(?:GUID: 0x[0-9a-f]{16}|lid: \d{1,6})(?=\n|\Z)")  # of ibstat
_NUMBERED_LINK = re.compile(r"Link \d")
_CHANGING = re.compile(r"0x[0-9a-fA-F]{1,16}|\d+")
_ROWS = 100_000
_WRITERS = 20_000
_NEW_PORT: dict[str, Any] = dict.fromkeys(IbPort._fields) | {"state": "", "ref": 0}  # what later lines say, or never


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every capture of a file.

    Source: the commands that the module names (drivers 390 and newer, infiniband-diags, libibverbs-utils, kmod, libfabric 1.9 and newer)::

        GPU0     X      NV18    PXB     SYS     0-47    0
        CA 'mlx5_0'
    """
    reader = _Reader(name, facts)
    lines = used = 0
    for first, label, texts in plain_batches(stream):
        lines += len(texts)
        used += reader.take(label, texts, first)
    reader.finish()
    return Reading(lines, used, reader.note)


class _State:
    """What is open for one host and rank."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.devices: set[str] = set()  # of the rows below them
        self.nvlink: NvlinkState | None = None
        self.use: NvlinkUse | None = None
        self.c2c: C2cState | None = None
        self.port: dict[str, Any] | None = None  # columns of `ib_port` that are known
        self.hca: str | None = None
        self.modules = False
        self.domain: OfiDomain | None = None


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._states: dict[tuple[str | None, int | None], _State] = {}
        self.rows: list[Any] = []
        self._fabric: dict[tuple[str | None, str, str], FabricEvent] = {}
        self.note: str | None = None
        self._takers: tuple[Callable[[_State, Label, str, int], bool], ...] = (
            self._matrix, self._nvlink, self._port, self._module, self._ofi, self._manager,
        )  # fmt: skip

    def take(self, label: Label, texts: list[str], first: int) -> int:
        """Takes lines that one writer wrote one after the other; returns how many say something."""
        key = label.host, label.rank
        state = self._states.get(key)
        is_new = state is None
        if state is None:
            if len(self._states) >= _WRITERS:
                self.note = f"holds captures of more than {_WRITERS:,} writers; the others were left out"
                return 0
            state = self._states[key] = _State()
        if len(self.rows) > _ROWS:
            self.note = f"holds more than {_ROWS:,} facts; the others were left out"
            return 0
        lines = list(map(_parse_line, _without_names(texts)))
        if not (state.columns or state.modules or any(lines)):
            return 0
        if is_new and (known := _ports(tuple(lines))) is not None:
            return self._take_ports(state, label, known, texts, first)
        used = 0
        for number, text, line in zip(count(first), texts, lines):
            if state.columns or state.modules or (line is not None and (line.port is None or state.domain is not None)):
                used += any(taker(state, label, text, number) for taker in self._takers)
            elif line is not None and line.port is not None:
                used += self.says_of_port(state, label, *line.port, text, number)
        return used

    def _take_ports(self, state: _State, label: Label, ports: "_Ports", texts: list[str], first: int) -> int:
        """Takes lines that speak of nothing else than ports, and are the first of their writer."""
        for row in ports.rows:
            ref = self._ref(first + row.ref, texts[row.ref])
            self.rows.append(IbPort._make((label.host, self._name, *row[2:-1], ref)))
        state.hca = ports.hca
        if ports.last is not None:
            state.port = {**ports.last, "host": label.host, "file": self._name}
            if state.port["state"]:
                state.port["ref"] = self._ref(first + state.port["ref"], texts[state.port["ref"]])
        return ports.used

    def finish(self) -> None:
        for state in self._states.values():
            self._close(state)
        self._facts.add([*self.rows, *self._fabric.values()])

    def _ref(self, number: int, text: str) -> int:
        return self._facts.evidence(self._name, number, text.strip())

    def _close(self, state: _State) -> None:
        if state.port is not None and state.port["state"]:
            self.rows.append(IbPort(**state.port))
        for row in (state.nvlink, state.use, state.c2c, state.domain):
            if (
                row is not None
                and not (isinstance(row, OfiDomain) and not row.domain)
                and not (
                    isinstance(row, NvlinkState | C2cState) and not row.active + row.inactive
                )  # the head of `nvlink -e`
                and not (isinstance(row, NvlinkUse) and not row.links)
            ):
                self.rows.append(row)
        state.nvlink = state.use = state.c2c = state.port = state.domain = None

    def _matrix(self, state: _State, label: Label, text: str, number: int) -> bool:
        if "GPU0" in text and (head := _TOPO_HEAD.match(text)) is not None:
            state.columns = head[1].split()
            state.devices = set()
            return True
        if not state.columns:
            return False
        row = _TOPO_ROW.match(text)
        if row is None:
            if text.strip() and not text.lstrip().startswith("Legend"):
                state.columns = []
            return False
        cells = row[2].split()[: len(state.columns)]
        if len(cells) != len(state.columns) or not all(map(_PATH.fullmatch, cells)):
            return False
        if row[1] in state.devices:  # a line that came twice
            return True
        state.devices.add(row[1])
        ref = self._ref(number, text)
        for peer, path in zip(state.columns, cells, strict=True):
            if path != "X":
                self.rows.append(GpuMatrix(label.host, self._name, row[1], peer, path, ref))
        return True

    def _nvlink(self, state: _State, label: Label, text: str, number: int) -> bool:
        if "GPU " in text and (gpu := _NVLINK_GPU.match(text)) is not None:
            self._close(state)
            ref = self._ref(number, text)
            state.nvlink = NvlinkState(label.host, self._name, int(gpu[1]), gpu[2], 0, 0, None, ref)
            state.c2c = C2cState(label.host, self._name, int(gpu[1]), gpu[2], 0, 0, None, 0.0, ref)
            state.use = NvlinkUse(label.host, self._name, int(gpu[1]), gpu[2], 0, None, None, None, ref)
            return True
        if "Link " not in text:
            return False
        if state.use is not None and (found := _NVLINK_TRAFFIC.match(text) or _NVLINK_CAPABLE.match(text)) is not None:
            state.use = _used(state.use, found.groupdict())
            return True
        if state.c2c is not None and (found := _C2C.match(text)) is not None:
            state.c2c = _connected(state.c2c, found["speed"], self._ref(number, text))
            return True
        link = _NVLINK.match(text) if state.nvlink is not None else None
        if link is None or state.nvlink is None:
            return False
        if link["inactive"]:
            first = state.nvlink.inactive == 0
            ref = self._ref(number, text) if first else state.nvlink.ref
            state.nvlink = state.nvlink._replace(inactive=state.nvlink.inactive + 1, ref=ref)
        else:
            speed = min(float(link["speed"]), state.nvlink.speed or 1e9)
            state.nvlink = state.nvlink._replace(active=state.nvlink.active + 1, speed=speed)
        return True

    def _port(self, state: _State, label: Label, text: str, number: int) -> bool:
        said = _parse_port_line(text)
        return said is not None and self.says_of_port(state, label, *said, text, number)

    def says_of_port(self, state: _State, label: Label, field: str, value: Any, text: str, number: int) -> bool:
        """Takes what a line of `ibstat`, `ibstatus` or `ibv_devinfo` says."""
        if field == "hca":
            self._close(state)
            state.hca = value
        elif field == "status":
            self._close(state)
            state.hca = value[0]
            state.port = self._new_port(label, *value)
        elif state.hca is None:
            return False
        elif field == "port":
            self._close(state)
            state.port = self._new_port(label, state.hca, value)
        elif state.port is None:
            return False
        else:
            state.port[field] = value
            if field == "state":
                state.port["ref"] = self._ref(number, text)
        return True

    def _new_port(self, label: Label, device: str, port: int) -> dict[str, Any]:
        return _NEW_PORT | {"host": label.host, "file": self._name, "hca": device, "port": port}

    def _module(self, state: _State, label: Label, text: str, number: int) -> bool:
        if text.startswith("Module") and _LSMOD.match(text):
            state.modules = True
            self.rows.append(KernelModule(label.host, self._name, "(list)", self._ref(number, text)))
            return True
        module = _MODULE.match(text) if state.modules else None
        if module is None:
            state.modules = state.modules and text.startswith((" ", "\t"))
            return False
        if module[1] in _MODULES:
            self.rows.append(KernelModule(label.host, self._name, module[1], self._ref(number, text)))
        return True

    def _ofi(self, state: _State, label: Label, text: str, number: int) -> bool:
        if text.startswith("provider:") and (provider := _PROVIDER.match(text)) is not None:
            self._close(state)
            state.domain = OfiDomain(label.host, label.rank, self._name, provider[1], "", None, self._ref(number, text))
            return True
        field = _FIELD.match(text) if state.domain is not None else None
        if field is None or state.domain is None:
            return False
        state.domain = (
            state.domain._replace(domain=field[2]) if field[1] == "domain" else state.domain._replace(protocol=field[2])
        )
        return True

    def _manager(self, state: _State, label: Label, text: str, number: int) -> bool:
        error = _FABRIC.match(text) if "[tid " in text else None
        if error is None:
            return False
        said = error[1]
        kind = "nvswitch" if re.search(r"NVSwitch|NVLink|SXid", said) else "error"
        key = (label.host, kind, _CHANGING.sub("N", said))
        known = self._fabric.get(key)
        if known is not None:
            self._fabric[key] = known._replace(n=known.n + 1)
        elif len(self._fabric) < 1000:
            self._fabric[key] = FabricEvent(label.host, self._name, kind, said, 1, self._ref(number, text))
        return True


def _connected(row: C2cState, speed: str | None, ref: int) -> C2cState:
    """The row with one more link; its evidence is the slowest link, or the first that is inactive."""
    if speed is None:
        return row._replace(inactive=row.inactive + 1, ref=row.ref if row.inactive else ref)
    value = min(float(speed), 1e6)
    slowest = row.speed is None or value < row.speed
    return row._replace(
        active=row.active + 1, speed=value if slowest else row.speed, total=row.total + value,
        ref=ref if slowest and not row.inactive else row.ref,
    )  # fmt: skip


def _used(use: NvlinkUse, line: dict[str, str | None]) -> NvlinkUse:
    """Adds what one line says of one link."""
    links = max(use.links, int(line["link"] or 0) + 1)
    if "p2p" in line:
        return use._replace(links=links, without_p2p=(use.without_p2p or 0) + (line["p2p"] == "false"))
    if line["kib"] is None:
        return use._replace(links=links)
    kib = int(line["kib"])
    if line["way"] == "Tx":
        return use._replace(links=links, sent=(use.sent or 0) + kib)
    return use._replace(links=links, received=(use.received or 0) + kib)


class _Line(NamedTuple):
    """A line that may say something, and what it says of a port where it says nothing else."""

    port: tuple[str, Any] | None


def _without_names(texts: list[str]) -> list[str]:
    """The lines without what names a port, and says nothing else: it differs on each, so that no line would come again."""
    text = "\n".join(texts)
    named = _NAMES.sub("", text)
    lines = texts if len(named) == len(text) else named.split("\n")
    return lines if len(lines) == len(texts) else texts


@lru_cache(1 << 12)
def _parse_line(text: str) -> _Line | None:
    if _WORDS.search(text) is None:
        return None
    is_other = (
        "GPU" in text
        or _NUMBERED_LINK.search(text) is not None
        or "[tid " in text
        or text.startswith(("Module", "provider:"))
    )
    return _Line(None if is_other else _parse_port_line(text))


class _Ports(NamedTuple):
    """What lines say that speak of ports only; `ref` is the place of a line among them."""

    rows: tuple[Any, ...]  # of `ib_port`
    hca: str | None  # and its port, which further lines may say more of
    last: dict[str, Any] | None
    used: int


class _Places:
    """Stands for facts where the evidence of a line is its number."""

    def evidence(self, _file: str, line: int, _text: str) -> int:
        return line


@lru_cache(1 << 8)  # most nodes of a cluster say the same
def _ports(lines: tuple[_Line | None, ...]) -> _Ports | None:
    """What the first lines of a writer say of its ports; None where one of them may speak of something else."""
    reader, state, used = _Reader("", cast(Facts, _Places())), _State(), 0
    for place, line in enumerate(lines):
        if line is not None:
            if line.port is None:
                return None
            used += reader.says_of_port(state, NOTHING, *line.port, "", place)
    return _Ports(tuple(reader.rows), state.hca, state.port, used)


@lru_cache(1 << 12)  # most ports of a cluster say the same
def _parse_port_line(text: str) -> tuple[str, Any] | None:
    """What a line of `ibstat`, `ibstatus` or `ibv_devinfo` says: the card, its port, or a column of `ib_port` and its value."""
    if (device := _CA.match(text) or _HCA.match(text)) is not None:
        return "hca", device[1]
    if (status := _STATUS.match(text)) is not None:
        return "status", (status[1], int(status[2]))
    if (port := _PORT.match(text)) is not None:
        return "port", int(port[1] or port[2])
    if (physical := _PHYSICAL.match(text)) is not None:
        return "physical", physical[1] or physical[2]
    if (state := _STATE.match(text)) is not None:
        return "state", state[1].capitalize()
    if (rate := _RATE.match(text)) is not None:
        return "rate", float(rate[1])
    if (layer := _LAYER.match(text)) is not None:
        return "link_layer", layer[1]
    mtu = _MTU.match(text)
    return ("mtu", int(mtu[1])) if mtu is not None else None
