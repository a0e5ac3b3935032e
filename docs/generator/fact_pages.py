"""Facts: every table with its columns and their units, on pages by the module that declares them."""

import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator

from markup import code, page, prose, table

from nccl_doctor.facts.description import Column, describe
from nccl_doctor.facts.schema import table_name
from nccl_doctor.facts.tables import TABLES
from nccl_doctor.formats.registry import FORMATS
from nccl_doctor.rules import loader

INDEX, VIEWS = "facts/index.md", "facts/views.md"
_SHOWN = 12  # of the rules that ask a table
_PREFIX = "nccl_doctor.facts.tables."
_MODULES = {table_name(one): one.__module__ for one in TABLES}


def _file(name: str) -> str:
    module = _MODULES.get(name)
    return VIEWS if module is None else f"facts/{module.removeprefix(_PREFIX).replace('.', '-')}.md"


def groups() -> dict[str, list[tuple[str, str, list[Column]]]]:
    """Page -> its tables as (name, meaning, columns)."""
    found: dict[str, list[tuple[str, str, list[Column]]]] = defaultdict(list)
    for name, meaning, columns in describe():
        found[_file(name)].append((name, meaning, columns))
    return dict(sorted(found.items()))


def title(file: str) -> str:
    """The heading of a page."""
    return "views" if file == VIEWS else file.removeprefix("facts/").removesuffix(".md").replace("-", " ")


def targets() -> Iterator[tuple[str, str]]:
    """(name, place) of the tables whose names are no words of other things: those of several words."""
    for name, _, _ in describe():
        if "_" in name:
            yield name, f"{_file(name)}#{name}"


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about facts."""
    found = groups()
    asked = defaultdict(list)
    for rule in loader.load_rules():
        for name in rule.needs:
            asked[name].append(rule.name)
    filled = defaultdict(list)
    for known in FORMATS:
        for name in known.tables:
            filled[name].append(known.kind)
    rows = (
        (f"[{title(file)}]({file.removeprefix('facts/')})", ", ".join(code(name) for name, _, _ in tables))
        for file, tables in found.items()
    )
    yield (
        INDEX,
        page(
            "# Facts",
            f"{sum(map(len, found.values()))} tables and views. Readers and collectors fill tables, derivations make tables from "
            "tables, and rules ask them. Unknown is NULL, never 0; `ref` is the evidence, a row of `evidence` with file, line and text. "
            "`nccl-doctor facts job.log` lists the tables that a log fills, and "
            '`nccl-doctor sql job.log "SELECT * FROM network"` asks them.',
            table(("page", "tables"), rows),
        ),
    )
    for file, tables in found.items():
        parts = [part for one in tables for part in _entry(*one, asked[one[0]], filled[one[0]])]
        yield file, page(f"# Facts: {title(file)}", _about(file), *parts)


def _about(file: str) -> str:
    """The first line of the module that declares the tables of a page."""
    name = next((name for name in _MODULES if _file(name) == file), None)
    if name is None:
        return "Questions that several rules ask, written once; queries read them like tables."
    return prose((inspect.getdoc(importlib.import_module(_MODULES[name])) or "").split("\n\n")[0])


def _entry(name: str, meaning: str, columns: list[Column], rules: list[str], formats: list[str]) -> Iterator[str]:
    yield f"## {code(name)} {{ #{name} }}"
    yield prose(meaning)
    yield table(("column", "type", "meaning"), ((code(one.name), one.type, prose(one.meaning)) for one in columns))
    if formats:
        yield f"Filled by files of kind {', '.join(map(code, formats))}."
    if rules:
        more = f", and {len(rules) - _SHOWN} more" if len(rules) > _SHOWN else ""
        yield f"Asked by {', '.join(map(code, rules[:_SHOWN]))}{more}."
