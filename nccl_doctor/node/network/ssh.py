"""Logins between the nodes of a job, as mpirun makes them, and what on this node would refuse them."""

import base64
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nccl_doctor.common import trusted
from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import SshLogin, SshSetting
from nccl_doctor.node.runtime.root import Absent, Output, Root
from nccl_doctor.node.software.variables import variables

TABLES = (SshLogin, SshSetting)
MARK = "nccl-doctor"
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "-o", "StrictHostKeyChecking=yes")
_AT_ONCE = 8
_EACH = 6.0  # seconds for one login, shells and their startup files included
_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519", "id_dsa")
_CONFIG = "/etc/ssh/sshd_config"
_LISTS = ("allowusers", "denyusers", "allowgroups", "denygroups")
# What OpenSSH prints, the first that fits counts.
_CLASSES = (
    ("key-changed", re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|Offending .{0,80} key in", re.IGNORECASE)),
    ("key-unknown", re.compile(r"Host key verification failed|No \S+ host key is known")),
    ("denied", re.compile(r"Permission denied|Too many authentication failures|no more authentication methods")),
    ("timeout", re.compile(r"timed out|Operation timed out|banner exchange.{0,200}timeout", re.IGNORECASE)),
    ("refused", re.compile(r"Connection refused")),
    ("unresolved", re.compile(r"Could not resolve hostname|Name or service not known")),
    ("unreachable", re.compile(r"No route to host|Network is unreachable")),
    ("closed", re.compile(r"Connection (?:closed|reset)|kex_exchange_identification|Broken pipe")),
)


def collect(root: Root) -> Iterator[Any]:
    """Raises Absent where no other node is named."""
    if not root.peers:
        raise Absent("no other node is named")
    yield from settings(root, variables(root))
    yield from logins(root, root.peers)


def command(peer: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """The login: no questions, a short wait, unknown hosts refused; `extra` are further options of ssh."""
    return ("ssh", *extra, *_OPTIONS, peer, f"echo {MARK}")


def logins(root: Root, peers: Sequence[str], extra: Sequence[str] = ()) -> Iterator[SshLogin]:
    """Try all peers, at most eight at once; rows come as they are ready."""
    names = [peer for peer in dict.fromkeys(peers) if re.fullmatch(r"[\w.@:%\[\]][\w.@:%\[\]-]*", peer)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda peer: _login(root, peer, extra), names)


def _login(root: Root, peer: str, extra: Sequence[str]) -> SshLogin:
    started = time.monotonic()
    try:
        out = root.run(*command(peer, extra), seconds=_EACH)
        outcome, text = classify(out) if out else ("failed", "no ssh is installed")
    except TimeoutError:
        outcome, text = "timeout", f"no end after {_EACH:g} s"
    seconds = round(time.monotonic() - started, 3)
    return SshLogin(None, peer, outcome, seconds, text, Seen(f"ssh {peer}", text or outcome))


def classify(out: Output) -> tuple[str, str]:
    """(outcome, the words that show it) of `ssh PEER echo MARK`."""
    lines = [line.strip() for line in out.text.splitlines() if line.strip()]
    if out.status == 0:
        noise = [line for line in lines if line != MARK]
        return ("noise", " | ".join(noise)[:300]) if noise else ("ok", "")
    for outcome, pattern in _CLASSES:
        if line := next((line for line in lines if pattern.search(line)), None):
            return outcome, line[:300]
    return "failed", (lines[-1] if lines else f"exit status {out.status}")[:300]


def settings(root: Root, environment: Mapping[str, str]) -> Iterator[SshSetting]:
    """What sshd of this node refuses, and files of the task's user that ssh or sshd will not accept."""
    user = environment.get("USER") or environment.get("LOGNAME")
    for name, value, file, line in _merged(parse(_whole_config(root))):
        problem = _problem(name, value, user)
        if problem or name in ("permituserenvironment", "passwordauthentication"):
            yield _setting(file, name, value, user, problem, f"{name} {value}", line)
    home = environment.get("HOME")
    if home and home.startswith("/"):
        yield from _files(root, home, user)


def _merged(options: Iterable[tuple[str, str, str, int]]) -> Iterator[tuple[str, str, str, int]]:
    """Lists of users on several lines are one list."""
    lists: dict[str, tuple[str, str, str, int]] = {}
    for option in options:
        name, value, file, line = option
        if name not in _LISTS:
            yield option
        elif name in lists:
            lists[name] = (name, f"{lists[name][1]} {value}", file, line)
        else:
            lists[name] = option
    yield from lists.values()


def _setting(file: str, name: str, value: str, user: str | None, problem: str, said: str, line: int = 1) -> SshSetting:
    return SshSetting(None, file, name, value, user, problem, Seen(file, said, line))


def _whole_config(root: Root, file: str = _CONFIG) -> list[tuple[str, str]]:
    """(file, text) of sshd_config and what it includes, in the order in which it counts; Debian includes at the top."""
    text = root.text(file)
    if text is None:
        return []
    parts = []
    for m in re.finditer(r"^[ \t]*Include[ \t]+(\S+)", text, re.MULTILINE | re.IGNORECASE):
        folder, name = os.path.split(m[1])
        if folder.startswith("/") and name == "*.conf":
            parts += [
                (f"{folder}/{one}", root.text(f"{folder}/{one}") or "")
                for one in root.names(folder)
                if one.endswith(".conf")
            ]
    return [*parts, (file, text)]


def parse(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str, int]]:
    """(option in lower case, value, file, line): the first of a name counts; what follows `Match` holds for some logins only."""
    seen = set()
    for file, text in files:
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r"\s*([A-Za-z]\w*)(?:\s{0,80}=\s{0,80}|\s{1,80})(.*\S)", line)
            if not match:
                continue
            name, value = match[1].lower(), match[2].strip('"')
            if name == "match":
                break
            if name in _LISTS or name not in seen:
                seen.add(name)
                yield name, value, file, number


def _problem(name: str, value: str, user: str | None) -> str:
    if name == "pubkeyauthentication" and value.lower() == "no":
        return "pubkey-off"
    if name == "permitrootlogin" and value.lower() == "no" and user == "root":
        return "root-excluded"
    if name in ("allowusers", "denyusers") and user:
        listed = any(_like(user, word) for word in value.split())
        return "user-excluded" if listed == (name == "denyusers") else ""
    if name == "maxstartups":
        first = value.partition(":")[0]
        return "few-startups" if first.isdecimal() and 0 < int(first) < 10 else ""
    if name == "maxsessions":
        return "few-sessions" if value.isdecimal() and int(value) < 2 else ""
    return ""


def _like(user: str, pattern: str) -> bool:
    """sshd's patterns: `*` and `?`; what follows `@` is about the host and not judged here."""
    plain = re.escape(pattern.partition("@")[0]).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(plain, user) is not None


def _files(root: Root, home: str, user: str | None) -> Iterator[SshSetting]:
    folder = f"{home}/.ssh"
    for path in (home, folder, f"{folder}/authorized_keys"):
        status = root.stat(path)
        if status and status.mode & 0o022:
            mode = oct(status.mode & 0o777)[2:]
            yield _setting(path, "mode", mode, user, "too-open", f"mode {mode} of {path}")
    keys = root.asked("ssh_keys", lambda: keys_of(folder)) or {}
    if not root.names(folder):
        return
    if not keys.get("authorized"):
        yield _setting(f"{folder}/authorized_keys", "missing", "", user, "no-keys", "no key is authorized")
    for name, about in sorted((keys.get("private") or {}).items()):
        if about.get("open"):
            yield _setting(f"{folder}/{name}", "mode", str(about["open"]), user, "too-open", f"mode {about['open']}")
        if about.get("encrypted") and not keys.get("agent"):
            yield _setting(f"{folder}/{name}", "encrypted", "yes", user, "needs-agent", "the key has a passphrase")


def keys_of(folder: str) -> dict[str, Any]:
    """What is said of keys instead of the keys themselves: how many are authorized, and of private ones mode and encryption."""
    private: dict[str, Any] = {}
    for name in _KEYS:
        try:
            with trusted.regular(f"{folder}/{name}") as file:
                content = file.read(4096)
                mode = os.fstat(file.fileno()).st_mode & 0o777
        except OSError:
            continue
        private[name] = {"encrypted": encrypted(content), "open": oct(mode)[2:] if mode & 0o077 else ""}
    try:
        with trusted.regular(f"{folder}/authorized_keys") as file:
            lines = file.read(1 << 20).splitlines()
    except OSError:
        lines = []
    authorized = sum(1 for line in lines if line.strip() and not line.lstrip().startswith(b"#"))
    return {"private": private, "authorized": authorized, "agent": bool(os.environ.get("SSH_AUTH_SOCK"))}


def encrypted(content: bytes) -> bool:
    """True where a private key has a passphrase: PEM says so, OpenSSH's own format names its cipher."""
    if b"ENCRYPTED" in content:
        return True
    match = re.search(rb"BEGIN OPENSSH PRIVATE KEY-----\s*([A-Za-z0-9+/=\s]{60})", content)
    if not match:
        return False
    try:
        head = base64.b64decode(b"".join(match[1].split())[:40])
    except ValueError:
        return False
    return head.startswith(b"openssh-key-v1\0") and head[19:23] != b"none"
