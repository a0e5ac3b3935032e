#!/bin/sh -p
# Prolog= and Epilog= of slurm.conf, with PrologFlags=Alloc. A broken node is drained with a reason and its job goes back to the
# queue. Everything else runs the job. -p and the first command keep everything out that the environment could bring: functions,
# PATH, IFS, LD_LIBRARY_PATH, PYTHONPATH.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    ${SLURM_CONF+"SLURM_CONF=$SLURM_CONF"} ${SLURMD_NODENAME+"SLURMD_NODENAME=$SLURMD_NODENAME"} \
    ${SLURM_SCRIPT_CONTEXT+"SLURM_SCRIPT_CONTEXT=$SLURM_SCRIPT_CONTEXT"} ${SLURM_JOB_ID+"SLURM_JOB_ID=$SLURM_JOB_ID"} \
    ${SLURM_JOB_GPUS+"SLURM_JOB_GPUS=$SLURM_JOB_GPUS"} \
    /bin/sh -p "${0%/*}/launch.sh" slurm
case $? in
0 | 91) ;;
90) trap - EXIT; exit 1 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
