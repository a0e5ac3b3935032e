#!/bin/sh -p
# TaskProlog= of slurm.conf: runs as the user, sees the job's own environment, and tells the job in its output what will not
# work, once a node. It never fails a task.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
case ${SLURM_LOCALID:-0} in
0) /bin/sh -p "${0%/*}/launch.sh" slurm-task ;;
esac
case $? in
0 | 90 | 91) ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
