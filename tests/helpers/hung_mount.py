"""A mount that never answers, as NFS does when its server is away: FUSE without a server, in a mount namespace of its own.

`python hung_mount.py FOLDER COMMAND...` mounts it at FOLDER, runs the command and ends with its status.
"""

import ctypes
import os
import subprocess
import sys

DEADLINE = 240.0  # seconds; only ends a command that hangs


def main() -> int:
    folder, *command = sys.argv[1:]
    server = os.open("/dev/fuse", os.O_RDWR)  # nobody reads the requests
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None, use_errno=True).mount(b"server:/home", folder.encode(), b"fuse.nfs", 0, options.encode()):
        print("cannot mount", os.strerror(ctypes.get_errno()), file=sys.stderr)
        return 77
    process = subprocess.Popen(command, close_fds=True)
    try:
        return process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        print("the command hangs", file=sys.stderr)
        return 124
    finally:
        os.close(server)


if __name__ == "__main__":
    sys.exit(main())
