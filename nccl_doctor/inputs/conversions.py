"""Files that nothing here reads, and what turns each into something that is read, or at least into text for people."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.streams import ForeignInput


class Conversion(NamedTuple):
    """One kind of file: how it begins, or how it is called where its bytes do not tell."""

    what: str
    command: str  # with FILE for the file
    begins: re.Pattern[bytes] | None = None  # searched in the first bytes; anchored
    called: re.Pattern[str] | None = None  # searched in the name


def _begins(pattern: bytes) -> re.Pattern[bytes]:
    return compiled(pattern, re.DOTALL)


def _called(pattern: str) -> re.Pattern[str]:
    return compiled(pattern, re.IGNORECASE)


CONVERSIONS = (
    Conversion(
        "a report of Nsight Systems",
        "`nsys export --type sqlite FILE` writes what is read here, and so does `nsys stats FILE > FILE.txt`",
        called=_called(r"\.(?:nsys-rep|qdrep|qdstrm)$"),
    ),
    Conversion(
        "a profile of nvprof",
        "`nvprof -i FILE --print-gpu-summary 2> FILE.txt` writes what is read here",
        called=_called(r"\.(?:nvvp|nvprof)$"),
    ),
    Conversion("a report of Nsight Compute", "`ncu --import FILE` prints it", called=_called(r"\.ncu-rep$")),
    Conversion(
        "a journal of systemd",
        "`journalctl --file FILE -k -o short-iso > kernel.txt` writes what is read here",
        _begins(rb"\ALPKSHHRH"),
    ),
    Conversion(
        "a core dump",
        "`gdb PROGRAM FILE -batch -ex 'thread apply all bt'` prints the stacks",
        _begins(rb"\A\x7fELF.{12}\x04\x00"),
    ),
    Conversion("samples of perf", "`perf report --stdio -i FILE` prints them", _begins(rb"\APERFILE2")),
    Conversion("samples of sysstat", "`sar -A -f FILE` prints them", _begins(rb"\A(?:\x96\xd5|\xd5\x96)")),
    Conversion(
        "a capture of network packets",
        "`tcpdump -nn -r FILE` prints it",
        _begins(rb"\A(?:\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x4d\x3c\xb2\xa1|\x0a\x0d\x0d\x0a)"),
    ),
    Conversion(
        "an execution trace of PyTorch (Chakra)",
        "it holds operators, not times of GPUs: `torch.profiler.profile(...)` with `on_trace_ready=tensorboard_trace_handler(DIR)`"
        " on every rank writes the trace that is read here; `chakra_trace_link` joins both for simulators",
        _begins(
            rb'\A\s*\{(?:(?=.{0,2000}?"schema"\s*:\s*"\d[\w.-]{0,40}")(?=.{0,2000}?"nodes"\s*:\s*\[)|\s*"workload_graph"\s*:\s*\[)'
        ),
        _called(r"\.et$"),
    ),
    Conversion(
        "a topology of hwloc (lstopo)",
        "`NCCL_TOPO_DUMP_FILE=topo.xml` and `nvidia-smi topo -m` write what is read here; `lstopo -i FILE --of console` prints it",
        _begins(rb"\A\s{0,20}(?:<\?xml[^>]{0,200}>\s{0,20})?(?:<!DOCTYPE topology[^>]{0,200}>\s{0,20})?<topology\b"),
    ),
    Conversion(
        "a trace of the profiler of JAX and TensorFlow",
        "https://ui.perfetto.dev and `xprof --logdir DIR` show it; the step lines that the program printed are read here",
        _begins(
            rb'\A\s*\{(?=.{0,200}?"traceEvents"\s*:)(?=.{0,4000}?"args"\s*:\s*\{\s*"name"\s*:\s*"/(?:host|device):[A-Z]{3,8}(?:[ :"]))'
        ),
        _called(r"(?:\.xplane\.pb|/perfetto_trace\.json)(?:\.gz)?$"),
    ),
    Conversion(
        "a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot)",
        "`python -m torch.cuda._memory_viz trace_plot FILE -o FILE.html` shows who allocated what, and so does"
        " https://pytorch.org/memory_viz; for an out-of-memory error the log with its message is read here",
        _begins(
            rb"\A\x80[\x02-\x05](?:\x95.{8})?\}(?:q.|r.{4}|\x94)?\(?(?:\x8c\x08|X\x08\x00\x00\x00)segments"
            rb"|\A\x80[\x02-\x05](?:\x95.{8})?\}.{0,16}(?:\x8c\x0d|X\x0d\x00\x00\x00)device_traces"
        ),
    ),
    Conversion(
        "the store of Aim",
        "`aim.Repo(DIR).get_run(HASH).metrics()` gives each metric, and its `dataframe()` with `to_csv` writes a table that is read here",
        called=_called(r"(?:^|/)\.aim/(?:meta|seqs)/.{1,200}/(?:MANIFEST-\d{1,12}|\d{1,12}\.(?:sst|log))$"),
    ),
    Conversion(
        "the record of a run by SwanLab",
        "`swanlab watch DIR` shows it; what the training itself printed is read here",
        _begins(rb"\A:SWL"),
    ),
)  # fmt: skip


def of_file(head: bytes, name: str, *, known: bool = False) -> ForeignInput | None:
    """Why a file is not read, with what converts it; None for files of other kinds. `name` may be that of an archive's member.

    Where the content is `known` to a reader the name counts for nothing.
    """
    for kind in CONVERSIONS:
        begins = kind.begins is not None and kind.begins.search(head)
        if begins or (not known and kind.called is not None and kind.called.search(name)):
            return ForeignInput(name, f"is {kind.what}, which is not read here; {kind.command}")
    return None


class Section(NamedTuple):
    """The output of a command inside a text: from the line of its heading to that before the next heading."""

    command: str
    first: int
    last: int | None  # None for the last section, which ends with the text
    advice: str


_HEADING = compiled(  # `=== lspci ===`, `### lspci`, `+ lspci`, `$ lspci`, `[root@node01 ~]# lspci`, `root@node01:~# lspci`
    r"(?:={3,10} {0,3}|#{2,6} {1,3}|\+{1,3} |\$ |\[[^\]@ ]{1,40}@[^\]]{1,80}\][$#] {0,3}|[\w.-]{1,40}@[\w.-]{1,80}:[^$#\n]{0,80}[$#] )"
    r"([A-Za-z/][^\n=]{0,200}(?:=(?!=)[^\n=]{0,200})?)"
)
_ON_NODE = "`nccl-doctor preflight --save node.tar` on that node keeps what is needed of it"
_SECTIONS = {
    "lspci": _ON_NODE, "lstopo": _ON_NODE, "numactl": _ON_NODE, "lscpu": _ON_NODE, "ip": _ON_NODE,
    "ifconfig": _ON_NODE, "sysctl": _ON_NODE, "modinfo": _ON_NODE, "mlxconfig": _ON_NODE,
    "sminfo": "`ibstat` on the nodes is read here",
    "top": "`nccl-doctor stacks` shows what the ranks do", "strace": "`nccl-doctor stacks` shows what the ranks do",
}  # fmt: skip


_QUIET = compiled(  # commands that set something, or run another one whose output follows
    r"(?:sudo )?(?:\S{0,200}/)?(?:sysctl (?:-[wqp]|--system|[\w.]{1,200}=)"
    r"|ip (?:-\S{1,20} ){0,5}\w{1,20} (?:set|add|del|delete|flush|replace|change)\b"
    r"|ifconfig \S{1,60} \S|numactl (?!-s\b|-H\b|--show|--hardware|\|))"
)


def sections(text: str) -> Iterator[Section]:
    """The sections of a pasted text that hold output of commands that no reader is made for."""
    heads = [
        (number, head[1].strip()) for number, line in enumerate(text.split("\n"), 1) if (head := _HEADING.match(line))
    ]
    ends = [number - 1 for number, _ in heads[1:]]
    for (number, command), end in zip(heads, [*ends, None], strict=False):
        program = command.removeprefix("sudo ").split()[0].rpartition("/")[2]
        if program in _SECTIONS and end != number and _QUIET.match(command) is None:
            yield Section(command, number, end, _SECTIONS[program])
