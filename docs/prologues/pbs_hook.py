"""Hook of OpenPBS and PBS Professional for execjob_begin: a broken node goes offline, its job runs elsewhere.

qmgr -c "create hook nccl-doctor"
qmgr -c "set hook nccl-doctor event = execjob_begin"
qmgr -c "set hook nccl-doctor alarm = 60"
qmgr -c "set hook nccl-doctor fail_action = none"
qmgr -c "import hook nccl-doctor application/x-python default pbs_hook.py"
"""

import json
import os
import select
import signal
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
LIMIT = 45  # seconds, above the 40 s of launch.sh; with SERVER below `alarm`, at which PBS kills the hook and rejects the job
SERVER = 8  # seconds for the server to tell the comments of vnodes
DRAIN, JOB = 90, 91
OWNER = "nccl-doctor:"


def check():
    """The status of launch.sh and its reason. A check that could not run says nothing about the node."""
    try:
        done = subprocess.run(
            LAUNCH, capture_output=True, text=True, errors="replace", timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    except Exception as error:
        pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor could not run: {error}")
        return 0, ""
    if done.returncode not in (0, DRAIN, JOB):
        pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor: launch.sh ended with status {done.returncode}: is it missing?")
    lines = [line for line in done.stdout.splitlines() if line.startswith(OWNER) and not line.startswith(f"{OWNER} ")]
    return done.returncode, (lines or [f"{OWNER} see the log of the node"])[0]


def comments(names):
    """Vnode -> its comment, which only the server knows; empty where it does not answer. The call cannot be interrupted, a child can."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = {name: str(pbs.server().vnode(name).comment or "") for name in names}
            os.write(writing, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = os.read(reading, 1 << 20) if select.select([reading], [], [], SERVER)[0] else b""
        return json.loads(answer or b"{}")
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def offline(event, reason):
    """Take the vnodes of this host out: the job may have others, and not the one that is named as the host."""
    host = pbs.get_local_nodename().lower()
    mine = [name for name in event.vnode_list if name.lower() == host or name.lower().startswith(f"{host}[")]
    try:
        told = comments(mine)
    except Exception as error:
        pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor does not know the comments of {', '.join(mine)}: {error}")
        told = {}
    for name in mine:
        event.vnode_list[name].state = pbs.ND_OFFLINE
        if name in told and (not told[name] or told[name].startswith(OWNER)):
            event.vnode_list[name].comment = reason


event = pbs.event()
status, reason = check()
if status == DRAIN:
    try:
        offline(event, reason)
    except Exception as error:
        pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor could not take the node offline: {error}")
    event.job.rerun()
    event.reject(reason)
elif status == JOB:
    event.job.delete()
    event.reject(reason)
else:
    event.accept()
