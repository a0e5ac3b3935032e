"""Counts the warnings and errors in a source tree that the message catalogue knows.

    bench/message_coverage.py TREE [--macro WARN] [--prefix TEXT] [--line] [--list]
    bench/message_coverage.py TREE --cpp [--list]
    bench/message_coverage.py TREE --python [--list]
    bench/message_coverage.py TREE --help-texts [--list]

A format is a string literal at the start of a call of one of the macros (after the flags of INFO); neighbouring literals are
joined, and a macro's parameter between them stands for any text. It counts as known where the catalogue finds it with example
values in its gaps. Formats without fixed words (`"%s"`) are counted apart. INFO formats are looked at where they hold a word
such as `failed`. A literal that ends with a colon or a blank is followed by a value, as in C++ streams.

With `--cpp` the arguments of a call are joined, as in TORCH_CHECK(condition, "text ", value); conditions are left out.

With `--python` it reads what Python sources raise, assert and log as warnings or errors; folders of tests are left out.

With `--help-texts` it reads the `help-*.txt` files of Open MPI, PRRTE and PMIx: a text counts as known where the catalogue finds
one of its lines. Files with the text of `--help` are left out.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cpp_formats import MACROS as CPP_MACROS
from cpp_formats import cpp_texts
from python_formats import python_texts

from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.knowledge.templates import LINE, RECORD

MACROS = ("WARN", "ATTN", "INFO", "ERROR", "NCCL_OFI_WARN")
SOURCES = {".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp", ".cuh", ".inl", ".py", ".go"}
_WORD, _FEWEST_WORDS = re.compile(r"[A-Za-z]{3,}"), 2  # a joined text with fewer is part of another one, such as a rank
FAILURE = re.compile(
    r"fail|error|unable|cannot|can't|could not|not supported|unsupported|invalid|time(?:d )?out|mismatch|missing|not found",
    re.I,
)
_TOKEN = re.compile(
    r'\s*(?:(?P<text>[fr]?"(?:\\.|[^"\\])*")|(?P<joint><<|\+)|(?P<name>[A-Za-z_#][\w.:>-]*(?:\([^()"]*\))*)'
    r"|(?P<comment>//[^\n]*\n|/\*.*?\*/)|(?P<line>\\\n))",
    re.S,
)
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing|_?examples?)/|(?:^|/)test_")
# What `--help` of a command prints, which is no message.
_USAGE = re.compile(
    r"help-(?:p(?:run|terun|rte|rted|term|rte-info|rterun|alloc|ctrl|attrs|query|ps|event|lookup|mixcc|mix_info)|opal[-_]\w+|placement"
    r"|mapby|rankby|bindto|json|orte-(?:info|server|top|ps|clean)|mpirun|schizo-(?:rtos|display))\.txt"
)
SPEC = re.compile(
    r"%(?P<flags>[-+ #0]*)(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|j|z|t|L)?(?P<type>[diuxXpscfgeG%vwq])"
)  # the last three: Go


# What Slurm adds to the conversions of printf (src/common/log.c).
_SLURM = re.compile(r"%(?:p(?P<record>[AIJsS])|m)")
_SLURM_EXAMPLES = {
    "A": "10.0.0.1:7",
    "I": "JobId=7",
    "J": "JobId=7",
    "s": "StepId=7.0",
    "S": "StepId=7.0",
    None: "thing",
}


class Format(NamedTuple):
    """A format of a source file."""

    file: str
    line: int
    macro: str
    text: str  # with example values in its gaps
    fixed: str  # what is left without them
    template: str = ""  # as it is in the source; a macro's parameter is a NUL
    flags: str = ""  # of INFO: the subsystems


def formats(file: Path, root: Path, macros: tuple[str, ...]) -> Iterator[Format]:
    """The formats of the calls of these macros in a file."""
    source = file.read_text("utf-8", "replace")
    for call in re.finditer(rf"\b(?P<macro>{'|'.join(macros)})\s*\(", source):
        line_start = source.rfind("\n", 0, call.start()) + 1
        if (
            source[line_start : call.start()].lstrip().startswith(("#define", "//", "*"))
            and "\\" not in source[line_start : call.end() + 200].split("\n")[0]
        ):
            continue
        at, flags = call.end(), ""
        if call["macro"] in ("INFO", "TRACE"):
            comma = source.find(",", at)
            flags = source[at:comma]
            if comma < 0 or not re.fullmatch(r"[\s\w|()]*", flags):
                continue
            at = comma + 1
        while argument := re.compile(r"\s*&?[A-Za-z_][\w>.()|-]*\s*,").match(source, at):  # a subsystem, a stream
            at = argument.end()
        parts = list(_literals(source, at))
        if any(kind == "text" for kind, _ in parts):
            text = "".join(value if kind == "text" else "\0" for kind, value in parts)
            text = re.sub(r"%(?=\0)", "", text)
            text = _SLURM.sub(lambda spec: _SLURM_EXAMPLES[spec["record"]], text)
            fixed = SPEC.sub(" ", text.replace("\0", " "))
            example = SPEC.sub(_example, text.replace("\0", "7"))
            yield Format(
                str(file.relative_to(root)), source.count("\n", 0, call.start()) + 1, call["macro"],
                (example + "7" if example.endswith((" ", ":")) else example).strip(), fixed, text, flags,
            )  # fmt: skip


def joined_formats(file: Path, root: Path, macros: tuple[str, ...]) -> Iterator[Format]:
    """The formats of the calls of these macros in a C++ file, their arguments joined."""
    source = file.read_text("utf-8", "replace")
    for at, macro, text in cpp_texts(source, macros):
        if len(_WORD.findall(text)) < _FEWEST_WORDS:
            continue
        line = source.count("\n", 0, at) + 1
        yield Format(str(file.relative_to(root)), line, macro, text.replace("\0", "7").strip(), text.replace("\0", " "))


def python_formats(file: Path, root: Path, _macros: tuple[str, ...]) -> Iterator[Format]:
    """What a Python file raises, asserts and logs."""
    if file.suffix != ".py" or _TESTS.search(str(file.relative_to(root))):
        return
    for line, kind, text in python_texts(file.read_text("utf-8-sig", "replace")):
        if len(_WORD.findall(text)) >= _FEWEST_WORDS:
            yield Format(str(file.relative_to(root)), line, kind, text.replace("\0", "7"), text.replace("\0", " "))


def help_texts(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The topics of a help file with their lines, example values in the gaps; `[topic]` begins each, # a comment."""
    topic, lines = "", list[str]()
    for line in [*file.read_text("utf-8", "replace").splitlines(), "[end]"]:
        if match := re.fullmatch(r"\[([^\]]+)\]\s*", line):
            if topic and len(re.findall(r"[a-z]", "".join(lines))) > 20:
                yield topic, lines
            topic, lines = match[1], []
        elif not line.startswith("#"):
            lines.append(re.sub(r"\s+", " ", SPEC.sub(_example, line)).strip())


def count_help_texts(trees: list[Path], listed: bool) -> None:
    """Prints how many topics of all help files are known."""
    known, unknown = 0, list[str]()
    for root in trees:
        for file in sorted(path for path in root.rglob("help-*.txt") if not _USAGE.fullmatch(path.name)):
            for topic, lines in help_texts(file):
                if topic in ("usage", "version") or any(catalogue().find(line, LINE) for line in lines if line):
                    known += topic not in ("usage", "version")
                else:
                    unknown.append(f"  {file.relative_to(root)} [{topic}] {next(filter(None, lines))!r}")
    every = known + len(unknown)
    print(f"help texts: {known} of {every} known ({known / max(every, 1):.1%})")
    if listed:
        print("\n".join(unknown))


def _literals(source: str, at: int) -> Iterator[tuple[str, str]]:
    """The literals and names of a first argument, up to its comma or closing bracket."""
    while match := _TOKEN.match(source, at):
        at = match.end()
        if match["text"] is not None:
            text = match["text"].lstrip("fr")[1:-1]
            if match["text"].startswith("f"):  # Python
                text = re.sub(r"\{[^{}]*\}", "7", text)
            yield "text", re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)
        elif match["name"] is not None:
            yield "gap", match["name"]


def _example(spec: re.Match[str]) -> str:
    kind = spec["type"]
    if kind in "xXp":
        return "7f00" if kind != "p" and "#" not in spec["flags"] else "0x7f00"
    return {
        "%": "%",
        "s": "thing",
        "v": "thing",
        "w": "thing",
        "q": '"thing"',
        "c": "c",
        "f": "1.5",
        "g": "1.5",
        "e": "1.5",
        "G": "1.5",
    }.get(kind, "7")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="+")
    parser.add_argument("--macro", action="append", help=f"a macro that prints; default: {', '.join(MACROS)}")
    parser.add_argument(
        "--line", action="store_true", help="the formats are whole lines, not the text behind NCCL WARN"
    )
    parser.add_argument("--prefix", default="", help="what the macros put before every text, such as 'NET/OFI '")
    parser.add_argument("--list", action="store_true", help="list the formats that are not known")
    parser.add_argument("--cpp", action="store_true", help="join the arguments of the macros of C++ programs")
    parser.add_argument("--python", action="store_true", help="read the syntax trees of Python sources")
    parser.add_argument("--help-texts", action="store_true", help="read help-*.txt instead of sources")
    options = parser.parse_args()
    if options.help_texts:
        count_help_texts(options.tree, options.list)
        return 0
    macros = tuple(options.macro or (CPP_MACROS if options.cpp else MACROS))
    read = python_formats if options.python else joined_formats if options.cpp else formats
    seen: dict[tuple[bool, str], Format] = {}
    for root in options.tree:
        for file in sorted(path for path in root.rglob("*") if path.suffix in SOURCES and path.is_file()):
            for found in read(file, root, macros):
                if found.macro != "INFO" or FAILURE.search(found.fixed):
                    seen.setdefault((found.macro == "INFO", found.text), found)
    for info, name in ((False, "warnings and errors"), (True, "INFO with words of failure")):
        every = [found for (is_info, _), found in seen.items() if is_info == info]
        worded = [found for found in every if len(_WORD.findall(found.fixed)) > 0]
        unknown = [
            found
            for found in worded
            if not _known(options.prefix + found.text, info, options.line or options.cpp or options.python)
        ]
        if worded:
            share = 1 - len(unknown) / len(worded)
            print(
                f"{name}: {len(worded) - len(unknown)} of {len(worded)} known ({share:.1%}), {len(every) - len(worded)} without words"
            )
        if options.list:
            for found in unknown:
                print(f"  {found.file}:{found.line} {found.macro} {found.text!r}")
    return 0


def _known(text: str, info: bool, line: bool) -> bool:
    if line:  # a text of several lines is several lines of a log
        return any(catalogue().find(part, LINE) is not None for part in text.split("\n") if part.strip())
    hit = catalogue().find_info(text) if info else catalogue().find(text, RECORD)
    return hit is not None


if __name__ == "__main__":
    sys.exit(main())
