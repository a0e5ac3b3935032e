"""Explains settings, codes and numbers as blocks of plain text, 80 columns wide.

Each pattern finds a code as NCCL, verbs, CUDA, kernels and launchers print it. The function of the same name takes the
match and returns the block, or None if the number is unknown.
"""

import re
import textwrap

from nccl_doctor.knowledge import codes, settings
from nccl_doctor.knowledge.env_lint import lint_setting

WIDTH = 78  # leaves two columns to indent a block inside another
XID = re.compile(
    r"(?P<switch>S)?Xid\b(?:\s{0,9}\((?:PCI:)?[^)]{0,80}\))?[:=\s#]{0,9}(?P<code>\d{1,5})\b", re.IGNORECASE
)
STATUS = re.compile(
    r"\b(?:wc[_ ])?(?:status|error)(?:\s*[=:]\s*|\s+)"
    r"(?:(?P<name>[A-Za-z_][A-Za-z_ ]{3,40}) ?\((?P<named>\d{1,2})\)|(?P<code>\d{1,2}))(?![\d.])"
)
STATUS_NAME = re.compile(r"\b(?:IBV_WC_)?(?P<name>[A-Z]+(?:_[A-Z]+){0,4}_(?:ERR|INCOMPLETE))\b")
VENDOR = re.compile(r"\bvendor[ _]err(?:or)?[ =:]*(?P<code>0x[0-9a-fA-F]{1,8}|\d{1,9})\b")
RESULT = re.compile(
    r"\bnccl(?:Success|UnhandledCudaError|SystemError|InternalError|InvalidArgument|InvalidUsage|RemoteError|InProgress|Timeout)\b",
    re.IGNORECASE,
)
TRAIL = re.compile(r"(?:^|\s)->\s*(?P<code>[0-8])(?=\s*(?:\[|$))")
CUDA = re.compile(
    r"\bcuda (?:failure|error)[ :]*(?P<code>\d{1,4})\b|\b(?P<name>(?:cuda|hip)Error[A-Z]\w{2,60}|CUDA_ERROR_[A-Z_]{4,60})\b",
    re.IGNORECASE,
)
NVLINK = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40})(?:/(?P<part>[A-Z0-9_]{1,40}))? (?:Link )?(?P<fatal>Fatal|Non-?fatal) XC(?P<domain>\d)"
    r" i(?P<injected>\d{1,20}) Link (?P<link>-?\d{1,20}) \((?P<information>0x[0-9a-fA-F]{1,8})(?: (?P<status>0x[0-9a-fA-F]{1,8}))?"
)
EXIT = re.compile(
    r"\bexit(?:ed with)?[ _]?(?:code|status)?\s{0,40}[:=]?\s{0,40}(?P<code>-?\d{1,3})\b|\brc\s{0,40}[:=]\s{0,40}(?P<rc>-?\d{1,3})\b",
    re.IGNORECASE,
)
SIGNAL = re.compile(
    r"\b(?P<name>SIG(?:ABRT|BUS|KILL|SEGV|TERM|INT|ILL|FPE|USR1|PIPE|XCPU|HUP))\b|\bsignal[ :]+(?P<code>\d{1,2})\b",
    re.IGNORECASE,
)

WHERE_NCCL_READS = (
    "NCCL reads its settings from the environment, then from NCCL_CONF_FILE or ~/.nccl.conf, then from /etc/nccl.conf, and "
    'prints "set by environment" for all of them. A network plug-in may set them too.'
)


def paragraph(text: str, indent: str = "  ", mark: str = "") -> str:
    """Returns wrapped text; line breaks are kept, runs of blanks become one. ``mark`` precedes the first line."""
    width = WIDTH - len(mark)
    lines = []
    for part in text.strip().split("\n"):
        lines += textwrap.wrap(
            " ".join(part.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    if mark and lines:
        lines[0] = indent + mark + lines[0].removeprefix(indent)
        lines[1:] = [indent + " " * len(mark) + line.removeprefix(indent) for line in lines[1:]]
    return "\n".join(lines)


def block(title: str, *paragraphs: str) -> str:
    """Returns a title and indented paragraphs; empty paragraphs are left out."""
    head = "\n".join(textwrap.wrap(title, WIDTH)) or title
    return "\n".join([head, *(paragraph(text) for text in paragraphs if text)])


def setting_words(setting: settings.Setting, typed: str, value: str | None) -> str:
    """Returns the block of a setting, with an assessment of the value if there is one."""
    kind = {"int": "number", "bool": "0 or 1", "file": "file or path"}.get(setting.kind, setting.kind)
    title = f"{setting.name} (setting of {settings.PROGRAMS[setting.family]}, {kind})"
    where = WHERE_NCCL_READS if setting.family == "nccl" else ""
    return block(title, *setting_paragraphs(setting, typed, value), where)


def setting_paragraphs(setting: settings.Setting, typed: str, value: str | None = None) -> list[str]:
    """Returns what a setting does, which versions read it, and which values are harmful, or what is wrong with this one."""
    parts = [setting.does]
    if typed.strip() != setting.name:
        parts.append(f"Names of variables are case-sensitive: write {setting.name}.")
    parts += [_versions(setting), _defaults(setting)]
    if setting.values:
        parts.append(f"Values: {', '.join(setting.values)}.")
    if setting.range:
        parts.append(f"Range: {setting.range[0]} to {setting.range[1]}.")
    parts.append(setting.note)
    if value is not None:
        verdicts = lint_setting(setting.name, value, None)
        for verdict, why in verdicts:
            parts.append(f"{setting.name}={value}: {verdict}; {why}.")
        if not verdicts:
            parts.append(f"{setting.name}={value}: no problem with this value is known.")
    else:
        for check in setting.checks:
            parts.append(f"{check.verdict.capitalize()} {_when(check.when)}: {check.why}.")
    if setting.family == "nccl" and not setting.documented:
        parts.append("It is not documented and may change without notice.")
    return [part for part in parts if part]


def _when(conditions: tuple[str, ...]) -> str:
    if conditions == ("*",):
        return "with any value"
    if any(condition.startswith("~") for condition in conditions):
        return "with some values"
    words = {"<=": "at most ", ">=": "at least ", "<": "below ", ">": "above "}
    return " or ".join(
        re.sub(r"^(<=|>=|<|>)", lambda m: words[m[1]], f"{c}" if c[0] in "<>" else f"with {c}") for c in conditions
    )


def _versions(setting: settings.Setting) -> str:
    if setting.family != "nccl" or setting.since is None:
        return f"Use {setting.replaced_by} now." if setting.replaced_by else ""
    start = f"{setting.since} or earlier" if setting.since == settings.FIRST else setting.since
    words = (
        f"Read by NCCL {start} to {setting.until}; later releases ignore it."
        if setting.until
        else f"Read since NCCL {start}."
    )
    if setting.deprecated:
        words += f" Deprecated since {setting.deprecated}."
    if setting.replaced_by:
        words += f" Use {setting.replaced_by}."
    return words


def _defaults(setting: settings.Setting) -> str:
    if not setting.default:
        return ""
    first, *later = setting.default
    words = f"Default: {first[1]}"
    for since, value in later:
        words += f"; {value} since {since}"
    return words + "."


def xid(match: re.Match[str]) -> str | None:
    code = int(match["code"])
    if match["switch"]:
        return _sxid(code)
    known = codes.by_code("xid", code)
    if known is None:
        return None
    kinds = {
        "app": "usually the program", "hardware": "hardware", "driver": "driver or firmware", "nvlink": "NVLink",
        "cleanup": "consequence of something else",
    }  # fmt: skip
    fields = NVLINK.search(match.string, match.end())
    return block(
        f"Xid {code} (GPU error in the kernel log, {known['mnemonic']}): {known['name']}",
        f"Class: {kinds[known['class']]}; {known['severity']}.",
        known["action"],
        *(_nvlink_fields(code, fields) if fields else ()),
        "Read the first Xid of a GPU in time; later ones often follow from it. Inside containers the kernel log is not visible.",
    )


def _sxid(code: int) -> str:
    known = codes.by_code("sxid", code)
    if known is None:
        return block(f"SXid {code} (NVSwitch error)", "This number is not in our table.", *_SWITCH)
    fatal = {
        "always": "It always stops the whole NVLink fabric of the node.",
        "often": "The driver reports it as fatal: traffic of the link ends, and the GPU at the other end prints Xid 74.",
        "never": "The driver reports it as not fatal.",
        "unknown": "",
    }
    return block(f"SXid {code} (NVSwitch error, {known['mnemonic']})", known["name"], fatal[known["fatal"]], *_SWITCH)


_SWITCH = (
    "The line says Fatal or Non-fatal. Fatal: jobs on the NVLink fabric end; the node needs a reset of all GPUs and switches, "
    "or a reboot. Non-fatal: the fabric continues; watch how often it occurs.",
    "The link number in the line leads to the GPU at the other end; look for Xid 74 there and at the Fabric Manager log.",
)


def _nvlink_fields(code: int, fields: re.Match[str]) -> list[str]:
    """Returns the fields of an Xid of the NVLink 5 units, for example `TLW_CTRL Fatal XC0 i0 Link 04 (0x00000009 0x00000004)`."""
    link = int(fields["link"])
    said = [
        f"Unit {fields['part'] or fields['unit']}",
        "no particular link" if link < 0 else f"link {link}",
        fields["fatal"].lower(),
        *(["an injected test error"] if int(fields["injected"]) else []),
    ]
    numbers = int(fields["information"], 16), int(fields["status"] or "0", 16)
    row = codes.nvlink_status(code, fields["unit"], *numbers)
    if row is None:
        return [f"{', '.join(said)}. These error bits are not in our table."]
    origin = f"Origin: {row['side']}." if row["side"] else ""
    return [f"{', '.join(said)}. {row['meaning']} {origin}".strip(), row["check"]]


def ib(match: re.Match[str]) -> str | None:
    groups = match.groupdict()
    known = codes.ib_status(groups.get("code") or groups.get("named") or groups.get("name") or "")
    if known is None:
        return None
    roles = {
        "first": "This status can be the first error of a connection.",
        "echo": "This status is a secondary error: something failed before.",
        "none": "",
    }
    return block(
        f"{known['name']} = {known['code']} (completion status of InfiniBand and RoCE)", known["meaning"], roles[known["role"]],
        f"Check: {known['check']}",
    )  # fmt: skip


def completion(status: re.Match[str], maker: re.Match[str] | None) -> str | None:
    """Returns the block of a status together with the vendor error on the same line."""
    found = ib(status)
    more = codes.vendor(_number(maker["code"]), int(status["code"] or status["named"])) if maker else ""
    return f"{found}\n{paragraph(f'Vendor error: {more}')}" if found and more else found


def _number(text: str) -> int:
    """Returns a vendor error as number: 0x.. is hexadecimal, anything else decimal, even with leading zeros."""
    return int(text, 16 if text.startswith("0x") else 10)


def vendor(match: re.Match[str]) -> str | None:
    code = _number(match["code"])
    meaning = codes.vendor(code)
    if not meaning:
        return None
    return block(
        f"Vendor error {code} (0x{code:x}) of a network card", meaning,
        "The number is specific to the vendor of the card; the status on the same line (status=… or error …) says more.",
    )  # fmt: skip


def result(match: re.Match[str]) -> str | None:
    code = match.groupdict().get("code")
    known = codes.by_code("nccl_result", int(code)) if code else codes.by_name("nccl_result", match[0].strip())
    if known is None:
        return None
    return block(
        f"{known['name']} = {known['code']} (result of NCCL)", known["meaning"], known["check"],
        "In a series of `file:line -> code` lines only the first, the deepest, shows where it failed." if code else "",
    )  # fmt: skip


def cuda(match: re.Match[str]) -> str | None:
    known = codes.cuda(match["code"] or match["name"])
    if known is None:
        return None
    hip = (match["name"] or "").startswith("hip")
    title = f"{match['name'] if hip else known['name']} = {known['code']} ({'HIP' if hip else 'CUDA'} error)"
    return block(title, known["meaning"], known["check"])


def exit_(match: re.Match[str]) -> str | None:
    return exit_words(int(match["code"] or match["rc"]))


def exit_words(code: int) -> str | None:
    found = codes.exit_code(code)
    if found is None:
        return None
    entry, signal = found
    title = f"Exit code {code}" + (f" (signal {signal['code']}, {signal['name']})" if signal else "")
    return block(title, entry["meaning"], entry["check"])


def signal(match: re.Match[str]) -> str | None:
    known = codes.signal(match["code"] or match["name"])
    return block(f"{known['name']} (signal {known['code']})", known["meaning"], known["check"]) if known else None


# The order matters: specific patterns come before those that would match them too.
READERS = (
    (XID, xid), (VENDOR, vendor), (STATUS, ib), (STATUS_NAME, ib), (RESULT, result), (TRAIL, result), (CUDA, cuda),
    (EXIT, exit_), (SIGNAL, signal),
)  # fmt: skip
