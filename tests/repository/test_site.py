"""The pages that are made for the site: complete, with links that lead somewhere, and with text that stays text."""

import re
from pathlib import Path

import check_links
import click
import markup
import pytest
import site_pages
from helpers.places import ROOT

from nccl_doctor.cli.main import COMMANDS, cli
from nccl_doctor.facts.description import describe
from nccl_doctor.knowledge import entries, settings
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.rules import loader

PAGES = site_pages.generated()
ANCHORS = {place: set(re.findall(r"^#+ .*\{ #(\S+) \}$", text, re.MULTILINE)) for place, text in PAGES.items()}


def of_folder(folder: str) -> set[str]:
    return {anchor for place, anchors in ANCHORS.items() if place.startswith(f"{folder}/") for anchor in anchors}


def test_everything_that_is_known_has_its_place() -> None:
    assert {f"rules/{rule.name}.md" for rule in loader.load_rules()} <= set(PAGES)
    assert set(settings.table()) == of_folder("settings")
    assert {name for name, _, _ in describe()} == of_folder("facts")
    assert {message.id for message in catalogue().messages} == of_folder("messages")
    for folder, kind in (
        ("xid", "xid"),
        ("sxid", "sxid"),
        ("cuda", "cuda_error"),
        ("nccl", "nccl_result"),
        ("ib", "ib_status"),
    ):
        assert {f"{folder}-{entry['code']}" for entry in entries(kind)} == ANCHORS[f"codes/{folder}.md"]
    assert all(entry["meaning"].split(".")[0] in PAGES["transports.md"] for entry in entries("transport"))


def test_no_anchor_of_a_page_is_there_twice() -> None:
    for place, text in PAGES.items():
        found = re.findall(r"^#+ .*\{ #(\S+) \}$", text, re.MULTILINE)
        assert len(found) == len(set(found)), place


def test_every_option_is_on_the_page_of_its_command() -> None:
    top = click.Context(cli, info_name="nccl-doctor")
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        for option in (
            one for part in parts for one in part.params if isinstance(one, click.Option) and not one.hidden
        ):
            assert option.opts[-1] in PAGES[f"commands/{name}.md"], (name, option.opts)


def test_links_between_the_pages_lead_somewhere() -> None:
    for place, text in PAGES.items():
        shown = markup.FENCE.sub("", site_pages.finished(text, place))
        for target in re.findall(r"\]\((?!https://)([^)\s]+)\)", shown):
            path, _, anchor = target.partition("#")
            to = str((Path("/") / place).parent.joinpath(path).resolve().relative_to("/")) if path else place
            assert to in PAGES or (ROOT / "docs" / to).is_file(), f"{place}: {target}"
            assert not anchor or to not in PAGES or anchor in ANCHORS[to], f"{place}: {target}"


def test_the_navigation_names_pages_that_there_are() -> None:
    named = {place for section in site_pages.navigation().values() for entry in section for place in entry.values()}
    assert named <= set(PAGES)
    assert {place for place in PAGES if not re.fullmatch(r"rules/[\w-]+\.md|[\w-]+\.md", place)} <= named


def test_a_list_of_rules_is_those_of_the_classes_and_names() -> None:
    text = site_pages.finished("<!-- rules: @rdma-unused host-memory-oom -->\n", "guides/x.md")
    assert "[`tcp-fallback`](../rules/tcp-fallback.md)" in text  # belongs to the class
    assert "[`libibverbs-missing`]" in text  # accounts for it
    assert "[`host-memory-oom`]" in text
    with pytest.raises(ValueError, match="no-such-thing"):
        site_pages.finished("<!-- rules: no-such-thing -->", "x.md")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>*x* [a](b) _y_ #", "&lt;script&gt;\\*x\\* \\[a\\](b) \\_y\\_ \\#"),
        ("run `ls <x> | wc` and NCCL_NET=IB.", "run `ls <x> | wc` and `NCCL_NET=IB`."),
        ("a_b and mlx5_0", "a\\_b and mlx5\\_0"),
    ],
)
def test_text_stays_text(text: str, expected: str) -> None:
    assert expected == markup.prose(text)


def test_pipes_and_fences_of_a_text_end_nothing() -> None:
    assert markup.table(("a",), [("x | `y | z`",)]).endswith("| x &#124; `y | z` |")
    assert markup.block("a\n```\nb").startswith("````text\n")
    assert "`` a`b ``" == markup.code("a`b")


def test_names_become_links_in_text_only() -> None:
    text = "`a-b` [`a-b`](x) `a-b=1` `c-d`\n# `a-b`\n```\n`a-b`\n```\n"
    expected = "[`a-b`](../p.md) [`a-b`](x) [`a-b=1`](../p.md) `c-d`\n# `a-b`\n```\n`a-b`\n```\n"
    assert expected == markup.linked(text, "q/r.md", {"a-b": "p.md"})


def test_the_link_check_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<p id="here"></p>')
    (tmp_path / "style.css").write_text("@import 'https://fonts.example/x.css'; p { background: url(data:x) }")
    (tmp_path / "a.html").write_text(
        '<a href="b/#here"></a><a href="b/index.html#gone"></a><a href="c.html"></a><a href="https://a.example"></a>'
        '<a href="http://a.example"></a><script src="https://cdn.example/x.js"></script><img src="data:x"><link href="style.css">'
    )
    assert [
        "a.html: loads https://cdn.example/x.js",
        "a.html: b/index.html#gone (no such anchor)",
        "a.html: c.html",
        "a.html: http://a.example",
        "style.css: loads https://fonts.example/x.css",
    ] == list(check_links.problems(tmp_path))
    assert 1 == check_links.main(tmp_path)
