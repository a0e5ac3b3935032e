"""Runs one case and says what is wrong with the outcome."""

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from targets import Case

from nccl_doctor.cli.main import main
from nccl_doctor.common import budgets
from nccl_doctor.rules import loader

SECONDS = 20.0  # of processor time for one case
STALLED = 120  # after which the kernel ends the process, for what does not return to Python
MEMORY = 1 << 30  # bytes by which the largest memory of the process may grow in one case
ADDRESSES = 6 << 30  # bytes
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u3164]")
_NUMBERS = re.compile(r"\d+")
_MIXED = ("--", "explain", "rules")  # commands that print text that is not JSON


class Slow(BaseException):
    """A case took too long."""


class Judge:
    """Runs cases in this process, below a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir(exist_ok=True)
        self._temporary = self._folder / "tmp"
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGVTALRM, _slow)

    def run(self, case: Case) -> tuple[str, str]:
        """(what is wrong, first line for its kind; what the case did, for cases that do something new)."""
        files = self._folder / "case"
        for place in (files, self._temporary):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._temporary)
        try:
            for name, data in case.files.items():
                (files / name).parent.mkdir(parents=True, exist_ok=True)
                (files / name).write_bytes(data)
        except OSError:  # a name that no file system takes
            return "", "unwritable"
        arguments = [part.replace("{}", str(files)) if "{}" in part[:2] else part for part in case.command]
        before = set(files.rglob("*"))
        problem, status, out, err = self._call(arguments)
        if not problem:
            problem = _wrong(case, status, out, err)
        left = set(files.rglob("*")) - before | set(self._temporary.iterdir())
        if not problem and left:
            problem = f"left files: {sorted(map(str, left))[:3]}"
        return problem, _signature(case, status, out, err)

    def _call(self, arguments: list[str]) -> tuple[str, int, bytes, str]:
        loader.load_usable.cache_clear()
        budgets.reset()
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace", write_through=True), io.StringIO()
        used = int(
            resource.getrusage(resource.RUSAGE_SELF).ru_utime + resource.getrusage(resource.RUSAGE_SELF).ru_stime
        )
        resource.setrlimit(resource.RLIMIT_CPU, (used + STALLED, resource.RLIM_INFINITY))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        status, problem = -1, ""
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(arguments)
        except Slow:
            problem = f"slow: more than {SECONDS:g} s of processor time\n{traceback.format_exc()}"
        except BaseException:
            problem = f"raised {_last(sys.exc_info()[1])}\n{traceback.format_exc()}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10
        if not problem and grown > MEMORY:
            problem = f"memory grew by more than {MEMORY >> 20} MiB"
        if status == 3:
            problem = self._traceback(arguments) or f"status 3: {err.getvalue()[-500:]}"
        return problem, status, out.buffer.getvalue(), err.getvalue()  # type: ignore[attr-defined]

    @staticmethod
    def _traceback(arguments: list[str]) -> str:
        """Where a bug is: the same once more, with errors raised."""
        os.environ["NCCL_DOCTOR_DEBUG"] = "1"
        try:
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(io.StringIO()):
                main(arguments)
        except Exception as error:
            return f"status 3: {_last(error)}\n{traceback.format_exc()}"
        finally:
            del os.environ["NCCL_DOCTOR_DEBUG"]
        return ""


def _slow(_number: int, _frame: FrameType | None) -> None:
    raise Slow


def _last(error: BaseException | None) -> str:
    """The kind of an error, and the last place in the package that it came through."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    ours = [frame for frame in frames if "nccl_doctor" in frame.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    return f"{type(error).__name__} in {place}: {_NUMBERS.sub('#', str(error))[:100]}"


def _wrong(case: Case, status: int, out: bytes, err: str) -> str:
    """What is wrong with an outcome; empty where nothing is."""
    allowed = (0, 2, 3, 90, 91) if case.command[0] == "preflight" else (0, 1, 2)
    if status not in allowed:
        return f"status {status}\n{err[-500:]}"
    for words in ("Traceback", "internal error", "a bug in our reader"):
        said = (line for line in err.splitlines() if words in line)
        line = next((line for line in said if words != "Traceback" or line.startswith(words)), None)
        if line is not None:  # an input may name a traceback, and is quoted
            return f"{words}: {_NUMBERS.sub('#', line.partition(words)[2])[:150]}\n{err[-1500:]}"
    text = out.decode("utf-8", "replace")
    if found := _CONTROL.search(text + err.replace("\n", "")):
        return f"control character {ord(found[0]):#x} on the terminal ({case.command[0]})"
    if "json" in case.command and text:
        try:
            report = json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            return f"no JSON: {error}"
        return _wrong_report(case, report) if isinstance(report, dict) else ""
    return ""


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _wrong_report(case: Case, report: dict[str, Any]) -> str:
    broken = [
        check
        for check in report.get("checks", [])
        if check["outcome"] == "broken" and not check["rule"].startswith("SITE")
    ]
    if broken:
        return f"broken rule {broken[0]['rule']}: {broken[0].get('reason')}"
    if "never healthy" in case.flags and report.get("verdict") == "healthy":
        return "healthy, although the input was cut"
    return ""


def _signature(case: Case, status: int, out: bytes, err: str) -> str:
    """What a case did: status, shapes of the complaints, rules that found something."""
    said = sorted({_NUMBERS.sub("#", line.rpartition(": ")[2])[:60] for line in err.splitlines()})
    rules = sorted(set(re.findall(rb"\b[A-Z]{2,6}\d{3}\b", out)))[:20]
    return repr((case.command[0], status, said, rules))
