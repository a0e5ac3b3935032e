"""Outputs of commands in documents, mails and terminals: where they begin and end, and that the marks around them go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats import pastes

PROMPTS = (
    "$ sacct -j 42",
    "root@node01:~# sacct -j 42",
    "[root@node01 ~]# sacct -j 42",
    "[root@node01 ~]$ sacct -j 42",
    "(base) me@node01:/scratch/run$ sacct -j 42",
    "bash-5.1$ sacct -j 42",
    "PS C:\\Users\\me> sacct -j 42",
    "# sacct -j 42",
    "=== sacct -j 42 ===",
    "+ sacct -j 42",
    "> sacct -j 42",
    "## sacct",
)


def texts(text: str) -> list[tuple[int, str]]:
    return [(piece.above, piece.text.decode().strip("\n")) for piece in pastes.opened(text.encode())[1]]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_output_ends_at_the_next_prompt(prompt: str) -> None:
    text = f"Dear all,\n\n{prompt}\nfirst\nsecond\n{prompt}\nthird\n"
    assert pastes.may_hold(text.encode())
    assert [(3, "first\nsecond"), (6, "third")] == texts(text)


@pytest.mark.parametrize(
    "line", ["# a comment", "100 $ each", "step 3 | 50% | loss 0.1", "a@b.example: hello", "## Results", "> 3 GPUs"]
)
def test_other_lines_are_no_prompts(line: str) -> None:
    assert not pastes.may_hold(line.encode())
    assert [] == texts(f"{line}\nfirst\n")


@pytest.mark.parametrize(("fence", "indent"), [("```", ""), ("```text", "  "), ("~~~~ bash", "\t"), ("````", "   ")])
def test_what_is_fenced_loses_its_indentation(fence: str, indent: str) -> None:
    end = fence.split()[0].rstrip("tex")
    text = f"So:\n{indent}{fence}\n{indent}first\n{indent}  second\n{indent}{end}\nmore\n"
    assert [(2, "first\n  second")] == texts(text)
    plain, pieces = pastes.opened(text.encode())
    assert text.count("\n") == plain.count(b"\n")
    assert b"So:\n\n\n\n\nmore\n" == pastes.without(plain, pieces)


def test_the_command_in_the_first_line_of_a_fence_is_no_output() -> None:
    (piece,) = pastes.opened(b"```\nsudo sacct -j 42 | head\nJobID State\n```\n")[1]
    assert pastes.Piece(2, b"JobID State\n") == piece.behind_command()
    for output in (b"JobID State\n42 FAILED", b"nothing", b"qname\n"):
        assert pastes.Piece(1, output).behind_command() is None


def test_a_fence_that_is_never_closed_ends_with_the_text() -> None:
    assert [(1, "nothing")] == texts("```\nnothing\n")


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("$ free\na\n$ df\nb\n", True),
        ("$ free\na\n$ \n", False),
        ("$ free\na\n$ exit\n", False),
        ("free\n$ df\nb\n", False),
    ],
)
def test_a_session_has_the_output_of_a_second_command(text: str, several: bool) -> None:
    assert several == pastes.is_session(text.encode())


def test_a_fence_with_prompts_holds_several_outputs() -> None:
    assert [(2, "first"), (4, "second")] == texts("```console\n$ free\nfirst\n$ df\nsecond\n```\n")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("    first\n      second\n\n    third\n", [(0, "first\n  second\n\nthird")]),
        ("\tfirst\n\t\tsecond\n", [(0, "first\n\tsecond")]),
        ("    first\nsecond\n", []),
        ("Our node is slow today.\n\nA B\n1 2\n\nThanks for your help!\n", [(2, "A B\n1 2")]),
        ("This is all that it printed:\nA B\n1 2\n", [(1, "A B\n1 2")]),
        ("We saw this, and more.\n\nA B\n\nC D\n", [(2, "A B\n\nC D"), (4, "C D")]),
        ("first\u00a0line\n", [(0, "first line")]),
        ("\x1b[1;31mfirst\x1b[0m line\n", [(0, "first line")]),
        ("\x1b]0;me@node01\x07\x1b(Bfirst\n", [(0, "first")]),
    ],
)
def test_what_people_write_above_and_around_an_output(text: str, pieces: list[tuple[int, str]]) -> None:
    assert bool(pieces) == (pastes.may_hold(text.encode()) and bool(texts(text)))
    assert pieces == texts(text)


@pytest.mark.parametrize(
    "line",
    [
        "Starting the training of model 7 now",
        "loading: 3 of 8 files done.json",
        "epoch 1 loss 2.5 lr 0.1",
        "CA: node08 mlx5_0:",
        "Traceback (most recent call last):",
    ],
)
def test_lines_of_logs_are_no_sentences(line: str) -> None:
    assert not pastes.may_hold(f"{line}\n".encode())


def test_a_prompt_without_a_command_ends_an_output() -> None:
    assert [(1, "first")] == texts("root@node01:~# free\nfirst\nroot@node01:~# \n")


def test_the_indentation_of_a_whole_text() -> None:
    assert pastes.unindented(b"  a\n    b\n") == b"a\n  b\n"
    assert pastes.unindented(b"  a\nb\n") is None
    assert pastes.unindented(b"a\n  b\n") is None


def test_a_fence_inside_a_longer_one_is_text() -> None:
    assert [(1, "a\n```\nb\n```")] == texts("````\na\n```\nb\n```\n````\n")


def test_quotes_of_a_mail_are_taken_off() -> None:
    text = "Hello\n> # ibqueryerrors\n> Errors for x\n>    GUID 1\n>\n>> # perfquery\n>> SymbolErrorCounter\nBye\n"
    plain, pieces = pastes.opened(text.encode())
    assert b"Hello\n# ibqueryerrors\nErrors for x\n   GUID 1\n\n# perfquery\nSymbolErrorCounter\nBye\n" == plain
    assert [2, 6] == [piece.above for piece in pieces]


def test_lines_that_a_program_begins_with_that_mark_stay() -> None:
    text = b"> building the dataset ...\n> finished in 3 s\n> loading weights\n> initializing\n"
    assert (text, []) == pastes.opened(text)


@given(st.lists(st.sampled_from([*PROMPTS, "```", "  ~~~", "> # free", ">   x", "> y", "", "text", "    deep"])))
def test_lines_keep_their_numbers(lines: list[str]) -> None:
    text = "\n".join(lines).encode()
    plain, pieces = pastes.opened(text)
    assert text.count(b"\n") == plain.count(b"\n") == pastes.without(plain, pieces).count(b"\n")
    rows = plain.split(b"\n")
    for piece in pieces:
        assert rows[piece.above] == piece.text.split(b"\n")[0]
    assert [piece.above for piece in pieces] == sorted(piece.above for piece in pieces)
