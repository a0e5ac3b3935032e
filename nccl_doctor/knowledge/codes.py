"""Numbers that programs print: completion states, Xid, results, CUDA errors, signals, exit codes."""

from typing import Any

from nccl_doctor.knowledge import entries

Entry = dict[str, Any]


def by_code(kind: str, code: int) -> Entry | None:
    """Returns the entry of a data file with this number, else None."""
    return next((entry for entry in entries(kind) if entry["code"] == code), None)


def by_name(kind: str, name: str) -> Entry | None:
    """Returns the entry of a data file with this name, in any case, else None."""
    upper = name.upper()
    return next((entry for entry in entries(kind) if entry["name"].upper() == upper), None)


def ib_status(text: str) -> Entry | None:
    """Returns a completion status by number, or by name with or without `IBV_WC_`."""
    if text.isdecimal():
        return by_code("ib_status", int(text))
    return by_name("ib_status", text if text.upper().startswith("IBV_WC_") else f"IBV_WC_{text}")


def vendor(code: int, status: int | None = None) -> str:
    """Returns the meaning of a NIC's vendor error number, which depends on the vendor; empty if unknown."""
    for entry in entries("ib_vendor"):
        if entry["code"] == code and (status is None or status in entry["status"]):
            return str(entry["meaning"])
    return ""


def cuda(text: str) -> Entry | None:
    """Returns a CUDA or HIP error by number, or by its name in HIP or in the runtime or driver API of CUDA."""
    if text.isdecimal():
        return by_code("cuda_error", int(text))
    upper = text.upper()
    return next(
        (e for e in entries("cuda_error") if upper in (e["name"].upper(), e.get("driver"), e.get("hip", "").upper())),
        None,
    )


def nvlink_status(xid: int, unit: str, information: int, status: int) -> Entry | None:
    """Returns what an Xid of the NVLink 5 units (144 to 150) says, from its unit and its first two numbers, else None.

    Bits 20 to 25 of the first number give the reason why a link went down; the second number has one bit per error.
    """
    reason = information >> 20 & 0x3F
    rows = [
        e for e in entries("nvlink_status") if e["xid"] == xid and unit in e["units"] and e["reason"] in (0, reason)
    ]
    fitting = [e for e in rows if not e["status"] or e["status"] & status]
    return max(fitting, key=lambda e: (e["reason"] == reason, e["status"] == status, e["fatal"]), default=None)


def signal(text: str) -> Entry | None:
    """Returns a signal by number or name."""
    if text.isdecimal():
        return by_code("signal", int(text))
    return by_name("signal", text if text.upper().startswith("SIG") else f"SIG{text}")


def exit_code(code: int) -> tuple[Entry, Entry | None] | None:
    """Returns (entry, signal) of an exit code; negative numbers (Python) and 128 + n (shell) mean signals."""
    number = -code if code < 0 else code - 128 if code > 128 else None
    found = by_code("signal", number) if number is not None else None
    if found is not None:
        return {"code": code, "meaning": found["meaning"], "check": found["check"]}, found
    plain = by_code("exit_code", code)
    return (plain, None) if plain else None
