"""What `dcgmi diag` and `dcgmi health -c` found, as text or JSON, in a file of its own or inside a log."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_LARGEST_DIAG = 32 << 20
_MOST_RESULTS = 20_000
_DCGM_HEADS = re.compile(
    rb"Successfully ran diagnostic|\| Diagnostic {1,40}\| Result|\| Health Monitor Report"
    rb"|-----  (?:Deployment|Hardware|Integration|Stress)  --|\| (?:Pass|Fail|Warn|Skip) - (?:GPU|All)"  # of a part
)
_OUTCOMES = {"pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail", "warn": "warn", "warning": "warn",
             "skip": "skip", "skipped": "skip", "healthy": "pass", "failure": "fail"}  # fmt: skip
_CELLS = re.compile(r"\|([^|]*)\|([^|]*)\|\s*")
_RESULT = re.compile(r"(Pass|Fail|Warn|Skip)\w*\b(?:\s*-\s*(?:GPUs?:?\s*)?([\d, ]+|All))?", re.IGNORECASE)
_GPU_RESULT = re.compile(r"GPU\s?(\d{1,3}):\s*(Pass|Fail|Warn|Skip)\w*", re.IGNORECASE)
_REMARK = re.compile(r"(?:Warning|Error|Info)(?:: .{0,40})?$|$")  # in place of the name of a test: of the test above
_FULL_CELL = re.compile(r" .{43,400}\S {2}")  # whose text goes on in the next row in the middle of a word
_HEALTH_WORDS = ("Healthy", "Warning", "Failure", "Internal error")


class Result(NamedTuple):
    """One result of one test."""

    test: str
    device: str | None  # GPU numbers, or the name of a card; None for the whole node
    outcome: str  # pass, fail, warn, skip, or other where the word is not known
    value: float | None = None
    text: str = ""


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every result of a file.

    Source: dcgmi/Diag.cpp, dcgmi/Health.cpp and dcgmi/DcgmiOutput.cpp of DCGM 2 to 4::

        | Deployment                |                                                |
        | Memory                    | Fail - GPU: 2                                  |
        | Overall Health            | Failure                                        |
    """
    head = read_head(stream, 1 << 12)
    facts.mark_covered("active_test")
    if begins_json(head):
        data = head + read_head(stream, _LARGEST_DIAG)
        text = data.decode("utf-8", "replace")
        found = parse_dcgm(text) or parse_health(text)
        whole = text.rstrip().endswith("}") and (found or _is_json(text))
        _add(facts, name, None, found, dict(_lines_of(text)))
        note = None if whole else "is not complete JSON; nothing of it was read"
        return Reading(text.count("\n") + 1, min(len(found), text.count("\n") + 1), note)
    sections = Sections(Joined(head, stream), _DCGM_HEADS)
    tables: dict[str | None, list[tuple[int, str]]] = {}
    used = 0
    for number, label, text in sections:
        if text.startswith(("|", "+")) or "ran diagnostic" in text:
            sections.used()
            used += 1
            if sum(map(len, tables.values())) < _MOST_RESULTS:
                tables.setdefault(label.host, []).append((number, text.strip()))
    for host, rows in tables.items():
        text = "\n".join(line for _, line in rows)
        found = [*_of_table(text.partition("Health Monitor Report")[0]), *parse_health(text)]
        _add(facts, name, host, found, {line: number for number, line in reversed(rows)})
    return Reading(sections.lines, used)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(text.split("\n"), 1):
        yield line.strip(), number


def _add(facts: Facts, file: str, host: str | None, found: list[Result], lines: dict[str, int]) -> None:
    """Add the results; evidence is the first line that names the test."""
    at: dict[str, tuple[int, str]] = {}
    for test in dict.fromkeys(result.test for result in found) if len(found) < 400 else ():
        name = test.removeprefix("health of ")
        quoted, plain = f'"{name}"', f"{name} "
        line = next((line for line in lines if plain in line or quoted in line), None)
        if line is not None:
            at[test] = lines[line], line
    facts.add(
        ActiveTest(
            host=host, tool="dcgm", test=result.test, device=result.device, outcome=result.outcome, value=None, unit=None,
            text=result.text or None, ref=facts.evidence(file, *at.get(result.test, (1, next(iter(lines), "")))),
        )
        for result in found
    )  # fmt: skip


def parse_dcgm(text: str) -> list[Result]:
    """`dcgmi diag -r 1 -j`, or its table where it prints one. Empty where no test ran.

    {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]}]}}
    | Denylist                  | Pass                                           |

    DCGM 4 says "DCGM Diagnostic", and `entity_group` and `entity_id` in place of `gpu_ids`.
    """
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        try:
            return list(_of_json(json.loads(text[start : end + 1])))
        except (ValueError, RecursionError):
            return []
    return list(_of_table(text))


def _of_json(document: Any) -> Iterator[Result]:
    if not isinstance(document, dict):
        return
    inner = next((document[key] for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if key in document), document)
    for category in _dicts(inner, "test_categories"):
        for test in _dicts(category, "tests"):
            for result in _dicts(test, "results"):
                yield Result(
                    str(test.get("name"))[:80], _device(result), _outcome(result.get("status")), None,
                    " ".join([*_words(result.get("warnings")), *_words(result.get("info"))])[:500],
                )  # fmt: skip


def _device(result: dict[str, Any]) -> str | None:
    ids = result.get("gpu_ids", result.get("gpu_id"))
    if ids is None and str(result.get("entity_group", "GPU")).upper() == "GPU":
        ids = result.get("entity_id")
    return None if ids is None else str(ids)[:200]


def _words(found: Any) -> list[str]:
    entries = found if isinstance(found, list) else [found]
    return [str(one.get("warning") or one) if isinstance(one, dict) else str(one) for one in entries if one]


def _dicts(found: Any, key: str) -> list[dict[str, Any]]:
    entries = found.get(key) if isinstance(found, dict) else None
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def _outcome(word: Any) -> str:
    return _OUTCOMES.get(str(word).strip().lower(), "other")


def _of_table(text: str) -> Iterator[Result]:
    current: Result | None = None
    above = ""  # the cell above
    for line in text.splitlines():
        cells = _CELLS.fullmatch(line.strip())
        if cells is None:
            continue
        name, said = cells[1].strip(), cells[2].strip()
        before, above = above, cells[2]
        if current is not None and _REMARK.match(name) is not None:
            gpu, other = _GPU_RESULT.match(said), None if name else _RESULT.match(said)
            if gpu is not None and _outcome(gpu[2]) == current.outcome and current.outcome != "pass":
                current = current._replace(device=",".join(filter(None, [current.device, gpu[1]])))
            elif other is not None and other[2] is not None and _outcome(other[1]) != current.outcome:
                yield current
                current = _result(current.test, other)
            elif gpu is None and said:
                current = current._replace(text=_goes_on(current.text, before, cells[2]))
        elif (match := _RESULT.match(said)) is not None and name:
            if current is not None:
                yield current
            current = _result(name, match)
    if current is not None:
        yield current


def _goes_on(text: str, above: str, cell: str) -> str:
    """The text with the next cell of it, as rows of one width cut it."""
    cut = text and _FULL_CELL.fullmatch(above) is not None and not cell.startswith("  ")
    return f"{text}{'' if cut else ' '}{cell.strip()}".strip()[:500]


def _result(test: str, match: re.Match[str]) -> Result:
    device = (match[2] or "").strip(" ,")
    return Result(test, None if device in ("", "All") else device, _outcome(match[1]))


def parse_health(text: str) -> list[Result]:
    """`dcgmi health -c`, as its tree or with `-j`: the systems of each entity that are not healthy, or one result that all are.

    | Overall Health            | Failure                                                  |
    | GPU                       |                                                          |
    | -> 2                      | Failure                                                  |
    |    -> Errors              |                                                          |
    |       -> Memory system    | Failure                                                  |
    |                           | 12 uncorrectable errors                                  |
    """
    if text.lstrip()[:1] == "{":
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return []
        body = document.get("body") if isinstance(document, dict) else None
        return list(_of_health(body)) if isinstance(body, dict) and "Overall Health" in body else []
    return list(_of_tree(text.partition("Health Monitor Report")[2]))


def _of_tree(text: str) -> Iterator[Result]:
    group, entity, above = "", "", ""
    current: Result | None = None
    for line in text.splitlines():
        cells = _CELLS.fullmatch(line.strip())
        if cells is None:
            continue
        name, said = cells[1].strip(), cells[2].strip()
        before, above = above, cells[2]
        if not name and current is not None:
            current = current._replace(text=_goes_on(current.text, before, cells[2]))
            continue
        if current is not None:
            yield current
        current = None
        if name == "Overall Health":
            if said == "Healthy":
                yield Result("health", None, "pass")
        elif not name.startswith("->"):
            group = name
        elif (own := name.removeprefix("->").strip()).isdecimal():
            entity = own
        elif said in _HEALTH_WORDS:
            current = Result(f"health of {own}", entity if group == "GPU" else f"{group} {entity}", _outcome(said))
    if current is not None:
        yield current


def _of_health(body: dict[str, Any]) -> Iterator[Result]:
    if _value(body["Overall Health"]) == "Healthy":
        yield Result("health", None, "pass")
    for group, entities in body.items():
        for entity, found in _children(entities).items():
            for system, one in _children(_children(found).get("Errors")).items():
                device = entity if group == "GPU" else f"{group} {entity}"
                words = one.get("overflow") if isinstance(one, dict) else None
                text = " ".join(map(str, words)) if isinstance(words, list) else ""
                yield Result(f"health of {system}", device, _outcome(_value(one)), None, text[:500])


def _children(found: Any) -> dict[str, Any]:
    inner = found.get("children") if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else {}


def _value(found: Any) -> str:
    return str(found.get("value")) if isinstance(found, dict) else str(found)
