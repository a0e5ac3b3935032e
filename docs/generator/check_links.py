"""Checks a built site: every link and anchor leads somewhere, and no page loads anything from elsewhere.

`python docs/generator/check_links.py site` ends with status 1 and one line for each problem.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
_STYLE = re.compile(r"url\(\s*[\"']?(?P<url>[^\"')]+)|@import\s+[\"'](?P<imported>[^\"']+)")


class Links(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.followed: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.followed.append(values["href"])
        if tag in _LOADED and _LOADED[tag] in values and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values[_LOADED[tag]])


@cache
def read(path: Path) -> Links:
    """The links of a page, which is read once."""
    found = Links()
    found.feed(path.read_text("utf-8"))
    return found


def problems(site: Path) -> Iterator[str]:
    """One line for each link that leads nowhere, and for each resource from elsewhere."""
    for path in sorted(site.rglob("*.html")):
        links, name = read(path), path.relative_to(site)
        for target in links.loaded:
            yield from (f"{name}: loads {problem}" for problem in _missing(site, path, target, outside=False))
        for target in links.followed:
            yield from (f"{name}: {problem}" for problem in _missing(site, path, target, outside=True))
    for path in sorted(site.rglob("*.css")):
        for found in _STYLE.finditer(path.read_text("utf-8")):
            target = found["url"] or found["imported"]
            yield from (f"{path.relative_to(site)}: loads {one}" for one in _missing(site, path, target, outside=False))


def _missing(site: Path, path: Path, target: str, *, outside: bool) -> Iterator[str]:
    url = urlsplit(target)
    if url.scheme == "data":
        return
    if url.scheme or url.netloc:
        if not outside or url.scheme not in ("https", "mailto"):
            yield target
        return
    base = site if url.path.startswith("/") else path.parent
    file = (base / unquote(url.path).lstrip("/")).resolve() if url.path else path
    if file.is_dir():
        file /= "index.html"
    if not file.is_file():
        yield target
    elif url.fragment and file.suffix == ".html" and unquote(url.fragment) not in read(file).anchors:
        yield f"{target} (no such anchor)"


def main(site: Path) -> int:
    found = list(problems(site))
    pages = len(list(site.rglob("*.html")))
    print(*found, f"{pages} pages, {len(found)} problems", sep="\n")
    return int(bool(found) or pages == 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
