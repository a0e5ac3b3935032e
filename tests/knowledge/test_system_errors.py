"""The reason that a program quotes decides, whatever the program: it sharpens known messages and explains unknown lines."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.knowledge import entries
from nccl_doctor.knowledge.catalogue import Hit, catalogue
from nccl_doctor.knowledge.known_message import KnownMessage, classes
from nccl_doctor.knowledge.system_errors import sharpened, told
from nccl_doctor.knowledge.templates import LINE
from nccl_doctor.rules import loader

ALONE = [entry for entry in entries("system_error") if entry.get("alone") is not False]


def a_message(**more: Any) -> KnownMessage:
    return KnownMessage(
        **{"id": "a", "program": "p", "title": "P", "where": LINE, "kind": "internal", "means": "It failed.", **more},
        match=["x"],
    )


def test_the_entries_hold_together() -> None:
    rules = set(loader.shipped_names())
    for entry in entries("system_error"):
        faults = {entry["fault"], *(fault for _, fault in entry.get("beside", ()))} - {""}
        assert faults, entry
        assert faults <= rules, entry
        assert entry["kind"] in classes(), entry
        for expression, _ in entry.get("beside", ()):
            re.compile(expression)
    assert all(entry["check"] for entry in ALONE)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("mydaemon: error: cannot write the ring: No space left on device", "disk-full"),
        ("[E] tracer: ftruncate failed on /dev/shm/ring0: No space left on device (28)", "dev-shm-full"),
        ("ERROR: socketpair failed, errno 24 (Too many open files)", "nofile-limit"),
        ("provider:9:core:buf_reg():88<warn> Unable to register MR: Cannot allocate memory", "memlock-limit"),
        ("FATAL: could not start the helper: Cannot allocate memory", "host-memory-refused"),
        ("ERROR cp.cc:7 read of part 3 failed with Stale file handle", "filesystem-not-responding"),
        ("[rank2]: OSError: opening the index: Stale file handle", "filesystem-not-responding"),
        ("[rank2]: RuntimeError: read(): fd 33 failed with Stale file handle", "filesystem-not-responding"),
        ("dial tcp 10.0.0.5:6443: i/o timeout", "connection-timeout"),
        ("dial tcp [2001:db8::1]:443: connect: network is unreachable", "connection-blocked"),
        ("write /var/lib/sidecar/log: no space left on device", "disk-full"),
        (
            "RuntimeError: cannot map /mnt/gcs/train.bin: Transport endpoint is not connected",
            "filesystem-not-responding",
        ),
        ("CUDA runtime error in error: peer access is not supported between these two devices", "gpu-p2p-unavailable"),
    ],
)
def test_a_line_of_an_unknown_program_is_reported_by_its_reason(line: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line + "\n")
    report, _, _ = analyze.analyze([str(tmp_path / "log")])
    alarm = report.findings[0]
    assert (fault, "error") == (alarm.name, alarm.severity)
    assert alarm.confidence in ("possible", "likely")


@pytest.mark.parametrize(
    "line",
    [
        "INFO probe: cannot open /sys/x: No such file or directory",
        "node01:1:2 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file: No such file or directory",
        "getpeername() failed: Transport endpoint is not connected (107)",
        "W0101 inotify: No space left on device, polling instead",
        "loss 0.31, out of memory 0, Permission denied 0",
    ],
)
def test_words_that_mean_too_little_alone_raise_no_alarm(line: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{line}\nstep 1 loss 3.1\nstep 2 loss 3.0\n")
    report, _, _ = analyze.analyze([str(tmp_path / "log")])
    assert [] == [finding.name for finding in report.findings if finding.severity != "note"]


def test_only_a_message_without_a_fault_of_its_own_is_sharpened() -> None:
    text = "opening the log failed: No space left on device"
    found = sharpened(Hit(a_message(), {}), text).message
    assert ("disk-full", "local-resource", "It failed.") == (found.fault, found.kind, found.means)
    for kept in (a_message(fault="own"), a_message(kind="harmless"), a_message(role="echo"), a_message(kind="peer")):
        assert kept is sharpened(Hit(kept, {}), text).message


@pytest.mark.parametrize(
    "text",
    ["Unable to write to EQ. err: Input/output error (5) prov_errno: -12", "mlx5_2: modify QP: Input/output error"],
)
def test_an_error_of_a_network_card_is_not_one_of_a_file_system(text: str) -> None:
    assert "" == sharpened(Hit(a_message(), {}), text).message.fault
    assert (
        "filesystem-not-responding"
        == sharpened(Hit(a_message(), {}), "reading /data/shard-3: Input/output error").message.fault
    )


@given(st.text(max_size=300), st.sampled_from([entry["text"] for entry in entries("system_error")]))
def test_any_text_is_looked_at(text: str, words: str) -> None:
    for line in (text, f"{text} {words}", f"{words}{text}"):
        hit = told(line)
        assert hit is None or hit.message.fault
        for known in (catalogue().messages[0], a_message()):
            assert sharpened(Hit(known, {}), line).message.id == known.id
