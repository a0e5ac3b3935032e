"""Replaces what tells who and where: hosts, users, addresses, folders, serial numbers and secrets; equal things get equal words.

What the diagnosis reads stays: versions, ranks, process ids, devices, bus addresses, times, messages, the first folder of a
path (which file system it is on) and its last part.
"""

import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

from detect_secrets import plugins
from detect_secrets.plugins.base import RegexBasedDetector

from nccl_doctor.app.fleet import most_nodes
from nccl_doctor.common import digit_shapes

COMMON_HOSTS = {
    "localhost", "host", "node", "master", "worker", "server", "login", "gpu", "rank", "unknown", "none", "null",
    "container", "main", "local", "job",
}  # fmt: skip
COMMON_USERS = {
    "root", "user", "users", "nobody", "ubuntu", "admin", "slurm", "jovyan", "docker", "app", "work", "shared", "data", "public",
}  # fmt: skip
_KEPT_TOPS = {
    "usr", "opt", "lib", "lib64", "etc", "proc", "sys", "dev", "run", "tmp", "var", "bin", "sbin", "root", "boot", "snap", "nix",
}  # fmt: skip
MOST_PARTS = 12  # of a word with hyphens
_MEMO = 100_000  # shapes of lines, and words, after which a memo is emptied
_PACKAGE_FOLDER = re.compile(
    r"(?:lib|lib64|bin|include|site-packages|dist-packages|python\d.*|envs|(?:mini|ana)conda\d?|venv|\.venv|torch|nccl)"
)
_FILE_ENDS = {
    "log", "txt", "out", "err", "json", "jsonl", "csv", "xml", "gz", "zst", "bz2", "xz", "py", "pyc", "sh", "so", "yaml", "yml",
    "toml", "cfg", "conf", "db", "pt", "bin", "html", "md",
}  # fmt: skip
_VERSION = re.compile(r"(?i)(?:version|libfabric|driver|firmware|release|fw|nccl|cudnn|\bv|\bver)[\s:=]*$")
_USER = re.compile(
    r"(?:/home/|/Users/|\b(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|user|owner)\s?[=:]\s?\"?|\buid=\d+\()(?P<name>[A-Za-z_][\w.-]{1,31})"
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_LABELS = re.compile(r"(?:\.[A-Za-z][\w-]*)*")
_WORD = re.compile(rf"{_NAME.pattern}{_LABELS.pattern}")
_LIST = re.compile(r"(?<![A-Za-z])(?P<stem>[A-Za-z][\w-]{0,62})\[(?P<numbers>\d[\d,-]*)\]")
_IP_NAME = re.compile(r"ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}")
_IPV4 = re.compile(r"(?<![\w.-])(?P<net>\d{1,3}\.\d{1,3}\.\d{1,3})\.(?P<last>\d{1,3})(?![\w-]|\.\d)")
_SPECIAL = re.compile(
    r"(?:0|127|255|22[4-9]|23\d)\.|169\.254\.|172\.17\."
)  # no address of a host, or one of every host
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9a-fA-F:]{0,40}\d)(?:[0-9a-fA-F]{1,4}:){1,7}:(?:[0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4}(?![\w:])"
)
_MAC = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_GUID = re.compile(r"(?i)(?<=guid)(?P<gap>\W{1,40}(?:0x)?)(?P<value>[0-9a-f]{16}|(?:[0-9a-f]{4}:){3}[0-9a-f]{4})\b")
_UUID = re.compile(r"\b(?P<kind>GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_SERIAL = re.compile(r"(?i)(?<=serial)(?P<gap>(?:[ _-]?(?:number|no|num))?\W{1,40})(?P<value>[A-Z0-9-]{6,40})\b")
_PATH = re.compile(r"(?<![\w./:])(?P<path>/[\w.+@=-]{1,255}(?:/[\w.+@=-]{1,255}){1,60})")
_ASSIGNED = re.compile(
    r"(?i)(?P<name>\b\w{0,60}(?:API_?KEY|SECRET|TOKEN|PASSW(?:OR)?D|CREDENTIAL|ACCESS_KEY)\w{0,60}[\"']?\s?[=:]\s?[\"']?)(?P<value>[^\s\"',;]{6,})"
)

_LISTED = 1 << 18  # hosts in all lists, each of which is named
_WINDOW = 1_000  # characters; what tells that something is a secret is in fewer of them

_Step = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]  # what is looked for, and what stands for it


class Redactor:
    """Replaces text line by line; `replaced` tells by kind what became what."""

    def __init__(
        self, hosts: Iterable[str], users: Iterable[str] = (), secrets: Iterable[re.Pattern[str]] = ()
    ) -> None:
        self.replaced: dict[str, dict[str, str]] = defaultdict(dict)
        self._hosts = {name.lower() for name in hosts if _tells(name)}
        named = {re.escape(name) for name in users if name.lower() not in COMMON_USERS and len(name) > 1}
        self._users = (
            re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(named, key=len, reverse=True))})(?!\w)") if named else None
        )
        self._nets: dict[str, int] = {}
        self._secrets = list(secrets)
        self._steps = [*((pattern, self._removed) for pattern in self._secrets), *self._rare()]
        self._of_digits = [  # what may find something in one line and nothing in another one of its shape
            step for step in self._steps if digit_shapes.tells_digits_apart(step[0].pattern)
        ]
        self._quiet: set[bytes] = set()  # shapes of lines in which the other steps find nothing
        self._plain: set[str] = set()  # words that stay
        self._listed = 0  # hosts in lists

    def _rare(self) -> list[_Step]:
        """What most lines hold nothing of, in the order in which it is replaced."""
        return [
            (_ASSIGNED, lambda found: found["name"] + self._secret(found["value"])),
            (_MAIL, lambda found: self._numbered("mail", found[0], "mail-{}@example.org")),
            (_UUID, self._uuid),
            (_GUID, lambda found: found["gap"] + self._guid(found["value"])),
            (_SERIAL, lambda found: found["gap"] + self._serial(found["value"])),
            (_MAC, lambda found: self._replace("MAC", found[0].lower(), _mac)),
            (_IPV6, lambda found: self._ipv6(found[0])),
        ]

    def __call__(self, line: str) -> str:
        for pattern, replacement in self._steps_of(line):
            if len(line) > _WINDOW and pattern in self._secrets:
                line = self._without_secrets(pattern, line)
            else:
                line = pattern.sub(replacement, line)
        line = _IPV4.sub(self._ipv4, line)
        line = _LIST.sub(self._list, line)
        line = _PATH.sub(self._path, line)
        if self._users is not None:
            line = self._users.sub(lambda found: self._user(found[0]), line)
        return _WORD.sub(self._word, line)

    def _without_secrets(self, pattern: re.Pattern[str], line: str) -> str:
        """A long line without what a pattern of others finds, which may take quadratic time: found in windows that overlap by half.

        A secret may be longer than a window, such as a token that is signed: its end is looked for in the whole line.
        """
        pieces = [""]
        end = 0  # of the last secret
        for start in range(0, len(line), _WINDOW // 2):
            for found in pattern.finditer(line, start, start + _WINDOW):
                if found.end() > end and found.end() > found.start():
                    whole = pattern.match(line, found.start()) or found
                    if found.start() >= end:
                        pieces += [line[end : found.start()], self._removed(whole)]
                    end = max(found.end(), whole.end())
        return "".join([*pieces, line[end:]])

    def _steps_of(self, line: str) -> list[_Step]:
        """The steps that may find something in a line. Most lines differ from others in digits only, and hold nothing rare."""
        if len(line) > digit_shapes.LONGEST or not line.isascii():
            return self._steps
        shape = digit_shapes.shape_of(line.encode())
        if shape in self._quiet:
            return self._of_digits
        if not any(pattern.search(line) for pattern, _ in self._steps):
            if len(self._quiet) > _MEMO:
                self._quiet.clear()
            self._quiet.add(shape)
            return self._of_digits
        return self._steps

    def _replace(self, kind: str, text: str, word: Callable[[int], str]) -> str:
        """What stands for this text: what it got before, or the word of the next number of its kind."""
        known = self.replaced[kind]
        if text not in known:
            known[text] = word(len(known) + 1)
        return known[text]

    def _numbered(self, kind: str, text: str, form: str) -> str:
        return self._replace(kind, text, lambda number: form.format(f"{number:03}"))

    def _removed(self, found: re.Match[str]) -> str:
        return self._numbered("secret", found[0], "removed-{}")

    def _secret(self, value: str) -> str:
        return (
            value if value.startswith("removed-") or value.isdigit() else self._numbered("secret", value, "removed-{}")
        )

    def _uuid(self, found: re.Match[str]) -> str:
        head = f"{found['kind']}-00000000-0000-0000-0000-"
        return self._replace("UUID", found[0], lambda number: f"{head}{number:012x}")

    def _guid(self, value: str) -> str:
        def word(number: int) -> str:
            plain = f"{number:016x}"
            return ":".join(plain[at : at + 4] for at in range(0, 16, 4)) if ":" in value else plain

        return self._replace("GUID", value, word)

    def _serial(self, value: str) -> str:
        return (
            value if not any(sign.isdigit() for sign in value) else self._numbered("serial number", value, "SERIAL{}")
        )

    def _ipv6(self, text: str) -> str:
        if text == "::1":
            return text
        head = "fe80" if text.lower().startswith("fe80") else "fd00"
        return self._replace("IPv6 address", text, lambda number: f"{head}::{number:x}")

    def _ipv4(self, found: re.Match[str]) -> str:
        """Another address of a private net; addresses of one net of 256 stay in one."""
        before = found.string[max(0, found.start() - 24) : found.start()]
        if _VERSION.search(before) or _SPECIAL.match(found[0]) or any(int(part) > 255 for part in found[0].split(".")):
            return found[0]
        number = self._nets.setdefault(found["net"], len(self._nets) + 1)
        new = f"10.{number >> 8 & 255}.{number & 255}.{found['last']}"
        return self.replaced["IPv4 address"].setdefault(found[0], new)

    def _list(self, found: re.Match[str]) -> str:
        """A set of hosts, `node[01-04]`, of which at least one is known; one of too many is a name."""
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

        if found["stem"].lower() not in self._stems:
            return found[0]
        self._listed += most_nodes(found[0])
        if self._listed > _LISTED:
            return self._host(found[0])
        try:
            names = NodeSet(found[0], resolver=RESOLVER_NOGROUP)
        except NodeSetParseError:
            return found[0]
        return str(NodeSet.fromlist([self._host(name) for name in names], resolver=RESOLVER_NOGROUP))

    @cached_property
    def _stems(self) -> set[str]:
        return {name.rstrip("0123456789") for name in self._hosts}

    def _host(self, name: str) -> str:
        return self._numbered("host", name.lower(), "host-{}")

    def _path(self, found: re.Match[str]) -> str:
        """A path whose folders between the file system and the file have no names; below a package they keep them."""
        top, *folders, last = found["path"].split("/")[1:]
        if top in _KEPT_TOPS:
            return found["path"]
        for at, folder in enumerate(folders):
            if _PACKAGE_FOLDER.fullmatch(folder):
                break
            is_user = top in ("home", "Users") and at == 0
            folders[at] = self._user(folder) if is_user else self._folder(folder)
        if top in ("home", "Users") and not folders:
            last = self._user(last)
        return "/".join(["", top, *folders, last])

    def _folder(self, name: str) -> str:
        return name if name.isdigit() or len(name) < 2 else self._numbered("folder", name, "folder-{}")

    def _user(self, name: str) -> str:
        return name if name.lower() in COMMON_USERS else self._numbered("user", name, "user-{}")

    def _word(self, found: re.Match[str]) -> str:
        """A word that is a host, also before its domain or a suffix such as `-ib0`."""
        if (whole := found[0]) in self._plain:
            return whole
        shown = self._word_of(found)
        if shown == whole:
            if len(self._plain) > _MEMO:
                self._plain.clear()
            self._plain.add(whole)
        return shown

    def _word_of(self, found: re.Match[str]) -> str:
        whole, at, shown = found[0], 0, ""
        while (word := _NAME.search(whole, at)) is not None:
            shown += whole[at : word.start()]
            at = word.end()
            name = word[0].lower()
            if name in self._hosts or _IP_NAME.fullmatch(name):
                rest = _LABELS.match(whole, at)
                at = rest.end() if rest else at
                shown += self._host(name) + self._domain(rest[0] if rest else "")
            else:
                shown += self._parts(word[0])
        return shown + whole[at:]

    def _domain(self, rest: str) -> str:
        """What follows the name of a host: a domain, or the end of the name of a file."""
        if not rest or set(rest[1:].split(".")) & _FILE_ENDS:
            return rest
        self.replaced["domain"].setdefault(rest[1:], "example")
        return ".example"

    def _parts(self, word: str) -> str:
        """A word with hyphens of which some parts are a host: `gpu-a01-ib0`, `dmesg-gpu-a01`."""
        parts = word.split("-")
        if len(parts) > MOST_PARTS:
            return word
        for length in range(len(parts) - 1, 0, -1):
            for first in range(len(parts) - length + 1):
                name = "-".join(parts[first : first + length])
                if name.lower() in self._hosts:
                    return "-".join([*parts[:first], self._host(name), *parts[first + length :]])
        glued = word.lstrip("0123456789")  # to a number, where two writers share a line
        return word[: -len(glued)] + self._host(glued) if glued.lower() in self._hosts else word


def users_in(line: str) -> list[str]:
    """Names of users that a line gives as such."""
    return [found["name"] for found in _USER.finditer(line)]


def known_secrets() -> list[re.Pattern[str]]:
    """The patterns of tokens and keys that the detect-secrets package maintains."""
    for module in pkgutil.iter_modules(plugins.__path__):
        importlib.import_module(f"{plugins.__name__}.{module.name}")
    kinds: list[Callable[[], RegexBasedDetector]] = [
        one for one in RegexBasedDetector.__subclasses__() if one.__name__ != "IPPublicDetector"
    ]
    return [pattern for kind in kinds for pattern in kind().denylist]


def _mac(number: int) -> str:
    return f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"


def _tells(name: str) -> bool:
    """Whether a host's name says anything; a word that everybody uses stands in sentences too."""
    return len(name) > 2 and name.lower() not in COMMON_HOSTS and not name.isdigit()
