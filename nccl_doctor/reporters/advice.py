"""Advice as steps: sentences, and commands alone on their line so that they can be copied."""

import re
from typing import NamedTuple

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_CLAUSE_ENDS = re.compile(r"\s*$|[.;,:)]|\s*(?:and|or|then)\b|\s\(")
_BEFORE = re.compile(r"(?:[\s,;(]|\b(?:and|or|then|with|by|as|run)$)+$")
_AFTER = re.compile(r"^(?:[\s,;:.)]|(?:and|or|then)\b)+")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
# Programs that administrators call in advice.
_PROGRAM = re.compile(
    r"all_reduce_perf|amd-smi|apt|apt-get|ausearch|aws|bhist|cat|chcon|chmod|chronyc|compute-sanitizer|conda|"
    r"cpupower|crictl|dcgmi|df|dkms|dmesg|dmidecode|dnf|docker|dpkg|dracut|du|echo|edac-util|ethtool|export|"
    r"exportfs|fi_info|fi_pingpong|find|findmnt|firewall-cmd|free|fuser|gdb|getent|git|grep|horovodrun|"
    r"ib_write_bw|ibping|ibportstate|ibstat|ibv_devinfo|ip|iperf3|ipmitool|iptables|journalctl|kill|kubectl|lctl|"
    r"ldconfig|ldd|lfs|lnetctl|lscpu|ls|lsmod|lsof|lspci|mcelog|mlnx_qos|mlxconfig|mlxfwmanager|mlxfwreset|"
    r"mlxlink|modinfo|modprobe|mount|mpirun|mstflint|nc|ncclras|nccl-doctor|nfsiostat|nfsstat|nft|nm|nsys|"
    r"nvidia-ctk|nvidia-modprobe|nvidia-smi|nvme|ofed_info|ompi_info|perfquery|pgrep|ping|pip|ps|py-spy|python|"
    r"qacct|qstat|quota|ras-mc-ctl|rdma|readelf|resolvectl|restorecon|rm|rmmod|rocm-smi|rpcinfo|rpm|sacct|sbatch|"
    r"scontrol|semanage|setenforce|setpci|setsebool|showmount|slabtop|smartctl|srun|ss|ssh|ssh-keygen|"
    r"ssh-keyscan|strings|sudo|swapoff|sysctl|systemctl|taskset|tcpdump|top|torchrun|touch|ucx_info|udevadm|ufw|"
    r"ulimit|umount|uname|unset|update-initramfs|virsh|which|\./\S+"
)


class Step(NamedTuple):
    """One line of advice."""

    text: str
    is_command: bool


def steps(advice: str) -> list[Step]:
    """The lines of a rule's advice. A command that ends a clause gets a line of its own, without backticks.

    Lines that the rule indents are commands already. A command in the middle of a sentence stays there.
    """
    found: list[Step] = []
    for line in advice.strip("\n").split("\n"):
        if line.startswith("  ") and line.strip():
            found.append(Step(line.strip().strip("`") if line.strip().count("`") == 2 else line.strip(), True))
        elif line.strip():
            found += _of_line(line.strip())
    return found


def _of_line(line: str) -> list[Step]:
    found: list[Step] = []
    start = 0
    for code in _CODE.finditer(line):
        if not _is_command(code[1]) or not _CLAUSE_ENDS.match(line, code.end()):
            continue
        found += _sentence(line[start : code.start()], bool(found), before_command=True)
        found.append(Step(code[1].strip(), True))
        start = code.end()
    return found + _sentence(line[start:], bool(found), before_command=False)


def _sentence(text: str, follows: bool, *, before_command: bool) -> list[Step]:
    """The prose between two commands, without the words that joined it to them."""
    if follows:
        text = _AFTER.sub("", text)
        if text.count(")") > text.count("("):
            text = text.replace(")", "", 1)
    if before_command:
        text = _BEFORE.sub("", text)
        if text.count("(") > text.count(")"):
            text = text[: text.rfind("(")] + text[text.rfind("(") + 1 :]
        text += "" if not text or text[-1] in ".:!?" else ":"
    text = text.strip()
    return (
        [
            Step(
                text[0].upper() + text[1:] if follows and text[0].islower() and not text.startswith("`") else text,
                False,
            )
        ]
        if text.strip(".:;, ")
        else []
    )


def _is_command(code: str) -> bool:
    """Whether a piece of code is a command line: a program that administrators call, with arguments."""
    words = code.split()
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return len(words) > 1 and _PROGRAM.fullmatch(words[0]) is not None
