"""What `preflight` says where it can see little: without rights, GPUs, NVML, InfiniBand, or answers."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.other_user import run_as_nobody
from helpers.places import ROOT

from nccl_doctor.simulate import node


def run(*arguments: str, **options: Any) -> tuple[int, dict[str, Any], str]:
    """Exit status, the report and stderr of a new process."""
    command = [
        sys.executable,
        "-m",
        "nccl_doctor",
        "preflight",
        "--state=-",
        "--format=json",
        "--timeout=120",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def assert_sensible(status: int, report: dict[str, Any], stderr: str) -> None:
    assert "" == stderr
    assert report["fitness"] in ("fit", "unknown"), report["findings"]
    assert {"fit": 0, "unknown": 3}[report["fitness"]] == status
    assert [] == [one for one in report["job"]["collectors"] if one["outcome"] == "failed"]
    assert [] == [one["name"] for one in report["findings"] if one["action"] == "drain" and one["severity"] != "note"]


def test_this_machine_as_nobody(open_path: Path) -> None:
    done = run_as_nobody('sys.exit(main(["preflight", "--state=-", "--format=json", "--timeout=120"]))', open_path)
    report = json.loads(done.stdout or "{}")
    assert "" == done.stderr
    assert report["fitness"] in ("fit", "job", "unknown"), report["findings"]
    assert [] == [one for one in report["job"]["collectors"] if one["outcome"] in ("failed", "hung")]


def test_this_machine_without_an_environment() -> None:
    status, report, stderr = run(env={}, cwd=ROOT)
    assert "" == stderr
    assert report["fitness"] != "drain"
    assert status in (0, 1, 3)


def no_gpu(tree: node.Tree) -> None:
    for path in [link for link in tree.links if link.startswith("/sys/bus/pci/devices/")]:
        tree.remove(path)
    for path in ("/proc/driver/nvidia", "/sys/module/nvidia", "/usr/bin/nvidia-smi", "/etc/cdi", "/var/run/cdi"):
        tree.remove(path)
    for path in [path for path in tree.extra["stat"] if path.startswith("/dev/nvidia")]:
        tree.remove(path)
    tree.put("/sys/class/dmi/id/product_name", "Some Server 9000")
    tree.put("/sys/class/dmi/id/sys_vendor", "Somebody")
    tree.extra.pop("nvml", None)
    tree.extra["environ"] = {"HOME": "/home/alice", "PATH": "/usr/bin"}
    tree.extra["task"] = {"environ": {}, "uid": 1000}


def no_network(tree: node.Tree) -> None:
    no_gpu(tree)
    for path in ("/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband", "/sys/class/net"):
        tree.remove(path)


def bare(tree: node.Tree) -> None:
    """A container that shows next to nothing."""
    tree.put("/.dockerenv", "")
    for path in (
        "/sys",
        "/etc",
        "/dev",
        "/opt",
        "/usr",
        "/var",
        "/proc/driver",
        "/proc/sys",
        "/proc/net",
        "/proc/devices",
    ):
        tree.remove(path)
    tree.extra = {}


def empty(tree: node.Tree) -> None:
    tree.files, tree.links, tree.folders, tree.extra = {}, {}, {"/proc", "/.nccl-doctor"}, {}


@pytest.mark.parametrize("change", [no_gpu, no_network, bare, empty], ids=lambda change: change.__name__)
def test_a_tree_that_shows_little(change: Callable[[node.Tree], None], tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    change(tree)
    tree.write(tmp_path)
    assert_sensible(*run("--root", str(tmp_path)))


def test_no_nvml_although_there_are_gpus_is_the_jobs_matter(tmp_path: Path) -> None:
    node.build("dgx-h100", "nvml-library-missing").write(tmp_path)
    status, report, stderr = run("--root", str(tmp_path))
    assert ("", "job", 91) == (stderr, report["fitness"], status)


HANG = """
import signal, sys
from nccl_doctor.cli.main import main
from nccl_doctor.node.runtime import collect

def answer(name, root):
    signal.pause()
    yield

collect.answer = answer  # of children too, which are forked
sys.exit(main(["preflight", "--state=-", "--format=json", "--timeout=3", "--root", sys.argv[1]]))
"""


def test_every_source_hung_is_unknown(tmp_path: Path) -> None:
    node.build("l40s-pcie").write(tmp_path)
    done = subprocess.run([sys.executable, "-c", HANG, str(tmp_path)], capture_output=True, text=True, check=False)
    report = json.loads(done.stdout or "{}")
    assert ("", "unknown", 3) == (done.stderr, report["fitness"], done.returncode)
    assert {"hung"} == {one["outcome"] for one in report["job"]["collectors"]}
    assert len(report["job"]["collectors"]) == len(report["missing"])
