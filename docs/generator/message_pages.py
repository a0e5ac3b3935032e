"""The message catalogue: a page for each program, or for each class of a program with many messages."""

import re
from collections import defaultdict
from collections.abc import Iterator

from markup import block, code, page, prose, table

from nccl_doctor.app.explain import ROLES, printed_by
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.knowledge.known_message import KnownMessage, classes

INDEX = "messages/index.md"
_MANY = 60  # messages of a program from which each class has its page
_GAP = re.compile(r"\{([a-z_][a-z0-9_]*)?(?::[dx])?\}")


def place(message: KnownMessage) -> str:
    """The place of a message, with its anchor."""
    return f"{_file(message)}#{message.id}"


def groups() -> dict[str, list[KnownMessage]]:
    """Page -> its messages, in the order of programs and classes."""
    found: dict[str, list[KnownMessage]] = defaultdict(list)
    order = list(classes())
    for message in sorted(
        catalogue().messages, key=lambda one: (one.title.lower(), one.program, order.index(one.kind))
    ):
        found[_file(message)].append(message)
    return found


def title(messages: list[KnownMessage]) -> str:
    """The heading of a page."""
    first = messages[0]
    name = first.title if first.title.lower().replace(" ", "-") == first.program else f"{first.title} ({first.program})"
    name = first.title if first.program in _SOLE else name
    return f"{name}: {first.kind}" if _is_split(first.program) else name


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about messages."""
    found = groups()
    yield INDEX, _index(found)
    for file, messages in found.items():
        parts, kind = [], ""
        for message in messages:
            if message.kind != kind:
                kind = message.kind
                parts += [f"## {kind}", prose(classes()[kind].meaning)]
            parts += _entry(message)
        yield (
            file,
            page(
                f"# {title(messages)}",
                f"{len(messages)} messages. `nccl-doctor explain 'LINE'` explains a pasted line.",
                *parts,
            ),
        )


def _counts() -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for message in catalogue().messages:
        counts[message.program] += 1
    return counts


_COUNTS = _counts()
_SOLE = {
    program
    for program, name in {one.program: one.title for one in catalogue().messages}.items()
    if 1 == len({one.program for one in catalogue().messages if one.title == name})
}  # programs whose title no other one has


def _is_split(program: str) -> bool:
    return _COUNTS[program] > _MANY


def _file(message: KnownMessage) -> str:
    return f"messages/{message.program}{f'-{message.kind}' if _is_split(message.program) else ''}.md"


def _index(found: dict[str, list[KnownMessage]]) -> str:
    rows = (
        (f"[{title(messages)}]({file.removeprefix('messages/')})", str(len(messages)))
        for file, messages in found.items()
    )
    kinds = ((code(known.name), prose(known.meaning), prose(known.command)) for known in classes().values())
    return page(
        "# Messages",
        f"{len(catalogue().messages)} messages that programs print when something is wrong: what each means, what it proves, "
        "whether the fault began there or somewhere else, and what to do next.",
        table(("program", "messages"), rows),
        "## Classes",
        table(("class", "meaning", "next, where a message says nothing better"), kinds),
    )


def _entry(message: KnownMessage) -> Iterator[str]:
    """One message: its forms, its meaning and what to do."""
    first, *others = (_GAP.sub(lambda gap: f"<{gap[1] or '…'}>", form) for form in message.match)
    yield f"### {code(first)} {{ #{message.id} }}"
    if others:
        yield f"Also: {', '.join(map(code, others))}."
    yield f"{prose(message.means)}{prose(printed_by(message, message.title))}"
    if message.proves:
        yield f"It proves: {prose(message.proves)}"
    if message.kind != "harmless":
        yield f"**{message.grade()}** · {prose(ROLES[message.role])}"
    if message.causes:
        yield "Likely causes:\n\n" + "\n".join(f"{at}. {prose(cause)}" for at, cause in enumerate(message.causes, 1))
    yield f"Next: {prose(message.command())}"
    if message.sample:
        yield block(message.sample[0])
