"""File systems: what is mounted, whether it answers, and how Lustre and NFS clients see their servers."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import LustreTarget, Mount, MountProbe, MountWanted, NfsMount
from nccl_doctor.node.host import clock, task
from nccl_doctor.node.runtime.root import Root, fields
from nccl_doctor.node.storage import mounts, probes

TABLES = (LustreTarget, Mount, MountProbe, MountWanted, NfsMount)
INFO = "/proc/self/mountinfo"
STATS = "/proc/self/mountstats"
DEADLINE = 2.0  # seconds for all trials together
LONGEST = 16 << 20  # bytes of the list of mounts: users add a thousand FUSE mounts, each with a path of 4 KiB
_BASES = ("/proc/fs/lustre", "/sys/fs/lustre", "/sys/kernel/debug/lustre")
_STATES = frozenset((
    "CLOSED", "CONNECTING", "DISCONN", "EVICTED", "FULL", "IDLE", "NEW", "RECOVER", "REPLAY", "REPLAY_LOCKS",
    "REPLAY_WAIT",
))  # fmt: skip
_LISTED = re.compile(r"^[ \t]*- \[\s*(\d{1,12}), (\w+)\s*\]", re.MULTILINE)


def collect(root: Root) -> Iterator[Any]:
    """What is mounted comes first, so that it is known even where a trial takes all the time."""
    text = root.text(INFO, LONGEST) or ""
    entries = [(entry, kind) for entry in mounts.parse(text) if (kind := mounts.kind(entry)) is not None]
    for entry, kind in entries:
        yield _mount(entry, kind)
    yield from _fstab(root)
    yield from _nfs(root)
    yield from _lustre(root)
    yield from _probes(root, entries)


def _mount(entry: mounts.Entry, kind: str) -> Mount:
    seen = Seen(
        INFO, f"{entry.source} on {entry.path} type {entry.fstype} ({','.join(sorted(entry.options))})", entry.line
    )
    options = ",".join(sorted(entry.options | entry.above))
    return Mount(
        host=None, path=entry.path, fstype=entry.fstype, source=entry.source, kind=kind,
        read_only=int("ro" in entry.options | entry.above), turned=int(mounts.turned(entry)), options=options[:500],
        ref=seen,
    )  # fmt: skip


def _fstab(root: Root) -> Iterator[MountWanted]:
    path = "/etc/fstab"
    for entry in mounts.parse_fstab(root.text(path) or ""):
        seen = Seen(path, f"{entry.source} {entry.path} {entry.fstype}", entry.line)
        yield MountWanted(None, entry.path, entry.fstype, entry.source, int("ro" in entry.options), seen)


def _nfs(root: Root) -> Iterator[NfsMount]:
    for one in mounts.parse_nfs(root.text(STATS) or ""):
        shown = f"{one.path}: {one.operations} operations, {one.repeats} repeated, {one.timeouts} timed out, {one.rtt or 0:.1f} ms"
        yield NfsMount(
            None, one.path, one.server, one.operations, one.repeats, one.timeouts, one.rtt,
            Seen(STATS, shown, one.line),
        )  # fmt: skip


def expected(root: Root) -> Mapping[str, Any]:
    """Paths that the site's own file names."""
    wanted = root.expect.get("mount")
    if isinstance(wanted, dict):
        return {str(path): value for path, value in wanted.items() if str(path).startswith("/")}
    return {str(path): None for path in wanted} if isinstance(wanted, list) else {}


def _probes(root: Root, entries: list[tuple[mounts.Entry, str]]) -> Iterator[MountProbe]:
    """Automounters are left alone unless the site names the path: asking them would mount."""
    wanted = expected(root)
    places = {entry.path: entry for entry, kind in entries if kind != "autofs"}
    # The last ones are not tried where there are too many, and users can make any number of FUSE mounts.
    others = sorted(places.keys() - wanted.keys(), key=lambda path: (places[path].fstype.startswith("fuse"), path))
    trials = [probes.Trial(path, _writes(wanted, path)) for path in wanted]
    trials += [probes.Trial(path, bool(root.deep) and places[path].fstype in mounts.SHARED) for path in others]
    kept = root.asked("mounts", lambda: {"uid": _uid(root), "paths": probes.run(trials, DEADLINE)}) or {}
    answers = kept.get("paths")
    for path, answer in (answers if isinstance(answers, dict) else {}).items():
        for operation in ("stat", "write"):
            parsed = answer.get(operation) if isinstance(answer, dict) else None
            if isinstance(parsed, dict) and isinstance(parsed.get("outcome"), str):
                seconds = float(parsed.get("seconds") or 0.0)
                seen = Seen(f"{operation} {path}", f"{operation} {path}: {parsed['outcome']} after {seconds:.3f} s")
                yield MountProbe(
                    host=None, path=path, operation=operation, outcome=parsed["outcome"], seconds=seconds,
                    size=parsed.get("size"), free=parsed.get("free"), files=parsed.get("files"),
                    files_free=parsed.get("files_free"), wanted=int(path in wanted), uid=kept.get("uid"), ref=seen,
                )  # fmt: skip


def _writes(wanted: Mapping[str, Any], path: str) -> bool:
    """What the site names is tried for writing too, unless it says that it is read-only."""
    return path in wanted and wanted[path] != "ro"


def _uid(root: Root) -> int | None:
    return next((row.uid for row in task.collect(root)), None)


def _lustre(root: Root) -> Iterator[LustreTarget]:
    now = clock.times(root).now
    health = root.value(path := "/sys/fs/lustre/health_check") or root.value(path := "/proc/fs/lustre/health_check")
    if health is not None:
        yield LustreTarget(None, "health", "client", health.splitlines()[0], None, None, Seen(path, health))
    for kind in ("mgc", "mdc", "osc"):
        done: set[str] = set()
        for base in _BASES:
            for name in root.names(f"{base}/{kind}"):
                if name in done or (parsed := _target(root, f"{base}/{kind}/{name}", now)) is None:
                    continue
                done.add(name)
                state, age, place = parsed
                active = root.number(f"/sys/fs/lustre/{kind}/{name}/active")
                seen = Seen(place, f"{name}: {state}")
                yield LustreTarget(None, kind, name, state, active, age, seen)
    yield from _lnet(root)


def _target(root: Root, folder: str, now: float | None) -> tuple[str, float | None, str] | None:
    """State of a connection, seconds in it, and the file that says so."""
    for path in (f"{folder}/state", f"{folder}/import"):
        text = root.text(path)
        state = state_of(text or "")
        if state is not None:
            changes = _LISTED.findall(text or "")
            age = now - int(changes[-1][0]) if changes and now is not None else None
            return state, age, path
    return None


def state_of(text: str) -> str | None:
    """`current_state: FULL` of a state file, `state: FULL` of an import file, or the bare word of old versions."""
    properties = fields(text)
    words = (properties.get("current_state") or properties.get("state") or text[:100]).split()
    return words[0] if words and words[0] in _STATES else None


def _lnet(root: Root) -> Iterator[LustreTarget]:
    """Addresses of this node in Lustre's network; one row says that there are none."""
    if not root.exists("/sys/module/lnet"):
        return
    for command in (("lctl", "list_nids"), ("lnetctl", "net", "show")):
        with suppress(TimeoutError):
            out = root.run(*command, seconds=1.0)
            if out is None or out.status != 0:
                continue
            seen = Seen(" ".join(command), out.text.strip()[:300] or "(nothing)")
            names = [nid for nid in re.findall(r"\b([\w.:-]{1,120}@\w+)\b", out.text) if not nid.endswith("@lo")]
            for name in dict.fromkeys(names):
                yield LustreTarget(None, "lnet", name, "up", None, None, seen)
            if not names:
                yield LustreTarget(None, "lnet", "(none)", "no address", None, None, seen)
            return
