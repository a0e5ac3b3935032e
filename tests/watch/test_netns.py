"""Two nodes with an sshd each, in network namespaces: both are watched, one is cut off and comes back."""

import getpass
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.waiting import until

from nccl_doctor.watch.sources import feed
from nccl_doctor.watch.sources.feed import NodeFeeds
from nccl_doctor.watch.state import State
from nccl_doctor.watch.view.nodes import node_state

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
IP = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
NODES = {"10.213.7.2": "nda", "10.213.8.2": "ndb"}


def ip(*words: str) -> bool:
    assert IP is not None
    return not subprocess.run([IP, *words], capture_output=True, check=False).returncode


def _namespaces() -> bool:
    if os.geteuid() != 0 or IP is None or SSHD is None or shutil.which("ssh") is None:
        return False
    made = ip("netns", "add", f"probe{os.getpid()}")
    ip("netns", "del", f"probe{os.getpid()}")
    return made


pytestmark = pytest.mark.skipif(
    not _namespaces(), reason="two nodes need root with network namespaces (iproute2), ssh and sshd (openssh-server)"
)


class Cluster(NamedTuple):
    """Two namespaces; the ssh command that reaches them, and what cuts one off."""

    via: str

    def cut(self, name: str) -> None:
        assert ip("link", "set", f"v{name}{os.getpid() % 10000}", "down")

    def join(self, name: str) -> None:
        assert ip("link", "set", f"v{name}{os.getpid() % 10000}", "up")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "known").write_text(f"* {' '.join((tmp_path / 'host.pub').read_text().split()[:2])}\n")
    servers: list[subprocess.Popen[bytes]] = []
    tag = os.getpid() % 10000
    try:
        for address, name in NODES.items():
            space, outer, net = f"{name}{tag}", f"v{name}{tag}", address.rpartition(".")[0]
            made = (
                ip("netns", "add", space), ip("link", "add", outer, "type", "veth", "peer", "name", "eth9", "netns", space),
                ip("addr", "add", f"{net}.1/24", "dev", outer), ip("link", "set", outer, "up"),
                ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth9"), ip("-n", space, "link", "set", "eth9", "up"),
                ip("-n", space, "link", "set", "lo", "up"),
            )  # fmt: skip
            if not all(made):
                pytest.skip("veth pairs cannot be made here")
            config = tmp_path / f"sshd-{name}"
            config.write_text(
                f"Port 22\nListenAddress {address}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
                f"StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile {tmp_path}/{name}.pid\n"
                "PermitRootLogin yes\nUsePAM no\n"
            )
            assert IP is not None
            servers.append(
                subprocess.Popen(
                    [IP, "netns", "exec", space, str(SSHD), "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL
                )
            )
        yield Cluster(
            f"ssh -F none -i {tmp_path}/user -o IdentitiesOnly=yes -o UserKnownHostsFile={tmp_path}/known -o BatchMode=yes "
            f"-o ConnectTimeout=2 -l {getpass.getuser()} %host"
        )
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        for name in NODES.values():
            ip("netns", "del", f"{name}{tag}")
            ip("link", "del", f"v{name}{tag}")


def test_a_node_that_is_cut_off_comes_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RETRY_AFTER", (0.5, 1.0))
    monkeypatch.setattr(feed, "SILENCE_LIMIT", 15.0)
    state = State()

    def add_record(record: dict[str, Any]) -> None:
        state.add_record(record, time.time())

    def bad(node: str) -> int:
        return node_state(state.nodes[node], time.time())[0] if node in state.nodes else 3

    first, second = NODES
    source = NodeFeeds(add_record, NODES, cluster.via, 0.5)
    for node in NODES:
        state.expect(node, time.time())
    source.start()
    try:
        until(lambda: all("cpu" in state.nodes[node].host.now for node in NODES))
        cluster.cut(NODES[second])
        until(lambda: bad(second) == 3)
        assert bad(first) < 3
        heard = state.nodes[first].last_received["host"]
        until(lambda: state.nodes[first].last_received["host"] > heard)
        cluster.join(NODES[second])
        until(lambda: bad(second) < 3)
        assert bad(first) < 3
    finally:
        source.stop()


def test_one_page_of_both(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nccl_doctor", "watch", "--once", "--nodes", ",".join(NODES), "--via", cluster.via],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert all(f"{node}  CPU" in done.stdout for node in NODES), done.stdout + done.stderr
