#!/bin/sh
# TaskProlog= of slurm.conf: sees the job's own environment and tells the job, in its output, what will not work.
# It never fails a task unless --strict is added.
exec "${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for slurm-task --timeout 3 ${NCCL_DOCTOR_OPTIONS:-}
