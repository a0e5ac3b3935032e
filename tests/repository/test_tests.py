"""The tests themselves: each asserts something, none measures time, and each lies beside what it tests."""

import ast
from functools import cache
from pathlib import Path

import pytest
from helpers.places import ROOT

TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("test_*.py"))
CLOCKS = {"sleep", "monotonic", "perf_counter", "process_time"}
WAITING = {TESTS / "helpers" / "waiting.py", TESTS / "helpers" / "screens.py"}  # the only places that look at a clock


def name(path: Path) -> str:
    return str(path.relative_to(TESTS))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def called(node: ast.AST) -> set[str]:
    """The names of the functions that are called below a node."""
    return {one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}


@cache
def asserts(node: ast.AST) -> bool:
    """Whether an assertion stands below a node: `assert`, pytest.raises, a validation by JSON schema, or a wait for a state."""
    methods = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return bool(methods & {"raises", "validate", "wait"}) or any(isinstance(one, ast.Assert) for one in ast.walk(node))


@cache
def helpers() -> dict[str, ast.AST]:
    return {
        one.name: one
        for path in sorted((TESTS / "helpers").glob("*.py"))
        for one in ast.walk(parsed(path))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("path", FILES, ids=name)
def test_every_test_asserts_something(path: Path) -> None:
    """Its own lines do, or a function of the same file or of the helpers that it calls."""
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    known = helpers() | {function.name: function for function in functions}
    asserting = {key for key, node in known.items() if asserts(node)}
    while more := {key for key, node in known.items() if key not in asserting and called(node) & asserting}:
        asserting |= more
    tests = {function.name for function in functions if function.name.startswith("test_")}
    assert set() == tests - asserting


def _measures(call: ast.Call, function: ast.Attribute) -> bool:
    """time.monotonic() and the like; a child may sleep for ever."""
    if not (isinstance(function.value, ast.Name) and function.value.id == "time" and function.attr in CLOCKS):
        return False
    seconds = call.args[0] if call.args else None
    return not (function.attr == "sleep" and isinstance(seconds, ast.Constant) and seconds.value >= 1000)


def _gives_up(call: ast.Call, function: ast.Attribute) -> bool:
    """A process that is waited for so many seconds."""
    if function.attr not in ("run", "check_output", "communicate", "wait", "urlopen", "join"):
        return False
    limits = [one.value for one in call.keywords if one.arg == "timeout"]
    if function.attr == "wait":
        limits += call.args
    return any(isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) for limit in limits)


@pytest.mark.parametrize("path", sorted(set(TESTS.rglob("*.py")) - WAITING), ids=name)
def test_no_test_looks_at_a_clock(path: Path) -> None:
    """A busy machine takes longer for everything: tests wait for states (helpers.waiting)."""
    found = [
        f"line {call.lineno}: {ast.unparse(call)[:80]}"
        for call in ast.walk(parsed(path))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if _measures(call, call.func) or _gives_up(call, call.func)
    ]
    assert [] == found


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_test_lies_in_the_folder_of_what_it_tests(path: Path) -> None:
    folder = path.parent.relative_to(TESTS)
    if folder.parts[0] not in ("repository", "shared_inputs"):
        assert (ROOT / "nccl_doctor" / folder).is_dir()
    assert not path.stem.startswith(f"test_{folder.parts[0]}_")


def test_only_one_folder_reads_what_is_not_part_of_the_repository() -> None:
    using = {
        path.parent
        for path in TESTS.rglob("*.py")
        if path.name != "places.py"
        and any(isinstance(n, ast.Name) and n.id == "SHARED" for n in ast.walk(parsed(path)))
    }
    assert {TESTS / "shared_inputs"} == using
