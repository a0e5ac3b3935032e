"""A real Grid Engine of one node in namespaces of its own: ending its first process ends all of it."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.waiting import until

LIBRARY = Path("/usr/lib/gridengine")
PROGRAMS = (LIBRARY / "spoolinit", LIBRARY / "qsub", Path("/usr/sbin/sge_qmaster"), Path("/usr/sbin/sge_execd"))
USER = 1  # daemon: a user whose home exists, as sge_shepherd wants it
SETUP = r"""
set -e
ip link set lo up
ip address add 198.51.100.1/32 dev lo
hostname ge1
printf '127.0.0.1 localhost\n198.51.100.1 ge1\n' > $F/hosts
mount --bind $F/hosts /etc/hosts
mkdir -p $SGE_ROOT/default/common $SGE_ROOT/bin $SGE_ROOT/utilbin $F/spool/qmaster/job_scripts $F/spool/db $F/spool/execd
ln -s /usr/share/gridengine/util $SGE_ROOT/util
sed -e "s#admin_user .*#admin_user root#; s#spooling_params .*#spooling_params $F/spool/db#" \
    -e "s#qmaster_spool_dir .*#qmaster_spool_dir $F/spool/qmaster#" \
    /usr/share/gridengine/default-bootstrap > $SGE_ROOT/default/common/bootstrap
echo ge1 > $SGE_ROOT/default/common/act_qmaster
echo test > $SGE_ROOT/default/common/cluster_name
sed -e 's#^min_uid .*#min_uid 0#; s#^min_gid .*#min_gid 0#' -e "s#/var/spool/gridengine/execd#$F/spool/execd#" \
    /usr/share/gridengine/default-configuration > $F/configuration
/usr/lib/gridengine/spoolinit berkeleydb libspoolb $F/spool/db init
/usr/lib/gridengine/spooldefaults configuration $F/configuration
/usr/lib/gridengine/spooldefaults complexes /usr/share/gridengine/util/resources/centry
/usr/lib/gridengine/spooldefaults usersets /usr/share/gridengine/util/resources/usersets
/usr/lib/gridengine/spooldefaults managers root
/usr/sbin/sge_qmaster
until qconf -sh; do sleep 0.2; done
qconf -as ge1
qconf -ssconf | sed 's#^flush_submit_sec.*#flush_submit_sec 1#; s#^flush_finish_sec.*#flush_finish_sec 1#' > $F/scheduler
qconf -Msconf $F/scheduler
qconf -sq | sed -e 's#^qname.*#qname all.q#; s#^hostlist.*#hostlist ge1#; s#^slots .*#slots 2#' \
    -e 's#^load_thresholds.*#load_thresholds NONE#; s#^pe_list.*#pe_list NONE#; s#^ckpt_list.*#ckpt_list NONE#' \
    -e "s#^shell .*#shell /bin/sh#; s#^prolog .*#prolog root@$F/prolog#" > $F/queue
qconf -Aq $F/queue
/usr/sbin/sge_execd
touch $F/ready
exec sleep infinity
"""


def missing() -> str:
    """Why Grid Engine cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "a Grid Engine of its own needs root"
    absent = [path.name for path in PROGRAMS if not path.exists()]
    absent += [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
    if absent:
        return (
            f"not installed: {', '.join(absent)} (Debian: gridengine-master gridengine-exec gridengine-client iproute2)"
        )
    done = subprocess.run(
        ["unshare", "-m", "-n", "-p", "-f", "-u", "--mount-proc", "true"], capture_output=True, check=False
    )
    return "namespaces cannot be made here" if done.returncode else ""


class Cluster:
    """The node ge1 and its queue all.q, whose prolog is the script `prolog`, run as root."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.process = process

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": f"{LIBRARY}:/usr/sbin:/usr/bin:/sbin:/bin", "SGE_ROOT": str(self.folder / "sge"), "SGE_CELL": "default",
            "SGE_QMASTER_PORT": "16444", "SGE_EXECD_PORT": "16445", "F": str(self.folder),
        }  # fmt: skip

    def run(self, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        """A command on the node."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        enter = ["nsenter", "-t", children[0], "-m", "-n", "-p", "-u"]
        drop = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []
        return subprocess.run(
            [*enter, *drop, *command], env=self.environ, cwd=self.folder / "out", capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def submit(
        self, *command: str, variables: dict[str, str] | None = None, wait: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """A job of an ordinary user, with variables of `qsub -v`."""
        more = ["-v", ",".join(f"{name}={value}" for name, value in variables.items())] if variables else []
        out = ["-o", str(self.folder / "out" / "job"), "-j", "y"]
        return self.run("qsub", *(["-sync", "y"] if wait else []), *out, *more, "-b", "y", *command, user=USER)

    def states(self) -> str:
        """The state of the queue instance, such as E where its prolog failed; empty where it takes jobs."""
        row = next(
            (line for line in self.run("qstat", "-f").stdout.splitlines() if line.startswith("all.q@")), ""
        ).split()
        return row[5] if len(row) > 5 else ""

    def wait(self, reached: Callable[[], bool]) -> None:
        until(reached, lambda: self.run("qstat", "-f", "-explain", "E").stdout)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start everything, and stop it whatever happens. The folder is one that the job's user can enter."""
    with tempfile.TemporaryDirectory(prefix="gridengine-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        log = (folder / "log").open("wb")
        started = Cluster(folder, None)  # type: ignore[arg-type]
        started.process = subprocess.Popen(
            ["unshare", "-m", "-n", "-p", "-f", "-u", "--mount-proc", "--kill-child", "sh", "-c", SETUP],
            env=started.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            ready = folder / "ready"
            until(lambda: ready.exists() or started.process.poll() is not None, (folder / "log").read_text)
            assert ready.exists(), (folder / "log").read_text()
            yield started
        finally:
            started.process.send_signal(signal.SIGKILL)
            started.process.wait()
            log.close()
