#!/bin/sh -p
# prolog of a queue, run as root: `prolog root@/etc/nccl-doctor/gridengine-prolog.sh`. 1 puts the queue instance of a broken node
# in error and the job waits for another node; 100 puts a job in error that cannot work as launched. Grid Engine hands over the
# variables of `qsub -v`: none of them is kept.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /bin/sh -p "${0%/*}/launch.sh" gridengine
case $? in
0) ;;
90) trap - EXIT; exit 1 ;;
91) trap - EXIT; exit 100 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
