"""Numbers that programs print: completion states, Xid, results, CUDA errors, signals, exit codes."""

from typing import Any

from nccl_doctor.knowledge import entries

Entry = dict[str, Any]

# Names of the CUDA driver API whose numbers equal those of the runtime.
_DRIVER = {
    "CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_NOT_INITIALIZED": 3,
    "CUDA_ERROR_STUB_LIBRARY": 34, "CUDA_ERROR_NO_DEVICE": 100, "CUDA_ERROR_INVALID_DEVICE": 101,
    "CUDA_ERROR_INVALID_CONTEXT": 201, "CUDA_ERROR_MAP_FAILED": 205, "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_ECC_UNCORRECTABLE": 214, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": 217, "CUDA_ERROR_NVLINK_UNCORRECTABLE": 220,
    "CUDA_ERROR_OPERATING_SYSTEM": 304, "CUDA_ERROR_INVALID_HANDLE": 400, "CUDA_ERROR_ILLEGAL_STATE": 401,
    "CUDA_ERROR_NOT_FOUND": 500, "CUDA_ERROR_ILLEGAL_ADDRESS": 700, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
    "CUDA_ERROR_LAUNCH_TIMEOUT": 702, "CUDA_ERROR_CONTEXT_IS_DESTROYED": 709, "CUDA_ERROR_ASSERT": 710,
    "CUDA_ERROR_TOO_MANY_PEERS": 711, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": 712,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": 715, "CUDA_ERROR_MISALIGNED_ADDRESS": 716, "CUDA_ERROR_INVALID_ADDRESS_SPACE": 717,
    "CUDA_ERROR_INVALID_PC": 718, "CUDA_ERROR_LAUNCH_FAILED": 719, "CUDA_ERROR_NOT_PERMITTED": 800,
    "CUDA_ERROR_NOT_SUPPORTED": 801, "CUDA_ERROR_SYSTEM_NOT_READY": 802, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": 804, "CUDA_ERROR_MPS_CONNECTION_FAILED": 805, "CUDA_ERROR_UNKNOWN": 999,
}  # fmt: skip


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
    """Returns a CUDA error by number, or by its name in the runtime or driver API."""
    if text.isdecimal():
        return by_code("cuda_error", int(text))
    if text.upper() in _DRIVER:
        return by_code("cuda_error", _DRIVER[text.upper()])
    return by_name("cuda_error", text)


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
