"""All generated pages of the site, what names lead to them, and their place in the navigation. Needs no MkDocs."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import code_pages
import command_pages
import fact_pages
import message_pages
import rule_pages
import setting_pages
from markup import linked, relative

from nccl_doctor.rules import loader, symptoms

ROOT = Path(__file__).parents[2]
# Pages that lie where GitHub looks for them, and their places in the site.
BORROWED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "reporting.md"}
# What stands in the repository for a page that is made from it, so that a link works there too.
SOURCES = {
    "nccl_doctor/facts/tables": fact_pages.INDEX,
    "nccl_doctor/knowledge/data/transport.json": code_pages.TRANSPORTS,
    "nccl_doctor/knowledge/data/machine_types.json": code_pages.MACHINES,
}
_MAKERS = (rule_pages, message_pages, setting_pages, code_pages, fact_pages, command_pages)
_LINK = re.compile(r"(?<=\]\()(?!https://|#)([^)#\s]+)")
_UPWARD = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, BORROWED | SOURCES))})(?=[)#])")
_RULES = re.compile(r"^<!-- rules: (?P<names>[@a-z0-9 -]+) -->$", re.MULTILINE)


@cache
def generated() -> dict[str, str]:
    """Place -> Markdown of every page that is made from the program and its data."""
    made: dict[str, str] = {}
    for place, text in (one for maker in _MAKERS for one in maker.pages()):
        if place in made:
            raise ValueError(f"two pages are called {place}")
        made[place] = text
    for name, place in BORROWED.items():
        made[place] = _borrowed((ROOT / name).read_text("utf-8"))
    return made


@cache
def targets() -> dict[str, str]:
    """Name of a rule, setting or table -> the place that describes it."""
    return {name: place for maker in (fact_pages, setting_pages, rule_pages) for name, place in maker.targets()}


def finished(text: str, place: str) -> str:
    """The Markdown of a page with its lists of rules, and with names as links."""
    text = _UPWARD.sub(lambda found: f"]({relative((BORROWED | SOURCES)[found[1]], place)}", text)
    return linked(_RULES.sub(lambda found: _rules(found["names"].split()), text), place, targets())


def _rules(names: list[str]) -> str:
    """A table of the rules of these names, and of those that belong to a class or account for it."""
    rules = {rule.name: rule for rule in loader.load_rules()}
    known = symptoms.load_classes()
    if unknown := [name for name in names if name not in rules and name not in known]:
        raise ValueError(f"no rule and no class of symptoms is called {', '.join(unknown)}")
    of_classes = {name for name in names if name in known}
    chosen = [rule for name, rule in rules.items() if name in names or of_classes & {*rule.symptom_of, *rule.explains}]
    return rule_pages.rows(sorted(chosen, key=lambda rule: (rule.role, rule.id)))


def _borrowed(text: str) -> str:
    """The text of a page at the top of the repository, with links as they are in the site."""

    def moved(found: re.Match[str]) -> str:
        target = found[1]
        return BORROWED.get(target) or target.removeprefix("docs/")

    return _LINK.sub(moved, text)


def navigation() -> dict[str, list[dict[str, str]]]:
    """For each generated section of the navigation its pages, as MkDocs wants them."""
    return {
        "Commands": [
            *_index(command_pages.INDEX),
            *({name: command_pages.place(name)} for name in command_pages.COMMANDS),
        ],
        "Rules": [
            *_index(rule_pages.INDEX),
            {"Classes of symptoms": rule_pages.CLASSES},
            *({group: rule_pages.group_place(group)} for group in rule_pages.ordered_groups()),
        ],
        "Messages": [
            *_index(message_pages.INDEX),
            *({message_pages.title(members): place} for place, members in message_pages.groups().items()),
        ],
        "Settings": [
            *_index(setting_pages.INDEX),
            *({setting_pages.title(members[0]): place} for place, members in setting_pages.groups().items()),
        ],
        "Codes": [{title: place} for place, title in code_pages.CODES.items()],
        "Facts": [*_index(fact_pages.INDEX), *({fact_pages.title(place): place} for place in fact_pages.groups())],
    }


def _index(place: str) -> Iterator[dict[str, str]]:
    yield {"Overview": place}
