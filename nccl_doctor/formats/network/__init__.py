"""What commands say about links and ports: error counters, signals, checks of a fabric."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "link-counters",
        "counters",
        tables=("link_counter",),
        inside=(
            b"NIC statistics:",
            b"# Port counters: ",
            b"# Port extended counters: ",
            b"# PortRcvErrorDetails counters: ",
            b"# PortXmitDiscardDetails counters: ",
            b'Errors for "',
            b"Errors for 0x",
            b" errors dropped ",
            b" errors  dropped ",
            b"rx_write_requests ",
            b"retrans_bytes ",
            b" ip4InDiscards ",
            b" active_pds ",
            b": Replay Errors: ",
            b": Malformed packet Errors: ",
            b": Error Replay Count: ",
            b"NVLINK Error Counts",
        ),
        reach=4 << 20,
    ),
    Format(
        "dcgm-nvlink",
        "dcgm_nvlink",
        tables=("link_counter",),
        begins=compiled(rb"\A\s{0,200}\{\s{0,40}\"(?:body|header)\"\s{0,4}:(?=[\s\S]{0,60000}\"NVLINK Error Counts\")"),
    ),
    Format(
        "ip-json",
        "ip_json",
        tables=("link_counter",),
        begins=compiled(
            rb"\A\s{0,200}\[\s{0,40}(?:\{\s{0,40}\}\s{0,20},\s{0,20})?\{\s{0,40}\"(?:ifindex|link_index|ifname)\"\s{0,4}:"
        ),
    ),
    Format(
        "link-metrics",
        "node_exporter",
        tables=("link_counter", "ib_port"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?=# (?:HELP|TYPE) |node_)"
            rb"(?:[^\n]{0,2000}\n){0,2000}?(?:# (?:HELP|TYPE) )?node_(?:network|infiniband|cpu|uname|arp|boot|disk|edac)_\w{2,60}[ {]"
            rb"|\A\s{0,200}\{\s{0,20}\"status\" ?: ?\"success\",(?=[\s\S]{0,60000}?\"__name__\" ?: ?\"node_(?:network|infiniband)_)"
        ),
        after=("gpu-metrics",),
    ),
    Format(
        "link-quality",
        "mlxlink",
        tables=("link_quality", "link_counter"),
        begins=compiled(
            rb"\A\s{0,200}\{\s{0,40}\"(?:mlxlink_output|result|status)\"\s{0,9}:(?=[\s\S]{0,4000}\"Operational Info\")"
        ),
        inside=(b"Physical Counters and BER Info", b"Troubleshooting Info"),
        reach=4 << 20,
    ),
    Format(
        "fabric-checks",
        "ibdiagnet",
        tables=("fabric_check",),
        inside=(b"-I- Stage ", b"STAGE                                    Errors"),
        reach=4 << 20,
    ),
    Format(
        "fabric-links",
        "fabric_links",
        tables=("ib_port",),
        inside=(
            b"] ==( ",
            b'" lid ',
            *(
                b"x %s - " % speed
                for speed in (b"SDR", b"DDR", b"QDR", b"FDR", b"FDR10", b"EDR", b"HDR", b"NDR", b"XDR")
            ),
        ),
        reach=1 << 20,
    ),
    Format(
        "switch-state",
        "ibswinfo",
        tables=("switch_part", "host_number"),
        begins=compiled(
            rb"\A(?:\$ [^\n]{0,200}\n|# [^\n]{0,200}\n)?={40,60}\s?\n(?:[^\n=]{0,120}\n){1,3}"
            rb"={40,60}\s?\n(?:[a-zA-Z ]{4,20}\| [^\n]{0,80}\n){1,4}"
        ),
        inside=(b"\nuptime (d-h:m:s)   | ",),
        reach=1 << 20,
    ),
    Format(
        "protocol-counters",
        "protocol_counters",
        tables=("link_counter",),
        inside=(b"TcpRetransSegs ", b" segments retransm", b" pkt (dropped "),
        reach=4 << 20,
    ),
)
