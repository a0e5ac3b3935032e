"""How samples, topologies, reports and captures of a node begin, and what betrays them inside a log.

Heads are searched in the first 64 kB of a file and anchored at its start, so that no log that merely holds such a table is
taken for one. Every repetition is bounded.
"""

import re

_TITLE = rb"[a-z_][a-z_.0-9]{0,60}(?: \[[^\]\n]{1,12}\])?"
_SAMPLE = (
    rb"(?:utilization\.(?:gpu|memory)|power\.draw(?:\.\w{1,20})?|memory\.used|clocks[\w.]{1,60}|temperature\.gpu)"
    rb"(?: \[[^\]]{1,12}\])?"
)
_START = rb"\A(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*)?\r?\n){0,5}"
GPU_SAMPLES = re.compile(
    _START + rb"(?:(?:" + _TITLE + rb",[ \t]*){0,80}" + _SAMPLE + rb"[ \t]*(?:,|\r?\n|\Z)"  # nvidia-smi --query-gpu
    rb"|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, [^\n]*\d (?:%|MiB|W|MHz)[ \t]*(?:,|\r?\n|\Z)"  # without its header
    rb"|[a-z_, ]{0,60}pid, [^\n]{0,80}used_(?:gpu_)?memory \[MiB\])"  # --query-compute-apps
    rb"|\A\s{0,200}#\s?(?:Date +Time +)?gpu +(?:pwr|sm|pid|gtemp|fb|rxpci) [^\n]*\n\s{0,20}# ?(?:YYYYMMDD +HH:MM:SS +)?Idx "  # dmon, pmon
    rb"|\A\s{0,200}#\s?Entity +[A-Z0-9]{4,6}\b"  # dcgmi dmon
    rb"|\A\s{0,200}\[?\s{0,200}\{[^{}]{0,4000}\"gpu_usage:\d"  # SuperBench
    rb"|\A\s{0,200}\[?\s{0,200}\{(?=[^{}]{0,4000}\"(?:index|gpu|gpu_id|gpu_index|minor_number|device)\" ?:)[^{}]{0,4000}"
    rb"\"(?:utilization[._]gpu|gpu_util(?:ization)?|util(?:ization)?)\" ?:"
    rb"|\A\s{0,200}\{(?=[^\[\]]{0,400}\"gpus\" ?: ?\[)[\s\S]{0,1000}\"utilization\.gpu\" ?:"  # gpustat --json
    rb"|\A\s{0,200}\{[\s\S]{0,2000}\"gpu_utilization\" ?: ?\{"  # jobstats
)
GPU_SAMPLES_INSIDE = (
    b"utilization.gpu [%]",
    b"used_gpu_memory [MiB]",
    b"# gpu   pwr",
    b"# gpu    pwr",
    b"# gpu     sm",
    b"# gpu        pid",
    b"# gpu         pid",
    b"HH:MM:SS    Idx",
    b"#Entity   ",
    b'"gpu_usage:0"',
)
SMI_QUERY = re.compile(
    rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?\s{0,200}={5,40}NVSMI LOG={5,40}\s"
    rb"|\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?(?:<!DOCTYPE nvidia_smi_log[^>]{0,2000}>\s{0,200})?"
    rb"(?:<![^>]{0,2000}>\s{0,200}|\]>\s{0,200}){0,50}<nvidia_smi_log>"
)
TOPOLOGY = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?(?:<!--(?:[^-]|-(?!->)){0,20000}-->\s{0,200}){0,5}"
    rb"(?:<!DOCTYPE[^<]{0,2000}(?:<!(?:ENTITY|ELEMENT)[^<]{0,2000}){0,50}\s{0,200})?<(?:system|graphs) version=\""
)
RAS = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{(?=[^{}\[\]]{0,2000}\"nccl_version\" ?:)[^{}]{0,2000}\"communicators(?:_count)?\" ?:"
)
INSPECTOR = re.compile(
    rb"\A\s{0,200}\{\s{0,20}\"header\" ?: ?\{[^{}]{0,2000}\"n_ranks\" ?:[^{}]{0,2000}\}"
    rb"\s{0,20},\s{0,20}\"(?:metadata|coll_perf|p2p_perf)\" ?:"
)
KUBERNETES = re.compile(
    rb"\A(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*|---[^\n]*)?\r?\n){0,40}(?=(?:[^\n]*\n){0,400}?kind: ?[\"']?"
    rb"(?:TFJob|PyTorchJob|MPIJob|PaddleJob|XGBoostJob|JAXJob|Pod|Job|StatefulSet|Deployment|DaemonSet|ReplicaSet|List)\b)"
    rb"(?:apiVersion|kind|metadata|spec): ?"
    rb"|\AName: +\S{1,253}\r?\nRoles: "  # kubectl describe node
)
PACKAGES = re.compile(
    rb"\A(?:# packages in environment at |# EFA installer version: |Package +Version *(?:Editable project location *)?\r?\n-{4,}"
    rb"|(?:[A-Za-z0-9][\w.-]{0,80}==[\w.+!-]{1,60}\r?\n){5})"
)
NODE_INSIDE = (
    b"GPU0\tGPU1",
    b"GPU0    GPU1",
    b"CPU Affinity",
    b"Link 0: ",
    b"CA type: ",
    b"Infiniband device '",
    b"hca_id:",
    b"Size  Used by",
    b"    domain: ",
    b"[ERROR] [tid ",
)
