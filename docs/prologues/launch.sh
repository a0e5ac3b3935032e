#!/bin/sh -p
# Runs `preflight` for the scripts beside it: launch.sh CALLER [OPTION...]. Ends with 90 (drain this node), 91 (this job cannot work) or 0.
# Whatever else happens to the program - it is missing, crashes, hangs, is killed - ends with 0 and one line in syslog.
# Edit the first settings to fit the node; install this file on the node's own disk, where only root can write.
PYTHON=/opt/nccl-doctor/bin/python3
PROGRAM='-m nccl_doctor' # of a pyz: /opt/nccl-doctor/nccl-doctor.pyz, with PYTHON=/usr/bin/python3
CACHE=/opt/nccl-doctor/cache # where the pyz was unpacked when it was installed
LIMIT=30 # seconds until the program is killed; above `timeout` of /etc/nccl-doctor/preflight.toml
DEEP_LIMIT=900 # the same with --deep; above `deep_timeout`

umask 022
cd / || exit 0
case " $* " in *' --deep '*) LIMIT=$DEEP_LIMIT ;; esac

go_on() {
    set -f
    set -- $1 # one line
    echo "nccl-doctor: $*; nothing is drained" >&2
    /usr/bin/timeout 2 /usr/bin/logger -t nccl-doctor -p daemon.warning -- "$*; nothing is drained" >/dev/null 2>&1
    exit 0
}

# The program runs in the background and is not waited for: a process that blocks in the kernel cannot even be killed. Its last
# line is its exit status behind a mark that it does not know, so that nothing it prints can pass for one.
read -r mark </proc/sys/kernel/random/uuid || go_on 'no /proc'
export SHIV_ROOT="$CACHE"
unset SHIV_ENTRY_POINT SHIV_INTERPRETER SHIV_CONSOLE_SCRIPT SHIV_MODULE SHIV_PREPEND_PYTHONPATH SHIV_EXTEND_PYTHONPATH
ours() { # whether nobody but root can change what the pyz unpacked, or a virtual environment down to the folders of packages
    case $PROGRAM in
    *.pyz) where=$CACHE deep=99 ;;
    *) where=${PYTHON%/bin/*} deep=4 && [ -e "$where/pyvenv.cfg" ] || return 0 ;;
    esac
    foreign=$(/usr/bin/find "$where" -maxdepth $deep ! -type l \( ! -user 0 -o -perm /022 \) -print -quit 2>&1)
    [ -z "$foreign" ] || echo "not only root can change the program: $foreign"
    [ -z "$foreign" ]
}
answer=$(
    {
        {
            ours || { echo "$mark 125"; exit; }
            /usr/bin/timeout -k 2 "$LIMIT" "$PYTHON" -I $PROGRAM preflight --for "$@"
            echo "$mark $?"
        } </dev/null 2>&1 & # holds no file of the caller open
    } | /usr/bin/timeout $((LIMIT + 5)) /bin/sed "/^$mark /q"
)
case $answer in
*"$mark "*) status=${answer##*"$mark "} ;;
*) go_on "$PYTHON does not end: does its file system hang?" ;;
esac
text=${answer%"$mark "*}
last=${text%?}
last=${last##*"
"}
case $status in
0 | 90 | 91) ;;
2) [ "$1" = npd ] || go_on "preflight ended with status 2: $last" ;;
124 | 137) go_on "preflight gave no answer within $LIMIT s" ;;
127) go_on "$PYTHON was not found" ;;
*) go_on "preflight ended with status $status: $last" ;;
esac
if [ -n "$text" ]; then
    printf '%s' "$text" || go_on 'the report cannot be written'
fi
exit "$status"
