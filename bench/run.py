"""Runs all measurements: quick ones of about a minute, or with --full the logs of 1 GiB that the README's table shows.

python bench/run.py [--full]
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
QUICK = (
    ("start.py", "--times", "5"),
    ("preflight.py", "--times", "5"),
    ("logs.py", "--size", "128", "--times", "1"),
    ("curves.py", "--ranks", "4096", "--size", "16"),
    ("cores.py", "--size", "128", "--times", "1"),
    ("failures.py", "--nodes", "32"),
    ("formats.py", "--size", "16"),
    ("timeline.py", "--size", "50"),
    ("gpu_csv.py", "500000"),
    ("watch.py",),
)
FULL = (
    ("start.py",),
    ("logs.py",),
    ("curves.py", "--ranks", "131072", "--size", "1024"),
    ("cores.py",),
    ("failures.py",),
    ("formats.py",),
    ("timeline.py",),
    ("gpu_csv.py",),
    ("preflight.py",),
    ("watch.py",),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--full", action="store_true", help="1 GiB a log, about five minutes and 2 GB of temporary files"
    )
    failed = []
    for script, *arguments in FULL if parser.parse_args().full else QUICK:
        print(f"# {script} {' '.join(arguments)}".rstrip(), flush=True)
        if subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode:
            failed.append(script)
        print(flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
