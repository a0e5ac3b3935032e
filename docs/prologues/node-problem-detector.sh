#!/bin/sh -p
# Plugin of node-problem-detector: 0 the node is fit, 1 it is broken, 2 unknown.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /bin/sh -p "${0%/*}/launch.sh" npd
status=$?
[ -e "${0%/*}/launch.sh" ] || status=127 # dash ends with 2 where the file is missing, and that is "unknown" here
case $status in
0 | 91) ;;
90) trap - EXIT; exit 1 ;;
2) trap - EXIT; exit 2 ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $status: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
