"""The message catalogue: every message is found by its own text, nothing else is, and broken files are refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.knowledge import catalogue
from nccl_doctor.knowledge.known_message import CLASSES, FOLDER, KnownMessage
from nccl_doctor.knowledge.message_files import CatalogueProblem, read, read_file
from nccl_doctor.knowledge.templates import LINE, RECORD

FILES = sorted(path for path in FOLDER.rglob("*.toml") if path != CLASSES)
MESSAGES = catalogue.catalogue().messages
HEAD = 'program = "p"\ntitle = "P"\nwhere = "line"\n'
ENTRY = '[[message]]\nid = "a"\nmatch = ["the flux of {what} is {amount:d}"]\nclass = "hardware"\nmeans = "Low."\n'


def filled(template: str, gap: str = "thing") -> str:
    """A text that a template stands for."""
    numbered = re.sub(r"\{\w*:d\}", "17", template)
    return re.sub(r"\{\w*\}", lambda _: gap, re.sub(r"\{\w*:x\}", "0x7f00", numbered))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_message_is_the_first_that_its_own_text_finds(file: Path) -> None:
    for message in read_file(file):
        for text in [*map(filled, message.match), *message.sample]:
            hit = catalogue.catalogue().find(text, message.where)
            assert hit is not None, (message.key, text)
            assert message.key == hit.message.key, text


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_words_are_sentences(file: Path) -> None:
    for message in read_file(file):
        for text in filter(None, (message.means, message.proves)):
            assert text == " ".join(text.split()), message.key
            assert text.endswith("."), message.key
        for cause in message.causes:
            assert cause == cause.strip().rstrip("."), message.key


def test_a_line_is_found_by_its_literal() -> None:
    by_start: dict[str, list[str]] = {}
    for literal in catalogue.catalogue().literals([]):
        by_start.setdefault(literal[:2], []).append(literal)
    for message in MESSAGES:
        for text in map(filled, message.match if message.where == LINE else ()):
            places = range(len(text))
            assert any(text.startswith(one, at) for at in places for one in by_start.get(text[at : at + 2], ())), text


def test_the_most_specific_message_counts() -> None:
    shared = {"program": "p", "title": "P", "where": LINE, "kind": "peer", "means": "It ended."}
    short = KnownMessage(id="short", match=["connection lost"], **shared)
    long = KnownMessage(id="long", match=["connection lost to rank {peer:d}"], **shared)
    known = catalogue.Catalogue([short, long])
    assert [
        hit.message.id for text in ("connection lost to rank 3", "connection lost now") if (hit := known.find(text))
    ] == ["long", "short"]


def test_a_record_begins_with_its_text_or_a_tag() -> None:
    message = KnownMessage("a", "p", "P", RECORD, ["Unable to open {what}"], "driver", "It failed.")
    known = catalogue.Catalogue([message])
    assert [True, True, True, False] == [
        known.find(text, RECORD) is not None
        for text in (
            "Unable to open x",
            "NET/IB : Unable to open x",
            "NET/Plugin: Unable to open x",
            "He was Unable to open x",
        )
    ]
    assert known.find("Unable to open x", LINE) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("program = ", "Invalid value"),
        (HEAD + ENTRY.replace("hardware", "flux"), "class flux is not one of"),
        (HEAD + ENTRY + 'colour = "red"\n', "unknown key colour"),
        (HEAD + ENTRY + 'family = "x"\n', "no family x"),
        (HEAD + ENTRY + 'confidence = "certain"\n', "nothing says what the text proves"),
        (HEAD + ENTRY.replace('means = "Low."\n', ""), "key means is missing"),
        (HEAD + ENTRY.replace("the flux of {what} is {amount:d}", "{} at {}"), "fixed text"),
        (HEAD + ENTRY.replace("the flux of {what} is {amount:d}", "{}abcdefgh{}"), "no whole word"),
        (HEAD + ENTRY.replace("the flux of {what} is {amount:d}", "{what} lost {what}, {} was {}"), "8 characters"),
        (HEAD + ENTRY.replace("{amount:d}", "{what}"), "redefinition of group name"),
        (HEAD + ENTRY.replace('"Low."', "3"), "means must be a text"),
    ],
)
def test_a_broken_file_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(content)
    with pytest.raises(CatalogueProblem, match=problem):
        list(read([file]))


def test_a_name_is_used_once(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(HEAD + ENTRY + ENTRY)
    with pytest.raises(CatalogueProblem, match="p/a exists twice"):
        list(read([file]))


@given(st.text(max_size=400), st.sampled_from(["", RECORD, LINE]))
def test_any_text_is_looked_up(text: str, where: str) -> None:
    hit = catalogue.catalogue().find(text, where)
    assert hit is None or hit.message in MESSAGES


@given(
    st.sampled_from(MESSAGES), st.text(st.characters(blacklist_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=30)
)
def test_what_stands_in_a_gap_does_not_hide_a_message(message: KnownMessage, gap: str) -> None:
    assert all(catalogue.catalogue().find(filled(one, gap), message.where) is not None for one in message.match)


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.elastic.agent.server.api: [INFO] Done waiting for other agents. Elapsed: 0.0031 seconds",
        "mlx5_core 0000:41:00.1: mlx5_pcie_event:310:(pid 77): Detected insufficient power on the PCIe slot (25W).",
        "WARNING: Open MPI will create a shared memory backing file in a",
        "Linux kernel knem support was requested via the btl_sm_use_knem MCA parameter, but it is not available.",
        "  gres.conf: |",
        "The container and the host have different user namespaces",
    ],
)
def test_what_healthy_runs_print_too_is_no_failure(line: str) -> None:
    hit = catalogue.catalogue().find(line)
    assert hit is None or hit.message.grade() == "note"


def test_commands_of_advice_are_marked_as_such() -> None:
    bare = re.compile(
        r"(?:nvidia-smi|ibstat|ulimit|dmesg|lsmod|ldconfig|ls|df|free|env|ip|fi_info|rocm-smi|ibv_devinfo)\b"
    )
    advice = {known.id: known.next.split("; ") for known in catalogue.catalogue().messages}
    assert {} == {name: steps for name, steps in advice.items() if any(map(bare.match, steps))}


def test_no_message_names_the_rule_of_a_class_as_its_fault() -> None:
    # such a rule hands its rows to the rule that a message names, and would drop what it hands to itself
    of_classes = {path.stem for path in (Path(__file__).parents[2] / "rules" / "message").glob("*.toml")}
    assert of_classes
    assert not [known.key for known in catalogue.catalogue().messages if known.fault in of_classes]
