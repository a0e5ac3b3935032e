"""Advice as steps: sentences, and commands alone on their line so that they can be copied."""

import re
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

_CODE = r"(?<!`)`[^`\n]+`(?!`)"
# Clauses end, outside of code, with a mark before a blank, or with a comma before what is another step.
_MARK = r"(?:[.;:?!](?=\s|$)|,(?=\s(?:or|then|so|but|for\sexample)\b)|(?<=`\)),(?=\s))"
_CLAUSE = compiled(rf"(?:{_CODE}|(?!{_MARK}).)+(?:{_MARK})?\s*|{_MARK}\s*")
_LIST = rf"{_CODE}(?:(?:,? (?:and|or|then) |, ){_CODE})*"
# A clause that ends with commands and says nothing behind them: ``Compare `ip addr` and `ip route`.``
_ENDS_WITH_COMMANDS = compiled(rf"(?P<before>(?:(?!{_CODE}).)*)(?P<list>{_LIST})(?P<after>\)?[,.;:]?)\s*$")
_JOINER = compiled(r"(?:[\s,;(]|and|or|then)+")
_ASSIGNMENT = compiled(r"[A-Z][A-Z0-9_]*=\S*")
# Programs that administrators call in advice.
_PROGRAM = compiled(
    r"all_reduce_perf|amd-smi|apt|apt-get|ausearch|aws|bhist|cat|chcon|chmod|chronyc|compute-sanitizer|conda|"
    r"cpupower|crictl|dcgmi|df|dkms|dmesg|dmidecode|dnf|docker|dpkg|dracut|du|echo|edac-util|env|ethtool|export|"
    r"exportfs|fi_info|fi_pingpong|find|findmnt|firewall-cmd|free|fuser|gdb|getent|git|grep|horovodrun|"
    r"ib_write_bw|ibping|ibportstate|ibstat|ibv_devinfo|ip|iperf3|ipmitool|iptables|journalctl|kill|kubectl|lctl|"
    r"ldconfig|ldd|lfs|lnetctl|lscpu|ls|lsmod|lsof|lspci|mcelog|mlnx_qos|mlxconfig|mlxfwmanager|mlxfwreset|"
    r"mlxlink|modinfo|modprobe|mount|mpirun|mstflint|nc|ncclras|nccl-doctor|nfsiostat|nfsstat|nft|nm|nsys|"
    r"nvidia-ctk|nvidia-imex-ctl|nvidia-modprobe|nvidia-smi|nvme|ofed_info|ompi_info|perfquery|pgrep|ping|pip|ps|py-spy|python|"
    r"qacct|qstat|quota|ras-mc-ctl|rdma|readelf|resolvectl|restorecon|rm|rmmod|rocm-smi|rocminfo|rpcinfo|rpm|sacct|sbatch|"
    r"scontrol|semanage|setenforce|setpci|setsebool|show_gids|showmount|slabtop|smartctl|srun|ss|ssh|ssh-keygen|"
    r"ssh-keyscan|strings|sudo|swapoff|sysctl|systemctl|taskset|tcpdump|top|torchrun|touch|ucx_info|udevadm|ufw|"
    r"ulimit|umount|uname|unset|update-initramfs|virsh|which|xmllint|zgrep|\./\S+"
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
    prose = ""
    for clause in _CLAUSE.findall(line):
        match = _ENDS_WITH_COMMANDS.match(clause)
        commands = re.findall(_CODE, match["list"]) if match is not None else []
        alone = match is not None and not match["before"].strip() and prose.rstrip()[-1:] in ("", ".", ";", "?")
        if match is None or not _are_commands([code.strip("`") for code in commands], alone) or not _is_whole(match):
            prose += clause
            continue
        found += _prose(prose + match["before"], found)
        found += [Step(code.strip("`").strip(), True) for code in commands]
        prose = ""
    return found + _prose(prose, found, last=True)


def _is_whole(match: re.Match[str]) -> bool:
    """Whether brackets that open before commands close behind them, and around nothing else."""
    return match["before"].rstrip().endswith("(") == match["after"].startswith(")")


def _prose(text: str, found: list[Step], *, last: bool = False) -> list[Step]:
    """The text between two commands as a sentence: with a colon where it introduces the commands that follow."""
    text = text.strip()
    if not last:
        apart = text.endswith((",", ";", "."))  # what stands there is a step of its own
        text = "" if _JOINER.fullmatch(text) else text.rstrip(" ,;(")
        text += "" if not text or text[-1] in ".:!?" else "." if apart else ":"
    if found and text[:1].islower():
        text = text[0].upper() + text[1:]
    return [Step(text, False)] if text.strip(".:;, ") else []


def _are_commands(codes: list[str], alone: bool) -> bool:
    """Whether pieces of code are command lines: programs that administrators call, `alone` or one of them with arguments."""
    return all(map(_program, codes)) and (alone or any(len(_program(code)) > 1 for code in codes))


def _program(code: str) -> list[str]:
    """The words of a command line behind its assignments; none where it is not one."""
    words = code.split()
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words if words and _PROGRAM.fullmatch(words[0]) else []
