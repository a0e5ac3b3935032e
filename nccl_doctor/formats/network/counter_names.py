"""What the error counters of links are called here, which is as the kernel calls them in /sys where it has them.

Left out are counters of traffic, of single queues and of events that a healthy link counts all the time.
"""

import re

PERFQUERY = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery", "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors", "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards", "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "PortXmitWait": "port_xmit_wait",
    # as infiniband-diags before 1.6 printed them
    "SymbolErrors": "symbol_error", "LinkRecovers": "link_error_recovery", "LinkDowned": "link_downed", "RcvErrors": "port_rcv_errors",
    "RcvRemotePhysErrors": "port_rcv_remote_physical_errors", "XmtDiscards": "port_xmit_discards",
    "LinkIntegrityErrors": "local_link_integrity_errors", "ExcBufOverrunErrors": "excessive_buffer_overrun_errors",
    # `perfquery -E` and `-D`, which tell the causes apart
    "PortLocalPhysicalErrors": "port_local_physical_errors", "PortMalformedPktErrors": "port_malformed_packet_errors",
    "PortBufferOverrunErrors": "port_buffer_overrun_errors", "PortDLIDMappingErrors": "port_dlid_mapping_errors",
    "PortVLMappingErrors": "port_vl_mapping_errors", "PortLoopingErrors": "port_looping_errors",
    "PortInactiveDiscards": "port_inactive_discards", "PortNeighborMTUDiscards": "port_neighbor_mtu_discards",
    "PortSwLifetimeLimitDiscards": "port_lifetime_limit_discards", "PortSwHOQLifetimeLimitDiscards": "port_hoq_lifetime_limit_discards",
}  # fmt: skip
"""Titles of `perfquery` and `ibqueryerrors` (InfiniBand Architecture Specification, PortCounters)."""

RDMA = {
    name: name
    for name in (
        "out_of_sequence", "out_of_buffer", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
        "req_transport_retries_exceeded", "req_remote_access_errors", "roce_slow_restart", "rx_icrc_encapsulated", "duplicate_request",
        "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events",
    )
} | {
    "to_retransmits": "retrans_timeout_events", "seq_err_naks_rcvd": "packet_seq_err", "rnr_naks_rcvd": "rnr_nak_retry_err",
    "max_retry_exceeded": "req_transport_retries_exceeded", "oos_drop_count": "out_of_sequence",
    "tcpRetransSegs": "retransmitted_segments", "ip4InDiscards": "ip4_in_discards", "ip6InDiscards": "ip6_in_discards",
    "rxVlanErrors": "rx_vlan_errors",
    # ionic
    "req_rx_pkt_seq_err": "packet_seq_err", "req_rx_rnr_retry_err": "rnr_nak_retry_err", "req_rx_impl_nak_seq_err": "implied_nak_seq_err",
    "req_tx_retry_excd_err": "req_transport_retries_exceeded", "req_rx_rmt_acc_err": "req_remote_access_errors",
    "resp_rx_outof_buf": "out_of_buffer", "resp_rx_outouf_seq": "out_of_sequence", "resp_rx_dup_request": "duplicate_request",
}  # fmt: skip
"""Counters of `rdma statistic` (mlx5_ib, efa, bnxt_re; irdma; ionic)."""

_ETHTOOL = {
    # mlx5
    "rx_crc_errors_phy": "rx_crc_errors", "rx_symbol_err_phy": "rx_symbol_errors", "rx_discards_phy": "rx_discards",
    "tx_discards_phy": "tx_discards", "tx_errors_phy": "tx_errors", "link_down_events_phy": "link_downed",
    "rx_pcs_symbol_err_phy": "rx_symbol_errors_uncorrected", "rx_in_range_len_errors_phy": "rx_length_errors",
    "rx_out_of_buffer": "out_of_buffer", "module_high_temp": "module_high_temperature", "module_bad_shorted": "module_shorted",
    "tx_pause_storm_error_events": "tx_pause_storm", "outbound_pci_stalled_wr": "pci_write_stalled_percent",
    # mlx5, bnxt_en and ice: pause frames of a priority, which tell who cannot take in what others send
    **{
        title.format(way, number): f"{way}_prio{number}_pause"
        for way in ("rx", "tx")
        for number in range(8)
        for title in ("{}_prio{}_pause", "{}_pfc_ena_frames_pri{}", "{}_priority_{}_xoff")
    },
    # ena: what the limits of an instance of EC2 delayed or dropped
    "bw_in_allowance_exceeded": "bw_in_allowance_exceeded", "bw_out_allowance_exceeded": "bw_out_allowance_exceeded",
    "pps_allowance_exceeded": "pps_allowance_exceeded", "conntrack_allowance_exceeded": "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded": "linklocal_allowance_exceeded",
    # others: names of the standard statistics, and those of bnxt_en, ice, i40e, ixgbe, gve
    "rx_errors": "rx_errors", "tx_errors": "tx_errors", "rx_crc_errors": "rx_crc_errors", "rx_dropped": "rx_dropped",
    "tx_dropped": "tx_dropped", "rx_missed_errors": "rx_missed_errors", "rx_length_errors": "rx_length_errors",
    "rx_frame_errors": "rx_frame_errors", "tx_carrier_errors": "tx_carrier_errors", "rx_fcs_err_frames": "rx_crc_errors",
    "rx_drops": "rx_dropped", "link_down_events": "link_downed", "rx_symbol_errors": "rx_symbol_errors",
    "tx_tx_timeouts": "tx_timeouts", "tx_timeout": "tx_timeouts", "tx_timeout_count": "tx_timeouts",
    "rx_pcs_symbol_err": "rx_symbol_errors_uncorrected", "rx_total_discard_pkts": "rx_discards", "tx_total_discard_pkts": "tx_discards",
    # be2net
    "rx_alignment_symbol_errors": "rx_symbol_errors", "rx_in_range_errors": "rx_length_errors",
    "rx_out_range_errors": "rx_out_range_errors",
    "rx_drops_no_pbuf": "rx_missed_errors", "rx_input_fifo_overflow_drop": "rx_fifo_errors", "rx_ip_checksum_errs": "rx_ip_checksum_errors",
    "rx_tcp_checksum_errs": "rx_tcp_checksum_errors", "rx_udp_checksum_errs": "rx_udp_checksum_errors",
    # ionic
    "frames_rx_bad_fcs": "rx_crc_errors", "frames_rx_bad_all": "rx_errors", "frames_rx_bad_length": "rx_length_errors",
    "frames_rx_dropped": "rx_discards", "frames_tx_bad": "tx_errors", "hw_rx_dropped": "rx_dropped", "hw_tx_dropped": "tx_dropped",
    "hw_rx_missed_errors": "rx_missed_errors",
    "illegal_bytes": "illegal_bytes", "mac_local_faults": "mac_local_faults", "mac_remote_faults": "mac_remote_faults",
}  # fmt: skip
ETHTOOL = _ETHTOOL | {form.format(name): here for name, here in _ETHTOOL.items() for form in ("{}.nic", "port.{}")}
"""ice and i40e print the counters of the port with a suffix or a prefix."""

_ERROR_WORD = re.compile(
    r"(?!xdp_)(?=[a-z]{2,20}_)(?:[a-z]{1,20}_){0,6}(?:bad(?:_[a-z]{2,12}){0,2}|errs?|errors?|dropped|drops?|discards?|discarded|crc_err|fcs_err"
    r"|timeouts?|exceeded)$"
)


def unknown_error(title: str) -> str | None:
    """What a counter of a driver whose names are not listed here is called, where its words say that it counts errors.

    Counters of single queues, which have a number in their name, are left out.
    """
    return title if _ERROR_WORD.match(title) else None


INTERFACE = {
    "rx errors": "rx_errors", "rx dropped": "rx_dropped", "rx missed": "rx_missed_errors", "rx overrun": "rx_fifo_errors",
    "rx length": "rx_length_errors", "rx crc": "rx_crc_errors", "rx frame": "rx_frame_errors", "rx fifo": "rx_fifo_errors",
    "tx errors": "tx_errors", "tx dropped": "tx_dropped", "tx carrier": "tx_carrier_errors", "tx fifo": "tx_fifo_errors",
}  # fmt: skip
"""Direction and column of `ip -s link`."""

NVLINK = {
    "replay errors": "nvlink-replay", "recovery errors": "nvlink-recovery", "crc errors": "nvlink-crc",
    "crc flit errors": "nvlink-crc", "crc data errors": "nvlink-crc-data",
    # GPUs with NVLink 5
    "rx errors": "nvlink-receive-errors", "rx remote errors": "nvlink-receive-remote-errors",
    "local link integrity errors": "nvlink-integrity", "buffer overrun errors": "nvlink-buffer-overrun",
    "malformed packet errors": "nvlink-malformed", "effective errors": "nvlink-effective-errors",
    "symbol errors": "nvlink-symbol-errors", "total link recovery events": "nvlink-link-recovery",
    "link recovery failed events": "nvlink-link-recovery-failed",
    # between a Grace CPU and its GPU
    "error interrupt count": "c2c-interrupt", "error replay count": "c2c-replay",
    "error back-to-back replay count": "c2c-replay-repeated",
}  # fmt: skip
"""Titles of `nvidia-smi nvlink -e`, `nvidia-smi c2c -e` and `dcgmi nvlink -e`, in small letters."""
