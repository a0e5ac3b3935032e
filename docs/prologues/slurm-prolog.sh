#!/bin/sh
# Prolog= and Epilog= of slurm.conf (with PrologFlags=Alloc): a broken node is drained with a reason, its job goes back to
# the queue; a healthy node, or one that could not be looked at in time, runs the job.
exec "${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for slurm --timeout 5 ${NCCL_DOCTOR_OPTIONS:-}
