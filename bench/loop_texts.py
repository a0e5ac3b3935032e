"""Endless text of commands that people let run beside a job in a loop, and of timers of ranks, for `format_texts.py`.

The numbers are as wide as they come: a column of a real table has values of several widths.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

_DMON = Path(__file__).parent.parent / "fixtures" / "gpu" / "dmon.txt"
_chance = random.Random(1)


def _clock(second: int) -> str:
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _spread(most: float) -> float:
    """A number below `most`, small ones as often as those ten times as large."""
    return float(most ** _chance.random())


def lfs_df() -> Iterator[str]:
    """`lfs df` of 64 targets each minute."""
    while True:
        yield "UUID                   1K-blocks        Used   Available Use% Mounted on"
        for target in range(64):
            name, at = ("MDT0000", "MDT:0") if not target else (f"OST{target:04x}", f"OST:{target}")
            used = int(_spread(170_000_000_000))
            share = used * 100 // 173_100_000_000
            yield f"lus-{name}_UUID   173100000000 {used:11d} {173_100_000_000 - used:11d} {share:3d}% /lus[{at}]"
        yield "\nfilesystem_summary:  11078400000000 5241600000000 5836800000000  48% /lus\n"


def lctl_imports() -> Iterator[str]:
    """`lctl get_param osc.*.import` of 64 targets in a loop."""
    while True:
        for target in range(64):
            client = f"lus-OST{target:04x}-osc-ffff8f1a2b3c4000"
            yield f"osc.{client}.import=\nimport:\n    name: {client}\n    target: lus-OST{target:04x}_UUID\n    state: FULL"
            yield "    connect_flags: [ write_grant, server_lock, version, request_portal, max_byte_per_rpc, early_lock_cancel ]"
            yield f"    connection:\n       failover_nids: [ 10.1.0.{target}@o2ib ]\n       connection_attempts: 1\n       generation: 1"
            yield f"    rpcs:\n       inflight: {_chance.randrange(8)}\n       unregistering: 0\n       timeouts: 0"
            yield f"       avg_waittime: {_spread(90_000):.0f} usec"
            yield f"    read_data_averages:\n       bytes_per_rpc: {_spread(4_000_000):.0f}\n       MB_per_sec: {_spread(2000):.2f}"


def nfsiostat() -> Iterator[str]:
    """`nfsiostat 1` of two mounts."""
    titles = "ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors"
    while True:
        for path in ("/home", "/scratch"):
            yield f"fs01:{path} mounted on {path}:\n\n           ops/s       rpc bklog"
            yield f"{_spread(9000):16.3f}{0:16.3f}\n"
            for what in ("read: ", "write:"):
                yield f"{what}             {titles}"
                numbers = "".join(f"{_spread(9000):16.3f}" for _ in range(3))
                times = "".join(f"{_spread(90):16.3f}" for _ in range(3))
                yield f"        {numbers}{0:9d} (0.0%){times}{0:9d} (0.0%)"
            yield ""


def sar_network() -> Iterator[str]:
    """`sar -n DEV 1` of twelve interfaces."""
    yield "Linux 6.1.0 (node07)   08/11/2026      _x86_64_        (96 CPU)\n"
    for second in count():
        yield f"{_clock(second)}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil"
        for name in ("lo", "eth0", "eth1", "eth2", "eth3", *(f"ib{port}" for port in range(6)), "docker0"):
            carried = [_spread(90_000) if name not in ("eth3", "docker0") else 0.0 for _ in range(4)]
            cells = "".join(f"{cell:10.2f}" for cell in (*carried, 0, 0, 0, carried[2] / 1000))
            yield f"{_clock(second)} {name:>12}{cells}"
        yield ""


def dool() -> Iterator[str]:
    """`dool -tcdn`."""
    yield "-----time----- ----total-usage---- -dsk/total- -net/total-\n     time     |usr sys idl wai stl| read  writ| recv  send"
    for second in count():
        busy = int(_spread(60))
        shown = "|".join(f"{_spread(900):4.0f}k{_spread(900):5.0f}M" for _ in range(2))
        yield f"11-08 {_clock(second)}|{busy:3d}{busy // 3:4d}{100 - busy - busy // 3:4d}   0   0|{shown}"


def dmon_of_a_lost_gpu() -> Iterator[str]:
    """`nvidia-smi dmon -o DT` of eight GPUs, one of which does not answer."""
    yield "\n".join(_DMON.read_text().splitlines()[:2])
    for second in count():
        for gpu in range(8):
            values = (
                _spread(700),
                40 + _spread(40),
                None,
                _spread(100),
                _spread(100),
                0,
                0,
                0,
                0,
                2619,
                1770,
                _spread(80_000),
                12,
                0,
            )
            cells = "".join(" " + ("-" if value is None else f"{value:.0f}").rjust(6) for value in values)
            yield f" 20240908   {_clock(second)} {gpu:6d}{' '.join([''] + ['  ERR!'] * 14) if gpu == 3 else cells} "


def rank_timers() -> Iterator[str]:
    """Megatron-LM's timers, `--timing-log-option all`, of 64 ranks."""
    yield "using world size: 64, data-parallel size: 8, context-parallel size: 1, hierarchical context-parallel sizes: None, tensor size: 8"
    for step in count(1):
        took = 1800 + _spread(90)
        yield f" iteration {step:8d}/ 9000000 | elapsed time per iteration (ms): {took:.1f} | lm loss: 2.1E+00 |"
        yield "times across ranks (ms):"
        for name in ("forward-backward", "forward-compute", "backward-compute", "optimizer"):
            yield f"  {name}:"
            for rank in range(64):
                yield f"     rank {rank:2d}: {900 + _spread(90):.2f}"


def own_parts() -> Iterator[str]:
    """A loop of anybody's own that prints the parts of a step on each of 64 ranks."""
    for step in count(1):
        for rank in range(64):
            parts = ", ".join(
                f"{name}: {_spread(900) / 1000:.3f}s" for name in ("data", "forward", "backward", "optimizer")
            )
            yield f"[rank {rank}] step {step}: {parts}"


def own_losses() -> Iterator[str]:
    """A loop of anybody's own that prints a step and a loss behind the time, and no rate."""
    for step in count():
        clock = (
            f"2026-11-{2 + step // 172_800 % 28:02d} {_clock(step // 2)},{step % 2 * 500 + _chance.randrange(200):03d}"
        )
        yield f"{clock} INFO train.py:88 step {step} loss {_spread(9):.4f} gnorm {_spread(4):.2f} lr {_spread(9e-4):.2e}"


def own_records() -> Iterator[str]:
    """A loop of anybody's own that keeps its numbers in JSON lines."""
    for step in count():
        told = {
            "step": step,
            "loss": round(_spread(9), 4),
            "tokens_per_sec": round(_spread(9000), 1),
            "mfu": round(_spread(0.5), 3),
        }
        yield json.dumps({"ts": 1_790_000_000 + step, **told})


def own_service() -> Iterator[str]:
    """What services and queues of anybody's own print, with a time each."""
    for line in count():
        pod = f"trainer-{_chance.randrange(999)}-{_chance.randrange(16**10):010x}"
        yield f'ts=2026-11-02T{_clock(line // 20)}Z level=info msg="placed" pod={pod} node=n{line % 64} took={_spread(900):.2f}ms'
        clock = f"{_clock(line // 20)}.{_chance.randrange(10**6):06d}"
        yield f"I1102 {clock} {line % 8} queue.cc:214] batch of {_spread(4096):.0f} in {_spread(9000):.0f} us"


def squeue() -> Iterator[str]:
    """`squeue` each half minute: 300 jobs that run, of which one ends now and then, and 100 that wait."""
    first = 4_810_000
    names = ("train-ll", "pretrain", "eval", "sft-7b", "bash", "dl-proc")
    users = ("ada", "grace", "mlteam01", "edsger")
    for second in count(0, 30):
        first += _chance.randrange(3) == 0
        yield "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
        for job in range(first, first + 400):
            who = f"{job:18d}       gpu {names[job % 6]:>8} {users[job % 4]:>8}"
            passed = second + 30 * (4_811_000 - job)
            clock = f"{passed // 86_400}-{_clock(passed)}" if passed >= 86_400 else _clock(passed)
            if job < first + 300:
                yield f"{who}  R {clock:>10} {1 + job % 16:6d} node[{job % 97 + 1:03d}-{job % 97 + 1 + job % 16:03d}]"
            else:
                yield f"{who} PD       0:00 {1 + job % 16:6d} ({'Resources' if job % 3 else 'Priority'})"


LOOPS: dict[str, Callable[[], Iterator[str]]] = {
    "lfs df": lfs_df,
    "lctl get_param": lctl_imports,
    "nfsiostat": nfsiostat,
    "sar -n DEV": sar_network,
    "dool": dool,
    "dmon with ERR!": dmon_of_a_lost_gpu,
    "rank timers": rank_timers,
    "rank timers, own": own_parts,
    "squeue loop": squeue,
    "own losses": own_losses,
    "own records": own_records,
    "own service": own_service,
}
