"""SELinux and AppArmor of a node: labels in trees and real ones, modes, profiles."""

import os
from pathlib import Path

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.tables import DeviceAccess, Mount, SecurityLabel, SecurityMode
from nccl_doctor.node.host import selinux
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import security

FAULTS = [name for name, fault in node.FAULTS.items() if fault.change.__module__.endswith("security")]


def look(folder: Path) -> Report:
    return preflight.report_of(preflight.look(Root(folder), ("selinux",), 20.0))


def alarms(report: Report) -> list[str]:
    return [finding.name for finding in report.findings if finding.severity != "note"]


@pytest.mark.parametrize(("number", "fault"), list(enumerate(FAULTS)), ids=FAULTS)
def test_a_planted_fault_comes_first(tmp_path: Path, number: int, fault: str) -> None:
    kinds = node.FAULTS[fault].machines
    node.build(kinds[number % len(kinds)], fault).write(tmp_path)
    report = look(tmp_path)
    assert [fault] == alarms(report)
    assert {"job": "job", "warn": "fit"}[report.findings[0].action] == report.fitness


@pytest.mark.parametrize("machine", list(node.MACHINES))
def test_a_healthy_node_raises_no_alarm(tmp_path: Path, machine: str) -> None:
    node.build(machine).write(tmp_path)
    report = look(tmp_path)
    assert ([], "fit") == (alarms(report), report.fitness)


def test_the_fix_names_what_to_type(tmp_path: Path) -> None:
    node.build("b200-roce", "selinux-gpu-device-label").write(tmp_path)
    fix = look(tmp_path).findings[0].fix
    assert "restorecon -v /dev/nvidia-uvm" in fix
    assert "semanage fcontext -a -t xserver_misc_device_t" in fix
    assert "chcon -t xserver_misc_device_t /dev/nvidia-uvm" in fix


def test_switched_off_labels_do_not_matter(tmp_path: Path) -> None:
    tree = node.build("b200-roce", "selinux-gpu-device-label")
    tree.remove("/sys/fs/selinux")
    tree.write(tmp_path)
    assert [] == look(tmp_path).findings


def test_permissive_only_warns(tmp_path: Path) -> None:
    tree = node.build("b200-roce", "selinux-gpu-device-label")
    tree.put("/sys/fs/selinux/enforce", "0")
    tree.write(tmp_path)
    report = look(tmp_path)
    assert ("warning", "fit") == (report.findings[0].severity, report.fitness)
    assert "selinux-mode-differs" in [finding.name for finding in report.findings]


BOTH_OFF = {"container_use_devices": "0 0", "container_use_xserver_devices": "0 0"}
DEVICES_ON = {"container_use_devices": "1 1", "container_use_xserver_devices": "0 0"}
KUBELET_OLD = {
    "/var/lib/kubelet/device-plugins": "container_file_t",
    "/var/lib/kubelet/pod-resources": "container_file_t",
}
KUBELET_RESTORED = dict.fromkeys(KUBELET_OLD, "container_var_lib_t")
GPUS = ("/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidiactl")
RDMA = ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")


def labels(kind: str, *paths: str) -> dict[str, str]:
    return dict.fromkeys(paths, kind)


# What nodes with the policies of RHEL 8 to 10 and of container-selinux look like:
# labels, booleans, mode, whether a kubelet is there -> alarms, verdict
SHAPES: dict[str, tuple[dict[str, str], dict[str, str], str, bool, list[str], str]] = {
    "as-installed": ({}, {}, "1", True, [], "fit"),
    "containers-closed-by-booleans": ({}, BOTH_OFF, "1", True, [], "fit"),
    "kubelet-of-an-older-policy": (KUBELET_OLD, {}, "1", True, [], "fit"),
    "kubelet-after-restorecon": (KUBELET_RESTORED, {}, "1", True, [], "fit"),
    "kubelet-without-a-policy": (labels("var_lib_t", *KUBELET_OLD), {}, "1", True, ["selinux-kubelet-label"] * 2, "job"),
    "kubelet-on-an-unlabelled-disk": (
        labels("unlabeled_t", *KUBELET_OLD), {}, "1", True, ["selinux-kubelet-label"] * 2, "job"),
    "gpus-of-the-dgx-policy": (labels("nvidia_device_t", *GPUS), {}, "1", True, [], "fit"),
    "gpus-in-a-container": (labels("container_file_t", *GPUS, *RDMA), {}, "1", False, [], "fit"),
    "gpus-made-late": (labels("device_t", *GPUS), {}, "1", True, ["selinux-gpu-device-label"], "job"),
    "gpus-made-late-all-devices-open": (labels("device_t", *GPUS), DEVICES_ON, "1", True, [], "fit"),
    "gpus-made-late-no-pods": (labels("device_t", *GPUS), {}, "1", False, ["selinux-gpu-device-label"], "fit"),
    "gpus-made-late-permissive": (labels("device_t", *GPUS), {}, "0", True, ["selinux-gpu-device-label"], "fit"),
    "gpus-with-a-framebuffer-type": (
        labels("framebuf_device_t", *GPUS), {}, "1", True, ["selinux-gpu-device-label"], "job"),
    "gpus-unlabelled": (labels("unlabeled_t", *GPUS), {}, "1", True, ["selinux-gpu-device-label"], "job"),
    "gpus-unlabelled-all-devices-open": (
        labels("unlabeled_t", *GPUS), DEVICES_ON, "1", True, ["selinux-gpu-device-label"], "job"),
    "gpus-of-a-temporary-file-system": (
        labels("tmpfs_t", *GPUS), DEVICES_ON, "1", True, ["selinux-gpu-device-label"], "job"),
    "rdma-made-late": (labels("device_t", *RDMA), {}, "1", True, ["selinux-rdma-device-label"], "fit"),
    "rdma-made-late-all-devices-open": (labels("device_t", *RDMA), DEVICES_ON, "1", True, [], "fit"),
    "rdma-made-late-permissive": (labels("device_t", *RDMA), {}, "0", True, [], "fit"),
    "programs-of-a-home": (
        labels("user_home_t", "/usr/bin/nvidia-smi"), {}, "1", True, ["selinux-gpu-program-label"], "fit"),
    "programs-as-all-others": (labels("bin_t", "/usr/bin/nvidia-smi"), {}, "1", True, [], "fit"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_as_policies_make_them(tmp_path: Path, shape: str) -> None:
    changed, booleans, enforce, has_kubelet, expected, fitness = SHAPES[shape]
    tree = node.build("b200-roce", host="node01")
    tree.put("/sys/fs/selinux/enforce", enforce)
    for name, value in booleans.items():
        tree.put(f"/sys/fs/selinux/booleans/{name}", value)
    for path, kind in changed.items():
        security.label(tree, path, kind)
    if not has_kubelet:
        for path in KUBELET_OLD:
            tree.remove(path)
            tree.folders.discard(path)
            tree.extra["stat"].pop(path, None)
    tree.write(tmp_path)
    report = look(tmp_path)
    assert (expected, fitness) == (alarms(report), report.fitness)


MOUNTS = {  # as mountinfo shows them behind the dash
    "nfs": "nfs4 server:/data rw,vers=4.2,addr=192.0.2.1",
    "nfs-with-labels": "nfs4 server:/data rw,seclabel,vers=4.2,addr=192.0.2.1",
    "nfs-for-containers": "nfs4 server:/data rw,context=system_u:object_r:container_file_t:s0,vers=4.2,addr=192.0.2.1",
    "nfs-for-one-container": 'nfs4 server:/data rw,context="system_u:object_r:container_file_t:s0:c1,c2",vers=4.2',
    "cifs": "cifs //server/data rw,vers=3.1.1,addr=192.0.2.1",
    "cifs-for-containers": "cifs //server/data rw,context=system_u:object_r:container_file_t:s0,vers=3.1.1",
    "lustre-without-labels": "lustre 192.0.2.1@o2ib:/data rw,flock,lazystatfs",
    "beegfs-unlabelled": "beegfs beegfs_nodev rw,context=system_u:object_r:unlabeled_t:s0",
}


@pytest.mark.parametrize("mount", MOUNTS)
def test_labels_of_shared_storage_are_no_fault_of_the_node(tmp_path: Path, mount: str) -> None:
    """Jobs on the host are not confined; what containers may read there is a matter of the site's booleans."""
    tree = node.build("b200-roce", host="node01")
    path = "/proc/self/mountinfo"
    tree.put(path, f"{tree.files[path].rstrip()}\n990 1 0:99 / /data rw,relatime shared:990 - {MOUNTS[mount]}\n")
    tree.write(tmp_path)
    facts = preflight.look(Root(tmp_path), ("selinux", "storage"), 20.0)
    assert MOUNTS[mount].split()[0] in [row.fstype for row in facts.rows(Mount) if row.path == "/data"]
    report = preflight.report_of(facts)
    assert ([], "fit") == (alarms(report), report.fitness)


def test_neither_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        list(selinux.collect(Root(tmp_path)))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("unconfined", None),
        ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", None),
        ("system_u:system_r:spc_t:s0", None),
        ("system_u:system_r:container_t:s0:c1,c2", "system_u:system_r:container_t:s0:c1,c2"),
        ("docker-default (enforce)", "docker-default (enforce)"),
        ("docker-default (complain)", None),
        ("/usr/bin/x (unconfined)", None),
        (None, None),
    ],
)
def test_confinement(own: str | None, expected: str | None) -> None:
    assert expected == selinux.confinement(own)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("system_u:object_r:device_t:s0", "device_t"),
        ("system_u:object_r:device_t", "device_t"),
        ("device_t", None),
        ("a:b:c d:s0", None),
        ("", None),
        (None, None),
    ],
)
def test_the_type_is_the_third_part(label: str | None, expected: str | None) -> None:
    assert expected == selinux.label_type(label)


def test_configured_mode() -> None:
    assert "enforcing" == selinux.configured_mode("# SELINUX=disabled\nSELINUX = Enforcing\nSELINUXTYPE=targeted\n")
    assert None is selinux.configured_mode("SELINUXTYPE=targeted\n")
    assert None is selinux.configured_mode(None)


def real_label(path: Path, kind: str) -> None:
    """Set the attribute that the kernel keeps; skips where that is not possible."""
    try:
        os.setxattr(path, "security.selinux", f"system_u:object_r:{kind}:s0".encode() + b"\0")
    except OSError as error:
        pytest.skip(
            f"security.selinux cannot be set here ({error.strerror}): needs root and a file system with attributes"
        )


def test_real_labels_are_read(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    tree.remove("/sys/module/apparmor")
    for name in ("nvidia0", "nvidiactl"):
        tree.remove(f"/dev/{name}")
        tree.put(f"/dev/{name}", "")
    tree.put("/sys/fs/selinux/enforce", "1")
    tree.folders.add(security.KUBELET)
    tree.write(tmp_path)
    real_label(tmp_path / "dev/nvidia0", "xserver_misc_device_t")
    real_label(tmp_path / "dev/nvidiactl", "device_t")
    real_label(tmp_path / security.KUBELET.lstrip("/"), "container_var_lib_t")
    rows = {row.path: row for row in selinux.collect(Root(tmp_path)) if isinstance(row, SecurityLabel)}
    expected = {"/dev/nvidia0": 0, "/dev/nvidiactl": 1, security.KUBELET: 0}
    assert expected == {path: rows[path].wrong for path in expected}
    assert "system_u:object_r:device_t:s0" == rows["/dev/nvidiactl"].label
    assert (["selinux-gpu-device-label"], "job") == (alarms(report := look(tmp_path)), report.fitness)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_device_that_may_not_be_opened_is_no_news_without_a_profile(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch(mode=0o000)
    assert [] == [row for row in selinux.collect(Root(tmp_path)) if isinstance(row, DeviceAccess)]


def test_rubbish_raises_nothing(tmp_path: Path) -> None:
    tree = node.build("b200-roce")
    tree.put("/sys/fs/selinux/enforce", "1")
    for path in ("/etc/selinux/config", "/proc/self/attr/current", "/sys/fs/selinux/booleans/container_use_devices"):
        tree.put(path, "\x00{[🙂" * 50)
    for path in list(tree.extra["stat"]):
        tree.stat(path, label=":::\x00")
    tree.write(tmp_path)
    rows = list(selinux.collect(Root(tmp_path)))
    assert [SecurityMode] == [type(row) for row in rows][:1]
    assert [] == [row for row in rows if isinstance(row, SecurityLabel)]
