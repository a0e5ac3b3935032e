#!/bin/sh
# Host-based PRE_EXEC of a queue or application profile: 1 sends the job back to PEND, 99 ends a job that cannot work.
# With PREEXEC_EXCLUDE_HOST_EXIT_VALUES=1 in lsb.params the broken host is left out when the job is tried again.
"${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for lsf --timeout 5 ${NCCL_DOCTOR_OPTIONS:-} >&2
