"""One session with NVML, through pynvml: everything about a node's GPUs at once, or cheap samples every second.

Answers are plain data, so that a captured tree can hold them (`nvml_ask`) and the screen can show them.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nccl_doctor.common import trusted

ABSENT = frozenset({2, 3, 6, 13, 21, 22, 25, 26, 27})  # this driver or GPU has no such value
LOST = 15
LIBRARY = "libnvidia-ml.so.1"
ALL_LINKS = 0xFFFFFFFF  # scope of NVLink fields: all links together
CODES = {
    1: "uninitialized", 4: "no-permission", 8: "power-cable", 9: "driver-not-loaded", 10: "timeout", 11: "interrupt",
    12: "library-not-found", 14: "inforom-corrupt", 15: "gpu-lost", 16: "reset-required", 17: "operating-system",
    18: "library-driver-mismatch", 19: "in-use", 20: "memory", 23: "resources", 28: "gpu-not-found", 29: "invalid-state",
    999: "unknown",
}  # fmt: skip
SLOW_EVERY = 10.0  # seconds between two readings of what an administrator or a display server changes
PCIE_TX, PCIE_RX = 197, 198  # fields: bytes sent and received since the driver was loaded
LINK_TX, LINK_RX = 138, 139  # KiB


class NvmlFailure(Exception):
    """A call that says something about the node. `code` is NVML's nvmlReturn_t."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.code, self.text = call, code, text


class GpuTask(NamedTuple):
    """A process on a GPU."""

    pid: int
    kind: str  # C compute, G graphics
    memory: int | None  # bytes; None where NVML may not say
    sm: int | None = None  # % of the SMs since the last sample; None where the driver does not count it


class GpuNow(NamedTuple):
    """One GPU at one moment. None = this GPU or driver does not say."""

    gpu: int
    moment: float  # seconds since the epoch
    util: int | None  # %
    util_memory: int | None  # %
    memory_used: int | None  # bytes
    memory_total: int | None  # bytes
    power: float | None  # W
    power_limit: float | None  # W
    temperature: int | None  # degrees C
    clock_sm: int | None  # MHz
    clock_memory: int | None  # MHz
    reasons: int | None  # bits of NVML's clock event reasons
    pcie_tx: float | None  # bytes/s
    pcie_rx: float | None  # bytes/s
    nvlink_tx: float | None  # bytes/s
    nvlink_rx: float | None  # bytes/s
    tasks: tuple[GpuTask, ...]
    error: str | None  # gpu-lost, … where the GPU did not answer


class _Slow(NamedTuple):
    """Values of a GPU that hardly change, and when they were read, by the monotonic clock."""

    at: float
    power_limit: int | None  # mW
    graphics: list[GpuTask]


class Nvml:
    """An open session. Raises NvmlFailure where NVML cannot be loaded or initialised."""

    def __init__(self) -> None:
        self.calls = 0
        path = trusted.library(LIBRARY)
        if path is None:
            raise NvmlFailure(
                "dlopen", 12, f"{LIBRARY}: No such file in a folder of the system that only root can write"
            )
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlFailure("dlopen", 12, " ".join(str(error).split())) from None
        try:
            import pynvml
        except ImportError as error:
            raise NvmlFailure("import pynvml", 12, str(error)) from None
        pynvml.nvmlLib = pynvml.nvmlLib or library  # it would load the library by name, along LD_LIBRARY_PATH
        self._nvml: Any = pynvml
        self._error: type[Exception] = pynvml.NVMLError
        self.must("nvmlInit")
        self._handles: dict[int, Any] = {}
        self._before: dict[int, tuple[float, list[int | None]]] = {}
        self._slow: dict[int, _Slow] = {}
        self._shares_at: dict[int, int] = {}  # time stamp of the newest share of each GPU, microseconds

    def close(self) -> None:
        self.get("nvmlShutdown")

    def must(self, call: str, *arguments: Any) -> Any:
        """The answer of a call. Raises NvmlFailure whatever is wrong."""
        self.calls += 1
        try:
            return getattr(self._nvml, call)(*arguments)
        except AttributeError:
            raise NvmlFailure(call, 13, "this pynvml has no such function") from None
        except self._error as error:
            code = int(getattr(error, "value", 999))
            raise NvmlFailure(call, code, str(error)) from None
        except (UnicodeDecodeError, ctypes.ArgumentError) as error:
            raise NvmlFailure(call, 3, str(error)) from None

    def get(self, call: str, *arguments: Any) -> Any:
        """The answer, or None where this driver or GPU has none. Raises NvmlFailure where the GPU is lost."""
        try:
            return self.must(call, *arguments)
        except NvmlFailure as failure:
            if failure.code == LOST:
                raise
            return None

    def first(self, *calls: tuple[Any, ...]) -> Any:
        """The answer of the first call that has one; newer names come before older ones."""
        for call in calls:
            parsed = self.get(*call)
            if parsed is not None:
                return parsed
        return None

    def count(self) -> int:
        return int(self.must("nvmlDeviceGetCount"))

    def handle(self, gpu: int) -> Any:
        """The device; NvmlFailure where it cannot be had."""
        if gpu not in self._handles:
            self._handles[gpu] = self.must("nvmlDeviceGetHandleByIndex", gpu)
        return self._handles[gpu]

    def fields(self, handle: Any, wanted: Sequence[int | tuple[int, int]]) -> list[int | None]:
        """Several field values in one call; each a field or (field, scope)."""
        parsed = self.get("nvmlDeviceGetFieldValues", handle, list(wanted))
        if parsed is None:
            return [None] * len(wanted)
        return [_value(field) for field in parsed]

    def structure(self, call: str, kinds: Sequence[str], handle: Any) -> Any:
        """The filled structure of a call that wants one: the newest of `kinds` that pynvml and the driver know."""
        for kind in kinds:
            made: Callable[[], Any] | None = getattr(self._nvml, kind, None)
            if made is None:
                continue
            filled = made()
            try:
                self.must(call, handle, ctypes.byref(filled))
            except NvmlFailure as failure:
                if failure.code == LOST:
                    raise
                if failure.code in (2, 25):  # another version of the structure may do
                    continue
                return None
            return filled
        return None

    def memory(self, handle: Any) -> tuple[int, int, int | None] | None:
        """Total, used, reserved in bytes; before driver 510 used includes what the driver reserves (reserved None)."""
        parsed = self.get("nvmlDeviceGetMemoryInfo", handle, getattr(self._nvml, "nvmlMemory_v2", None))
        if parsed is not None and hasattr(parsed, "reserved"):
            return int(parsed.total), int(parsed.used), int(parsed.reserved)
        parsed = parsed or self.get("nvmlDeviceGetMemoryInfo", handle)
        return (int(parsed.total), int(parsed.used), None) if parsed is not None else None

    def tasks(self, handle: Any) -> list[GpuTask]:
        return [*self._tasks(handle, "C"), *self._tasks(handle, "G")]

    def _tasks(self, handle: Any, kind: str) -> list[GpuTask]:
        name = f"nvmlDeviceGet{'Compute' if kind == 'C' else 'Graphics'}RunningProcesses"
        rows = []
        for one in self.first((f"{name}_v3", handle), (f"{name}_v2", handle)) or []:
            used = one.usedGpuMemory
            rows.append(GpuTask(int(one.pid), kind, int(used) if used is not None else None))
        return rows

    def shares(self, gpu: int, handle: Any) -> dict[int, int]:
        """The newest share of the SMs that each process used since the last call, in %; empty where nothing is counted."""
        newest: dict[int, tuple[int, int]] = {}
        for one in self.get("nvmlDeviceGetProcessUtilization", handle, self._shares_at.get(gpu, 0)) or []:
            if int(one.smUtil) <= 100:  # drivers answer with other numbers for processes that ended
                newest[int(one.pid)] = max(newest.get(int(one.pid), (0, 0)), (int(one.timeStamp), int(one.smUtil)))
        self._shares_at[gpu] = max([self._shares_at.get(gpu, 0), *(at for at, _ in newest.values())])
        return {pid: share for pid, (_, share) in newest.items()}

    def reasons(self, handle: Any) -> int | None:
        parsed = self.first(
            ("nvmlDeviceGetCurrentClocksEventReasons", handle), ("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        )
        return int(parsed) if parsed is not None else None

    def temperature(self, handle: Any) -> int | None:
        parsed = self.first(("nvmlDeviceGetTemperature", handle, 0), ("nvmlDeviceGetTemperatureV", handle, 0))
        return int(parsed) if parsed is not None else None

    def sample(self, *, pcie: bool = True) -> list[GpuNow]:
        """All GPUs now. Rates are those since the last sample, None in the first.

        Drivers before 545 do not count PCIe bytes; there each GPU's rate costs 40 ms of measuring, unless `pcie` is off.
        """
        return [self._now(gpu, pcie) for gpu in range(self.count())]

    def _now(self, gpu: int, pcie: bool) -> GpuNow:
        moment = time.time()
        try:
            handle = self.handle(gpu)
            memory = self.memory(handle)
            rates = self._rates(gpu, handle, moment, pcie)
            slow = self._read_slow(gpu, handle)
            tasks = [*self._tasks(handle, "C"), *slow.graphics]
            shares = self.shares(gpu, handle) if tasks else {}
            util = self.get("nvmlDeviceGetUtilizationRates", handle)
            power = self.get("nvmlDeviceGetPowerUsage", handle)
            limit = slow.power_limit
            return GpuNow(
                gpu=gpu, moment=moment, util=util and int(util.gpu), util_memory=util and int(util.memory),
                memory_used=memory[1] if memory else None, memory_total=memory[0] if memory else None,
                power=power / 1000 if power is not None else None,
                power_limit=limit / 1000 if limit is not None else None, temperature=self.temperature(handle),
                clock_sm=self.get("nvmlDeviceGetClockInfo", handle, 1),
                clock_memory=self.get("nvmlDeviceGetClockInfo", handle, 2), reasons=self.reasons(handle),
                pcie_tx=rates[0], pcie_rx=rates[1], nvlink_tx=rates[2], nvlink_rx=rates[3],
                tasks=tuple(task._replace(sm=shares.get(task.pid)) for task in tasks), error=None,
            )  # fmt: skip
        except NvmlFailure as failure:
            self._handles.pop(gpu, None)
            self._slow.pop(gpu, None)
            error = CODES.get(failure.code, "unknown")
            return GpuNow(
                gpu=gpu, moment=moment, util=None, util_memory=None, memory_used=None, memory_total=None,
                power=None, power_limit=None, temperature=None, clock_sm=None, clock_memory=None, reasons=None,
                pcie_tx=None, pcie_rx=None, nvlink_tx=None, nvlink_rx=None, tasks=(), error=error,
            )  # fmt: skip

    def _read_slow(self, gpu: int, handle: Any) -> _Slow:
        """Power limit and graphics processes, read again every SLOW_EVERY seconds: two of twelve calls."""
        slow = self._slow.get(gpu)
        if slow is None or time.monotonic() - slow.at >= SLOW_EVERY:
            limit = self.get("nvmlDeviceGetEnforcedPowerLimit", handle)
            slow = self._slow[gpu] = _Slow(time.monotonic(), limit, self._tasks(handle, "G"))
        return slow

    def _rates(self, gpu: int, handle: Any, moment: float, pcie: bool) -> list[float | None]:
        now = self.fields(handle, [PCIE_TX, PCIE_RX, (LINK_TX, ALL_LINKS), (LINK_RX, ALL_LINKS)])
        then, old = self._before.get(gpu, (moment, now))
        self._before[gpu] = moment, now
        rates: list[float | None] = [None] * 4
        if moment > then:
            for index, (a, b) in enumerate(zip(old, now, strict=True)):
                if a is not None and b is not None and b >= a:
                    rates[index] = (b - a) * (1024 if index > 1 else 1) / (moment - then)
        if pcie and now[0] is None:
            for index in (0, 1):
                parsed = self.get("nvmlDeviceGetPcieThroughput", handle, index)
                rates[index] = parsed * 1024.0 if parsed is not None else None
        return rates


def _value(field: Any) -> int | None:
    """The number of a field value, by its type (nvmlValueType_t); None where the GPU has none."""
    if field.nvmlReturn:
        return None
    name = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}.get(field.valueType)
    return int(getattr(field.value, name)) if name else None
