"""The form in which kernels and drivers print a message, anchored at its first character.

A pattern of the log engine finds "Xid (" anywhere in a line, as a pasted log needs it. A verdict that drains a node needs
more: a user's program chooses text that kernels print, without any privilege:

- its name (`comm`, 15 bytes of any value), often at the very start: `EDAC MC0: 1 UE [4321]: segfault at 0 ip …`, or at the
  end of a line: `[   4321]  1000  4321    56    12   4096        0             0 Xid (0000): 79` (tasks that the OOM killer lists);
- names of files and control groups (255 bytes): `python[4321]: segfault at 0 ip … error 4 in NVRM: Xid (PCI:0000:48:00): 79[7f12…]`;
- the version that a client of the NVIDIA driver claims (64 bytes): `NVRM: API mismatch: the client has the version …`.

Hence a form starts with text that does not fit into a name, or goes on with text that no message about a program has.
"""

import re
from functools import cache

_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_GPU = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
_DEVICE = rf"[\w-]+ {_BDF}: "  # dev_printk: driver and address
_AMDGPU = _DEVICE + "(?:amdgpu: )?"
_NAMED = rf"[\w-]+ {_BDF}(?: [\w.-]+)?: "  # netdev_printk and mlx5: also the interface
_XID = rf"NVRM: Xid:? \((?:PCI:)?{_GPU}(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): \d+(?:,|$| caused by )"
_SXID = rf"nvidia-nvswitch\d+: SXid \(PCI:{_BDF}\): \d+, "
_LUSTRE = r"(?:LustreError|LNetError|LNet): (?:\d+:\d+:\(\w+\.c:\d+:\w+\(\)\) |\d+-\d+: [\w.-]+: (?!segfault))"

_FORMS = {
    "aer-error": _DEVICE + "AER: ",
    "amdgpu-bad-pages": _AMDGPU + "(?:RAS records:|Saved bad pages)",
    "amdgpu-init-failed": rf"(?:{_AMDGPU}|\[drm:amdgpu_device_[\w.]+ \[amdgpu\]\] \*ERROR\* )(?:Fatal error during|\w+init of IP block) ",
    "amdgpu-off-bus": _AMDGPU + "device lost from bus!",
    "amdgpu-poison": _AMDGPU + r"(?:\{\d+\} ?)?(?:poison is|RAS poison|GPU reset for) ",
    "amdgpu-reset": _DEVICE + r"(?:amdgpu: |\[drm\] )?(?:GPU|ASIC|device wedged, needs) ",
    "amdgpu-ring-timeout": rf"(?:{_DEVICE}(?:amdgpu: )?|\[drm:amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* )ring [\w.]+ timeout, ",
    "amdgpu-uncorrectable": _AMDGPU + r"(?:\{\d+\} ?)?(?:socket: |\d+ |[Uu]ncorrectable )",
    "amdgpu-xgmi-error": _AMDGPU + r"(?:XGMI: |(?:XGMI|WAFL)\S* PCS )",
    "disk-error": (
        r"(?:blk_update_request: |print_req_error: )?(?:I/O|critical medium|critical target) error, dev [\w-]+, sector \d"
        r"|nvme nvme\d+: (?:Disabling device|Removing) after "
    ),
    "filesystem-turned-read-only": r"EXT4-fs \([\w.-]+\): Remounting |XFS \([\w.-]+\): (?:Log I/O|Corruption of in-memory) ",
    "gpu-init-failed": rf"NVRM: (?:GPU {_GPU}: )?(?:RmInitAdapter|rm_init_adapter)(?: failed|: os\w+ failed, bailing out)",
    "gpu-off-bus": (
        rf"NVRM: GPU {_GPU}: GPU (?:has fallen off the bus|is lost)|NVRM: GPU at PCI:{_GPU}: |NVRM: The NVIDIA GPU {_GPU}"
        r"|NVRM: (?:installed in this system has )?fallen off the bus and is not responding"
    ),
    "iommu-fault": rf"DMAR: \[DMA (?:Read|Write)\b|(?:{_DEVICE})?AMD-Vi: Event logged \[IO_PAGE_FAULT ",
    "link-down": _NAMED,
    "lustre-error": _LUSTRE,
    "machine-check": r"(?:mce: |\{\d+\})?\[Hardware Error\]: ",
    "memory-error": r"EDAC MC\d+: \d+ [CU]E [\w ]*on \S*#",
    "mlx5-health": _NAMED,
    "mlx5-module-event": _NAMED,
    "nccl-segfault": r"[^\s'/]{1,15}\[\d+\]: segfault at [0-9a-f]+ ip [0-9a-f]+ sp [0-9a-f]+ error \d+ in lib[nr]ccl",
    "nfs-answers": r"nfs: server \S+ OK$",
    "nfs-not-responding": r"nfs: server \S+ not responding, (?:still trying|timed out)$",
    "nic-slot-power": _NAMED,
    "nic-transmit-stuck": (
        rf"(?:{_NAMED})?NETDEV WATCHDOG: (?:CPU: \d+: )?\S+ \(\w+\): transmit queue |{_NAMED}NETDEV WATCHDOG: CPU: \d+: transmit queue "
    ),
    "oom-kill-constraint": r"oom-kill:constraint=CONSTRAINT_\w+,nodemask=",
    "oom-killed-process": r"(?:(?:Memory cgroup o|O)ut of memory: )?Kill(?:ed)? process \d+ \(",
    "pcie-bandwidth-limited": _NAMED,
    "pcie-bus-error": _DEVICE + "(?:AER: )?PCIe Bus Error: ",
    "pcie-surprise-down": _DEVICE + r" *\[ ?5\] ",
    "peermem-invalid-context": r"nvidia-peermem nv_get_p2p_free_callback:\d+ ",
    "soft-lockup": (
        r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s!|(?:NMI )?watchdog: .*?hard LOCKUP on cpu \d"
        r"|(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected "
    ),
    "sxid-fatal": _SXID,
    "sxid-nonfatal": _SXID,
    "task-uninterruptible": r"task:.{1,15} {1,20}state:D {1,20}stack: *\d+ {1,20}pid: *\d+",
    "task-blocked": r"INFO: task .{1,15}:\d+ blocked for more than \d+ seconds",
    "xid": _XID,
    "xid-fatal": _XID,
    "xid-nonfatal": _XID,
}
KINDS = frozenset(_FORMS)
"""Patterns of the log engine that kernels print; the others of those files are words of tools."""

_OF_DEVICE = re.compile(rf"[\w-]+ ({_BDF})\b")
_BY_DEVICE = frozenset(kind for kind, form in _FORMS.items() if form.startswith((_DEVICE, _NAMED)))
_COMM = re.compile(r"(?<=, name=)((?:\\x[0-9a-f]{2}|.){1,15}), ")  # /dev/kmsg escapes what cannot be printed


@cache
def _compiled(kind: str) -> re.Pattern[str]:
    """Few of the forms are asked for on one node, and compiling all of them takes 10 ms."""
    return re.compile(_FORMS[kind])


def has_form(kind: str, text: str) -> bool:
    """Whether a message has the form in which its kernel or driver prints it."""
    return _compiled(kind).match(text) is not None


def has_device(kind: str, text: str, device: str | None) -> bool:
    """Whether a record of /dev/kmsg names the device in its dictionary (`DEVICE=+pci:0000:5d:00.0`) that its text names.

    `dev_printk` writes both; a message that printed a user's text has no dictionary, or that of another device.
    """
    address = _OF_DEVICE.match(text)
    return kind not in _BY_DEVICE or address is None or device == f"+pci:{address[1]}"


def split_name(text: str) -> tuple[str, str | None]:
    """The text of an Xid with a fixed process name, and the name, which a program chooses: `name=a, Fatal, Ch 08`."""
    match = _COMM.search(text)
    return (text[: match.start()] + "?" + text[match.end(1) :], match[1]) if match else (text, None)
