"""What a job is doing as one sentence: `JOB STOPPED 42 s: 15 of 16 ranks wait in all_reduce; rank 13 (…) is in next (loader.py:8)`."""

from dataclasses import dataclass

SHOWN = 3  # ranks that a sentence names


@dataclass(frozen=True)
class Suspect:
    """A rank for which the others wait, or one that waits elsewhere than the others."""

    rank: int | None
    host: str | None
    pid: int | None
    gpu: int | None
    words: str  # what it does: `is in load (data.py:8)`

    def sentence(self) -> str:
        """Returns `rank 13 (gpu-b GPU 5, pid 4005) is in load (data.py:8)`."""
        where = " ".join([*([self.host] if self.host else []), *([f"GPU {self.gpu}"] if self.gpu is not None else [])])
        details = ", ".join([*([where] if where else []), *([f"pid {self.pid}"] if self.pid is not None else [])])
        name = f"rank {self.rank}" if self.rank is not None else "a process"
        return f"{name} ({details}) {self.words}" if details else f"{name} {self.words}"


@dataclass(frozen=True)
class JobState:
    """The state of one job.

    `state` is `stopped` where nobody moves, `waiting` where the ranks wait for one that still moves. `kind` is the class of
    the cause: outside, dataloader, checkpoint, compiling, suspended, ended, kernel, gil, apart, network, unseen.
    """

    job: str
    state: str
    since: float  # seconds since the epoch
    ranks: int
    waiting: int
    operation: str | None  # in which they wait: all_reduce
    kind: str
    suspects: tuple[Suspect, ...] = ()
    note: str | None = None  # what is known where nobody is suspected

    def sentence(self, now: float, *, named: bool = False) -> str:
        """Returns the headline; with `named` it names the job, for screens that show several."""
        word = "STOPPED" if self.state == "stopped" else "WAITS"
        job = f"JOB {self.job}" if named else "JOB"
        return f"{job} {word} {_duration(max(now - self.since, 0.0))}: {self.reason()}"

    def reason(self) -> str:
        """Returns the sentence without the time: who waits where, and who is suspected."""
        where = f" in {self.operation}" if self.operation else ""
        parts = [f"{self.waiting} of {self.ranks} ranks wait{where}" if self.waiting else "no rank moves"]
        parts += [suspect.sentence() for suspect in self.suspects[:SHOWN]]
        if len(self.suspects) > SHOWN:
            parts.append(f"so do {len(self.suspects) - SHOWN} more")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole // 60 % 60} min"
