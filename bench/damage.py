"""What damage to a log does to its diagnosis: `python bench/damage.py CASES [SEED…]`.

CASES is a folder of labelled cases, each with `log.txt` and `case.json`. Of every case whose fault is found first, the lines
that prove it are kept and the rest is damaged in each of the ways of tests/helpers/damage.py. Printed are, for each way, how
many cases get another first finding, lose every alarm, or are called healthy; and those of healthy jobs that get an alarm.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.damage import DAMAGES, evidence, first, report_on

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Report

ALARM = ("error", "warning")


def outcome(report: Report, name: str | None) -> str:
    """What became of a case of which `name` was found first; None for a healthy one."""
    found = first(report)
    if name is None:
        return "alarm" if report.verdict in ALARM else "same"
    if report.verdict == "healthy":
        return "healthy"
    if found is None:
        return "lost"
    return "same" if found.name == name else "other"


def main(cases: Path, seeds: list[int]) -> None:
    table: dict[str, Counter[str]] = {name: Counter() for name in DAMAGES}
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(sorted(cases.glob("*/case.json"))):
            case = json.loads(file.read_text("utf-8"))
            lines = (file.parent / "log.txt").read_bytes().removesuffix(b"\n").split(b"\n")
            before = report_on([lines], Path(folder) / f"{number}")
            found = first(before)
            healthy = case["cause"] == "healthy" and before.verdict not in ALARM
            if not healthy and (found is None or found.name not in {case["cause"], *case["accept"]}):
                continue
            for name, damage in DAMAGES.items():
                for seed in seeds:
                    files = damage(
                        lines, evidence(found) if not healthy else set(), Random(f"{seed} {file.parent.name}")
                    )
                    try:
                        report = report_on(files, Path(folder) / f"{number}-{name}-{seed}")
                    except UsageProblem as problem:
                        table[name]["refused"] += 1
                        print(f"{file.parent.name} {name} {seed}: {problem}")
                        continue
                    result = outcome(report, None if healthy else found.name if found else "")
                    table[name][result] += 1
                    if result != "same":
                        names = [one.name for one in report.findings]
                        print(
                            f"{file.parent.name} {name} {seed}: {result}: {found.name if found else ''} -> {names[:4]}"
                        )
    print(
        f"{'damage':12} {'cases':>6} {'other first':>12} {'no finding':>11} {'healthy':>8} {'false alarm':>12} {'refused':>8}"
    )
    for name, counts in table.items():
        row = [counts[key] for key in ("other", "lost", "healthy", "alarm", "refused")]
        print(f"{name:12} {counts.total():6} {row[0]:12} {row[1]:11} {row[2]:8} {row[3]:12} {row[4]:8}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(text) for text in sys.argv[2:]] or [1])
