"""Checks of prefixes that an expression alone cannot make: is a word in front of a line a host, a service, a task number.

Each gets the match, the number of blanks before it, and the names that are known to be hosts.
"""

import re
from functools import lru_cache

from nccl_doctor.common.expressions import compiled

HEAD = r"[^\s\[\]<>()|]{1,300}:\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] |NCCL )"
# what launchers and PyTorch print to say who wrote a line
TAGGED = r"\[[\w,.:@-]{1,200}\]<std(?:out|err)>:|\[(?:rank|default)\d{1,7}\]:"
_written_at = compiled(rf"{HEAD}|{TAGGED}").match

# Words with a number behind them that are not hosts: devices, counters, formats, hardware models, file names.
# Of devices also those that udev names by where they are, as `rocep3s0f0` and `enP2p1s0`.
_NOT_A_HOST = compiled(
    r"(?i:(?:cpu|rank|nranks|step|epoch|iter|iteration|stage|phase|layer|block|batch|bs|top|acc|loss|lr|level|line|case|bug|"
    r"test|group|device|dev|cuda|cudnn|nccl|rccl|nvidia|nvme|nvlink|link|mlx|eth|ens|eno|enp|ib|ibp|ibs|bond|team|br|docker|"
    r"veth|vxlan|lo|tun|wlan|em|hsi|hsn|cxi|ipogif|opa|irdma|qedr|hns|rxe|siw|efa|rdmap|roce|roceo|roces|sd[a-z]|md|dm|loop|ata|usb|pci|pcie|hub|tcp|udp|ipv|ip|sha|crc|fp|bf|tf|int|"
    r"uint|float|utf|iso|latin|v|ver|version|python|perl|gcc|sm|ext|nfs|numa|zone|p|r|recall|map|arg|param|tensor|input|"
    r"output|dim|shape|axis|part|section|table|figure|option|method|channel|ring|tree|port|qp|slot|bank|bus|error|"
    r"warning|exception|attempt|retry|try|run|job|task|pid|tid|thread|pool|worker|shard|chunk|opt|gen|seq|hop|key|val|"
    r"value|arr|col|row|tmp|ret|err|rc|debug|fan|temp|power|curr|in|energy|pwm)\d[\w.]*|.{0,40}(?:error|exception|warning)\d*|"
    r"(?:en|eth|ib|roce|rdma|irdma-roce|wl)(?:p\d{1,5})?(?:p\d{1,3}s\d{1,3}|x[0-9a-f]{12})[a-z0-9]{0,12}|"
    r"ext4-fs|nvidia-nvswitch\d+|x86(?:_64)?|(?:i|e)\d{3,4}e?|l[1-4]|b?float\d+|utf-\d+|iso-.*|sha-?\d+|cuda-.*|p2p|h2d|"
    r"d2h|d2d|h2h|s3|ec2|v-\d|c10d?|i2c|k8s|base64|lib.*|(?:slurm|srun|sbatch|mpi|orte|prte|pmix).*)"
    r"|[A-Z][a-z]{1,30}[A-Z][A-Za-z]{1,60}-\d{10}"  # a rule of SageMaker, with the second in which its job was made
    r"|[A-Z]{1,2}\d{1,4}[A-Z]?|.*\.(?:\d+|py|so|cc|cpp|cu|c|h|hpp|sh|ya?ml|json|txt|log|out|err|pt|ko|conf|xml|rs|go)"
)
# `gpu7: 97 %` is about a device; in front of what programs print as whole lines, `gpu7` is a node.
_DEVICE_OR_NODE = compiled(r"(?i:gpu)\d{1,2}")
_WHOLE_LINE = compiled(
    r" ?[|+][-=+ ]|\[?\d{4}-\d\d-\d\d[T ]\d\d:|\[\d{4}/|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} |Traceback \(most |=+NVSMI LOG|"
    r"\[(?:INFO|WARNING|ERROR)\]|[A-Z][A-Z0-9_]{2,60}=|GPU \d{1,4}: [A-Z]|(?:INFO|WARNING|ERROR)[: ]|(?:srun|slurmstepd|torchrun|mpirun)\b|"
    r"Filesystem {2,}|/dev/\S{1,80} +\d|tmpfs +\d|[\d.]{7,15}:/\S{0,80} +\d|(?:Mem|Swap): {2}| {8,14}total {2,}|max locked memory +\("
)
_HOST_LIKE = compiled(r"(?=[^\s\d]{0,60}\d)[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*")
# What the kernel prints begins with no host: `[   12.345678] irdma0: `, `node01 kernel: irdma0: `.
_KERNEL_BEFORE = compiled(r"(?:\bkernel: |\[ {0,8}\d{1,12}\.\d{6}\] )$")
# A number belongs to a counter, and `(g=0)` and `(groupid=0` to a job of fio.
_NUMBER_NEXT = compiled(
    r"[-+~]?\.?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?[%A-Za-z]{0,3}(?:[\s,]|$)|\((?:g|groupid)=\d{1,6}[,)]"
)
_DISTANCES = compiled(r"(?: 10|(?: \d\d|[12]\d\d)(?: (?: \d\d|[12]\d\d)){0,63}  10)(?: (?: \d\d|[12]\d\d)){0,63} ?$")


MOST_TOLD = 7  # characters of a word whose kind depends on which digits it has, as those of `ext4-fs` and `l2`


@lru_cache(1 << 14)
def kind_of(word: str) -> tuple[bool, bool]:
    """All that the checks below ask of the digits of a word."""
    return _NOT_A_HOST.fullmatch(word) is not None, _DEVICE_OR_NODE.fullmatch(word) is not None


def is_host(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    """`word: ` is a host if it is known to be one, or has letters and digits and is not a device, counter or file."""
    word = found["host"]
    if indent:
        return False
    if word in hosts or _written_at(found.string, found.end()):
        return True
    if _KERNEL_BEFORE.search(found.string, max(found.start() - 25, 0), found.start()):
        return False
    is_other, is_device = kind_of(word)
    if is_device:
        return _WHOLE_LINE.match(found.string, found.end()) is not None
    if is_other or not _HOST_LIKE.fullmatch(word):
        return False
    return not _NUMBER_NEXT.match(found.string, found.end())


def is_address(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    return not indent


def is_known(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    return not indent and found["host"] in hosts


def is_service(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    """`word | ` is a compose service or container; tables have such lines too, so the word must look like a host."""
    word = found["host"]
    return not indent and (word in hosts or not kind_of(word)[0])


def is_task(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    """srun pads to the width of the largest task number; `0: [a, b]` is Horovod's list of what a rank waits for.

    `  0:  10  21` is a row of the distances of `numactl -H`.
    """
    start = found.end()
    if indent + len(found["weak"]) > 6:
        return False
    if found.string.startswith((" ", "1", "2"), start) and _DISTANCES.match(found.string, start):
        return False
    return not (found.string.startswith("[", start) and found.string.find("]", start) == len(found.string) - 1)


def is_numbered(found: re.Match[str], indent: int, hosts: frozenset[str]) -> bool:
    """`cat -n` writes the number right-aligned in six columns."""
    return indent + found.end() - found.start() - 1 == 6 or (not indent and found.end() - found.start() > 7)
