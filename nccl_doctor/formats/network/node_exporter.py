"""Error counters, rates and states of links in the metrics of node_exporter, and of exporters that follow its names for InfiniBand.

The text of `/metrics`, once, or several one behind the other, or what Prometheus answers to a query. Of a counter that grew the first
and the last value are kept, else the last.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import IbPort, LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_BLOCK_OF_METRICS = 1 << 20
_MOST_SERIES = 200_000
_LARGEST_ANSWER = 256 << 20
_Key = tuple[str | None, str, str]  # host, link, counter
_Value = tuple[str, int, int, str]  # kind, value, line, text
_NETWORK = {
    "receive_errs": "rx_errors", "receive_drop": "rx_dropped", "receive_frame": "rx_frame_errors", "receive_fifo": "rx_fifo_errors",
    "transmit_errs": "tx_errors", "transmit_drop": "tx_dropped", "transmit_carrier": "tx_carrier_errors",
    "carrier_down_changes": "link_downed",
}  # fmt: skip
_INFINIBAND = {
    "symbol_error": "symbol_error", "link_downed": "link_downed", "link_error_recovery": "link_error_recovery",
    "port_errors_received": "port_rcv_errors", "port_receive_remote_physical_errors": "port_rcv_remote_physical_errors",
    "port_discards_transmitted": "port_xmit_discards", "port_transmit_wait": "port_xmit_wait",
    "local_link_integrity_errors": "local_link_integrity_errors", "excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors",
}  # fmt: skip
_PORT = ("rate_bytes_per_second", "state_id", "physical_state_id")
_STATES = {1: "Down", 2: "Initializing", 3: "Armed", 4: "Active", 5: "Active_defer"}
_PHYSICAL = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
}
_SDR = 10.0  # Gb/s that a port without a link shows
"""Names of node_exporter (collector/infiniband_linux.go, netclass_linux.go, netdev_linux.go) -> those of /sys."""
_SERIES_NAME = (
    r"node_(?:network_([a-z_]{4,30})_total"
    r"|infiniband_(rate_bytes_per_second|(?:physical_)?state_id|[a-z_]{4,50}(?=_total))(?:_total)?)"
)
_METRIC_LINE = re.compile((r"\n" + _SERIES_NAME + r"\{([^{}\n]{0,2000})\} ([-+0-9.eE]{1,30})(?!\S)").encode())
_METRIC_NAME = re.compile(_SERIES_NAME)
_HOST_LINE = re.compile(rb"\nnode_uname_info\{[^{}\n]{0,2000}\bnodename=\"([\w.-]{1,100})\"")
_SERIES_LIST = re.compile(r"\"result\"\s{0,20}:\s{0,20}\[")
_NEXT_SERIES = re.compile(r"[\s,]{0,400}(?=\{)")
_METRIC_LABEL = re.compile(rb'(\w{1,40})="([^"\\\n]{0,200})"')
_VIRTUAL = re.compile(r"lo$|veth|cali|docker|br-|virbr|flannel|cni|tunl|ifb|dummy")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the counters of a file.

    Source: node_exporter 1.0 to 1.9 (`curl -s HOST:9100/metrics`)::

        node_infiniband_symbol_error_total{device="mlx5_0",port="1"} 12
        node_infiniband_rate_bytes_per_second{device="mlx5_0",port="1"} 5e+10
        node_network_receive_errs_total{device="eth0"} 0

    and Prometheus `/api/v1/query` and `/api/v1/query_range`::

        {"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"node_network_…",…},"values":[[…
    """
    head = read_head(stream, 256)
    stream = Joined(head, stream)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        return _read_answer(stream, name, facts)
    found = _Found()
    hosts: set[bytes] = set()
    lines = used = 0
    for block in _blocks(stream):
        text = b"\n" + block
        if len(hosts) < 2:
            hosts.update(_HOST_LINE.findall(text))
        at, line = 0, lines
        for match in _METRIC_LINE.finditer(text):
            line += text.count(b"\n", at, match.start() + 1)
            at = match.start() + 1
            series = _series(match)
            if series is not None and len(found) < _MOST_SERIES:
                kind, link, counter, value = series
                shown = text[at : match.end()].decode("utf-8", "replace")
                labels = {
                    key.decode(): word.decode("utf-8", "replace") for key, word in _METRIC_LABEL.findall(match[3])
                }
                found.add((_host_of(labels), link, counter), (kind, value, line, shown))
                used += 1
        lines += block.count(b"\n") + (not block.endswith(b"\n"))
    found.write(facts, name, hosts.pop().decode("utf-8", "replace") if len(hosts) == 1 else None)
    return Reading(lines, used)


def _read_answer(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read an answer of the API of Prometheus: a matrix of a range, or a vector of one moment."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < _LARGEST_ANSWER and (part := stream.read(_BLOCK_OF_METRICS)):
        parts.append(part)
    data = b"".join(parts)
    answer, note = _answer(data.decode("utf-8-sig", "replace"))
    found = _Found()
    places = count(1)  # an answer is one line: the place of a value is its number among those that are looked at
    for one in answer[:_MOST_SERIES]:
        metric = one.get("metric") if isinstance(one, dict) else None
        if not isinstance(metric, dict) or (named := _METRIC_NAME.fullmatch(str(metric.get("__name__")))) is None:
            continue
        labels = {key: word for key, word in metric.items() if isinstance(word, str)}
        points = one.get("values") if isinstance(one.get("values"), list) else [one.get("value")]
        for point in (points[0], points[-1]) if points else ():
            if not isinstance(point, list) or len(point) != 2:
                continue
            series = _judged(named[1], named[2], labels, str(point[1])[:40])
            if series is not None:
                kind, link, counter, value = series
                shown = f"{json.dumps(metric)[:500]} {point[1]}"
                found.add((_host_of(labels), link, counter), (kind, value, next(places), shown))
    found.write(facts, name, None)
    return Reading(data.count(b"\n") + (not data.endswith(b"\n")), len(found), note)


def _answer(text: str) -> tuple[list[Any], str | None]:
    """The series of an answer; of one that is cut or damaged, those before that place, and where it is."""
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        begun = _begun(text)
        return begun, f"is no complete JSON: {str(error)[:100]}; {len(begun):,} series before that were read"
    body = top.get("data") if isinstance(top, dict) else None
    answer = body.get("result") if isinstance(body, dict) else None
    return (answer if isinstance(answer, list) else []), None


def _begun(text: str) -> list[Any]:
    start = _SERIES_LIST.search(text)
    at = start.end() if start is not None else len(text)
    found = []
    while (blank := _NEXT_SERIES.match(text, at)) is not None:
        try:
            series, at = json.JSONDecoder().raw_decode(text, blank.end())
        except (ValueError, RecursionError):
            break
        found.append(series)
    return found


class _Found(dict[_Key, _Value]):
    """The last value of each series, and the first one."""

    def __init__(self) -> None:
        self._first: dict[_Key, _Value] = {}

    def add(self, key: _Key, value: _Value) -> None:
        """Take a value that comes later than those before."""
        self._first.setdefault(key, value)
        self[key] = value

    def write(self, facts: Facts, name: str, one: str | None) -> None:
        """Add counters and ports; `one` is the host of those that name none."""
        facts.add(
            LinkCounter(
                host=key[0] or one, file=name, source="node_exporter", kind=kind, link=key[1], name=key[2], value=value,
                ref=facts.evidence(name, line, text),
            )
            for key, last in self.items()
            if key[2] not in _PORT
            for kind, value, line, text in ([self._first[key], last] if self._first[key][1] < last[1] else [last])
        )  # fmt: skip
        facts.add(
            port
            for host, link, counter in self
            if counter == _PORT[0]
            if (port := self._port(facts, name, host, one, link))
        )
        facts.mark_covered("link_counter", "ib_port")

    def _port(self, facts: Facts, name: str, host: str | None, one: str | None, link: str) -> IbPort | None:
        """A port with its rate; None where nothing tells whether it has a link."""
        rate, state, physical = (self.get((host, link, counter)) for counter in _PORT)
        assert rate is not None
        _, bytes_a_second, line, text = rate
        gigabits = bytes_a_second * 8 / 1e9
        device, _, port = link.rpartition("/")
        if state is None and gigabits <= _SDR:
            return None
        return IbPort(
            host=host or one, file=name, hca=device, port=int(port) if port.isdecimal() and len(port) < 5 else None,
            state="Active" if state is None else _STATES.get(state[1], ""),
            physical=None if physical is None else _PHYSICAL.get(physical[1]), rate=gigabits, link_layer=None, lanes=None, speed=None,
            lid=None, sm_lid=None, partitions=None, mtu=None, ref=facts.evidence(name, line, text),
        )  # fmt: skip


def _blocks(stream: Readable) -> Iterator[bytes]:
    """Whole lines, a block at a time; a line that is longer than a block is passed over."""
    rest = b""
    while data := stream.read(_BLOCK_OF_METRICS):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end]
        rest = data[end:] if len(data) - end < _BLOCK_OF_METRICS else b""
    if rest:
        yield rest


def _series(match: re.Match[bytes]) -> tuple[str, str, str, int] | None:
    """Kind of the link, the link, its counter and the value; None for one that is not judged."""
    network, infiniband = ((group or b"").decode() for group in (match[1], match[2]))
    if network not in _NETWORK and infiniband not in _INFINIBAND and infiniband not in _PORT:
        return None
    labels = {key.decode(): word.decode("utf-8", "replace") for key, word in _METRIC_LABEL.findall(match[3])}
    return _judged(network, infiniband, labels, match[4].decode())


def _judged(
    network: str | None, infiniband: str | None, labels: Mapping[str, str], text: str
) -> tuple[str, str, str, int] | None:
    """The same of the two halves of a name, of which one is there, the labels and the number."""
    counter, device = _NETWORK.get(network or ""), labels.get("device", "")
    try:
        value = float(text)
    except ValueError:
        return None
    if not device or not 0 <= value < 2**63:
        return None
    if known := _INFINIBAND.get(infiniband or "") or (infiniband if infiniband in _PORT else None):
        return "ib", f"{device}/{labels.get('port', '1')}", known, int(value)
    return None if counter is None or _VIRTUAL.match(device) else ("ethernet", device, counter, int(value))


def _host_of(labels: Mapping[str, str]) -> str | None:
    """The host that Prometheus added to a series."""
    host = next(
        (labels[key] for key in ("Hostname", "hostname", "nodename", "instance", "node") if labels.get(key)), None
    )
    return host.rpartition(":")[0] if host and re.fullmatch(r"[^\[\]:]+:\d{1,5}", host) else host
