"""What schedulers say about jobs."""

import re

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

_STATE = (
    rb"(?:idle|alloc(?:ated)?|mix(?:ed)?|drain(?:ed|ing)?|drng|down|comp(?:leting)?|maint|resv|reserved|fail|planned|plnd)"
    rb"[*~#!%$@^-]{0,2}"
)
FORMATS = (
    Format(
        "slurm-accounting",
        "slurm_accounting",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?[ \t]{0,80}(?=[^\n]{0,4000}\bJobID(?:Raw)?\b)[A-Z][A-Za-z]{1,40}"
            rb"(?:(?: +[A-Z][A-Za-z]{1,40}){1,200} *\r?\n-|(?:[|,;\t^~#@&:]{1,2}[A-Z][A-Za-z]{1,40}){1,200}[|,;\t^~#@&:]{0,2}\r?\n"
            rb"| (?:[A-Z][A-Za-z]{1,40} ){1,80}[A-Z][A-Za-z]{1,40}\r?\n\d)"
            rb"|\A(?:\xef\xbb\xbf)?(?=[^\n]{0,4000}\|State\b)(?=[^\n]{0,4000}\b(?:ReqTRES|ReqMem|CPUTimeRAW|TimelimitRaw|AllocTRES)\b)"
            rb"[A-Z][A-Za-z]{1,40}(?:\|[A-Z][A-Za-z]{1,40}){2,200}\|?\r?\n"  # without the numbers of the jobs
            rb"|\A(?=\d{1,12}(?:[_+.][\w\[\],%-]{1,60})?\|)(?=[^\n]{0,2000}\|(?:COMPLETED|FAILED|TIMEOUT|OUT_OF_MEMORY|NODE_FAIL|PREEMPTED"
            rb"|CANCELLED(?: by \d{1,10})?|RUNNING|PENDING|DEADLINE)\|)(?=[^\n]{0,2000}\|\d{1,3}:\d{1,3}(?:\||\r?\n))"
            rb"|\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?Job ID: \d{1,12}\S{0,40}\r?\n(?:Array Job ID: [^\n]{1,80}\n)?Cluster: "
        ),
        inside=(b"JobID ", b"JobID|", b"JobID,", b"JobIDRaw", b"Job Wall-clock time: "),
        reach=4 << 20,
        leads=True,
    ),
    Format(
        "jobstats-report",
        "jobstats_report",
        tables=("accounted_job", "message", "process_end", "gpu_use"),
        inside=(b"Slurm Job Statistics",),
        reach=1 << 20,
        after=("slurm-accounting",),
    ),
    Format(
        "slurm-json",
        "slurm_json",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?\s{0,100}\{(?:[^\[\]]{0,800}\"openapi\\?/(?:db|slurmdbd)"
            rb"|\s{0,100}\"jobs\"\s{0,100}:\s{0,100}\[\s{0,100}\{[^\]]{0,4000}\"allocation_nodes\")"
        ),
    ),
    Format(
        "slurm-state-json",
        "slurm_state_json",
        tables=("scheduler_node", "queued_job"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?\s{0,100}\{(?:[^\[\]]{0,800}\"openapi\\?/(?:v0\.0\.\d\d|slurmctld)\""
            # a single job or node of slurmrestd or scontrol, taken out of its list
            rb"|\s{0,40}\"(?:account|accrue_time|job_id)\"\s{0,4}:(?=[\s\S]{0,20000}?\"job_state\"\s{0,4}:)"
            rb"|\s{0,40}\"(?:architecture|hostname|name)\"\s{0,4}:(?=[\s\S]{0,20000}?\"(?:real_memory|cpu_load|alloc_cpus)\"\s{0,4}:)"
            rb"|\s{0,100}\"sinfo\"\s{0,100}:\s{0,100}\[\s{0,100}\{\s{0,100}\"(?:port|node)\""
            rb"|\s{0,100}\"(?:jobs|nodes)\"\s{0,100}:\s{0,100}\[\s{0,100}(?:\][^\[]{0,4000}\"openapi\\?/(?:v0|slurmctld)"
            rb"|\{[^\[\]]{0,4000}\"(?:job_state|accrue_time|batch_flag|array_job_id|architecture|boards|cpu_binding|state_flags)\"))"
        ),
        after=("slurm-json", "slurm-controller"),
    ),
    Format(
        "kube-nodes-json",
        "kube_nodes_json",
        tables=("kube_node", "kube_resource"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?\s{0,100}\{\s{0,40}(?:\"apiVersion\"\s{0,4}:\s{0,4}\"v1\"\s{0,4},\s{0,40})?"
            rb"(?:\"items\"\s{0,4}:\s{0,4}\[\s{0,40}\{\s{0,40}(?:\"apiVersion\"\s{0,4}:\s{0,4}\"v1\"\s{0,4},\s{0,40})?)?"
            rb"\"kind\"\s{0,4}:\s{0,4}\"Node(?:List)?\""
        ),
    ),
    Format(
        "gridengine-accounting",
        "gridengine_accounting",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(rb"\A(?:\$ [^\n]{0,400}\n)?={40,100}\s?\nqname {1,40}\S"),
        inside=(b"\nqname  ",),
        reach=1 << 20,
        heading=compiled(rb"^qname {2,40}\S", re.MULTILINE),
        leads=True,
    ),
    Format(
        "pbs-accounting",
        "pbs_accounting",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(rb"\A\s{0,100}\{[^{}]{0,400}\"pbs_version\"[^{}]{0,400}\"Jobs\"\s{0,100}:"),
        inside=(b"    job_state = ",),
        reach=1 << 20,
        after=("training-steps",),
    ),
    Format(
        "lsf-report",
        "lsf_report",
        tables=("accounted_job", "process_end"),
        inside=(b"Resource usage summary:",),
        reach=1 << 20,
        after=("training-steps",),
    ),
    Format(
        "lsf-history",
        "lsf_history",
        tables=("accounted_job",),
        inside=(b"Summary of time in seconds spent in various states",),
        reach=1 << 20,
        after=("training-steps",),
    ),
    Format(
        "htcondor-log",
        "htcondor_log",
        tables=("accounted_job", "process_end"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\d{3} \(\d{1,12}\.\d{1,9}\.\d{1,9}\) (?:\d{4}-\d\d-\d\d|\d\d/\d\d) \d\d:\d\d:\d\d(?:\.\d{1,6})? [A-Z]"
        ),
    ),
    Format(
        "slurm-controller",
        "sdiag",
        tables=("host_number",),
        begins=compiled(
            rb"\A(?:\$ [^\n]{0,200}\n)?\*{40,80}\s?\nsdiag output at "
            rb"|\A(?:\xef\xbb\xbf)?\s{0,100}\{(?=[\s\S]{0,8000}?\"server_thread_count\"\s{0,4}:)(?=[\s\S]{0,8000}?\"agent_queue_size\"\s{0,4}:)"
        ),
        inside=(b"\nsdiag output at ",),
        reach=1 << 20,
    ),
    Format(
        "slurm-state",
        "slurm_state",
        tables=("scheduler_node", "queued_job"),
        # rows of `squeue -h`, `sinfo -h` and `sinfo -N -h -o "%N %T %E"`
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\s{0,40}\d{1,12}\S{0,60}\s{1,20}\S{1,40}\s{1,20}\S[^\n|]{0,80}?\s"
            rb"(?:PD|R|CG|CF|S|ST|SO|RQ|SE|PENDING|RUNNING|COMPLETING|CONFIGURING|SUSPENDED)"
            rb"(?:\s{1,20}(?:(?:\d{1,3}-)?\d{1,4}:\d\d(?::\d\d)?|UNLIMITED|INVALID)){1,2}\s{1,20}\d{1,6}\s{1,20}[(\w][^\n]{0,400}(?:\n|\Z)"
            rb"|\S{1,60}\s{1,20}(?:up|down|drain|inact)\s{1,20}(?:infinite|[\d:-]{4,16})\s{1,20}\d{1,6}\s{1,20}[a-z]{2,14}[*~#!%$@^-]{0,2}"
            rb"\s{1,20}\S{1,400}\s{0,20}(?:\n|\Z)"
            rb"|(?:\d{1,12}(?:_\w{1,20})?[,|](?:PENDING|RUNNING|COMPLETING|CONFIGURING|SUSPENDED|COMPLETED|FAILED|PD|R|CG|CF)\r?\n){3}"
            rb"|(?:[A-Za-z][\w.-]{0,80}\d[,|]" + _STATE + rb"\r?\n){3}"
            # `sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong`: numbers in front of the state
            rb"|(?:[A-Za-z][\w.-]{0,80}\d +(?:\d[\d.:]{0,15} +){0,6}\d{1,6}/\d{1,6}/\d{1,6}/\d{1,6} +(?:\d[\d.:]{0,15} +){0,6}"
            + _STATE
            + rb" *\r?\n){2}"
            rb"|(?:[A-Za-z][\w.,\[\]-]{0,200}\s{1,20}" + _STATE + rb"(?:\s{1,20}\S[^\n]{0,300})?\s{0,20}\n){2,4})"
        ),
        inside=(
            b" CoresPerSocket=",
            b" TIMESTAMP           NODELIST",
            b"NODELIST   NODES",
            b"NODELIST(REASON)",
            b"NODELIST     ",
            b"REASON     ",
            b"JOBID|",
            b"NODELIST|",
            b"|NODELIST",
            b" AVAIL_FE REASON",
            b"AVAIL  TIMELIMIT",
        ),
        reach=4 << 20,
    ),
    Format(
        "slurm-job",
        "scontrol_job",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(rb"\A(?:\$ [^\n]{0,400}\n)?\s{0,200}JobId=\d{1,12} (?:Array\w{3,6}Id=\S{1,80} ){0,3}JobName="),
        inside=(b" JobState=",),
        reach=1 << 20,
        after=(
            "training-steps",
            "cpu-samples",
            "dcgm-results",
            "fabric-checks",
            "fabric-links",
            "protocol-counters",
            "link-counters",
            "link-quality",
            "nvidia-smi-q",
            "slurm-state",
            "slurm-columns",
            "job-lists",
            "accelerator-tables",
            "pbs-accounting",
            "lsf-report",
            "lsf-history",
            "slurm-controller",
            "switch-state",
            "function-profile",
            "environment-report",
            "netperf-test",
            "storage-test",
            "mpi-benchmark",
            "linpack",
            "message-benchmark",
            "collective-benchmark",
            "gpu-burn",
            "rate-benchmark",
            "metadata-benchmark",
            "elbencho",
            "dcgm-job-stats",
            "serving-benchmark",
            "pod-description",
            "kube-nodes",
            "gpu-list",
            "accelerator-samples",
            "cpu-exports",
            "gridengine-accounting",
            "jobstats-report",
        ),
        leads=True,
    ),
)
