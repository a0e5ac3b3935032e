"""Screens of the live view that tests drive."""

import os
from typing import Any

from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.playing import IdleSource


def live(pid: int, **options: Any) -> Watch:
    """A screen that knows one process, which runs on this node."""
    app = Watch(lambda _: IdleSource(), interval=60.0, **options)
    one = {"pid": pid, "rank": 0, "user": "me", "job": None, "command": "python train.py", "state": "running"}
    head = {"hostname": os.uname().nodename, "query_time": "2026-01-01T00:00:00.000+00:00"}
    app.add_record({"kind": "process", **head, "processes": [one]})
    return app
