"""Launcher prefixes: every rule's samples, stacks of two, lines that must stay whole."""

import re
import re._constants as sre_constants
import re._parser as sre_parse
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_rules import RULES, Rule
from nccl_doctor.inputs.prefixes import NOTHING, Label, clean, split
from nccl_doctor.log import nccl_header

LINE = "node01:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"

# name -> (text in front, text behind, what it says)
PREFIXES: dict[str, tuple[str, str, Label]] = {
    "mpi": ("[1,3]<stdout>:", "", Label(rank=3)),
    "mpi-stderr": ("[1,127]<stderr>:", "", Label(rank=127)),
    "mpi5": ("[prterun-node01-4242@1,3]<stdout>: ", "", Label(rank=3)),
    "mpi5-detail": ("[1,3][node01:4242]<stdout>: ", "", Label(rank=3, pid=4242)),
    "mpi-time": ("Tue May  7 12:00:00 2024[1,3]<stdout>:", "", Label(rank=3, stamp=1715083200.0)),
    "mpi5-time": ("[Tue May  7 12:00:00 2024]<stdout>: ", "", Label(stamp=1715083200.0)),
    "mpi5-time-tag": ("[Tue May  7 12:00:00 2024][1,3]<stdout>: ", "", Label(rank=3, stamp=1715083200.0)),
    "mpi-time-only": ("Tue May  7 12:00:00 2024<stdout>:", "", Label(stamp=1715083200.0)),
    "mpi-xml": ('<stdout rank="3">', "</stdout>", Label(rank=3)),
    "horovodrun": ("[3]<stdout>:", "", Label(rank=3)),
    "horovodrun-time": ("Tue May  7 12:00:00 2024[3]<stderr>:", "", Label(rank=3, stamp=1715083200.0)),
    "sagemaker": ("[1,mpirank:3,algo-1]<stdout>:", "", Label(rank=3, host="algo-1")),
    "srun": ("3: ", "", Label(rank=3)),
    "srun-padded": ("   3: ", "", Label(rank=3)),
    "mpich": ("[3] ", "", Label(rank=3)),
    "mpich-pattern": ("[3@gpu013] ", "", Label(rank=3, host="gpu013")),
    "torchrun": ("[default3]:", "", Label(local_rank=3)),
    "torchrun-template": ("[trainer3|11]:", "", Label()),
    "torch": ("[rank3]: ", "", Label(rank=3)),
    "torch-tight": ("[rank3]:", "", Label(rank=3)),
    "ray": ("(RayTrainWorker pid=233, ip=10.1.0.4) ", "", Label(host="10.1.0.4", pid=233)),
    "ray-local": ("(RayWorkerWrapper pid=233) ", "", Label(pid=233)),
    "ray-folded": ("(Worker_TP1 pid=233) ", " [repeated 14x across cluster]", Label(pid=233, repeat=14)),
    "ray-folded-first": (
        "(W pid=233) ",
        " [repeated 2x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log"
        " deduplication, or see https://docs.ray.io/en/master/ray-logging.html for more options.)",
        Label(pid=233, repeat=2),
    ),
    "kubectl": ("[pod/job-worker-0/pytorch] ", "", Label(host="job-worker-0")),
    "stern": ("job-worker-0 pytorch ", "", Label(host="job-worker-0")),
    "kail": ("default/job-worker-0[pytorch]: ", "", Label(host="job-worker-0")),
    "rfc3339": ("2024-05-07T12:00:00.5Z ", "", Label(stamp=1715083200.5)),
    "rfc3339-nano": ("2024-05-07T12:00:00.123456789Z ", "", Label(stamp=1715083200.123456)),
    "rfc3339-zone": ("2024-05-07T14:00:00+02:00 ", "", Label(stamp=1715083200.0)),
    "cri": ("2024-05-07T12:00:00.500000000Z stdout F ", "", Label(stamp=1715083200.5)),
    "cloudwatch": ("  | 2024-05-07T12:00:00.500Z | ", "", Label(stamp=1715083200.5)),
    "compose": ("worker-0  | ", "", Label(host="worker-0")),
    "pdsh": ("gpu013: ", "", Label(host="gpu013")),
    "pdsh-pod": ("ip-10-1-0-4: ", "", Label(host="ip-10-1-0-4")),
    "pdsh-ip": ("10.1.0.4: ", "", Label(host="10.1.0.4")),
    "python-logging": ("2024-05-07 12:00:00,500 - ", "", Label(stamp=1715083200.5)),
    "nccl-time": ("[2024-05-07 12:00:00] ", "", Label(stamp=1715083200.0)),
    "dmesg": ("[12345.678901] ", "", Label()),
    "dmesg-date": ("[Tue May  7 12:00:00 2024] ", "", Label(stamp=1715083200.0)),
    "journald": ("May 07 12:00:00 gpu013 python3[77]: ", "", Label(host="gpu013", pid=77)),
    "journald-iso": (
        "2024-05-07T12:00:00+0000 gpu013 torchrun[77]: ",
        "",
        Label(host="gpu013", pid=77, stamp=1715083200),
    ),
    "clock": ("12:00:00 ", "", Label()),
    "cat-n": ("   123  ", "", Label()),
    "grep-n": ("123:", "", Label()),
    "grep-file": ("logs/job.log:123:", "", Label()),
    "indent": ("    ", "", Label()),
}
# These are told from text by the NCCL head or the like behind them, or stand at the very start of a line.
OUTER_ONLY = {"cat-n", "grep-n", "grep-file", "indent", "stern", "mpi-xml", "ray-folded", "ray-folded-first"}
NEEDS_HEAD = {"cat-n", "grep-n", "grep-file", "indent", "stern", "mpich", "clock", "journald", "journald-iso"}
STRONG = {"mpi", "horovodrun", "torch", "torch-tight", "rfc3339", "rfc3339-nano"}


@pytest.mark.parametrize("name", PREFIXES)
def test_prefix_alone(name: str) -> None:
    before, behind, label = PREFIXES[name]

    assert (label, LINE) == split(before + LINE + behind)


@pytest.mark.parametrize("outer", PREFIXES)
def test_prefixes_stacked(outer: str) -> None:
    before, behind, _ = PREFIXES[outer]

    for inner in STRONG if outer in NEEDS_HEAD else PREFIXES.keys() - OUTER_ONLY:
        label, text = split(before + PREFIXES[inner][0] + LINE + behind)

        assert (text, inner) == (LINE, inner)
        if PREFIXES[inner][2].rank is not None and "srun" not in inner and "mpich" not in inner:
            assert label.rank == PREFIXES[inner][2].rank


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_samples_of_rules(rule: Rule) -> None:
    for sample in rule.samples:
        _, text = split(sample)

        assert text != sample
        assert text
        assert rule.regex.match(sample.lstrip())
        assert (NOTHING, text) == split(text)


def test_every_rule_has_a_sample() -> None:
    assert [rule.name for rule in RULES if not rule.samples and rule.name != "known-host-digits"] == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "Epoch 1: loss 3",
        "INFO: something",
        "debug1: Exit status 127",
        "Error: x",
        "RuntimeError: CUDA error: out of memory",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "srun: error: n013: task 5: Killed",
        "srun: error: n013: tasks 0-3: Exited with exit code 1",
        "slurmstepd: error: *** STEP 123.0 ON n013 CANCELLED AT 2024-05-07T12:00:00 DUE TO TIME LIMIT ***",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 42 RX Short Error Rate",
        "mlx5_core 0000:5d:00.0: Port module event: module 0, Cable unplugged",
        "mlx5_0: link down",
        "pcieport 0000:3a:00.0: AER: Corrected error received",
        "GPU0: Tesla V100",
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)",
        "H100: ok",
        "eth0: link becomes ready",
        "bond0: now running without any active interface",
        "step10: done",
        "top1: 76.1",
        "recall5: 0.3",
        "python3: can't open file 'train.py'",
        "libnccl.so.2: cannot open shared object file",
        "train2.py: error: unrecognized arguments",
        "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000",
        "0: [grad.0, grad.1, grad.2]",
        "[0] NCCL INFO bootstrap.cc:701 -> 6",
        "[0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer 10.1.0.4<36138>",
        "[E507 12:00:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout",
        "[Rank 3] Watchdog caught collective operation timeout",
        "[node01:4242] *** Process received signal ***",
        "[2019-05-07 12:00:00.123: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted",
        "[INFO] [launch.py:315:sigkill_handler] Killing subprocess 101",
        "[host-a][101:140][0][init.cc:100] NCCL INFO text",
        "NCCL version 2.21.5+cuda12.4",
        "|   0  Tesla V100-SXM2...  Off  | 00000000:3B:00.0 Off |                    0 |",
        " iteration       10/     100 | consumed samples:        80 | elapsed time per iteration (ms): 100.0 |",
        "  8589934592    2147483648     float     sum      -1",
        "rank 3: all ranks are done",
        "{'loss': 1.5, 'epoch': 1}",
        '{"log": 3}',
        "*** Process received signal ***",
    ],
)
def test_ordinary_text_stays(line: str) -> None:
    assert (NOTHING, line) == split(clean(line))


@pytest.mark.parametrize(
    "head",
    [
        "9018:886322:886322 [1] ",
        "12:34:56 [0] ",
        "a:b:9:2640:2640 [0] ",
        "node-01_a.example:1:1 [-1] ",
        "0:1:1 [0] ",
        "rank3:1:1 [0] ",
        "2024-node:1:1 [0] ",
        "worker-0:7:7 [32766] ",
    ],
)
def test_heads_of_strange_hosts_stay(head: str) -> None:
    line = head + "NCCL INFO Using network IB"

    assert (NOTHING, line) == split(line)
    assert (Label(rank=10), line) == split("10: " + line)
    assert (Label(rank=10), line) == split("[1,10]<stdout>:" + line)


HOSTS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?", fullmatch=True)
NUMBERS = st.integers(0, 4194304)


@given(HOSTS, NUMBERS, NUMBERS, st.integers(-1, 40000), st.text(), st.sampled_from(sorted(PREFIXES)))
@examples(300)
def test_any_head_survives_any_prefix(host: str, pid: int, tid: int, dev: int, text: str, name: str) -> None:
    if name == "grep-n" and not re.match(r"\d*[A-Za-z]", host):
        return  # `123:9018:1:1 [0]`: a line number, or a host that is called `123:9018`
    line = clean(f"{host}:{pid}:{tid} [{dev}] NCCL INFO .{text}.")
    before, behind, label = PREFIXES[name]

    assert (NOTHING, line) == split(line)
    if name.startswith("mpi-xml"):
        return  # entities in the text are decoded
    got, rest = split(before + line + behind)
    assert line == rest
    assert label == got


@given(
    st.lists(st.one_of(st.sampled_from([prefix[0] for prefix in PREFIXES.values()]), st.text()), max_size=6).map(
        "".join
    )
)
@examples(500)
def test_anything_goes_and_twice_is_once(line: str) -> None:
    tidy = clean(line)
    assert tidy == clean(tidy)

    label, text = split(tidy)

    assert (NOTHING, text) == split(text)
    assert isinstance(label, Label)


@given(st.text(alphabet="\x1b[]0;1m>│* \r\x07a3:)(", max_size=40))
@examples(500)
def test_clean_twice_is_once(line: str) -> None:
    tidy = clean(line)

    assert tidy == clean(tidy)
    assert "\x1b" not in tidy
    assert "\r" not in tidy


def test_tracebacks_keep_their_indentation() -> None:
    assert split('[rank0]:   File "train.py", line 3')[1] == '  File "train.py", line 3'
    assert split('3:   File "train.py", line 3')[1] == '  File "train.py", line 3'


def test_innermost_rank_counts_and_a_task_is_no_rank_under_torchrun() -> None:
    assert split("0: [rank5]: Traceback (most recent call last):")[0].rank == 5
    assert Label(local_rank=2) == split("1: [default2]:Traceback (most recent call last):")[0]
    assert split(" 0:     10: a layer of a model")[0].rank == 0


def test_ray_twice() -> None:
    label, text = split(
        f"(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=233, ip=10.1.0.4) {LINE} [repeated 2x across cluster]"
    )

    assert (Label(host="10.1.0.4", pid=233, repeat=2), LINE) == (label, text)


def test_ray_in_colour() -> None:
    assert split(clean(f"\x1b[36m(RayTrainWorker pid=233)\x1b[0m {LINE}"))[1] == LINE
    assert split(clean(f"[36m(RayTrainWorker pid=233)[0m {LINE}"))[1] == LINE


def test_docker_json() -> None:
    line = '{"log":"\\u001b[32m[rank1]: failed\\u001b[0m\\n","stream":"stderr","time":"2024-05-07T12:00:00.5Z"}'

    assert (Label(rank=1, stamp=1715083200.5), "failed") == split(line)


def test_xml_entities() -> None:
    label, text = split(
        '<stdout rank="3">node01:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.4&lt;0&gt;&#010;</stdout>'
    )

    assert (label.rank, text) == (3, "node01:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.4<0>")


def test_kernel_lines() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    assert (Label(host="gpu013"), xid) == split(f"May 07 12:00:00 gpu013 kernel: {xid}")
    assert (Label(host="gpu013"), xid) == split(f"May  7 12:00:00 gpu013 kernel: [12345.678901] {xid}")
    assert (Label(host="gpu013", stamp=1715083200.0), xid) == split(f"2024-05-07T12:00:00+00:00 gpu013 kernel: {xid}")
    assert (Label(), xid) == split(f"kern  :err   : [12345.678901] {xid}")
    assert (Label(stamp=1715083200.0), xid) == split(f"2024-05-07T12:00:00,000000+00:00 {xid}")


def test_program_names_that_matter_stay() -> None:
    assert split("May  6 12:00:00 node01 nv-fabricmanager[812]: starting")[1] == "nv-fabricmanager[812]: starting"


def test_known_hosts() -> None:
    assert split("gpu-a: Killed") == (NOTHING, "gpu-a: Killed")
    assert (Label(host="gpu-a"), "Killed") == split("gpu-a: Killed", frozenset({"gpu-a"}))
    assert (Label(host="9018"), "Killed") == split("9018: Killed", frozenset({"9018"}))


@pytest.mark.parametrize(
    ("raw", "tidy"),
    [
        ("text\r\n", "text"),
        ("\x1b[1;31mError\x1b[0m", "Error"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"),
        ("│ text   │", "text"),
        ("╭──── Traceback (most recent call last) ────╮", "Traceback (most recent call last)"),
        ("> > quoted", "quoted"),
        ("> │ both │", "both"),
        ("**node01:1:1 [0] INFO text**", "node01:1:1 [0] INFO text"),
        ("a\tb", "a\tb"),
        ("\ufefftext", "text"),
        ("a\xa0b", "a b"),
        ("[0m node01", " node01"),
        ("timeout [30m] passed", "timeout [30m] passed"),
        ("a -> b", "a -> b"),
    ],
)
def test_clean(raw: str, tidy: str) -> None:
    assert tidy == clean(raw)


@pytest.mark.parametrize(
    ("left", "device", "source", "line"),
    [
        ("[0] ncclGroupEnd:123 ", 0, "ncclGroupEnd", 123),
        ("ncclGroupEnd:123 ", None, None, None),
        ("int ncclFoo():88 ", None, None, None),
        ("ncclResult_t ncclIbInit(void (*)(int)):88 ", None, None, None),
        ("void net::connect(int):88 ", None, None, None),
        ("[1] nccl_net_ofi_create_plugin:213 ", 1, "nccl_net_ofi_create_plugin", 213),
        ("misc/socket.cc:345 ", None, "misc/socket.cc", 345),
        ("misc/strongstream.hip:5 ", None, "misc/strongstream.hip", 5),
    ],
)
def test_a_function_or_a_file_is_no_host(left: str, device: int | None, source: str | None, line: int | None) -> None:
    head = nccl_header.parse_header(left)
    assert (None, None, device, source, line) == (head.host, head.pid, head.dev, head.source, head.line)


@pytest.mark.parametrize("host", ["node01", "nccl-node1", "nccl", "gpu_a.example.org", "10.1.0.4"])
def test_a_host_and_a_process_are_a_head(host: str) -> None:
    head = nccl_header.parse_header(f"{host}:101 ")
    assert (host, 101) == (head.host, head.pid)


@pytest.mark.parametrize(
    "piece",
    [
        "0: ",
        "[rank1]: ",
        "(a pid=1) ",
        "[",
        "> ",
        "│",
        "\x1b[",
        "\x1b]",
        "[0",
        "1:",
        '{"log":"',
        "a-1 b ",
        "2024-",
        "a:",
    ],
)
@pytest.mark.timeout(120)  # what takes the square of a million characters takes longer than that
def test_long_hostile_lines_are_split(piece: str) -> None:
    line = piece * (1_000_000 // len(piece))

    _, text = split(clean(line))

    assert len(text) <= len(line)


# Lines that differ in digits only


def _digits_named(tree: Any) -> Iterator[str]:
    """The digits that an expression tells from other digits."""
    match tree:
        case (sre_constants.LITERAL | sre_constants.NOT_LITERAL, int(code)):
            yield from chr(code) if chr(code).isdigit() else ""
        case (sre_constants.RANGE, (int(low), int(high))):
            if low <= ord("9") and high >= ord("0") and (low > ord("0") or high < ord("9")):
                yield f"{chr(low)}-{chr(high)}"
        case tuple() | list() | sre_parse.SubPattern():
            for part in tree:
                yield from _digits_named(part)


def test_the_search_for_named_digits_finds_them() -> None:
    assert ["1", "2-9"] == sorted(_digits_named(sre_parse.parse(r"a(?:b[2-9]|(?=c1))?|\d[0-9]+x")))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_rule_asks_which_digit_it_is(rule: Rule) -> None:
    assert [] == list(_digits_named(sre_parse.parse(rule.expression)))


_STARTS = [sample for rule in RULES for sample in rule.samples] + [
    "gpu1: x", "ext4: x", "node1: node2: x", "l4: x", "web1 | x", "p2p: on", "rank3: c10d: x", "x86: y", "node1: gpu7: z"
]  # fmt: skip


def _next(digits: Iterator[str], _: re.Match[str]) -> str:
    return next(digits)


@given(st.sampled_from(_STARTS), st.lists(st.sampled_from("0123456789"), min_size=1, max_size=12), st.integers(1, 3))
def test_lines_that_differ_in_digits_are_split_as_if_alone(line: str, digits: list[str], times: int) -> None:
    for _ in range(times):
        line = re.sub(r"\d", partial(_next, cycle(digits)), line)
        digits = digits[1:] + digits[:1]
        together = split(line)
        prefixes._found_in.clear()

        assert together == split(line)
        split(re.sub(r"\d", digits[0], line))
