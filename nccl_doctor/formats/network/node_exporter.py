"""Error counters of links in the metrics of node_exporter, and of exporters that follow its names for InfiniBand.

The text of `/metrics`, once, or several one behind the other; the last value of a counter counts.
"""

import re
from collections.abc import Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable

_BLOCK_OF_METRICS = 1 << 20
_MOST_SERIES = 200_000
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
"""Names of node_exporter (collector/infiniband_linux.go, netclass_linux.go, netdev_linux.go) -> those of /sys."""
_METRIC_LINE = re.compile(
    rb"\nnode_(?:network_([a-z_]{4,30})_total|infiniband_([a-z_]{4,50})_total)\{([^{}\n]{0,2000})\} ([-+0-9.eE]{1,30})(?!\S)"
)
_HOST_LINE = re.compile(rb"\nnode_uname_info\{[^{}\n]{0,2000}\bnodename=\"([\w.-]{1,100})\"")
_METRIC_LABEL = re.compile(rb'(\w{1,40})="([^"\\\n]{0,200})"')
_VIRTUAL = re.compile(r"lo$|veth|cali|docker|br-|virbr|flannel|cni|tunl|ifb|dummy")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the counters of a file.

    Source: node_exporter 1.0 to 1.9 (`curl -s HOST:9100/metrics`)::

        node_infiniband_symbol_error_total{device="mlx5_0",port="1"} 12
        node_network_receive_errs_total{device="eth0"} 0
    """
    found: dict[tuple[str | None, str, str], tuple[str, int, int, str]] = {}
    host: str | None = None
    hosts = 0
    lines = used = 0
    for block in _blocks(stream):
        text = b"\n" + block
        names = _HOST_LINE.findall(text)
        hosts += len(set(names))
        host = names[-1].decode("utf-8", "replace") if names else host
        at, line = 0, lines
        for match in _METRIC_LINE.finditer(text):
            line += text.count(b"\n", at, match.start() + 1)
            at = match.start() + 1
            series = _series(match)
            if series is not None and len(found) < _MOST_SERIES:
                kind, link, counter, value = series
                found[_host_of(match[3]), link, counter] = (
                    kind,
                    value,
                    line,
                    text[at : match.end()].decode("utf-8", "replace"),
                )
                used += 1
        lines += block.count(b"\n") + (not block.endswith(b"\n"))
    one = host if hosts <= 1 else None
    facts.add(
        LinkCounter(
            host=of or one, file=name, source="node_exporter", kind=kind, link=link, name=counter, value=value,
            ref=facts.evidence(name, line, text),
        )
        for (of, link, counter), (kind, value, line, text) in found.items()
    )  # fmt: skip
    facts.mark_covered("link_counter")
    return Reading(lines, used)


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
    network = _NETWORK.get((match[1] or b"").decode())
    infiniband = _INFINIBAND.get((match[2] or b"").decode())
    labels = dict(_METRIC_LABEL.findall(match[3])) if network or infiniband else {}
    device = labels.get(b"device", b"").decode("utf-8", "replace")
    try:
        value = float(match[4])
    except ValueError:
        return None
    if not device or not 0 <= value < 2**63:
        return None
    if infiniband:
        return "ib", f"{device}/{labels.get(b'port', b'1').decode('utf-8', 'replace')}", infiniband, int(value)
    return None if network is None or _VIRTUAL.match(device) else ("ethernet", device, network, int(value))


def _host_of(labels: bytes) -> str | None:
    """The host that Prometheus added to a series."""
    known = dict(_METRIC_LABEL.findall(labels))
    host = next(
        (
            known[key].decode("utf-8", "replace")
            for key in (b"Hostname", b"hostname", b"nodename", b"instance", b"node")
            if known.get(key)
        ),
        None,
    )
    return host.rpartition(":")[0] if host and re.fullmatch(r"[^\[\]:]+:\d{1,5}", host) else host
