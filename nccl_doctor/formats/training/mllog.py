"""MLPerf's events, as `record_lines` decodes them: the run with its result, and how fast it trained."""

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, MlperfRun
from nccl_doctor.formats.training.metrics import number, speed_of
from nccl_doctor.formats.training.record_lines import MLLOG
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.scalars import Scalars
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import text_of
from nccl_doctor.formats.training.steps.step_series import Series

_STEPS = Tool(MLLOG, "mlperf", "samples/s", "job")
_GPUS_OF_A_NODE = 8  # of a DGX or HGX system since the A100; `submission_platform` is `4xDGXH100`
_ACCELERATORS = compiled(
    r"(\d{1,5}) ?x.{1,60}?[x_](\d{1,3}) ?x? ?(?:NVIDIA[ _-]?|AMD[ _-]?)?(?:[AHBLV]\d{2,3}|GB\d{3}|GH\d{3}|MI\d{3})"
)
_GIVEN = rb"['\"]?\s{0,3}[:=]\s{0,3}['\"]?(\d{1,6})(?![\d.:])"
# What the scripts of submitters print of the launch: results hide the name of their platform.
_WORLD = compiled(rb"(?<![\w.-])(?:WORLD_SIZE|SLURM_NTASKS|world_size)" + _GIVEN)
_PROCESSES = compiled(rb"Starting with (\d{1,6}) processes")
_NODES = compiled(rb"(?<![\w-])(?:DGXNNODES|SLURM_NNODES|SLURM_JOB_NUM_NODES|(?:trainer\.)?num_nodes|nnodes)" + _GIVEN)
_PER_NODE = compiled(
    rb"(?<![\w-])(?:DGXNGPU|(?:num_)?gpus_per_node|nproc_per_node|SLURM_GPUS_ON_NODE|SLURM_GPUS_PER_NODE|(?:trainer\.)?devices)"
    + _GIVEN
)


_POWER = frozenset(
    ("power_reading", "power_measurement_start", "power_measurement_stop", "conversion_eff", "interconnect_power_est")
)
_RANKS_APART = 60.0  # seconds in which all ranks of a run begin
_LOSSES = ("loss", "train_loss", "reduced_train_loss")


def _first_number(value: Any) -> float | None:
    """A quality; the first where a program evaluates several, `[0.378, 0.342]` or `{"accuracy": {"BBOX": 0.378, …}}`."""
    for _ in range(3):
        if isinstance(value, dict):
            value = list(value.values())
        if not isinstance(value, list) or not value:
            break
        value = value[0]
    return number(value)


def time_of(event: Mapping[str, Any]) -> float | None:
    """Milliseconds since the epoch; some submitters of v0.7 wrote seconds."""
    seconds = number(event.get("time_s"))
    return number(event.get("time_ms")) if seconds is None else 1000 * seconds


class _Power:
    """The readings of one power log: `node_0.txt` of a node, `sw_0.txt` of the switches."""

    def __init__(self) -> None:
        self._watts = 0.0
        self._readings = 0
        self._joules = 0.0
        self._factor = 1.0  # by which what a meter shows is more than what the system takes
        self._before: float | None = None  # when the reading before was taken
        self._highest: tuple[float, bytes, int] = (0.0, b"", 0)
        self._first: tuple[bytes, int] | None = None

    def add(self, key: str, when: float, value: Any, place: tuple[bytes, int]) -> None:
        """Take one event. A reading counts from the one before it, as `result_summarizer.py` sums them up."""
        told = number(value.get("value") if isinstance(value, dict) else value)
        if key == "power_measurement_start":
            self._before = when
        elif key == "conversion_eff" and told is not None and 0 < told <= 1:
            self._factor = told
        elif key in ("power_reading", "interconnect_power_est") and told is not None and told >= 0:
            self._watts += told
            self._readings += 1
            self._first = self._first or place
            self._joules += told * max(when - (self._before if self._before is not None else when), 0.0)
            self._before = when
            if told > self._highest[0]:
                self._highest = told, *place

    def rows(self, facts: Facts, file: str) -> Iterator[HostNumber]:
        """The mean and the highest power in W, and the energy in kJ."""
        if not self._readings or self._first is None:
            return
        first = facts.evidence(file, self._first[1], text_of(self._first[0]))
        mean = self._factor * self._watts / self._readings
        yield HostNumber(None, file, "MLPerf", "mean power", round(mean, 1), "W", first)
        highest, line, number_ = self._highest
        if self._readings > 1:
            ref = facts.evidence(file, number_, text_of(line))
            yield HostNumber(None, file, "MLPerf", "highest power", round(self._factor * highest, 1), "W", ref)
            yield HostNumber(None, file, "MLPerf", "energy", round(self._factor * self._joules / 1000, 1), "kJ", first)


class MlperfLog:
    """The events of one log. A program may print one run after the other."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.runs: list[dict[str, Any]] = []
        # Four ways to say how fast it was, the best first: the program's own number, blocks of samples, losses of
        # numbered steps, epochs.
        self.series = [Series(_STEPS, None, None) for _ in range(4)]
        self._stepped: tuple[float, float] | None = None  # the last numbered step, and when its loss was printed
        self._began: dict[str, tuple[float, float | None]] = {}  # interval -> when, samples
        self._samples: float | None = None  # of an epoch
        self._trained: dict[str, float] = {}  # interval -> samples at its last end
        self.losses = Scalars()
        self._power = _Power()

    def add(self, event: Mapping[str, Any], line: bytes, number_: int) -> bool:
        """Take one event; False where it is none."""
        key, when = event.get("key"), time_of(event)
        if not isinstance(key, str) or when is None:
            return False
        value, metadata = event.get("value"), event.get("metadata")
        details: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
        when /= 1000
        if key in _POWER:
            self._power.add(key, when, value, (line, number_))
            return True
        run = self._run(key, when, line, number_)
        match key:
            case "init_start" | "run_start":
                run.setdefault(key, when)
            case "init_stop" | "run_stop":
                run[key] = when
                if key == "run_stop" and isinstance(details.get("status"), str):
                    run["status"], run["line"], run["number"] = str(details["status"])[:40], line, number_
            case "submission_benchmark" | "submission_platform" if isinstance(value, str):
                run[key] = value[:80]
                self._platform(value)
            case "global_batch_size" if (batch := number(value)) is not None:
                self.settings.batch = int(batch)
            case "train_samples":
                self._samples = number(value)
            case "eval_accuracy" | "eval_error":  # of the HPC suite, where less is better
                run["quality"], run["falls"] = _first_number(value), key == "eval_error"
            case "target_accuracy" | "quality_target" | "eval_target":
                run["target"] = _first_number(value)
            case "train_loss" if (loss := number(value)) is not None:
                self.losses.note_scalar("train_loss", loss, number(details.get("samples_count")), (line, number_))
                self._step(number(details.get("step_num")), when, line, number_)
            case _:
                self._progress(key, value, details, when, line, number_)
        self.note_samples(event)
        return True

    def note_samples(self, event: Mapping[str, Any]) -> None:
        """Take the number of samples that an event says were trained until then."""
        details = event.get("metadata")
        if self.runs and isinstance(details, dict):
            samples = number(details.get("samples_count", details.get("trained_samples")))
            if samples is not None:
                self.runs[-1]["samples"] = max(samples, self.runs[-1].get("samples", 0.0))

    def _run(self, key: str, when: float, line: bytes, number_: int) -> dict[str, Any]:
        """The run that an event belongs to. All ranks may print that they begin."""
        last = self.runs[-1] if self.runs else {}
        begins = (key == "init_start" and "run_start" in last) or (
            key == "run_start" and not -_RANKS_APART < when - last.get("run_start", when) < _RANKS_APART
        )
        if not self.runs or begins:
            kept = {"submission_benchmark": last.get("submission_benchmark")} if last else {}
            self.runs.append({**kept, "line": line, "number": number_})
        return self.runs[-1]

    def note_launch(self, text: bytes) -> None:
        """Take the number of GPUs from what was printed beside the events, where these do not tell it."""
        if self.settings.num_gpus or self.settings.world:
            return
        worlds = [*_WORLD.findall(text), *_PROCESSES.findall(text)]
        self.settings.world = max(map(int, worlds), default=0) or None
        nodes, per_node = (max(map(int, found.findall(text)), default=0) for found in (_NODES, _PER_NODE))
        self.settings.nodes, self.settings.per_node = nodes or None, per_node or None

    def _platform(self, text: str) -> None:
        if (found := _ACCELERATORS.match(text)) is not None:
            self.settings.num_gpus = int(found[1]) * int(found[2])
            return
        count, _, system = text.strip().partition("x")
        if (
            count.strip().isdecimal()
            and any(name in system.upper() for name in ("DGX", "HGX"))
            and "DGX-2" not in system
        ):
            self.settings.num_gpus = min(int(count[:6]), 100_000) * _GPUS_OF_A_NODE

    def _progress(
        self, key: str, value: Any, details: Mapping[str, Any], when: float, line: bytes, number_: int
    ) -> None:
        name, _, edge = key.rpartition("_")
        if edge in ("start", "stop"):  # of an evaluation or a checkpoint, whose time is none of a step
            self._stepped = None
        if key == "tracked_stats" and isinstance(value, dict):
            for name, raw in value.items():
                if name in _LOSSES and (loss := number(raw)) is not None:
                    self.losses.note_scalar("train_loss", loss, None, (line, number_))
            speed = speed_of(value)
            if speed.rate or speed.seconds:
                self._point(0, speed.seconds, speed.rate, (line, number_, when))
        elif name in ("block", "epoch") and edge in ("start", "stop"):
            if (name, edge) == ("epoch", "stop"):
                self._epoch(details.get("epoch_num"))
            samples = number(details.get("samples_count"))
            if edge == "start":
                self._began[name] = when, samples
            elif (began := self._began.pop(name, None)) is not None and when > began[0]:
                done = self._done(name, began[1], samples)
                if name == "epoch" and not done:
                    done = self._samples
                if done and done > 0:
                    self._point(1 if name == "block" else 3, None, done / (when - began[0]), (line, number_, when))

    def _step(self, step: float | None, when: float, line: bytes, number_: int) -> None:
        """Take the time since the step before, where losses of every few steps are printed."""
        before, self._stepped = self._stepped, (step, when) if step is not None else None
        if before is not None and step is not None and step > before[0] and when > before[1]:
            self._point(2, (when - before[1]) / (step - before[0]), None, (line, number_, when), step)

    def _epoch(self, number_: Any) -> None:
        """Count an epoch that ended; all ranks may print that one did."""
        run = self.runs[-1]
        if number_ is None or number_ != run.get("epoch"):
            run["epochs"] = run.get("epochs", 0) + 1
        run["epoch"] = number_

    def _done(self, name: str, before: float | None, samples: float | None) -> float | None:
        """Samples of an interval. Some programs count batches where it begins, and samples where it ends."""
        if samples is None or before is None:
            return None
        last = self._trained.get(name, 0.0)
        self._trained[name] = samples
        return samples - last if before < last < samples else samples - before

    def _point(
        self,
        which: int,
        seconds: float | None,
        rate: float | None,
        place: tuple[bytes, int, float],
        step: float | None = None,
    ) -> None:
        """Append a step; `step` of other events counts samples in most programs and epochs in others."""
        line, number_, when = place
        self.series[which].add((int(step) if step is not None else None, seconds, rate, None), line, number_, when)

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """One row a run, and the losses."""
        yield from self.losses.rows(facts, file)
        yield from self._power.rows(facts, file)
        for run in self.runs:
            init, start, stop = run.get("init_start"), run.get("run_start"), run.get("run_stop")
            ready = run.get("init_stop", start)
            yield MlperfRun(
                file=file, benchmark=run.get("submission_benchmark"), status=run.get("status") or _reached(run),
                init_s=ready - init if init is not None and ready is not None and ready >= init else None,
                seconds=stop - start if start is not None and stop is not None and stop >= start else None,
                samples=int(run["samples"]) if 0 <= run.get("samples", -1) < 1 << 62 else None, epochs=run.get("epochs"),
                quality=run.get("quality"), target=run.get("target"),
                ref=facts.evidence(file, run["number"], text_of(run["line"])),
            )  # fmt: skip


def _reached(run: Mapping[str, Any]) -> str | None:
    """`success` where a run stopped at its target and says nothing of its status, as programs of v0.5 may."""
    quality, target = run.get("quality"), run.get("target")
    if "run_stop" not in run or quality is None or target is None:
        return None
    return "success" if (quality <= target if run.get("falls") else quality >= target) else None
