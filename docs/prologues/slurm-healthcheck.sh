#!/bin/sh -p
# HealthCheckProgram= of slurm.conf: drains a broken node with a reason and gives back one that we
# drained and that is well again. A run that still hangs keeps the next one from starting.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
umask 077 # whoever can open the lock can hold it
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    ${SLURM_CONF+"SLURM_CONF=$SLURM_CONF"} ${SLURMD_NODENAME+"SLURMD_NODENAME=$SLURMD_NODENAME"} \
    /usr/bin/flock -n -E 0 /run/nccl-doctor.lock /bin/sh -p "${0%/*}/launch.sh" slurm-health --resume
case $? in
0 | 91) ;;
90) trap - EXIT; exit 1 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
