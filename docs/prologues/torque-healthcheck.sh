#!/bin/sh -p
# $node_check_script of mom_priv/config, with `$node_check_interval 5,jobstart`: a line that starts with ERROR takes the node out
# when $down_on_error is 1. Nothing else is printed to stdout.
trap 'exit 0' EXIT # where the shell cannot start a process it would end with 2 or 254
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /bin/sh -p "${0%/*}/launch.sh" torque
case $? in
0 | 90 | 91) ;;
*) /usr/bin/env -i /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- \
    "launch.sh ended with status $?: is it missing? nothing is drained" >/dev/null 2>&1 ;;
esac
exit 0
