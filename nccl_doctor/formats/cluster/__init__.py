"""What schedulers say about jobs."""

import re

from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "slurm-job",
        "scontrol_job",
        tables=("message", "process_end"),
        begins=re.compile(
            rb"\A(?:\$ [^\n]{0,400}\n)?\s{0,200}JobId=\d{1,12} (?:Array\w{3,6}Id=\S{1,80} ){0,3}JobName="
        ),
        inside=(b" JobState=",),
        after=("training-steps",),
    ),
)
