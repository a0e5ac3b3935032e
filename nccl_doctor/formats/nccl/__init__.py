"""Files of NCCL and its companions: nccl-tests, topology and graph dumps, RAS reports, profiler plug-ins."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

NCCL_TESTS_JSON = compiled(rb"\A\s*\{(?=[\s\S]{0,60000}?\"(?:minimum_bytes|warmup_iters|aggregated_iterations)\" ?:)")

FORMATS = (
    Format(
        "nccl-tests",
        "nccl_tests",
        tables=("bench_run", "bench_row", "bench_spread", "bench_member"),
        begins=NCCL_TESTS_JSON,
        inside=(
            b"Avg bus bandwidth",
            b"Out of bounds values",
            b"algbw   busbw",
            b"# nThread ",
            b"     sum      -1 ",
            b"    none      -1 ",
        ),
        after=("rdma-test", "node-capture", "nccl-ras", "nccl-ras-text"),
    ),
    Format(
        "nccl-topology",
        "topology",
        tables=("topo_file", "topo_gpu", "topo_net", "topo_graph"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?(?:<!--(?:[^-]|-(?!->)){0,20000}-->\s{0,200}){0,5}"
            rb"(?:<!DOCTYPE[^<]{0,2000}(?:<!(?:ENTITY|ELEMENT)[^<]{0,2000}){0,50}\s{0,200})?<(?:system|graphs) version=\""
        ),
    ),
    Format(
        "nccl-ras",
        "ras",
        tables=("ras_comm", "ras_rank"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{(?=[^{}\[\]]{0,2000}\"nccl_version\" ?:)[^{}]{0,2000}\"communicators(?:_count)?\" ?:"
        ),
        after=("flight-recorder",),
    ),
    Format(
        "nccl-ras-text",
        "ras_text",
        tables=("ras_group",),
        inside=(b"#  in group  per comm  per node  per comm  in group",),
    ),
    Format(
        "nccl-inspector",
        "inspector",
        tables=("inspector_coll",),
        begins=compiled(
            rb"\A\s{0,200}\{\s{0,20}\"header\" ?: ?\{[^{}]{0,900}\"n_ranks\" ?:[^{}]{0,900}\}"
            rb"\s{0,20},\s{0,20}\"(?:metadata|coll_perf|p2p_perf)\" ?:"
        ),
    ),
    Format(
        "nccl-inspector-metrics",
        "inspector_metrics",
        tables=("inspector_coll",),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?=# (?:HELP|TYPE) |nccl_)(?:[^\n]{0,2000}\n){0,400}?"
            rb"nccl_(?:p2p_)?(?:algorithm|bus)_bandwidth_gbs\{"
        ),
        after=("link-metrics",),  # of a node whose exporter reads these files as well
        leads=True,
    ),
    Format(
        "nccl-profiler",
        "profiler_events",
        tables=("inspector_coll",),
        begins=compiled(
            rb"\A\s{0,200}\[\s{0,20}\{\"name\": ?\"[^\"]{1,60}\", ?\"cat\": ?"
            rb"\"(?:GROUP_API|GROUP|COLL_API|COLL|P2P_API|P2P|KERNEL_LAUNCH|PROXY|NET|GPU|CE_[A-Z]{1,12})\", ?\"ph\": ?\"b\","
            rb" ?\"id\": ?\d{1,10}, ?\"pid\": ?\d{1,10}, ?\"tid\": ?\d"
        ),
    ),
)
