#!/bin/sh
# HealthCheckProgram= of slurm.conf: drains a broken node and gives back one that we drained and that is well again.
# A run that still hangs keeps the next one from starting.
exec flock --nonblock /run/nccl-doctor.lock \
    "${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for slurm-health --resume --timeout 20 ${NCCL_DOCTOR_OPTIONS:-}
