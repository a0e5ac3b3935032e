"""Fuzzes all readers, led by the code that an input reaches: `python bench/fuzz/guided.py [--minutes N] [--seed N] [--kept FOLDER]`.

atheris has to be installed beside nccl-doctor; it is none of its dependencies. Inputs begin as the small files of fixtures/, each behind
its name on a line of its own, and those that reach something new are kept in the folder, from which the next run goes on. An exception
of a reader ends the run; what was read then lies beside the folder as `crash-*`, and the same command reads it again: `--again FILE`.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

os.environ["NCCL_DOCTOR_DEBUG"] = "1"  # readers raise what they would note
with atheris.instrument_imports(include=["nccl_doctor"]):
    import importlib
    import pkgutil

    import nccl_doctor.formats
    from nccl_doctor.app import analyze
    from nccl_doctor.common import budgets
    from nccl_doctor.common.errors import UsageProblem

    for module in pkgutil.walk_packages(nccl_doctor.formats.__path__, "nccl_doctor.formats."):
        importlib.import_module(module.name)

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
LARGEST = 12_000  # bytes of a fixture
_NAME = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,59}")
_BUGS = ("internal error", "a bug in our reader")


def read(data: bytes, folder: Path) -> None:
    """Read one input. Raises what a reader raises, and RuntimeError where one says that it has a bug."""
    name, _, content = data.partition(b"\n")
    path = folder / (name.decode() if _NAME.fullmatch(name) else "job.log")
    path.write_bytes(content)
    budgets.reset()
    try:
        _, problems = analyze.read_facts([str(path)])
    except UsageProblem:
        return
    finally:
        path.unlink()
    if bugs := [problem for problem in problems if any(words in problem for words in _BUGS)]:
        raise RuntimeError(bugs[0])


def begin(kept: Path) -> None:
    """Put the fixtures into an empty folder."""
    kept.mkdir(parents=True, exist_ok=True)
    small = (path for path in sorted(FIXTURES.rglob("*")) if path.is_file() and path.stat().st_size < LARGEST)
    for number, path in enumerate(small if not any(kept.iterdir()) else ()):
        (kept / f"{number:04}").write_bytes(path.name.encode()[:60] + b"\n" + path.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=Path(".fuzz/guided"))
    parser.add_argument("--again", type=Path, help="read this input once")
    options = parser.parse_args()
    begin(options.kept)
    with tempfile.TemporaryDirectory() as folder:
        limits = [
            f"-max_total_time={round(60 * options.minutes)}",
            "-timeout=30",
            "-rss_limit_mb=4000",
            f"-max_len={LARGEST}",
        ]
        given = [str(options.again)] if options.again else [*limits, f"-seed={options.seed}", str(options.kept)]
        atheris.Setup(
            [sys.argv[0], f"-artifact_prefix={options.kept.parent}/", *given], lambda data: read(data, Path(folder))
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
