"""Logins between nodes: against a real sshd on loopback, and from what ssh and sshd leave behind."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.waiting import until

from nccl_doctor.app import preflight
from nccl_doctor.facts.tables import SshLogin
from nccl_doctor.node.network import ssh
from nccl_doctor.node.runtime.root import Output, Root
from nccl_doctor.simulate import node

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
real = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="no sshd here; install the package openssh-server"
)


class Server(NamedTuple):
    """An sshd of ours and the folder with its keys."""

    folder: Path
    port: int

    def client(self, *lines: str, key: str = "user", known: str = "known") -> list[str]:
        """Options that make ssh use our files only."""
        config = self.folder / f"client-{key}-{known}"
        config.write_text(
            f"Host *\n IdentityFile {self.folder}/{key}\n IdentitiesOnly yes\n UserKnownHostsFile {self.folder}/{known}\n"
            f" GlobalKnownHostsFile none\n Port {self.port}\n User {getpass.getuser()}\n PreferredAuthentications publickey\n"
            + "".join(f" {line}\n" for line in lines)
        )
        return ["-F", str(config)]

    def login(self, *lines: str, **files: str) -> SshLogin:
        (found,) = ssh.logins(Root(), ["127.0.0.1"], self.client(*lines, **files))
        return found


def _key(path: Path, *more: str) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", *more, "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    host, user, noisy = _key(folder / "host"), _key(folder / "user"), _key(folder / "noisy")
    _key(folder / "stranger")
    home = folder / "home"
    home.mkdir()
    (home / ".bashrc").write_text("echo Loading modules...\n")
    authorized = folder / "authorized"
    authorized.write_text(f'{user}\nenvironment="HOME={home}" {noisy}\n')
    port = _free_port()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {' '.join(host.split()[:2])}\n")
    other = _key(folder / "other")
    (folder / "changed").write_text(f"[127.0.0.1]:{port} {' '.join(other.split()[:2])}\n")
    (folder / "nobody").write_text("")
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {authorized}\nStrictModes no\n"
        f"PermitUserEnvironment yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile {folder}/pid\n"
        "PermitRootLogin yes\nUsePAM no\n"
    )
    process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or _answers(port))
        if process.poll() is not None:
            pytest.skip("sshd does not start here")
        yield Server(folder, port)
    finally:
        process.terminate()
        process.wait()


@real
def test_a_login_that_works(server: Server) -> None:
    found = server.login()
    assert ("ok", "") == (found.outcome, found.text)


@real
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_words_of_a_startup_file_are_noise(server: Server) -> None:
    found = server.login(key="noisy")
    if found.outcome == "ok":
        pytest.skip("the shell of this user reads no .bashrc")
    assert ("noise", "Loading modules...") == (found.outcome, found.text)


@real
def test_a_key_that_nobody_authorized_is_denied(server: Server) -> None:
    found = server.login(key="stranger")
    assert "denied" == found.outcome
    assert "Permission denied" in found.text


@real
def test_a_host_key_that_nobody_knows(server: Server) -> None:
    assert "key-unknown" == server.login(known="nobody").outcome


@real
def test_a_host_key_that_changed(server: Server) -> None:
    assert "key-changed" == server.login(known="changed").outcome


@real
def test_nobody_listens(server: Server) -> None:
    (found,) = ssh.logins(Root(), ["127.0.0.1"], [*server.client(), "-p", str(_free_port())])
    assert "refused" == found.outcome


@real
def test_a_name_without_address(server: Server) -> None:
    (found,) = ssh.logins(Root(), ["nosuch.invalid"], server.client())
    assert "unresolved" == found.outcome


@real
def test_a_server_that_says_nothing_is_given_up(server: Server) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        (found,) = ssh.logins(Root(), ["127.0.0.1"], [*server.client(), "-p", str(silent.getsockname()[1])])
    assert "timeout" == found.outcome


def test_a_peer_that_looks_like_an_option_is_no_peer() -> None:
    assert [] == list(ssh.logins(Root(), ["-oProxyCommand=true", "a b", "$(x)", ""]))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "key-changed"),
        ("No ED25519 host key is known for node02 and you have requested strict checking.\nHost key verification failed.", "key-unknown"),
        ("alice@node02: Permission denied (publickey,gssapi-with-mic,password).", "denied"),
        ("Received disconnect from 10.1.0.5 port 22:2: Too many authentication failures", "denied"),
        ("ssh: connect to host node02 port 22: Connection timed out", "timeout"),
        ("Connection timed out during banner exchange", "timeout"),
        ("ssh: connect to host node02 port 22: No route to host", "unreachable"),
        ("kex_exchange_identification: Connection closed by remote host", "closed"),
        ("bash: cannot create temp file for here-document: No space left on device", "failed"),
        ("", "failed"),
    ],
)  # fmt: skip
def test_what_ssh_says_has_a_class(text: str, outcome: str) -> None:
    assert outcome == ssh.classify(Output(255, text))[0]


def test_the_first_setting_of_a_name_counts_and_match_ends_the_reading() -> None:
    files = [
        ("/etc/ssh/sshd_config.d/50-site.conf", "PubkeyAuthentication no\n"),
        ("/etc/ssh/sshd_config", "#PubkeyAuthentication x\nPubkeyAuthentication yes\nMaxStartups=4:50:10\nMatch User x\nMaxSessions 1"),
    ]  # fmt: skip
    assert [("pubkeyauthentication", "no"), ("maxstartups", "4:50:10")] == [(n, v) for n, v, _, _ in ssh.parse(files)]


def _tree(folder: Path, config: str = "", says: tuple[int, str] = (0, f"{ssh.MARK}\n"), **keys: object) -> Root:
    tree = node.Tree()
    tree.put("/etc/ssh/sshd_config", config)
    tree.put("/home/alice/.ssh/known_hosts", "")
    tree.extra["environ"] = {"HOME": "/home/alice", "USER": "alice"}
    tree.extra["ssh_keys"] = {"private": {}, "authorized": 1, "agent": False, **keys}
    tree.command(" ".join(ssh.command("node02")), says[1], says[0])
    tree.put("/proc/sys/kernel/hostname", "node01")
    for path in ("/home/alice", "/home/alice/.ssh"):
        tree.stat(path, mode=0o40700)
    tree.write(folder)
    return Root(folder, peers=["node02"])


def _found(root: Root) -> dict[str, str]:
    facts = preflight.look(root, names=[])
    return {finding.name: finding.action for finding in preflight.report_of(facts).findings}


def test_a_peer_is_asked_only_where_one_is_named(tmp_path: Path) -> None:
    root = _tree(tmp_path)
    assert {} == _found(root)
    assert [("ssh", "ok")] == preflight.look(root, names=[]).query("SELECT source, outcome FROM collection")
    assert [] == preflight.look(Root(tmp_path), names=[]).query("SELECT source FROM collection")


@pytest.mark.parametrize(
    ("config", "finding", "action"),
    [
        ("AllowUsers admin root\nAllowUsers bob@10.*", "sshd-refuses-user", "job"),
        ("DenyUsers al*", "sshd-refuses-user", "job"),
        ("PubkeyAuthentication no", "sshd-refuses-user", "job"),
        ("MaxStartups 2:30:10", "sshd-few-connections", "warn"),
        ("MaxSessions 1", "sshd-few-connections", "warn"),
    ],
)
def test_settings_of_sshd_that_refuse_logins(tmp_path: Path, config: str, finding: str, action: str) -> None:
    assert {finding: action} == _found(_tree(tmp_path, config))


def test_settings_of_sshd_that_do_no_harm(tmp_path: Path) -> None:
    config = "PermitRootLogin no\nAllowUsers admin\nAllowUsers alice@10.0.0.0/8\nMaxStartups 100:30:500\nPasswordAuthentication no\n"
    assert {} == _found(_tree(tmp_path, config))


def test_a_denied_login_and_what_explains_it(tmp_path: Path) -> None:
    says = (255, "alice@node02: Permission denied (publickey).")
    private = {"id_ed25519": {"encrypted": True, "open": "644"}}
    found = _found(_tree(tmp_path, says=says, authorized=0, private=private))
    assert "job" == found.pop("ssh-login-denied")
    assert {"ssh-files-too-open", "ssh-key-needs-agent", "ssh-no-key-authorized"} == set(found)


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
def test_keys_are_told_apart_without_keeping_them(tmp_path: Path) -> None:
    _key(tmp_path / "id_ed25519")
    _key(tmp_path / "id_rsa", "-N", "secret words")
    (tmp_path / "authorized_keys").write_text("# none\nssh-ed25519 AAAA x\n")
    told = ssh.keys_of(str(tmp_path))
    assert {"encrypted": False, "open": ""} == told["private"]["id_ed25519"]
    assert {"encrypted": True, "open": ""} == told["private"]["id_rsa"]
    assert 1 == told["authorized"]
    assert b"PRIVATE" not in str(told).encode()


@pytest.mark.parametrize(
    "content", ["\0\xff\xfe", "AllowUsers", "Include /nowhere/*.conf\nInclude ../../etc/*.conf", "=\n==\n" * 50]
)
def test_broken_configurations_raise_nothing(tmp_path: Path, content: str) -> None:
    assert {} == _found(_tree(tmp_path, content))
