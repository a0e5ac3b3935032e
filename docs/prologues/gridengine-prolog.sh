#!/bin/sh
# prolog of a queue (run as root: `root@/path/gridengine-prolog.sh`): 1 sets the queue instance of a broken node in error
# and the job waits for another node; 100 sets a job in error that cannot work as launched.
exec "${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for gridengine --timeout 5 ${NCCL_DOCTOR_OPTIONS:-}
