"""Counters of network ports as the kernel has them. Their growth is judged, never their value."""

from collections.abc import Iterator

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import NodeCounter
from nccl_doctor.node.runtime.root import Root

# Bits of the counters of the InfiniBand specification: they saturate, and a saturated value measures nothing.
WIDTHS = {
    "symbol_error": 16, "link_error_recovery": 8, "link_downed": 8, "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16, "port_xmit_discards": 16, "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4, "port_xmit_wait": 32, "port_xmit_data": 32, "port_rcv_data": 32,
}  # fmt: skip
PORT = tuple(WIDTHS)
PORT_HARDWARE = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
    "out_of_buffer", "duplicate_request", "roce_slow_restart", "roce_adp_retrans", "rx_icrc_encapsulated",
    "req_transport_retries_exceeded", "np_cnp_sent", "rp_cnp_handled",
)  # fmt: skip
EFA_PORT = (
    "rx_drops", "retrans_pkts", "retrans_bytes", "retrans_timeout_events", "unresponsive_remote_events",
    "impaired_remote_conn_events", "rdma_read_wr_err", "rdma_write_wr_err", "rx_bytes", "tx_bytes",
)  # fmt: skip
EFA_DEVICE = (
    "cmds_err", "no_completion_cmds", "alloc_pd_err", "create_qp_err", "create_cq_err", "reg_mr_err", "mmap_err",
    "keep_alive_rcvd",
)  # fmt: skip
INTERFACE = (
    "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "rx_missed_errors", "tx_carrier_errors",
    "rx_bytes", "tx_bytes",
)  # fmt: skip


def collect(root: Root, device: str, folder: str, names: tuple[str, ...]) -> Iterator[NodeCounter]:
    """A row for each of these counters that is there and means something."""
    for name in names:
        text = root.value(f"{folder}/{name}")
        value = parse(name, text)
        if value is not None:
            yield NodeCounter(None, device, name, value, None, Seen(f"{folder}/{name}", f"{name} {text}"))


def parse(name: str, text: str | None) -> int | None:
    """The value; None for `N/A (no PMA)`, rubbish, or a counter that has run into its maximum."""
    if text is None or not text.isdecimal() or not text.isascii() or len(text) > 20:
        return None
    value = int(text)
    bits = WIDTHS.get(name)
    saturated = value == (1 << 64) - 1 or (bits is not None and value == (1 << bits) - 1)
    return None if saturated or value >= 1 << 63 else value
