"""Codes and transports: Xids, SXids, results, CUDA errors, completion states, signals, and what `via` says in a log."""

from collections.abc import Iterator
from typing import Any

from markup import code, page, prose, table

from nccl_doctor.knowledge import entries, transports

CODES = {
    "codes/xid.md": "Xid: errors of a GPU in the kernel log",
    "codes/sxid.md": "SXid: errors of an NVSwitch",
    "codes/cuda.md": "CUDA and HIP errors",
    "codes/nccl.md": "Results of NCCL",
    "codes/ib.md": "Completion states of InfiniBand and RoCE",
    "codes/processes.md": "Signals and exit codes",
}
TRANSPORTS = "transports.md"
MACHINES = "machines.md"
_FATAL = {
    "always": "It always stops the whole NVLink fabric of the node.",
    "often": "The driver reports it as fatal: traffic of the link ends, and the GPU at the other end prints Xid 74.",
    "never": "The driver reports it as not fatal.",
    "unknown": "",
}
_CLASS = {
    "app": "usually the program", "hardware": "hardware", "driver": "driver or firmware", "nvlink": "NVLink",
    "cleanup": "consequence of something else",
}  # fmt: skip
_ROLE = {
    "first": "It can be the first error of a connection.",
    "echo": "A secondary error: something failed before.",
    "none": "",
}


def pages() -> Iterator[tuple[str, str]]:
    """(place, Markdown) of every page about codes."""
    for file, parts in (
        ("codes/xid.md", _xids()), ("codes/sxid.md", _sxids()), ("codes/cuda.md", _cuda()), ("codes/nccl.md", _results()),
        ("codes/ib.md", _states()), ("codes/processes.md", _processes()),
    ):  # fmt: skip
        yield file, page(f"# {CODES[file]}", *parts)
    yield TRANSPORTS, page("# Transports", *_transports())
    yield MACHINES, page("# GPUs and machines", *_machines())


def _xids() -> Iterator[str]:
    yield (
        "The driver writes `NVRM: Xid (PCI:0000:3b:00): 79, …` to the kernel log. Read the first Xid of a GPU in time; later ones "
        "often follow from it. Inside containers the kernel log is not visible. `nccl-doctor explain 'Xid 79'` prints one."
    )
    for entry in entries("xid"):
        yield f"## Xid {entry['code']}: {prose(entry['name'])} {{ #xid-{entry['code']} }}"
        yield f"{code(entry['mnemonic'])} · {_CLASS[entry['class']]} · **{entry['severity']}**"
        yield prose(entry["action"])
        rows = [row for row in entries("nvlink_status") if row["xid"] == entry["code"]]
        if rows:
            cells = (
                (
                    ", ".join(map(code, row["units"])),
                    hex(row["status"]),
                    "yes" if row["fatal"] else "no",
                    prose(row["meaning"]),
                    prose(row["check"]),
                )
                for row in rows
            )
            yield table(("unit", "error bits", "fatal", "meaning", "next"), cells)


def _sxids() -> Iterator[str]:
    yield (
        "The line says Fatal or Non-fatal. Fatal: jobs on the NVLink fabric end; the node needs a reset of all GPUs and switches, "
        "or a reboot. Non-fatal: the fabric continues; watch how often it occurs. The link number leads to the GPU at the other "
        "end; look for [Xid 74](xid.md#xid-74) there and at the Fabric Manager's log."
    )
    for entry in entries("sxid"):
        yield f"## SXid {entry['code']} {{ #sxid-{entry['code']} }}"
        yield " ".join(
            filter(
                None,
                [code(entry["mnemonic"]), f"· **{entry['severity']}** ·", prose(entry["name"]), _FATAL[entry["fatal"]]],
            )
        )


def _cuda() -> Iterator[str]:
    for entry in entries("cuda_error"):
        names = [code(entry[key]) for key in ("driver", "hip") if entry.get(key)]
        yield f"## {code(entry['name'])} ({entry['code']}) {{ #cuda-{entry['code']} }}"
        yield " ".join(
            filter(None, [f"Also {', '.join(names)}." if names else "", prose(entry["meaning"]), prose(entry["check"])])
        )


def _results() -> Iterator[str]:
    yield "In a series of `file:line -> code` lines only the first, the deepest, shows where it failed."
    for entry in entries("nccl_result"):
        yield f"## {code(entry['name'])} ({entry['code']}) {{ #nccl-{entry['code']} }}"
        yield f"{prose(entry['meaning'])} {prose(entry['check'])}"


def _states() -> Iterator[str]:
    for entry in entries("ib_status"):
        yield f"## {code(entry['name'])} ({entry['code']}) {{ #ib-{entry['code']} }}"
        yield " ".join(filter(None, [prose(entry["meaning"]), _ROLE[entry["role"]], prose(entry["check"])]))
    yield "## Vendor errors"
    rows = (
        (f"{row['code']} ({row['code']:#x})", ", ".join(map(str, row["status"])), prose(row["meaning"]))
        for row in entries("ib_vendor")
    )
    yield table(("vendor error", "with status", "meaning"), rows)


def _processes() -> Iterator[str]:
    for entry in entries("signal"):
        yield f"## {entry['name']} (signal {entry['code']}, exit code {128 + entry['code']}) {{ #{entry['name']} }}"
        yield f"{prose(entry['meaning'])} {prose(entry['check'])}"
    for entry in entries("exit_code"):
        yield f"## Exit code {entry['code']} {{ #exit-{entry['code']} }}"
        yield f"{prose(entry['meaning'])} {prose(entry['check'])}"


def _transports() -> Iterator[str]:
    yield (
        "What stands behind `via` in a line such as `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`. "
        "`nccl-doctor explain 'via NET/IB/0/GDRDMA'` prints one."
    )
    for entry in entries("transport"):
        name = "/".join(filter(None, [entry["transport"], entry["method"]]))
        yield f"## {code(name)} {{ #{name.replace('/', '-').replace(' ', '-')} }}"
        yield (
            f"**{entry['severity']}** · {prose(entry['meaning'])}"
            if entry["severity"] != "none"
            else prose(entry["meaning"])
        )
    yield "## Suffixes"
    yield table(
        ("text", "meaning"), ((code(entry["text"]), prose(entry["meaning"])) for entry in entries("transport_suffix"))
    )
    yield "## Whole words of a line"
    samples = ("P2P/CUMEM/read", "SHM/direct/direct", "NET/IB/0/GDRDMA", "NET/Socket/0")
    read = ((code(text), transports.parse_transport(text)) for text in samples)
    yield table(("text", "meaning"), ((text, prose(" ".join(found.sentences))) for text, found in read if found))


def _machines() -> Iterator[str]:
    yield "What `preflight` and the rules expect of known GPUs and machines. A value that is unknown here is not checked."
    yield "## GPUs"
    columns = ("memory", "power", "links", "link_speed", "pcie", "width", "bar1")
    head = (
        "GPU",
        "memory (MiB)",
        "power limit (W)",
        "NVLinks",
        "GB/s a link and direction",
        "PCIe generation",
        "lanes",
        "BAR1 (MiB)",
        "source",
    )
    yield table(
        head,
        (
            (prose(row["model"]), *(str(row.get(name, "")) for name in columns), f"[vendor]({row['source']})")
            for row in entries("gpu_models")
        ),
    )
    yield "## Machine types"
    rows = (
        (code(row["type"]), f"[source]({row['source']})", "; ".join(_expected(*one) for one in row["expect"].items()))
        for row in entries("machine_types")
    )
    yield table(("type", "source", "expected"), rows)


def _expected(part: str, values: dict[str, Any]) -> str:
    """`8 gpu (model H100 80GB HBM3)`."""
    more = ", ".join(f"{name} {value}" for name, value in values.items() if name != "count")
    return prose(f"{values.get('count', '')} {part}{f' ({more})' if more else ''}")
