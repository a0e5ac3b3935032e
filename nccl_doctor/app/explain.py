"""`explain`: what a rule, a setting, a code, a transport or a pasted log line means, as plain text of 80 columns.

The cheap questions are asked first, and every source is loaded only when its question is asked, so that an answer comes at once.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nccl_doctor.common.printable import printable
from nccl_doctor.knowledge import codes, settings, transports, wording

if TYPE_CHECKING:
    from nccl_doctor.knowledge.catalogue import Hit
    from nccl_doctor.knowledge.known_message import KnownMessage

_LONGEST = 8000  # characters of a pasted text that are looked at
_RULE_ID = re.compile(r"[A-Za-z]{2,6}\d{3}")
_RULE_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+|healthy|unknown")
_ASSIGNED = re.compile(
    r"(?:export\s+|-x\s+|--env[ =]|-e\s+)?(?P<name>[A-Za-z][A-Za-z0-9_]{2,})(?:\s*=\s*(?P<value>'[^']*'|\"[^\"]*\"|\S*))?"
)
_FAMILY = re.compile(r"(NCCL|TORCH|FI|OFI|UCX|OMPI|HOROVOD|CUDA|RDMAV|GLOO)_\w", re.IGNORECASE)
ROLES = {
    "origin": "Origin: what it reports began in this process or on this node.",
    "echo": "Echo: something else failed first, often in another process; look there.",
}
_SET = re.compile(r"\b(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)(?: set (?:by environment )?to |=)\"?(?P<value>[^\s\"]*)")


def explain(text: str) -> str | None:
    """What the text means; None where nothing is known about it."""
    clean = "\n".join(printable(line, " ") for line in text[:_LONGEST].split("\n")).strip()
    if not clean:
        return None
    for answer in (_rule, _setting, _codes, _transport, _bare_number, _log):
        found = answer(clean)
        if found:
            return found
    return None


def nearest(text: str) -> list[str]:
    """At most two names of rules that are spelled almost like this; empty for anything else than one word."""
    from difflib import get_close_matches

    from nccl_doctor.rules import loader

    if not _RULE_NAME.fullmatch(text.lower()):
        return []
    return get_close_matches(text.lower(), loader.shipped_names(), 2, 0.75)


# Rules ---------------------------------------------------------------------------------------------------------------


def _rule(text: str) -> str | None:
    if not (_RULE_ID.fullmatch(text) or _RULE_NAME.fullmatch(text)):
        return None
    from nccl_doctor.rules import loader, schema
    from nccl_doctor.rules.symptoms import load_classes

    try:
        rule = loader.find_rule(text)
    except schema.RuleProblem:
        return None
    if rule is None:
        return None
    parts = [
        f"{rule.severity}, {rule.role}, {rule.confidence}",
        f"Says: {message_form(rule.message)}",
        "",
        f"Why it matters: {rule.why}",
        f"What to do: {rule.fix}",
    ]
    if rule.explains:
        meanings = {name: known.meaning.rstrip(".") for name, known in load_classes().items()}
        named = [f"{name} ({meanings[name]})" if name in meanings else name for name in rule.explains]
        parts.append(f"Accounts for: {'; '.join(named)}")
    body = wording.block(f"{rule.id} {rule.name}: {rule.title}", *parts)
    return "\n".join([body, *(f"  {reference}" for reference in rule.references)])


def message_form(message: str) -> str:
    """A message template as a reader may see it: placeholders become names in angle brackets."""
    return re.sub(r"\{(\w+)(?::[^{}]*)?\}", r"<\1>", message)


# Settings ------------------------------------------------------------------------------------------------------------


def _setting(text: str) -> str | None:
    match = _ASSIGNED.fullmatch(text)
    if match is None or "\n" in text:
        return None
    name, value = match["name"], match["value"]
    if value is not None:
        value = value.strip().strip("\"'")
    setting = settings.find(name)
    if setting is not None:
        return wording.setting_words(setting, name, value)
    if not _FAMILY.match(name) or name.upper().startswith("CUDA_ERROR"):
        return None
    new = settings.successor(name)
    near = [new] if new and settings.find(new) else settings.suggest(name)
    lines = []
    if new:
        lines.append(
            f"No released libfabric with an EFA provider (1.8 and newer) reads it. Its successor is called {new}."
        )
    elif name.upper().startswith(settings.FOREIGN):
        lines.append("This name belongs to a plug-in or tool beside NCCL, not to NCCL.")
    elif near:
        lines.append(
            f"No such setting is known. Did you mean {' or '.join(near)}? A misspelt name is ignored without a word."
        )
    elif name.upper().startswith("NCCL_"):
        lines.append("No NCCL up to 2.32.3 reads this name. A plug-in or a wrapper of yours may.")
    if not lines:
        return None
    return wording.block(f"{name} (unknown setting)", *lines)


def _codes(text: str) -> str | None:
    """Explains a text that consists of one code in a usual spelling."""
    if "\n" in text or len(text) > 120:
        return None
    plain = text.strip(" .,;'\"")
    for pattern, answer in wording.READERS:
        match = pattern.fullmatch(plain) or pattern.fullmatch(" " + plain)
        found = answer(match) if match else None
        if found:
            return found
    if re.fullmatch(r"-\d{1,3}", plain):
        return wording.exit_words(int(plain))
    both = re.fullmatch(r"(.{3,40}?)[, ]+(vendor.*)", plain)
    if both:
        status, vendor = wording.STATUS.fullmatch(both[1]), wording.VENDOR.fullmatch(both[2])
        if status and vendor:
            return wording.completion(status, vendor)
    return None


def _bare_number(text: str) -> str | None:
    """Explains a bare number; lists all meanings, and how to ask for one, where it has several."""
    if not re.fullmatch(r"\d{1,4}", text):
        return None
    code = int(text)
    found: dict[str, str] = {}
    for kind, what, ask in (
        ("xid", "Xid", f"Xid {code}"), ("ib_status", "completion status", f"status={code}"), ("nccl_result", "NCCL result", f"-> {code}"),
        ("cuda_error", "CUDA error", f"Cuda failure {code}"), ("signal", "signal", f"signal {code}"),
    ):  # fmt: skip
        known = codes.by_code(kind, code)
        if known:
            found[ask] = f"{what}: {known['name']}"
    exits = codes.exit_code(code)
    if exits and (exits[1] or code < 128):
        found[f"exit code {code}"] = f"exit code: {exits[0]['meaning']}"
    if len(found) < 2:
        return next((_codes(ask) for ask in found), None)
    lines = [wording.paragraph(f"{meaning} (ask `{ask}`)", mark="- ") for ask, meaning in found.items()]
    return "\n".join([f"{code} alone can mean several things:", *lines])


# Transports and lines ------------------------------------------------------------------------------------------------


def _transport(text: str) -> str | None:
    plain = text.removeprefix("via ").strip()
    if not plain.startswith(transports.STARTS) or "\n" in plain:
        return None
    reading = transports.parse_transport(plain)
    if reading is None:
        return None
    return wording.block(f"{plain} (how two ranks are connected)", *reading.sentences)


def _log(text: str) -> str | None:
    blocks = []
    for line in [line for line in text.split("\n") if line.strip()][:20]:
        found = _line(line)
        if found and found not in blocks:
            blocks.append(found)
    if not blocks and "\n" in text:
        joined = _line(text.replace("\n", " "))
        blocks = [joined] if joined else []
    return "\n\n".join(blocks) or None


def _line(line: str) -> str | None:
    from nccl_doctor.log import line_patterns

    hit = _catalogued(line)
    matches = line_patterns.classify(line)[:3]
    paragraphs = list(_proved(hit.message)) if hit else []
    if not hit and matches and not any(match.pattern.harmless for match in matches):
        paragraphs = _found(line)
    for match in matches:
        pattern = match.pattern
        known = paragraphs and pattern.fallback
        if pattern.means and not known and not any(pattern.means in done for done in paragraphs):
            paragraphs.append(f"{pattern.means}{printed_by(pattern)}")
            if pattern.harmless:
                paragraphs.append("This line alone is harmless.")
            values = _values(match.fields)
            if values:
                paragraphs.append(f"Read from it: {values}.")
    paragraphs += _advice(hit) if hit else []
    details = list(_details(line))
    if not paragraphs and not details:
        return None
    shown = line.strip() if len(line.strip()) <= wording.WIDTH else line.strip()[: wording.WIDTH - 3] + "..."
    return "\n\n".join([wording.block(shown, *paragraphs), *(_indented(detail) for detail in details)])


def _found(line: str) -> list[str]:
    """What `analyze` says of a log that holds this line alone; empty where that is no more than that something failed."""
    from nccl_doctor.app import analyze

    report = analyze.report_of(analyze.read_text(f"{line}\n"))
    cause = next((one for one in report.findings if one.severity != "note" and one.role == "cause"), None)
    if cause is None:
        return []
    said = cause.message[:1].upper() + cause.message[1:]
    return [f"{cause.rule} {cause.name}: {cause.title}. {said}", f"What to do: {cause.fix}"]


def _catalogued(line: str) -> "Hit | None":
    """The message of the catalogue that a line is."""
    from nccl_doctor.inputs import prefixes
    from nccl_doctor.knowledge.catalogue import catalogue
    from nccl_doctor.knowledge.system_errors import sharpened
    from nccl_doctor.knowledge.templates import RECORD
    from nccl_doctor.log import nccl_header

    text = prefixes.clean(line)
    record = nccl_header.split_record(text)
    hit = catalogue().find(record[2].strip(), RECORD) if record else catalogue().find(prefixes.split(text)[1])
    return None if hit is None else sharpened(hit, text)


def _proved(known: "KnownMessage") -> Iterator[str]:
    yield f"{known.title}: {known.means}{printed_by(known, known.title)}"
    if known.proves:
        yield f"It proves: {known.proves}"


def _advice(hit: "Hit") -> Iterator[str]:
    """Class, origin or echo, likely causes and the next command of a message of the catalogue."""
    from nccl_doctor.knowledge.known_message import classes

    known = hit.message
    yield f"Class {known.kind}: {classes()[known.kind].meaning}"
    if known.kind != "harmless":
        yield ROLES[known.role]
    if known.fault:
        yield f"Reported as {known.fault} (`nccl-doctor explain {known.fault}`)."
    if known.causes:
        yield "\n".join(["Likely causes:", *(f"{at}. {cause}" for at, cause in enumerate(known.causes, 1))])
    yield f"Next: {known.command()}"
    values = _values(hit.fields)
    if values:
        yield f"Read from it: {values}."


def _indented(block: str) -> str:
    return "\n".join("  " + line if line else line for line in block.split("\n"))


def printed_by(printer: Any, program: str = "NCCL") -> str:
    """Which versions of a program print a message; empty where that is not known."""
    if printer.since and printer.until:
        return f" Printed by {program} {printer.since} to {printer.until}."
    if printer.since:
        return f" Printed since {program} {printer.since}."
    return f" Printed up to {program} {printer.until}." if printer.until else ""


def _values(fields: dict[str, Any]) -> str:
    shown = [(key.rstrip("_"), str(value)) for key, value in fields.items() if value not in (None, "")]
    return ", ".join(f"{key} {value if len(value) <= 60 else value[:57] + '...'}" for key, value in shown[:12])


def _details(line: str) -> Iterator[str]:
    """Blocks about the codes, settings and transports that a line holds."""
    narrow = 0
    for match in _SET.finditer(line):
        setting = settings.find(match["name"])
        if setting and match["name"] == setting.name and narrow < 3:
            narrow += 1
            yield wording.setting_words(setting, setting.name, match["value"].rstrip(".,;"))
    completion = "ompletion" in line or "vendor" in line or "IBV_WC_" in line
    status = wording.STATUS.search(line) if completion else None
    if status:
        found = wording.completion(status, wording.VENDOR.search(line))
        if found:
            yield found
    for condition, pattern, answer in (
        ("xid" in line.lower(), wording.XID, wording.xid),
        (not status, wording.RESULT, wording.result),
        ("->" in line and "via" not in line, wording.TRAIL, wording.result),
        (True, wording.CUDA, wording.cuda),
        ("exit" in line.lower(), wording.EXIT, wording.exit_),
        (True, wording.SIGNAL, wording.signal),
    ):
        match_ = pattern.search(line) if condition else None
        words = answer(match_) if match_ else None
        if words:
            yield words
    if " via " in line:
        reading = transports.parse_transport(line[line.index(" via ") + 5 :])
        if reading:
            yield wording.block(f"{reading.text} (how two ranks are connected)", *reading.sentences)
