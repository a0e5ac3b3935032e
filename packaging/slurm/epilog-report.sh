#!/bin/sh -p
# Epilog= of slurm.conf (22.05), beside others: leaves OUTPUT.nccl-doctor.txt beside the output of a batch job that failed. Only
# the first node of the job does anything. The job's files are opened and written as the job's user, without privileges, for LIMIT
# seconds at most; nothing here fails an epilog or drains a node, and slurmctld is not asked.
trap 'exit 0' EXIT
PYTHON=/opt/nccl-doctor/bin/python3
LIMIT=30 # seconds; PrologEpilogTimeout has to be larger
umask 022
cd / || exit 0

for number in "${SLURM_JOB_UID-}" "${SLURM_JOB_GID-}"; do
    case $number in '' | *[!0-9]*) exit 0 ;; esac
done
case ${SLURM_JOB_EXIT_CODE2:-0:0} in 0:0) exit 0 ;; esac
case ${SLURM_JOB_STDOUT-} in /*) ;; *) exit 0 ;; esac
clean() {
    /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 HOME=/ "$@"
}
nodes=$(clean ${SLURM_CONF+"SLURM_CONF=$SLURM_CONF"} /usr/bin/timeout -k 1 5 scontrol show hostnames "${SLURM_NODELIST-}" 2>/dev/null)
[ "${nodes%%
*}" = "${SLURMD_NODENAME-}" ] || exit 0

# As in launch.sh: run in the background and not waited for, because a process that blocks in the kernel cannot be killed.
{
    {
        clean /usr/bin/nice /usr/bin/setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups --no-new-privs \
            --inh-caps=-all /usr/bin/timeout -k 2 "$LIMIT" /bin/sh -c \
            '[ -f "$1" ] && exec "$2" -I -m nccl_doctor analyze --fail-on never -o "$1.nccl-doctor.txt" -- "$1"' \
            sh "$SLURM_JOB_STDOUT" "$PYTHON" </dev/null >/dev/null 2>&1
        echo ended
    } &
} | /usr/bin/timeout $((LIMIT + 5)) /bin/sed /ended/q >/dev/null
exit 0
