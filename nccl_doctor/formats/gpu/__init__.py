"""What monitoring tools say about GPUs: samples over time, and the state that `nvidia-smi -q` prints."""

import re

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

TITLE = rb"[A-Za-z_][A-Za-z_.0-9]{0,60}(?: \[[^\]\n]{1,12}\])?"
SAMPLE = (
    rb"(?:utilization\.(?:gpu|memory|aip)|power\.draw(?:\.\w{1,20})?|memory\.used|clocks[\w.]{1,60}|temperature\.gpu"
    rb"|ecc\.errors\.[\w.]{1,60}|retired_pages\.\w{1,30}(?:\.count)?|remapped_rows\.\w{1,30})"
    rb"(?: \[[^\]]{1,12}\])?"
)
# titles of people's own, all of which are of samples, the first of a time
_OWN_TITLE = (
    rb"(?:gpu(?:_id|_index)?|index(?:_gpu)?|(?:gpu_)?(?:name|uuid)|pci_bus_id|(?:gpu_)?(?:util(?:ization)?(?:_percent|_pct)?"
    rb"|mem(?:ory)?_(?:used|total|free)(?:_mb|_mib)?|mem(?:ory)?_util(?:ization)?(?:_percent|_pct)?"
    rb"|mem(?:ory)?_(?:percent|pct)|power(?:_draw|_usage|_limit)?(?:_w|_watts)?|temp(?:erature)?(?:_c)?|fan(?:_speed)?(?:_percent|_pct)?"
    rb"|(?:sm|gr|graphics|mem(?:ory)?)_clock(?:_mhz)?|clocks?_(?:sm|gr|graphics|mem(?:ory)?)(?:_mhz)?))"
)
OWN_HEADER = (
    rb"(?:timestamp|time|datetime)(?:, ?" + _OWN_TITLE + rb"(?: ?\((?:%|MB|MiB|W|C|MHz)\))?){2,12}[ \t]*(?:\r?$|\r?\n)"
)
_QUANTITY = rb"(?=[^\n]{0,2000}?(?:util|gpu_(?:use|busy|load)|power|temp|mem_|memory|vram|clock))"
_OTHERS = rb"(?:, ?[A-Za-z_][\w.%/-]{0,60}(?: ?[(\[][^)\]\n,]{1,12}[)\]])?){1,60}[ \t]{0,20}(?=\r?\n|\r?\Z)"
DEVICE = rb"(?i:card|cuda:?|gpu|nvidia|device)[ _:-]?\d{1,3}"
# titles of which the second is of a GPU, or of what the rows name as one, among them one that monitors show
DEVICE_HEADER = (
    rb"(?:timestamp|time|datetime|date), ?(?:(?:gpu(?:_id|_index)?|card(?:_id)?)" + _QUANTITY + _OTHERS
    + rb"|device(?:_id|_name)?" + _QUANTITY + _OTHERS + rb"(?=\r?\n[^,\n]{1,40}, ?" + DEVICE + rb" ?,))"
)  # fmt: skip
# a row with units and without titles: behind a time stamp, or the number, the UUID or the address of a GPU
BARE_ROW = (
    rb"(?:\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}|\d{1,3}|GPU-[0-9a-f]{8}-[0-9a-f-]{27}|[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d),"
    rb" [^\n]{0,400}?\d (?:%|MiB|W|MHz)"
)
# the same without units: behind a time stamp, or rows of numbers of which the first shows a power, or two have the whole memory in common
_NUMBER_CELL = rb"(?:\d{1,6}(?:\.\d\d)?|\[N/A\]|P\d{1,2}|NVIDIA [\w -]{2,40}|Tesla [\w -]{2,40}|GPU-[0-9a-f-]{36})"
NAMELESS = (
    rb"(?:\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}(?:, [\w. :-]{1,60}){3,80}\r?\n"
    rb"|0(?=[^\n]{0,400}, \d{2,3}\.\d\d[,\r\n]|[^\n]{0,400}, (?P<whole>\d{5,6})[,\r\n][^\n]{0,400}\n[^\n]{0,400}, (?P=whole)[,\r\n])"
    rb"(?:, " + _NUMBER_CELL + rb"){2,40}\r?\n[01](?:, " + _NUMBER_CELL + rb"){2,40}\r?\n)"
)
_START = rb"\A(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*)?\r?\n){0,5}"

FORMATS = (
    Format(
        "gpu-samples",
        "samples",
        tables=("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "gpu_process"),
        begins=compiled(
            _START
            + rb"(?:(?:"
            + TITLE
            + rb",[ \t]*){0,400}"
            + SAMPLE
            + rb"[ \t]*(?:,|\r?\n|\Z)"  # nvidia-smi --query-gpu
            rb"|"
            + OWN_HEADER
            + rb"|"
            + DEVICE_HEADER
            + rb"|"
            + BARE_ROW
            + rb"[ \t]*(?:,|\r?\n|\Z)"  # without its header
            rb"|"
            + NAMELESS  # nor its units
            + rb""
            rb"|[a-z_, ]{0,60}pid, [^\n]{0,80}used_(?:gpu_)?memory \[MiB\])"  # --query-compute-apps
            rb"|\A\s{0,200}#\s?(?:Date,? +Time,? +)?gpu(?: +|, ?)(?:pwr|sm|pid|gtemp|fb|rxpci)[ ,][^\n]*\n"  # dmon, pmon
            rb"\s{0,20}# ?(?:YYYYMMDD,? +HH:MM:SS,? +)?Idx[ ,]"
            rb"|\A\s{0,200}#\s?Entity +[A-Z0-9]{4,6}\b"  # dcgmi dmon
            rb"|\A\s{0,200}\[?\s{0,200}\{[^{}]{0,4000}\"system[./]gpu\.\d{1,3}\.\w{1,40}\" ?:"  # wandb-events.jsonl
            rb"|\A\s{0,200}\[?\s{0,200}\{[^{}]{0,4000}\"gpu_usage:\d"  # SuperBench
            rb"|\A\s{0,200}\[?\s{0,200}\{(?=[^{}]{0,4000}\"(?:index|gpu|gpu_id|gpu_index|minor_number|device)\" ?:)"
            rb"[^{}]{0,4000}\"(?:utilization[._]gpu|gpu_util(?:ization)?|util(?:ization)?)\" ?:"
            rb"|\A\s{0,200}\{(?=[^\[\]]{0,400}\"gpus\" ?: ?\[)[\s\S]{0,1000}\"utilization\.gpu\" ?:"  # gpustat --json
            rb"|\A\s{0,200}\{[^\[\]{}]{0,1000}\"gpus\" ?: ?\{\s{0,40}\"\D{0,20}\d{1,3}\" ?: ?\{"
            rb"[^{}]{0,600}\"(?:gpu_)?util(?:ization)?\" ?:"
            rb"|\A\s{0,200}\{[\s\S]{0,2000}\"gpu_utilization\" ?: ?\{"  # jobstats
            rb"|\A\s{0,20}[\w.-]{1,253} {1,60}[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d[^\n]{0,60}\n"
            rb"\[\d{1,3}\] [^\n|]{1,100}\|"  # gpustat
        ),
        inside=(
            b"utilization.gpu [%]",
            b"used_gpu_memory [MiB]",
            b"# gpu   pwr",
            b"# gpu    pwr",
            b"# gpu     sm",
            b"# gpu        pid",
            b"# gpu         pid",
            b"HH:MM:SS    Idx",
            b"#gpu, ",
            b"HH:MM:SS, Idx",
            b"#Entity   ",
            b'"gpu_usage:0"',
        ),
        after=("recording", "profile-summary", "amd-smi"),  # whose samples of GPUs have the same keys
        leads=True,
    ),
    Format(
        "amd-smi",
        "amd.smi",
        tables=("gpu_use", "gpu_sample", "gpu_throttle", "amd_gpu", "link_counter"),
        begins=compiled(
            _START + rb"(?:GPU: \d{1,4}\r?\n {4}[A-Z_]{3,30}:"  # amd-smi metric, static
            rb"|(?:timestamp,)?gpu,(?:gfx_activity|[a-z_0-9,]{0,2000}(?:socket_power|gfx_activity|market_name|total_vram|power_usage|gfx_clk|hotspot_temperature|pviol)\b)"
            rb"|device,[^\n]{0,4000}(?:GPU use \(%\)|Graphics Package Power|VRAM Total|Temperature \(Sensor)"  # rocm-smi --csv
            rb"|(?:TIMESTAMP +)?GPU +(?:XCP +)?(?:POWER|GPU_T(?:EMP)?|GFX_(?:UTIL|CLK)|MEM_UTIL|VRAM_USED|PVIOL) +"
            rb"[A-Z_ %0-9]{3,400}\n"  # amd-smi monitor
            rb"|[^{\[\n]{0,200}\n?\s{0,20}\[?\s{0,20}\{\s{0,40}\"(?:gpu_data|gpu|timestamp)\"\s{0,4}:(?=[\s\S]{0,8000}?\"(?:gfx_activity|socket_power|"
            rb"market_name|used_vram)\")"
            rb"|\s{0,20}\{\s{0,40}\"card\d{1,4}\"\s{0,4}:\s{0,4}\{"  # rocm-smi --json
            rb"|(?:\s{0,20}WARNING: AMD GPU[^\n]{0,200}\n)?\s{0,200}={2,80} ?ROCm System Management Interface ?={2,80}"
            rb"|GPU\[\d{1,4}\]\s{1,20}: )"
        ),
        inside=(
            b"ROCm System Management Interface",
            b"        GFX_ACTIVITY: ",
            b"GPU  POWER",
            b"GPU  XCP  POWER",
            b" PVIOL ",
        ),
        reach=1 << 20,
        heading=compiled(
            rb"^(?:={2,80} ?ROCm System Management Interface ?=|GPU: \d{1,4}\s{0,4}$"
            rb"|(?:TIMESTAMP +)?GPU  (?:XCP  )?(?:POWER | {0,8}PVIOL ))",
            re.MULTILINE,
        ),
        leads=True,
    ),
    Format(
        "gpu-metrics",
        "prometheus",
        tables=("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "active_test", "link_counter"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:[^\n]{0,2000}\n){0,400}?(?:# (?:HELP|TYPE) )?"
            rb"(?:DCGM_(?:FI_(?:DEV|PROF)|EXP)_|nvidia_smi_|dcgm_(?:gpu|sm|fb|memory|power|xid)_)\w{2,80}[ {]"
            rb"|\A(?:\xef\xbb\xbf)?\s{0,20}\{\s{0,4}\"metric\"\s{0,4}:\s{0,4}\{(?=[^{}]{0,3000}\"__name__\"\s{0,4}:\s{0,4}\"(?:DCGM_FI_|nvidia_smi_))"
            rb"[^{}]{0,3000}\}\s{0,4},\s{0,4}\"(?:values|timestamps)\"\s{0,4}:"  # VictoriaMetrics
            rb"|\A\s{0,200}\{\s{0,20}\"status\" ?: ?\"success\",(?=[\s\S]{0,60000}?\"__name__\" ?: ?\"(?:DCGM_FI_|DCGM_EXP_|nvidia_smi_))"
        ),
        inside=(b"\nDCGM_FI_DEV_", b"# TYPE DCGM_", b"\nnvidia_smi_", b"\ndcgm_gpu_", b"# TYPE dcgm_"),
        reach=1 << 20,
        leads=True,
    ),
    Format(
        "accelerator-samples",
        "collected.accelerators",
        tables=("gpu_use", "gpu_sample", "gpu_throttle", "active_test"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,20}(?:nvidia_smi,[\w-]{1,60}=[^\n]{1,4000} \w{1,60}="  # Telegraf
            rb"|Timestamp, DeviceId, [^\n]{0,400}GPU "  # xpu-smi dump
            rb"|\{[^\n]{0,60}\"neuron_runtime_data\""
            rb"|\[\s{0,40}\{\s{0,40}\"device_name\"\s{0,4}:[^{}]{0,400}\"gpu_clock\""  # nvtop -s
            rb"|\+-{20,200}\+\r?\n\| npu-smi )"
        ),
        inside=(b"| npu-smi ", b"Timestamp, DeviceId, "),
        reach=1 << 20,
        heading=compiled(rb"^(?:\| npu-smi |Timestamp, DeviceId, )", re.MULTILINE),
        leads=True,
    ),
    Format(
        "accelerator-tables",
        "collected.other_tables",
        tables=("gpu_use", "gpu_sample", "gpu_throttle"),
        inside=(b" HL-SMI", b" XPU-SMI", b" IX-SMI"),
        reach=1 << 20,
    ),
    Format(
        "panel-csv",
        "panel_csv",
        tables=("gpu_use", "gpu_sample", "gpu_throttle", "panel_series"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:sep=,\r?\n)?\"?Time\"?(?:,(?:\"(?:[^\"\r\n]|\"\"){1,4000}\"|[^\",\r\n]{1,400})){1,4096}\r?\n"
            rb"\"?(?:20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d|1\d{12}[\",])"
        ),
        leads=True,
        quotes=True,
    ),
    Format(
        "dcgm-job-stats",
        "collected.dcgm_stats",
        tables=("gpu_use", "gpu_throttle"),
        inside=(b"| GPU ID: ", b"|-----  Execution Stats "),
    ),
    Format(
        "dcgm-results",
        "dcgm",
        tables=("active_test",),
        begins=compiled(
            rb"\A\s{0,200}(?:Successfully ran diagnostic[^\n]{0,80}\n\s{0,20})?"
            rb"\+[-+]{4,200}\r?\n\| (?:Diagnostic +\| Result|Health Monitor Report)"
            rb"|\A\s{0,200}\{\s{0,40}\"DCGM (?:GPU )?Diagnostic\""
            rb"|\A\s{0,200}\{\s{0,40}\"body\"\s{0,4}:\s{0,4}\{(?=[\s\S]{0,60000}?\"Overall Health\")"
        ),
        inside=(
            b"Successfully ran diagnostic for group",
            b"| Health Monitor Report",
            # a part of the table, as people quote it
            *(b"-----  %s  --" % part for part in (b"Deployment", b"Hardware", b"Integration", b"Stress")),
            *(
                b"| %s - %s" % (word, whom)
                for word in (b"Pass", b"Fail", b"Warn", b"Skip")
                for whom in (b"GPU", b"All")
            ),
        ),
        logged=True,
        reach=4 << 20,
        leads=True,
    ),
    Format(
        "nvidia-smi-q",
        "smi_query",
        tables=("node_driver", "node_gpu", "gpu_health", "link_counter", "node_gpu_error"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?\s{0,200}={5,40}NVSMI LOG={5,40}\s"
            # what people copy of it: the part of a GPU, behind the command
            rb"|\A(?:\xef\xbb\xbf)?(?:[^\n]{0,200}\n){0,3}GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s{0,9}\n {4}[A-Z]"
            # its first lines without the head
            rb"|\A(?:\xef\xbb\xbf)?(?:[^\n]{0,200}\n){0,2}(?:Timestamp|Driver Version|Attached GPUs) {20,60}: "
            # or a part of that, as `grep -A` leaves it
            rb"|\A(?:\xef\xbb\xbf)?(?:[^\n]{0,200}\n){0,2} {4}(?:Fabric|ECC Errors|Remapped Rows|Retired Pages"
            rb"|Clocks (?:Throttle|Event) Reasons|(?:GPU )?Power Readings|FB Memory Usage|Temperature|Utilization)"
            rb" {0,40}\r?\n {8}[A-Z][\w ]{1,60}: "
            rb"|\A(?:\xef\xbb\xbf)?\s{0,200}(?:<\?xml[^>]{0,200}\?>\s{0,200})?"
            rb"(?:<!DOCTYPE nvidia_smi_log[^>]{0,2000}>\s{0,200})?(?:<![^>]{0,2000}>\s{0,200}|\]>\s{0,200}){0,50}<nvidia_smi_log>"
        ),
        inside=(b"==NVSMI LOG==",),
        reach=4 << 20,
        leads=True,
    ),
    Format(
        "nvidia-smi",
        "smi_table",
        tables=("node_driver", "node_gpu", "gpu_health", "gpu_process", "node_gpu_error", "gpu_use", "gpu_sample"),
        inside=(b"| NVIDIA-SMI ",),
        after=("nvidia-smi-q",),
    ),
    Format(
        "gpu-list",
        "gpu_list",
        tables=("listed_gpu",),
        inside=(b"(UUID: GPU-", b"| GPU ID | Device Information", b"| GPU instances: ", b"HSA System Attributes"),
        reach=4 << 20,
    ),
)
