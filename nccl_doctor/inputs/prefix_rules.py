"""The prefixes that launchers, container tools, kernels and log services print, as a table.

A prefix is one entry of `RULES`: a regular expression whose named groups say what it means, and sample lines that the
tests feed. All expressions have bounded look-ahead, so matching one takes constant time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.prefix_checks import (
    HEAD,
    TAGGED,
    is_address,
    is_host,
    is_known,
    is_numbered,
    is_service,
    is_task,
)

Accept = Callable[[re.Match[str], int, frozenset[str]], bool]  # match, spaces before it, known hosts


@dataclass(eq=False)
class Rule:
    """One prefix. Groups of the expression: rank, weak (a task number that torchrun labels overrule), local, host, pid,
    stamp, asctime."""

    name: str
    lead: str  # what the line starts with: characters, `0` for a digit, `a:`, `a ` or `a[` for a word and its end
    expression: str
    samples: tuple[str, ...]  # whole lines that start with this prefix
    accept: Accept | None = None

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression: made at the first line that begins so, because most logs hold few kinds of prefixes."""
        return compiled(self.expression)


_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ASCTIME = rf"(?P<asctime>{_WEEKDAY} {_MONTH} [ \d]\d \d\d:\d\d:\d\d \d{{4}})"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_ONE_SPACE = r"(?: (?=\S))?"  # launchers that add no space may be followed by an indented line
# A program name that says nothing about the line, with the process that wrote it; others stay in the text.
_TAG = (
    r"(?:kernel: |(?:python|torchrun)[\d.]{0,8}\[(?P<pid>\d{1,10})\]: "
    rf"|[\w./@-]{{1,60}}\[\d{{1,10}}\]: (?={HEAD}))"
)
# Anything that cannot be ordinary text, for prefixes that would be too weak on their own.
_MARK = rf"{TAGGED}|{_DATE}"
_STRONG = rf"(?:{HEAD}|{_MARK})"
_SOMEBODY = rf"(?:{HEAD}|{TAGGED})"  # what says who wrote the line
_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE|SUCCESS)"


def _rule(name: str, lead: str, regex: str, *samples: str, accept: Accept | None = None) -> Rule:
    return Rule(name, lead, regex, samples, accept)


def _unindented(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    return not indent


RULES: tuple[Rule, ...] = (
    _rule(
        "mpi-tag",
        "[",
        # Open MPI [job,rank] and [name@job,rank], horovodrun [rank], SageMaker [1,mpirank:rank,host]
        r"\[(?:[^\[\]<>,\s]{1,200},)?(?:mpirank:)?(?P<rank>\d{1,7})(?:,(?P<host>[A-Za-z][\w.-]{0,252}))?\]"
        rf"(?:\[[^\[\]\s:]{{1,253}}:(?:(?P<pid>\d{{1,10}})|unknown)\])?<std(?:out|err|diag)>:{_ONE_SPACE}",
        "[1,3]<stdout>:node01:101:140 [0] NCCL INFO Using network IB",
        "[prterun-node01-4242@1,3]<stdout>: node01:101:140 [0] NCCL INFO Using network IB",
        "[1,3][node01:4242]<stderr>: Traceback (most recent call last):",
        "[1,3][unknown:unknown]<stdout>: the last line of a rank",
        "[3]<stderr>:Traceback (most recent call last):",
        "[1,mpirank:3,algo-1]<stdout>:algo-1:101:140 [0] NCCL INFO Using network AWS Libfabric",
    ),
    _rule(
        "torch-rank",
        "[",
        r"\[rank(?P<rank>\d{1,7})\]: ?",
        "[rank3]: Traceback (most recent call last):",
        "[rank3]:[E507 12:00:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught a timeout",
    ),
    _rule(
        "torchrun",  # `--role $(hostname -s):` puts the node in front
        "[",
        rf"\[(?:default|trainer|worker|role|local_rank|(?P<host>[A-Za-z][A-Za-z0-9-]{{0,60}}\d):(?=\d{{1,2}}\]))(?P<local>\d{{1,5}})\]:{_ONE_SPACE}",
        "[default3]:node01:101:140 [3] NCCL INFO Using network IB",
        "[node01:3]:Traceback (most recent call last):",
    ),
    _rule(
        "torchrun-template",
        "[",
        rf"\[[A-Za-z][A-Za-z_-]{{0,40}}\d{{1,5}}(?:\|\d{{1,7}}\]:|\]: ?(?={_STRONG})){_ONE_SPACE}",
        "[trainer3|11]:ncclInternalError: Internal check failed.",
        "[actor3]:node01:101:140 [3] NCCL INFO Using network IB",
    ),
    _rule(
        "kubectl",
        "[",
        r"\[pod/(?P<host>[\w.-]{1,253})/[\w.-]{1,253}\] ?",
        "[pod/job-worker-0/pytorch] job-worker-0:101:140 [0] NCCL INFO Using network Socket",
    ),
    _rule(
        "host-groups",  # of `inputs.exports.host_groups`
        "[",
        r"\[host/(?P<host>(?:task )?[\w.-]{1,253})\] ",
        "[host/node01] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    ),
    _rule(
        "stamp-brackets",
        "[",
        # Determined puts the first digits of the container and the rank behind it
        rf"\[(?P<stamp>{_DATE})\](?:(?:: | )(?:[0-9a-f]{{8}} (?:\[rank=(?P<rank>\d{{1,7}})\] )?\|\| (?:{_LEVEL}: )?)?|$|(?=\[))",
        "[2025-11-04T14:03:24.421666Z] 8de2ca81 [rank=3] || Traceback (most recent call last):",
        "[2025-11-04 14:03:24] node01:101:140 [0] init.cc:2053 NCCL WARN Cuda failure 'out of memory'",
        "[2025-11-04 14:03:24,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 101",
    ),
    _rule(
        "kmsg",
        "0",
        r"\d{1,3},\d{1,20},\d{1,20},[-cfd](?:,[\w=]{1,60}){0,3};",
        "6,3964,206764307,-;nvidia-nvswitch2: open (major=510)",
        "4,1188,17264937,-,caller=T1234;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    ),
    _rule(
        "dmesg",
        "[",
        rf"\[ {{0,12}}\+?\d{{1,12}}\.\d{{3,9}}\](?:\[ {{0,8}}[TC]\d{{1,8}}\])? (?:(?P<host>{_NAME}) kernel: )?",
        "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "[  +0.000007] pcieport 0000:3a:00.0: AER: Corrected error received",
        "[    1.234567][ T1234] NVRM: loading NVIDIA UNIX",
        "[12345.678901] node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    ),
    _rule(
        "ucx",
        "[",
        # host, process and thread, then a source file: Open MPI's `[host:pid] ` has no thread
        r"\[(?P<host>[^\s\[\]:]{1,253}):(?P<pid>\d{1,10}) {0,5}:\w{1,10}(?::\d{1,10})?\] {1,17}(?=[\w.]{1,40}\.[ch]p{0,2}:\d{1,5} )",
        "[node01:101  :0]     ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded",
        "[node01:101  :0:140]     ib_mlx5_log.c:177  Transport retry count exceeded",
    ),
    _rule(
        "asctime-brackets",
        "[",
        rf"\[{_ASCTIME}\](?:<std(?:out|err|diag)>: ?|(?=\[)| )",
        "[Mon May  6 12:00:00 2024] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "[Mon May  6 12:00:00 2024][1,3]<stdout>: node01:101:140 [0] NCCL INFO Using network IB",
        "[Mon May  6 12:00:00 2024]<stdout>: node01:101:140 [0] NCCL INFO Using network IB",
    ),
    _rule(
        "mpich-pattern",
        "[",
        rf"\[(?P<weak>\d{{1,7}})@(?P<host>{_NAME})\] ?",
        "[3@node01] node01:101:140 [0] NCCL INFO Using network IB",
    ),
    _rule(
        "mpich",
        "[",
        # `[0] NCCL INFO` is what remains of an NCCL head, so only something that has its own beginning may follow.
        rf"\[(?P<weak>\d{{1,7}})\] (?={_STRONG})",
        "[3] node01:101:140 [0] NCCL INFO Using network IB",
        "[3] [rank3]:[E507 12:00:00.123456789 ProcessGroupNCCL.cpp:629] Timeout",
    ),
    _rule(
        "ray",
        "(",
        r"\((?:[^()]{1,80}(?:\([^()]{0,40}\)[^()]{0,40})? )?pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[^\s()]{1,64}))?\) ?",
        "(RayTrainWorker pid=233, ip=10.1.0.4) node01:233:233 [0] NCCL INFO Using network Socket",
        "(pid=233) Traceback (most recent call last):",
        "(MapBatches(fn) pid=233) loading",
    ),
    _rule(
        "raylet",
        "(",
        r"\((?:raylet|gcs_server|autoscaler[^()]{0,40})(?:, ip=(?P<host>[^\s()]{1,64}))?\) ?",
        "(raylet, ip=10.1.0.4) Some workers of the worker process have not registered within the timeout.",
    ),
    _rule(
        "xml",
        "<",
        r'<std(?:out|err|diag) rank="(?P<rank>\d{1,7})">',
        '<stdout rank="3">node01:101:140 [0] NCCL INFO Using network IB</stdout>',
    ),
    _rule(
        "syslog-protocol",  # RFC 5424
        "<",
        rf"<\d{{1,3}}>\d (?P<stamp>{_DATE}) (?P<host>{_NAME})(?: [!-Z^-~]{{1,128}}){{3}} (?:-|\[[^\]]{{1,500}}\])(?: {{1,2}}|$)",
        "<4>1 2024-05-06T12:00:00.123456+02:00 node01 kernel - - - NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    ),
    _rule(
        "log-table",
        "|",
        rf"\| {{0,4}}(?P<stamp>{_DATE}) {{0,4}}\| ?",
        "  | 2024-11-28T07:42:14.532Z | algo-1:101:140 [0] NCCL INFO Using network AWS Libfabric",
    ),
    _rule(
        "runtime-stamp",
        "0",
        # what container runtimes write is followed by one blank: `| ` behind it belongs to a table
        r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{5,9}Z) (?:(?:stdout|stderr) [FP](?: |$))?",
        "2024-05-07T12:00:00.123456789Z stdout F node01:101:140 [0] NCCL INFO Using network IB",
        "2024-05-07T12:00:00.123456789Z | Diagnostic                | Result                                         |",
    ),
    _rule(
        "stamp",
        "0",
        rf"(?P<stamp>{_DATE})(?: (?:stdout|stderr) [FP](?: |$)| (?P<host>{_NAME}) {_TAG}| - | \| |: |\t| |$)",
        "2024-05-07T12:00:00.123Z Traceback (most recent call last):",
        "2024-05-07T12:00:00+00:00 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "2024-05-07 12:00:00,123 - INFO - step 10",
        "2024-05-07T12:00:00.884Z: [1,12]<stdout>:node01:101:140 [0] NCCL INFO Using network IB",
    ),
    _rule("known-host-digits", "0", r"(?P<host>[^\s:]{1,253}): ", accept=is_known),
    _rule(
        "srun",
        "0",
        r"(?P<weak>\d{1,6}):(?: (?!\S{1,40}: <[A-Z])|$)",  # not `2: eth0: <BROADCAST,…>` of ip
        " 3: node01:101:140 [0] NCCL INFO Using network IB",
        "127: Traceback (most recent call last):",
        accept=is_task,
    ),
    _rule(
        "ip",
        "0",
        r"(?P<host>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}): ",
        "10.1.0.4: node01:101:140 [0] NCCL INFO Using network IB",
        accept=is_address,
    ),
    _rule(
        "time-of-day",
        "0",
        # `12:00:00 [0] ` has the shape of an NCCL head, so it is left alone
        r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: - |: | {1,4})(?=\S)(?!\[-?\d{1,10}\] |NCCL )",
        "12:00:00.123 node01:101:140 [0] NCCL INFO Using network IB",
    ),
    _rule(
        "line-number",
        "0",
        rf"\d{{1,9}}(?:[:|]?\s{{1,4}}(?={_STRONG})|:(?=\d{{0,20}}[A-Za-z][^\s:]{{0,252}}:\d{{1,10}}:\d{{1,10}} \[|{_MARK}))",
        "  123  node01:101:140 [0] NCCL INFO Using network IB",
        "123:node01:101:140 [0] NCCL INFO Using network IB",
    ),
    _rule(
        "cat-n",
        "0",
        r"\d{1,9}\t",
        "   123\tTraceback (most recent call last):",
        accept=is_numbered,
    ),
    _rule(
        "syslog",
        "a ",
        rf"(?:{_MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})?|{_WEEKDAY} (?P<stamp>{_DATE})(?: [A-Z]{{2,5}})?) (?P<host>{_NAME}) "
        rf"(?:{_TAG}|(?=[\w./@-]{{1,60}}(?:\[\d{{1,10}}\])?: ))",
        "May 06 12:00:00 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "May  6 12:00:00 node01 python3[101]: node01:101:140 [0] NCCL INFO Using network IB",
        "May  6 12:00:00 node01 nv-fabricmanager[812]: starting",
        "Mon 2024-05-06 12:00:00.123456 CEST node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        accept=_unindented,
    ),
    _rule(
        "asctime",
        "a ",
        rf"{_ASCTIME}(?:(?=\[)|<std(?:out|err|diag)>:|: | - | |$)",
        "Tue May  7 12:00:00 2024[1,3]<stdout>:node01:101:140 [0] NCCL INFO Using network IB",
        "Tue May  7 12:00:00 2024<stdout>:node01:101:140 [0] NCCL INFO Using network IB",
        accept=_unindented,
    ),
    _rule(
        "compose",
        "a ",
        r"(?P<host>[A-Za-z][\w.-]{0,100}\d[\w.-]{0,100}) {1,40}\|(?: |$)",
        "worker-0  | node01:101:140 [0] NCCL INFO Using network Socket",
        accept=is_service,
    ),
    _rule(
        "label-with-host",
        "a ",
        rf"(?P<host>{_NAME}) (?P<weak>\d{{1,7}}): (?={_STRONG}|Traceback )",
        "node01.example.org 3: node01:101:140 [0] NCCL INFO Using network IB",
        accept=_unindented,
    ),
    _rule(
        "stern",
        "a ",
        rf"(?:[a-z0-9-]{{1,63}} )?(?P<host>[a-z0-9][a-z0-9.-]{{0,252}}) [a-z0-9][a-z0-9-]{{0,62}} (?={_STRONG})",
        "job-worker-0 pytorch job-worker-0:101:140 [0] NCCL INFO Using network Socket",
        accept=_unindented,
    ),
    _rule(
        "stern-text",
        "a ",
        # any text may follow, so pod and container must look like what training operators create
        r"(?P<host>[a-z0-9][a-z0-9.-]{0,250}-(?:\d{1,5}|[a-z0-9]{5})) (?:pytorch|tensorflow|mxnet|jax|mpi|trainer|training|train|worker|"
        r"launcher|master|leader|node|main|app|nccl-tests?|ray-head|ray-worker|vllm|sglang)(?:-\d{1,4})? ",
        "job-worker-0 pytorch Traceback (most recent call last):",
        accept=_unindented,
    ),
    _rule(
        "captured-stream",
        "a ",
        r"\S{1,120} \[std(?:out|err)\] ",
        "bench-1.0 [stderr] node01:101:140 [0] NCCL INFO Using network Socket",
        accept=_unindented,
    ),
    _rule(
        "dmesg-level",
        "a ",
        r"(?:kern|user|daemon|syslog) {1,4}:[a-z]{2,6} {0,3}: (?=\[)",
        "kern  :err   : [12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        accept=_unindented,
    ),
    _rule(
        "kail",
        "a[",
        r"[\w.-]{1,253}/(?P<host>[\w.-]{1,253})\[[\w.-]{1,253}\]: ",
        "default/job-worker-0[pytorch]: job-worker-0:101:140 [0] NCCL INFO Using network Socket",
        accept=_unindented,
    ),
    _rule(
        "nccl-tests",
        "a:",
        # what failed names the host, whatever the name looks like
        r"(?P<host>[^\s:]{1,253}): (?=Test (?:NCCL|CUDA) failure )",
        "gpu-a: Test NCCL failure common.cu:961 'unhandled system error'",
        accept=_unindented,
    ),
    _rule(
        "torch-rank-bare",
        "a:",
        r"rank(?P<rank>\d{1,7}):(?: |(?=\[[EWIF]))",
        "rank3: Traceback (most recent call last):",
    ),
    _rule(
        "host",
        "a:",
        r"(?P<host>[^\s:]{1,253}): ",
        "node01: Traceback (most recent call last):",
        "ip-10-1-0-4: [2024-05-07 12:00:00,123] [INFO] starting",
        accept=is_host,
    ),
    _rule(
        "grep",
        "a:",
        rf"[^\s:]{{1,300}}\.(?:log|out|err|txt)[:-](?:\d{{1,9}}[:-])?(?={_STRONG})",
        "job.log:12:node01:101:140 [0] NCCL INFO Using network IB",
        accept=_unindented,
    ),
    # What loggers of frameworks write, in front of what says who wrote the line; else their words belong to the message.
    _rule(
        "logger-brackets",
        "[",
        rf"\[[^\[\]<>]{{1,100}}\](?: ?\[[^\[\]<>]{{1,100}}\]){{0,4}}[:,]?(?: {_DATE})?(?: -| >>|:)? (?={_SOMEBODY})",
        "[2026-05-07 12:00:00,123] [INFO] [launch.py:133:main] node01:101:140 [0] NCCL INFO Using network IB",
        "[INFO|trainer.py:123] 2026-05-07 12:00:00,123 >> [rank3]: Traceback (most recent call last):",
        "[2026-05-07 12:00:00 TP3] [rank3]: Traceback (most recent call last):",
        "[TensorRT-LLM][INFO] [rank3]: Traceback (most recent call last):",
    ),
    _rule(
        "logger",
        "a ",
        rf"{_LEVEL} {{1,10}}(?:[\w.:,/ \[\]|=-]{{0,100}}?[\]:|>-] {{1,4}})?(?={_SOMEBODY})",
        "INFO 05-07 12:00:00 [parallel_state.py:903] [rank3]: Traceback (most recent call last):",
        "INFO     | mod.sub:func:12 - node01:101:140 [0] NCCL INFO Using network IB",
        "ERROR [rank3]: Traceback (most recent call last):",
    ),
    _rule(
        "glog",
        "a ",
        rf"[DIWEF]\d{{4}} \d\d:\d\d:\d\d(?:\.\d{{1,9}})? {{1,8}}\d{{1,10}} [\w./-]{{1,100}}:\d{{1,9}}\] (?={_SOMEBODY})",
        "I0507 12:00:00.123456  4242 worker.cc:12] [rank3]: Traceback (most recent call last):",
    ),
    _rule(
        "python-logger",
        "a:",
        rf"{_LEVEL}:[\w.]{{1,80}}: ?(?={_SOMEBODY})",
        "INFO:root:node01:101:140 [0] NCCL INFO Using network IB",
        "ERROR:train.main:[rank3]: Traceback (most recent call last):",
    ),
    _rule(
        "java-logger",
        "0",
        rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d {_LEVEL} [\w.$]{{1,100}}: (?={_SOMEBODY})",
        "26/05/07 12:00:00 INFO Worker: [rank3]: Traceback (most recent call last):",
    ),
    _rule(
        "actions",
        "a\t",
        rf"[^\t]{{1,100}}\t[^\t]{{1,100}}\t(?={_DATE} )",
        "train\tRun tests\t2026-05-07T12:00:00.1234567Z [rank3]: Traceback (most recent call last):",
    ),
)
