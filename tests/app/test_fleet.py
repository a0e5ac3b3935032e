"""Several nodes: what runs on them ends with the connection, and silent ones are one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.app import preflight
from nccl_doctor.cli.main import main
from nccl_doctor.facts import wire
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A tree of which a file never answers."""
    folder = tmp_path / "hanging"
    content = node.build("dgx-h100", host="node01")
    content.write(folder)
    file = folder / "proc/meminfo"
    file.unlink()
    os.mkfifo(file)
    return folder


def test_the_command_on_a_node_ends_with_the_connection(hanging: Path, tmp_path: Path) -> None:
    """`ssh` of this test runs the command here; whoever asked is killed."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\necho $$ > {tmp_path}/far\n"
        f"exec sh -c \"exec ${{1#nccl-doctor }} --root {hanging}\"\n".replace(
            "exec ${1#nccl-doctor }", f"exec {sys.executable} -m nccl_doctor ${{1#nccl-doctor }}"
        )
    )  # fmt: skip
    ssh.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "nccl_doctor", "preflight", "--state=-", "--nodes=n1", "--timeout=500"]
    near = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        until(lambda: near.poll() is not None or far(tmp_path / "far"))
        family = far(tmp_path / "far")
        assert family
    finally:
        near.kill()
        near.wait()
    until(lambda: not any(map(runs, family)), lambda: family)


def far(file: Path) -> list[int]:
    """The far command and its collectors, once some of them have started."""
    try:
        main_process = psutil.Process(int(file.read_text()))
        family = main_process.children(recursive=True)
    except (OSError, ValueError, psutil.Error):
        return []
    return [main_process.pid, *(one.pid for one in family)] if len(family) > 5 else []


def test_sixty_four_nodes_are_judged_and_silent_ones_are_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = node.build("dgx-h100", host="node01")
    content.write(tmp_path / "tree")
    (tmp_path / "facts").write_text(wire.dump(preflight.look(Root(tmp_path / "tree"), seconds=60.0)))
    via = f"sh -c 'case %host in g6*) echo ssh: no route to %host; exit 255;; esac; sed s/node01/%host/g {tmp_path}/facts' sh"
    status = main(["preflight", "--state=-", "--nodes=g[01-64]", "--via", via, "--format=json"])
    found = json.loads(capfd.readouterr().out)
    assert 3 == status
    assert [] == [one["name"] for one in found["findings"] if one["severity"] != "note"]
    assert "g[01-64]" == found["job"]["host_names"]
    assert ["node on g[60-64]: unreachable, exit status 255: ssh: no route to the node"] == found["missing"]
