"""Files of NCCL and its companions: nccl-tests, topology and graph dumps, RAS reports, the Inspector plug-in."""

import re

from nccl_doctor.formats.declaration import Format

NCCL_TESTS_JSON = re.compile(rb"\A\s*\{(?=[\s\S]{0,60000}?\"(?:minimum_bytes|warmup_iters|aggregated_iterations)\" ?:)")

FORMATS = (
    Format(
        "nccl-tests",
        "nccl_tests",
        tables=("bench_run", "bench_row", "bench_member"),
        begins=NCCL_TESTS_JSON,
        inside=(b"Avg bus bandwidth", b"Out of bounds values", b"algbw   busbw", b"# nThread "),
        after=("node-capture", "nccl-ras"),
    ),
    Format(
        "nccl-topology",
        "topology",
        tables=("topo_file", "topo_gpu", "topo_net", "topo_graph"),
        begins=re.compile(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?(?:<!--(?:[^-]|-(?!->)){0,20000}-->\s{0,200}){0,5}"
            rb"(?:<!DOCTYPE[^<]{0,2000}(?:<!(?:ENTITY|ELEMENT)[^<]{0,2000}){0,50}\s{0,200})?<(?:system|graphs) version=\""
        ),
    ),
    Format(
        "nccl-ras",
        "ras",
        tables=("ras_comm", "ras_rank"),
        begins=re.compile(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{(?=[^{}\[\]]{0,2000}\"nccl_version\" ?:)[^{}]{0,2000}\"communicators(?:_count)?\" ?:"
        ),
        after=("flight-recorder",),
    ),
    Format(
        "nccl-inspector",
        "inspector",
        tables=("inspector_coll",),
        begins=re.compile(
            rb"\A\s{0,200}\{\s{0,20}\"header\" ?: ?\{[^{}]{0,900}\"n_ranks\" ?:[^{}]{0,900}\}"
            rb"\s{0,20},\s{0,20}\"(?:metadata|coll_perf|p2p_perf)\" ?:"
        ),
    ),
)
