"""Settings: a section for each variable, on pages by program and, for NCCL, by the first word of its name."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from markup import code, page, prose, table

from nccl_doctor.knowledge import settings, version_text, wording
from nccl_doctor.knowledge.settings import Setting

INDEX = "settings/index.md"
_FEW = 5  # settings of NCCL from which a first word has its page


def _word(name: str) -> str:
    return name.split("_")[1]


_WORDS = Counter(_word(name) for name, known in settings.table().items() if known.family == "nccl")


def _file(known: Setting) -> str:
    if known.family != "nccl":
        return f"settings/{known.family}.md"
    word = _word(known.name)
    return f"settings/nccl-{word.lower() if _WORDS[word] >= _FEW else 'others'}.md"


def groups() -> dict[str, list[Setting]]:
    """Page -> its settings: those of NCCL first."""
    found: dict[str, list[Setting]] = defaultdict(list)
    families = list(settings.PROGRAMS)
    for known in sorted(
        settings.table().values(),
        key=lambda one: (families.index(one.family), _file(one).endswith("others.md"), one.name),
    ):
        found[_file(known)].append(known)
    return found


def title(known: Setting) -> str:
    """The heading of the page of a setting."""
    if known.family != "nccl":
        return f"Settings of {settings.PROGRAMS[known.family]}"
    return "Other settings of NCCL" if _file(known).endswith("others.md") else f"NCCL_{_word(known.name)}"


def targets() -> Iterator[tuple[str, str]]:
    """(name, place) of every setting."""
    for known in settings.table().values():
        yield known.name, f"{_file(known)}#{known.name}"


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about settings."""
    found = groups()
    rows = (
        (f"[{prose_title(members[0])}]({file.removeprefix('settings/')})", str(len(members)))
        for file, members in found.items()
    )
    yield (
        INDEX,
        page(
            "# Settings",
            f"{len(settings.table())} environment variables: what each does, which versions read it, its defaults by version, "
            f"and values that do harm. Complete for NCCL up to {version_text(settings.NEWEST)}. "
            "`nccl-doctor explain NCCL_IB_TIMEOUT=5` judges a value.",
            table(("settings", "number"), rows),
        ),
    )
    for file, members in found.items():
        parts = [part for known in members for part in _entry(known)]
        where = prose(wording.WHERE_NCCL_READS)
        yield file, page(f"# {prose_title(members[0])}", where if members[0].family == "nccl" else "", *parts)


def prose_title(known: Setting) -> str:
    """The heading with names of variables as code."""
    text = title(known)
    return code(f"{text}_*") if text.startswith("NCCL_") else prose(text)


def _entry(known: Setting) -> Iterator[str]:
    yield f"## {code(known.name)} {{ #{known.name} }}"
    yield from map(prose, wording.setting_paragraphs(known, known.name))
