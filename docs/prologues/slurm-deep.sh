#!/bin/sh -p
# Runs the tests of --deep, which take minutes and use the GPUs, and drains or gives back the node as the health check does: by
# hand or from a timer on a drained node, or as Epilog= of slurm.conf with PrologEpilogTimeout above DEEP_LIMIT of launch.sh.
# HealthCheckProgram is killed after 60 s. One run at a time.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
umask 077 # whoever can open the lock can hold it
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    ${SLURM_CONF+"SLURM_CONF=$SLURM_CONF"} ${SLURMD_NODENAME+"SLURMD_NODENAME=$SLURMD_NODENAME"} \
    /usr/bin/flock -n -E 0 /run/nccl-doctor-deep.lock /bin/sh -p "${0%/*}/launch.sh" slurm-health --deep --resume
case $? in
0 | 91) ;;
90) trap - EXIT; exit 1 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
