"""File systems of a node: what is mounted, trials with a deadline, Lustre and NFS."""

import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import tables
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.storage import file_systems, mounts, probes
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node.storage import probe

OURS = ("host", "kernel_log", "storage")
FITNESS = {"inodes-used-up": "fit", "mount-not-writable": "job", "nfs-slow": "fit", "slow-mount": "fit"}


def judge(tree: node.Tree, folder: Path) -> Report:
    tree.write(folder)
    return preflight.report_of(preflight.look(Root(folder), names=OURS))


def planted() -> list[tuple[str, str]]:
    ours = [fault for fault in node.FAULTS.values() if fault.change.__module__.endswith(".storage")]
    return [(fault.name, fault.machines[-1]) for fault in ours]  # tests/node/test_matrix.py takes all kinds of machines


@pytest.mark.parametrize(("fault", "machine"), planted())
def test_a_planted_fault_of_storage_comes_first(fault: str, machine: str, tmp_path: Path) -> None:
    tree = node.build(machine, fault)
    tree.write(tmp_path)
    facts = preflight.look(Root(tmp_path), names=OURS)
    facts.mark_covered("expected")
    report = preflight.report_of(facts)
    assert fault == report.findings[0].name
    assert FITNESS.get(fault, "drain") == report.fitness


MOUNTINFO = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
25 22 0:23 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw
26 22 259:5 / /local rw,noatime - xfs /dev/nvme1n1 ro,attr2
27 22 259:6 / /opt ro,noatime - ext4 /dev/nvme2n1 ro
60 22 0:50 / /my\040data rw,relatime shared:40 master:2 - nfs4 [2001:db8::1]:/my\040data rw,vers=4.2
61 22 0:51 / /scratch rw - lustre 10.1.8.1@o2ib:/scratch rw
62 22 0:52 / /net rw - autofs /etc/auto.net rw,fd=7
63 22 0:53 / /gcs rw - fuse.gcsfuse bucket rw
64 22 0:54 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
65 22 0:55 / /run/user/1000/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw
66 22 259:5 /kubelet/pod/x /var/lib/kubelet/pods/x rw - xfs /dev/nvme1n1 rw
67 60 0:56 / /my\040data rw - cifs //fs02/data rw
torn line
68 - x
"""


def test_mounts_that_matter() -> None:
    found = {entry.path: (mounts.kind(entry), entry.fstype) for entry in mounts.parse(MOUNTINFO) if mounts.kind(entry)}
    assert {
        "/": ("local", "ext4"), "/local": ("local", "xfs"), "/opt": ("local", "ext4"), "/my data": ("shared", "cifs"),
        "/scratch": ("shared", "lustre"), "/net": ("autofs", "autofs"), "/gcs": ("shared", "fuse.gcsfuse"),
        "/proc/sys/fs/binfmt_misc": ("autofs", "autofs"),
    } == found  # fmt: skip


def test_only_what_the_kernel_shut_was_turned() -> None:
    assert ["/local"] == [entry.path for entry in mounts.parse(MOUNTINFO) if mounts.turned(entry)]


def test_fstab_names_what_is_mounted_at_boot() -> None:
    text = (
        "# a comment\nUUID=1 / ext4 defaults 0 1\nfs01:/home /home nfs4 defaults,_netdev 0 0\n"
        "fs01:/old /old nfs noauto 0 0\n//fs02/p /p\\040q cifs ro,x-systemd.automount 0 0\n"
        "10.1.8.1@o2ib:/scratch /scratch/ lustre\nbroken\n"
    )
    assert ["/home", "/scratch"] == [entry.path for entry in mounts.parse_fstab(text)]


STATS = """device /dev/vda mounted on / with fstype ext4
device fs01:/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t1000
\txprt:\ttcp 0 0 1 0 12 100 100 0 100 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1000 1010 2 128000 131072000 5 3000 3100 0
\t     GETATTR: 1000 1000 0 1 1 0 1000 1000
device proc mounted on /proc with fstype proc
device [2001:db8::1]:/x mounted on /x with fstype nfs statvers=1.1
"""


def test_counters_of_nfs() -> None:
    home, other = mounts.parse_nfs(STATS)
    assert ("/home", "fs01", 2000, 10, 2, 2.0) == home[:6]
    assert ("/x", "2001:db8::1", 0, 0, 0, None) == other[:6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("current_state: FULL\nstate_history:\n - [ 1700000000, CONNECTING ]\n", "FULL"),
        ("import:\n    name: fs0-OST0000\n    state: DISCONN\n    connect_flags: [ write_grant ]\n", "DISCONN"),
        ("EVICTED\n", "EVICTED"),
        ("", None),
        ("something else entirely here", None),
    ],
)
def test_states_of_lustre(text: str, expected: str | None) -> None:
    assert expected == file_systems.state_of(text)


def test_the_age_of_a_lustre_state_counts_from_its_last_change(tmp_path: Path) -> None:
    tree = node.build("dgx-h100", "lustre-disconnected")
    tree.write(tmp_path)
    found = {row.name: (row.state, row.age) for row in file_systems._lustre(Root(tmp_path)) if row.kind == "osc"}
    assert ("DISCONN", 840.0) == found["fs0-OST0002-osc-ffff9a0012345678"]
    assert 4 == len(found)


def test_a_site_file_names_what_must_be_mounted(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    tree.write(tmp_path)
    root = Root(tmp_path, expect={"mount": {"/scratch": "lustre", "/checkpoints": "nfs4"}})
    report, _ = preflight.preflight(root)
    found = [finding for finding in report.findings if finding.name == "mount-missing"]
    assert ["/checkpoints"] == [finding.values["path"] for finding in found]


def test_a_folder_that_only_is_automounted_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = node.build("nd-a100-v4")
    tree.files["/proc/self/mountinfo"] += "70 22 0:99 / /net rw - autofs /etc/auto.net rw\n"
    tree.write(tmp_path)
    asked: list[str] = []
    root = Root(tmp_path)
    monkeypatch.setattr(root, "asked", lambda name, ask: ask() if name == "mounts" else None)
    monkeypatch.setattr(probes, "run", lambda trials, seconds: asked.extend(t.path for t in trials) or {})
    list(file_systems.collect(root))
    assert {"/", "/local", "/home", "/data"} == set(asked)


@pytest.mark.parametrize(
    ("wanted", "deep", "expected"),
    [
        ({}, False, set()),
        ({}, True, {"/home", "/data"}),
        ({"/data": "nfs", "/sw": "ro", "/new": "rw"}, False, {"/data", "/new"}),
        ({"/home": "ro"}, True, {"/data"}),
    ],
)
def test_only_what_the_site_names_is_written_unless_asked(
    wanted: dict[str, str], deep: bool, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.build("nd-a100-v4").write(tmp_path)
    written: set[str] = set()
    root = Root(tmp_path, deep=deep, expect={"mount": wanted})
    monkeypatch.setattr(root, "asked", lambda name, ask: ask() if name == "mounts" else None)
    monkeypatch.setattr(probes, "run", lambda trials, seconds: written.update(t.path for t in trials if t.write) or {})
    list(file_systems.collect(root))
    assert expected == written


def test_trials_of_real_folders(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    found = probes.run([probes.Trial(str(tmp_path), True), probes.Trial(str(missing), True)], 10.0)
    assert ("ok", "ok") == (found[str(tmp_path)]["stat"]["outcome"], found[str(tmp_path)]["write"]["outcome"])
    assert found[str(tmp_path)]["stat"]["size"] > 0
    assert {"stat": "ENOENT"} == {name: said["outcome"] for name, said in found[str(missing)].items()}
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        assert "EACCES" == probes.write(str(tmp_path))
        return
    assert probes.write("/proc") in ("ENOENT", "EACCES", "EPERM", "EROFS")


def test_a_stopped_trial_is_hung_and_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = probes._work
    pids = tmp_path / "pid"

    def stop(trial: probes.Trial, pipe: int) -> None:
        if trial.path == "/":
            pids.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        work(trial, pipe)

    monkeypatch.setattr(probes, "_work", stop)
    found = probes.run([probes.Trial("/", True), probes.Trial(str(tmp_path), False)], 8.0)
    assert ("hung", "ok") == (found["/"]["stat"]["outcome"], found[str(tmp_path)]["stat"]["outcome"])
    assert "write" not in found["/"]
    until(lambda: not runs(int(pids.read_text())), lambda: "the stopped child is still there")


CLONE_NEWNS = 0x00020000
MS_PRIVATE_REC = (1 << 18) | (1 << 14)


def hung_mount(folder: str, ended: bool) -> str | None:
    """Mount a file system that never answers, in a mount namespace of our own; the reason where that is not possible."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    if library.unshare(CLONE_NEWNS) or library.mount(b"none", b"/", None, MS_PRIVATE_REC, None):
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if library.mount(b"10.1.8.1@o2ib:/scratch", folder.encode(), b"fuse.lustre", 0, options):
        return f"mount: {os.strerror(ctypes.get_errno())}"
    if ended:
        os.close(device)
    return None


@pytest.mark.parametrize(("wanted", "fitness"), [(["/"], "fit"), (["{folder}"], "drain")])
@pytest.mark.parametrize(
    ("ended", "rule", "outcome"), [(False, "mount-hung", "hung"), (True, "mount-failing", "ENOTCONN")]
)
def test_a_file_system_that_really_hangs_drains_where_the_site_names_it(
    ended: bool, rule: str, outcome: str, wanted: list[str], fitness: str, tmp_path: Path
) -> None:
    """Or whose daemon ended: every user can mount one where fuse.conf says user_allow_other."""
    expect = {"mount": [path.format(folder=tmp_path) for path in wanted]}
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told: dict[str, Any] = {}
        try:
            if (problem := hung_mount(str(tmp_path), ended)) is not None:
                told = {"skip": problem}
            else:
                facts = preflight.look(Root("/", expect=expect), names=("storage",))
                report = preflight.report_of(facts)
                told = {
                    "outcome": facts.rows(tables.Collection)[0].outcome,
                    "tried": {row.path: row.outcome for row in facts.rows(tables.MountProbe)},
                    "first": report.findings[0].name if report.findings else None,
                    "fitness": report.fitness,
                }
        except BaseException as error:
            told = {"error": repr(error)}
        finally:
            os.write(writing, json.dumps(told).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        told = json.loads(answers.read())
    os.waitpid(pid, 0)
    if "skip" in told:
        pytest.skip(told["skip"])
    assert "error" not in told, told
    assert "ok" == told["outcome"]
    assert outcome == told["tried"][str(tmp_path)]
    assert (rule, fitness) == (told["first"], told["fitness"])


def test_mounts_of_users_do_not_push_out_those_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can make a thousand FUSE mounts with long paths: what the node mounts and what the site names is tried first."""
    tree = node.build("p4d")
    lines = tree.files[file_systems.INFO].splitlines()
    users = [f"{900 + n} 28 0:{n} / /a/{n:04d}{'x' * 4000} rw - fuse.sshfs u@evil:/ rw,allow_other" for n in range(999)]
    tree.put(file_systems.INFO, "\n".join([*users, *lines]) + "\n")
    tree.write(tmp_path)
    tried: list[str] = []
    monkeypatch.setattr(probes, "run", lambda trials, seconds: tried.extend(trial.path for trial in trials) or {})
    root = Root(tmp_path, expect={"mount": ["/model"]})
    monkeypatch.setattr(root, "asked", lambda name, ask: ask() if name == "mounts" else None)
    seen = {row.path for row in file_systems.collect(root) if isinstance(row, tables.Mount)}
    ours = {one.path for one in mounts.parse("\n".join(lines)) if mounts.kind(one) is not None}
    assert ours <= seen
    assert len(seen) == len(ours) + 999
    assert {"/model", *ours} <= set(tried[: probes.MOST])


def test_a_mount_that_hangs_explains_what_the_kernel_says_of_it(tmp_path: Path) -> None:
    tree = node.build("p4d", "nfs-not-responding")
    probe(tree, "/home", outcome="hung", seconds=2.0)
    report = judge(tree, tmp_path)
    assert ["mount-hung", "nfs-not-responding"] == [f.name for f in report.findings if f.severity == "error"]
    assert [[], ["HOST101"]] == [f.explained_by for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize(
    ("source", "kind", "path", "fitness"),
    [
        ("user@login:/data", "fuse.sshfs", "/tmp/user/data", "fit"),
        ("old:/export", "nfs4", "/net/old", "fit"),
        ("fs09:/export", "nfs4", "/home/shared", "fit"),
        ("10.1.8.1@o2ib:/more", "lustre", "/more", "drain"),
    ],
)
def test_a_hung_mount_drains_only_where_jobs_need_it(
    source: str, kind: str, path: str, fitness: str, tmp_path: Path
) -> None:
    tree = node.build("dgx-h100")
    mountinfo = tree.files["/proc/self/mountinfo"]
    tree.put("/proc/self/mountinfo", f"{mountinfo}90 22 0:90 / {path} rw,relatime shared:90 - {kind} {source} rw")
    probe(tree, path, outcome="hung", seconds=2.0)
    report = judge(tree, tmp_path)
    assert ("mount-hung", fitness) == (report.findings[0].name, report.fitness)


def test_an_nfs_mount_of_fstab_that_hangs_drains(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    probe(tree, "/home", outcome="hung", seconds=2.0)
    assert "drain" == judge(tree, tmp_path).fitness
