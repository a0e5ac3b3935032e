"""Lists of processes: `ps aux`, `ps -ef`, `ps -eo pid,stat,wchan,args`, the rows of `top -b`; what containers use: `docker stats`.

The reader is `host_commands`; `host_sections` says what a part is.
"""

import re

from nccl_doctor.facts.tables import ListedProcess
from nccl_doctor.formats.captures.host_sections import Add, Section, parse_size

_PYTHON = re.compile(r"(?:\S{0,200}/)?(?:python|pypy)[\d.]{0,6}$")
# Programs of a job, and what looks at GPUs: others are kept where they hang or are zombies.
_JOB = re.compile(
    r"(?:torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|orterun|prterun|prted|orted|hydra_pmi_proxy|srun|slurmstepd|"
    r"ray|raylet|nvidia-smi|dcgmi|rocm-smi|amd-smi|xhpl|\w{1,40}_perf)(?:[: ]|$)"
)
_STATES = "DRSTtZXIWP"
_WEEKDAY = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)$")


class Processes(Section):
    """A line of titles with PID, of which the last is the command, and a row a process."""

    BEGINS = re.compile(r"(?=[A-Z%+\s]{0,300}?\bPID\b)[A-Z%\s][A-Z%+\s]{3,300}\b(?:COMMAND|CMD|ARGS)\s*$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._titles: list[str] = []
        self._counts = {"processes": 0, "zombies": 0, "in uninterruptible sleep": 0}

    def take(self, text: str, number: int) -> bool:
        """Use a line; `top -b` prints blank lines and its head between two lists."""
        if self.BEGINS.match(text):
            self._titles = text.split()
            self._counts = dict.fromkeys(self._counts, 0)
            return True
        cells = self._cells(text)
        if cells is None:
            return False
        row = self._row(cells)
        self._count(row, (number, text))
        if row.state in ("D", "Z") or row.job:
            self.add(row, number, text)
        return True

    def _cells(self, text: str) -> dict[str, str] | None:
        """Title -> value; the last takes the rest of the line. None for what is no row."""
        words = text.split(None, len(self._titles) + 3)
        if len(words) < len(self._titles):
            return None
        cells = {}
        rest = text.strip()
        for title in self._titles[:-1]:
            word, _, rest = rest.partition(" ")
            if title in ("STARTED", "LSTART") and _WEEKDAY.match(word):  # Tue Nov 24 10:11:12 2026
                rest = " ".join(rest.split(None, 4)[4:])
            cells[title] = word
            rest = rest.lstrip()
        cells[self._titles[-1]] = rest
        pid = cells.get("PID", "")
        return cells if pid.isdecimal() and len(pid) < 11 and rest else None

    def _row(self, cells: dict[str, str]) -> ListedProcess:
        command = cells[self._titles[-1]]
        state = next((cells[title][:1] for title in ("STAT", "S") if title in cells), "")
        if "<defunct>" in command:
            state = "Z"
        cpu = _number(cells.get("%CPU", ""))
        size = cells.get("RSS") or cells.get("RES") or ""
        memory = parse_size(size.upper())
        wait = cells.get("WCHAN", "-")
        return ListedProcess(
            None, "", int(cells["PID"]), cells.get("USER") or cells.get("UID"), program(command),
            state if state and state in _STATES else None, cpu,
            None if memory is None else memory / (1 << 20 if re.search(r"[a-zA-Z]", size) else 1 << 10),
            None if wait in ("-", "0", "*") else wait, int(is_job(command)), 0,
        )  # fmt: skip

    def _count(self, row: ListedProcess, at: tuple[int, str]) -> None:
        for name, counts in (
            ("processes", True),
            ("zombies", row.state == "Z"),
            ("in uninterruptible sleep", row.state == "D"),
        ):
            if counts:
                self._counts[name] += 1
                self.number("ps", name, self._counts[name], "", at)


def program(command: str) -> str:
    """What runs, without its options: `python train.py`, `python -m torch.distributed.run`, `[kworker/3:1]`, `nvidia-smi`."""
    words = command.split(None, 12)[:12]
    first = words[0] if words else ""
    if first.startswith("["):
        return first
    name = first.rsplit("/", 1)[-1]
    if not _PYTHON.match(first):
        return name[:60]
    for at, word in enumerate(words[1:], 1):
        if word in ("-m", "-c"):
            return f"python {word} {words[at + 1] if word == '-m' and at + 1 < len(words) else ''}".strip()[:60]
        if not word.startswith("-"):
            return f"python {word.rsplit('/', 1)[-1]}"[:60]
    return "python"


def is_job(command: str) -> bool:
    """Whether a command looks like a part of a job: a script of Python, a launcher, a benchmark, a tool of GPUs."""
    name = program(command)
    return (name.startswith("python ") and not name.startswith("python -c")) or _JOB.match(name) is not None


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if 0 <= value < 1e7 else None


class ContainerStats(Section):
    """`docker stats`, also with `--no-stream`, and `podman stats`: processors and memory of each container; of several screens the most.

    Source: cli/command/formatter/stats.go of Docker, cmd/podman/containers/stats.go::

        4f1c2d3e4a5b   train-0   802.53%   210.4GiB / 503.5GiB   41.79%   1.2MB / 3.4GB   0B / 0B   812
    """

    BEGINS = re.compile(r"(?:CONTAINER(?: ID)?|ID) {2,80}(?:NAME {2,80})?CPU % {2,40}MEM USAGE ?/ ?LIMIT {2,40}MEM % ")
    _ROW = re.compile(
        r"(?P<id>[0-9a-f]{12,64}|\S{1,80}) {2,80}(?:(?P<name>\S{1,80}) {2,80})?(?P<cpu>\d{1,7}(?:\.\d{1,4})?)% {2,40}"
        r"[\d.]{1,12} ?[kKMGT]?i?B / [\d.]{1,12} ?[kKMGT]?i?B {2,40}(?P<memory>\d{1,3}(?:\.\d{1,4})?)% "
    )

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if self.BEGINS.match(text):
            return True
        row = self._ROW.match(text)
        if row is None:
            return not text.strip()
        name = row["name"] or row["id"]
        self.number("docker stats", f"CPU of {name}", float(row["cpu"]), "%", (number, text))
        self.number("docker stats", f"memory of {name}", float(row["memory"]), "%", (number, text))
        return True


SECTIONS: tuple[type[Section], ...] = (Processes, ContainerStats)
