#!/bin/sh -p
# HOST_PRE_EXEC of a queue or application profile, run as root: 1 sends the job back to PEND, 99 ends a job that cannot work.
# With PREEXEC_EXCLUDE_HOST_EXIT_VALUES=1 in lsb.params the broken host is left out when the job is tried again.
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /bin/sh -p "${0%/*}/launch.sh" lsf >&2
case $? in
90) exit 1 ;;
91) exit 99 ;;
esac
exit 0
