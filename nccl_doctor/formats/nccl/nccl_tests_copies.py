"""Whether several processes print into one log as if each were the only one: nccl-tests built without MPI."""


class Copies:
    """Counts the processes that print into one file as if each were the only one: nccl-tests built without MPI."""

    def __init__(self) -> None:
        self._processes: set[tuple[str, str]] = set()
        self._tasks: set[int] = set()  # of the launcher, that printed a device of rank 0
        self._commands: list[int | None] = []  # processes that each command line asks for
        self._own = 0  # most GPUs of one process
        self._events: list[int] = []  # 1 where a process lists its first device, -1 where one prints its summary
        self._rows = False
        self._apart = False  # results were printed before a later process began

    def command(self, processes: int | None) -> None:
        """A line by which a launcher starts a test."""
        self._commands.append(processes)

    def parameters(self, gpus: int) -> None:
        """The first line of a run: GPUs of one process."""
        self._own = max(self._own, gpus)

    def starts(self, host: str, pid: str, task: int | None = None) -> None:
        """A line of a device with rank 0, which one process of a job prints; `task` is its rank in front of the line."""
        self._processes.add((host, pid))
        if task is not None:
            self._tasks.add(task)
        self._apart = self._apart or self._rows
        self._events.append(1)

    def row(self) -> None:
        """A line of results."""
        self._rows = bool(self._processes)

    def ends(self) -> None:
        """The summary of a run."""
        self._events.append(-1)

    def count(self, most_ranks: int) -> int:
        """The number of copies; 1 where the runs may have followed each other.

        Processes that all began before the first result are copies, as are runs of one rank each, and runs of which two were open
        at the same time: behind some line are two summaries more than beginnings. Runs of several tasks of one launch are copies
        too, and those of one command that asks for as many processes, each with no other GPUs than its own.
        """
        if len(self._tasks) > 1:
            return len(self._tasks)
        closed = most = 0
        for event in reversed(self._events):
            closed -= event
            most = max(most, closed)
        number = len(self._processes)
        if self._commands == [number] and most_ranks == self._own:
            return number
        return number if number > 1 and (not self._apart or most_ranks == 1 or most > 1) else 1
