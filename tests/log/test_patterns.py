"""Every line pattern against its own samples, and the ways a text finds its pattern."""

from dataclasses import replace
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.log import line_patterns
from nccl_doctor.log.line_patterns import FOLDER, Grammar, Pattern, PatternProblem

PATTERNS = line_patterns.load()
IDS = [f"{p.file}:{p.name}" for p in PATTERNS]


@pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)
def test_samples_match_and_misses_do_not(pattern: Pattern) -> None:
    grammar = Grammar([pattern])
    for sample in pattern.sample:
        if pattern.where == "nccl":
            text, _, more = sample.partition("\n")
            if more:
                assert pattern.match(sample, pattern.level) is not None, sample
            else:
                assert grammar.nccl(text.strip(), pattern.level) is not None, sample
        else:
            assert pattern.match(sample) is not None, sample
            assert [pattern] == list(grammar.candidates(sample)), f"no literal of {pattern.name} in {sample}"
    for miss in pattern.miss:
        assert pattern.match(miss) is None, miss


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p.least], ids=lambda pattern: pattern.name)
def test_the_least_lines_of_a_record_match(pattern: Pattern) -> None:
    for sample in pattern.sample:
        lines = sample.split("\n")
        assert 1 <= pattern.least < pattern.lines
        assert pattern.match("\n".join(lines[: 1 + pattern.least])) is not None, sample
        assert pattern.match(lines[0]) is None, sample


@pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)
def test_groups_are_columns(pattern: Pattern) -> None:
    line_patterns.check_columns(pattern)
    if pattern.table != "message" and not pattern.reader:
        with pytest.raises(line_patterns.PatternProblem, match="no_such_column"):
            line_patterns.check_columns(replace(pattern, set={**pattern.set, "no_such_column": 1}))


@pytest.mark.parametrize(
    "pattern",
    [p for p in PATTERNS if p.reader != "skip"],
    ids=[f"{p.file}:{p.name}" for p in PATTERNS if p.reader != "skip"],
)
def test_a_sample_leaves_a_fact_in_a_whole_log(pattern: Pattern) -> None:
    for sample in pattern.sample:
        level = pattern.level or "INFO"
        where = "init.cc:12 " if level in ("WARN", "ATTN") else ""
        log = f"node01:101:140 [0] {where}NCCL {level} {sample}\n" if pattern.where == "nccl" else f"{sample}\n"
        facts = analyze.read_text(log)
        rows = {name: count for name, count in facts.counts().items() if count}
        kinds = {kind for (kind,) in facts.query("SELECT kind FROM message")}
        derived = {"input", "evidence", "job", "host", "rank", "process", "progress", "link"}
        assert pattern.name in kinds or set(rows) - derived - {"message"}, (sample, rows, kinds)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (
            "[[pattern]]\nname = 'x'\nwhere = 'nccl'\nregex = 'a'\nmeans = 'm'\nsample = ['a']\ncolour = 1",
            "unknown key colour",
        ),
        ("[[pattern]]\nname = 'x'\nwhere = 'text'\nregex = 'a'\nmeans = 'm'\nsample = ['a']", "needs `has` or `any`"),
        ("[[pattern]]\nname = 'x'\nwhere = 'nccl'\nregex = 'a'\nmeans = 'm'\nsample = []", "no sample"),
        (
            "[[pattern]]\nname = 'x'\nwhere = 'nccl'\nregex = 'a'\nmeans = 'm'\nsample = ['a']\ntable = 'nope'",
            "no table nope",
        ),
        ("[[pattern]]\nname = 'x'", "missing"),
        ("no toml", "x.toml"),
    ],
)
def test_a_wrong_pattern_file_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(PatternProblem, match=word):
        line_patterns.read_patterns(path)


def test_every_file_is_loaded_and_unknown_lines_come_last() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {p.file for p in PATTERNS}
    assert ["core", "unknown"] == list(dict.fromkeys(p.file for p in PATTERNS))[-2:]


@pytest.mark.parametrize(
    ("line", "table", "source"),
    [
        ("transport/net_ib.cc:912 Got completion with error 12, opcode 0, len 0, vendor err 129", "ib_error", None),
        ("4711:4790 [3] bootstrap.cc:106 CCOM WARN Call to accept failed : Too many open files", "socket_error", None),
        ("INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "gdr", None),
        ("transport/nvls.cc:158 NCCL WARN Cuda failure 401 'the operation cannot be performed'", "cuda_error", "transport/nvls.cc"),
    ],
)  # fmt: skip
def test_a_line_that_lost_its_header_is_read_as_the_message_of_nccl(line: str, table: str, source: str | None) -> None:
    facts = analyze.read_text(line + "\n")
    assert 1 == facts.counts()[table]
    assert [(line,)] == facts.query("SELECT text FROM evidence WHERE id = (SELECT ref FROM " + table + ")")
    if source:
        assert [(source,)] == facts.query(f"SELECT source FROM {table}")


def test_nccl_before_2_3_wrote_its_header_without_its_name() -> None:
    facts = analyze.read_text(
        "node07:1456:1460 [1] misc/ibvwrap.cu:269 WARN Call to ibv_create_qp failed\n"
        "node07:1456:1460 [1] INFO transport/net_ib.cu:344 -> 2\n"
    )
    assert [("node07", "ibv_create_qp")] == facts.query("SELECT host, call FROM verbs_error")
    assert [("node07", 1456, "transport/net_ib.cu", 2)] == facts.query("SELECT host, pid, source, code FROM trail")


def test_what_cuda_says_is_read_behind_words_that_nothing_knows() -> None:
    facts = analyze.read_text("Failed to copy a vector (error code no CUDA-capable device is detected)!\n")
    assert [("no CUDA-capable device is detected",)] == facts.query("SELECT text FROM cuda_error")


def test_a_source_line_of_another_program_stays_unread() -> None:
    facts = analyze.read_text("loader/proxy.cc:12 could not start the loader\n")
    assert [("error-looking",)] == facts.query("SELECT kind FROM message")
