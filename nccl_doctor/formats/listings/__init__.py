"""Tables in which commands list parts of machines and clusters, and what no other family reads of them."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

_TABLES = ("listed_state", "listed_number", "link_counter")
FORMATS = (
    Format("listed-things", "listed_things", tables=_TABLES, last=True),
    Format(
        "listed-faults",  # the same in a text in which a line looks like an error
        "listed_things",
        tables=_TABLES,
        inside=(
            b" READ WRITE CKSUM",
            b" Raid Level : ",
            b":HEADER:version:reserved:",
            b"IFACE    STATE ",
            b"Status    LED",
            b" degrees C",
            b" ping statistics ---",
            b"     state = ",
        ),
        reach=1 << 20,
        last=True,
        after=("listed-things",),
    ),
    Format(
        "slurm-columns",
        "slurm_columns",
        tables=("scheduler_node", "queued_job", "host_number"),
        begins=compiled(
            rb"\A\s{0,20}\d{1,9}/\d{1,9}/\d{1,9}/\d{1,9}\s{0,20}\Z"  # sinfo -h -o %C
            rb"|\A[A-Za-z][\w.-]{0,120}[ \t]{1,40}(?:gpu:|\(null\))\S{0,400}[ \t]{1,200}gpu:\S{1,400}[ \t]{1,400}"
            rb"[a-z]{2,14}[*~#!%$@^-]{0,2}\s"  # sinfo -h -N -O NodeHost,Gres,GresUsed,StateLong
        ),
        inside=(
            b"CPUS(A/I/O/T)",
            b"NODES(A/I/O/T)",
            b"HOSTNAMES ",
            b"JOBID ",
            b" TRES_PER_NODE",
            b"NODELIST ",
            b"FREE_MEM",
            b"CPU_LOAD",
        ),
        reach=4 << 20,
        after=("slurm-state",),
    ),
    Format(
        "job-lists",
        "job_lists",
        tables=("queued_job",),
        begins=compiled(rb"\A(?:\xef\xbb\xbf)?\s{0,20}(?:<\?xml[^>\n]{0,200}>\s{0,20})?<job_info[ >]"),
        inside=(
            b"job-ID     prior",
            b"job-ID  prior",
            b"Job id      ",
            b"Job ID      ",
            b"JOBID      USER ",
            b"JOBID   USER ",
            b"JOBID USER ",
        ),
        reach=4 << 20,
        after=("slurm-columns",),
    ),
)
