#!/bin/sh -p
# HOST_PRE_EXEC of a queue or application profile: 1 sends the job back to PEND, 99 ends a job that cannot work. LSF runs it as the
# user of the job, unless lsf.sudoers says LSB_PRE_POST_EXEC_USER=root, and drops what it prints: the reason is in syslog.
# With PREEXEC_EXCLUDE_HOST_EXIT_VALUES=1 in lsb.params the broken host is left out when the job is tried again;
# JOB_PREPROC_TIMEOUT must be larger than 40 s.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /bin/sh -p "${0%/*}/launch.sh" lsf >&2
case $? in
0) ;;
90) trap - EXIT; exit 1 ;;
91) trap - EXIT; exit 99 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
