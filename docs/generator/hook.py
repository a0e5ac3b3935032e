"""What MkDocs calls while it builds the site: adds the generated pages, fills the navigation, links names."""

from typing import Any

import site_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> None:
    """Each entry of the navigation that says `generated` becomes the pages of its section."""
    config.nav = _filled(config.nav, site_pages.navigation())


def _filled(entries: Any, sections: dict[str, list[dict[str, str]]]) -> Any:
    if not isinstance(entries, list):
        return entries
    return [
        {title: sections[title] if value == "generated" else _filled(value, sections)}
        if isinstance(entry, dict)
        else entry
        for entry in entries
        for title, value in (entry.items() if isinstance(entry, dict) else [("", entry)])
    ]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages that are made from the program."""
    for place, text in site_pages.generated().items():
        files.append(File.generated(config, place, content=text))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links each name of a rule, a setting or a table to the place that describes it."""
    return site_pages.finished(markdown, page.file.src_uri)
