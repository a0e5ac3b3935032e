"""Hook of OpenPBS and PBS Professional for execjob_begin.

qmgr -c "create hook nccl-doctor"
qmgr -c "set hook nccl-doctor event = execjob_begin"
qmgr -c "set hook nccl-doctor alarm = 15"
qmgr -c "import hook nccl-doctor application/x-python default pbs_hook.py"
"""

import subprocess

import pbs

COMMAND = ["/opt/nccl-doctor/bin/nccl-doctor", "preflight", "--for", "pbs", "--timeout", "8"]

event = pbs.event()
try:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=12)
except Exception as error:  # the check could not run, which says nothing about the node
    pbs.logmsg(pbs.LOG_WARNING, f"nccl-doctor could not run: {error}")
    event.accept()
reason = (done.stdout.strip().splitlines() or ["nccl-doctor"])[0]
if done.returncode == 1:
    node = event.vnode_list[pbs.get_local_nodename()]
    if not node.comment or str(node.comment).startswith("nccl-doctor:"):
        node.state = pbs.ND_OFFLINE
        node.comment = reason
    event.job.rerun()
    event.reject(reason)
if done.returncode == 2:
    event.job.delete()
    event.reject(reason)
event.accept()
