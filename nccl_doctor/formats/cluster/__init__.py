"""What schedulers say about jobs."""

import re

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "slurm-accounting",
        "slurm_accounting",
        tables=("accounted_job", "message", "process_end"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?[ \t]{0,80}(?=[^\n]{0,4000}\bJobID(?:Raw)?\b)[A-Z][A-Za-z]{1,40}"
            rb"(?:(?: +[A-Z][A-Za-z]{1,40}){1,80} *\r?\n-|(?:[|,;\t^~#@&:]{1,2}[A-Z][A-Za-z]{1,40}){1,80}[|,;\t^~#@&:]{0,2}\r?\n"
            rb"| (?:[A-Z][A-Za-z]{1,40} ){1,80}[A-Z][A-Za-z]{1,40}\r?\n\d)"
            rb"|\A(?=\d{1,12}(?:[_+.][\w\[\],%-]{1,60})?\|)(?=[^\n]{0,2000}\|(?:COMPLETED|FAILED|TIMEOUT|OUT_OF_MEMORY|NODE_FAIL|PREEMPTED"
            rb"|CANCELLED(?: by \d{1,10})?|RUNNING|PENDING|DEADLINE)\|)(?=[^\n]{0,2000}\|\d{1,3}:\d{1,3}(?:\||\r?\n))"
            rb"|\A(?:\xef\xbb\xbf)?(?:\$ [^\n]{0,400}\n)?Job ID: \d{1,12}\S{0,40}\r?\n(?:Array Job ID: [^\n]{1,80}\n)?Cluster: "
        ),
        inside=(b"JobID ", b"JobID|", b"JobID,", b"JobIDRaw", b"Job Wall-clock time: "),
        reach=4 << 20,
        leads=True,
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
            rb"|\s{0,100}\"sinfo\"\s{0,100}:\s{0,100}\[\s{0,100}\{\s{0,100}\"(?:port|node)\""
            rb"|\s{0,100}\"(?:jobs|nodes)\"\s{0,100}:\s{0,100}\[\s{0,100}(?:\][^\[]{0,4000}\"openapi\\?/(?:v0|slurmctld)"
            rb"|\{[^\[\]]{0,4000}\"(?:job_state|accrue_time|batch_flag|array_job_id|architecture|boards|cpu_binding|state_flags)\"))"
        ),
        after=("slurm-json",),
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
        "slurm-state",
        "slurm_state",
        tables=("scheduler_node", "queued_job"),
        inside=(
            b" CoresPerSocket=",
            b" TIMESTAMP           NODELIST",
            b"NODELIST   NODES",
            b"NODELIST(REASON)",
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
            "pbs-accounting",
            "lsf-report",
            "environment-report",
            "tcp-test",
            "storage-test",
            "mpi-benchmark",
            "linpack",
            "message-benchmark",
            "collective-benchmark",
            "gpu-burn",
            "rate-benchmark",
            "dcgm-job-stats",
            "serving-benchmark",
            "pod-description",
            "kube-nodes",
            "gpu-list",
            "accelerator-samples",
            "cpu-exports",
            "gridengine-accounting",
        ),
        leads=True,
    ),
)
