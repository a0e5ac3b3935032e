"""Hook of OpenPBS and PBS Professional for execjob_begin: a broken node goes offline, its job runs elsewhere.

qmgr -c "create hook nccl-doctor"
qmgr -c "set hook nccl-doctor event = execjob_begin"
qmgr -c "set hook nccl-doctor alarm = 60"
qmgr -c "set hook nccl-doctor fail_action = none"
qmgr -c "import hook nccl-doctor application/x-python default pbs_hook.py"
"""

import subprocess

import pbs

LAUNCH = [
    "/usr/bin/env",
    "-i",
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL=C",
    "/bin/sh",
    "-p",
    "/etc/nccl-doctor/launch.sh",
    "pbs",
]
DRAIN, JOB = 90, 91
OWNER = "nccl-doctor:"

event = pbs.event()
try:
    done = subprocess.run(
        LAUNCH, capture_output=True, text=True, errors="replace", timeout=50, stdin=subprocess.DEVNULL
    )
    status, lines = done.returncode, done.stdout.strip().splitlines()
except Exception as error:  # the check could not run, which says nothing about the node
    pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor could not run: {error}")
    status, lines = 0, []
reason = next((line for line in lines if line.startswith(OWNER)), f"{OWNER} see the log of the node")
if status == DRAIN:
    node = event.vnode_list[pbs.get_local_nodename()]
    if not node.comment or str(node.comment).startswith(OWNER):
        node.state = pbs.ND_OFFLINE
        node.comment = reason
    event.job.rerun()
    event.reject(reason)
elif status == JOB:
    event.job.delete()
    event.reject(reason)
else:
    event.accept()
