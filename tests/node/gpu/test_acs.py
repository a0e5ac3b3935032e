"""Access control of PCIe bridges: the bits that `lspci -vvv` shows as ACSCtl, in configuration space as root reads it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import preflight
from nccl_doctor.node.gpu import pci
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.host import acs_config

WORDS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
SHAPES = {  # as lspci shows bridges above GPUs
    "SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-": 0,  # bare metal, switched off
    "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-": 0,
    "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-": 1,  # what Linux sets with an IOMMU: 0x1d
    "SrcValid- TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-": 1,
    "SrcValid+ TransBlk- ReqRedir- CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+": 1,
    "SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans+": 0,
}


def control(flags: str) -> int:
    """The control word of what lspci prints."""
    return sum(1 << bit for bit, word in enumerate(WORDS) if f"{word}+" in flags)


@pytest.mark.parametrize(("flags", "redirects"), SHAPES.items())
def test_redirection_is_read_from_the_control_word(flags: str, redirects: int) -> None:
    assert (1, redirects) == pci.config(bytes.fromhex(acs_config(control(flags))))


@pytest.mark.parametrize("flags", SHAPES)
def test_lspci_shows_the_same_bits(flags: str, tmp_path: Path) -> None:
    program = shutil.which("lspci")
    if program is None:
        pytest.skip("pciutils is not installed")
    space = bytes.fromhex(acs_config(control(flags)))
    lines = (f"{at:02x}: {space[at : at + 16].hex(' ')}" for at in range(0, len(space), 16))
    dump = tmp_path / "dump"
    dump.write_text("00:01.0 PCI bridge\n" + "\n".join(lines) + "\n")
    shown = subprocess.run([program, "-F", str(dump), "-vvv"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"ACSCtl:\s*(.*?)\s*$", shown, re.MULTILINE)
    assert match is not None, shown
    assert flags == match[1]


def test_a_bridge_without_the_capability_and_a_reader_without_privilege() -> None:
    assert (1, None) == pci.config(bytes.fromhex(acs_config(None)))
    assert (1, None) == pci.config(bytes.fromhex(acs_config(0x1D))[:64])  # users read the header only
    assert (0, None) == pci.config(b"\xff" * 4096)
    assert (None, None) == pci.config(b"")


@given(st.binary(max_size=4096))
def test_any_configuration_space_is_read(space: bytes) -> None:
    answers, acs = pci.config(space)
    assert answers in (0, 1, None)
    assert acs in (0, 1, None)


LINUX = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"  # set where an IOMMU is on
OFF = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"  # after `setpci ECAP_ACS+0x6.w=0000`


@pytest.mark.parametrize(
    ("root", "downstream", "found"), [(LINUX, LINUX, True), (LINUX, OFF, False), (OFF, LINUX, True), (OFF, OFF, False)]
)
def test_the_ports_of_a_switch_matter_and_root_ports_do_not(
    tmp_path: Path, root: str, downstream: str, found: bool
) -> None:
    """A bare machine with PCIe switches: Linux sets root ports and downstream ports; upstream ports have no access control."""
    tree = node.build("l40s-pcie")
    ports = []
    for place in bus.gpus(node.MACHINES["l40s-pcie"]):
        top, upstream, port = place.above
        tree.put(f"{top}/config", acs_config(control(root)))
        tree.put(f"{upstream}/config", acs_config(None))
        tree.put(f"{port}/config", acs_config(control(downstream)))
        ports.append(port.rpartition("/")[2])
    tree.write(tmp_path)
    report, _ = preflight.preflight(Root(tmp_path))
    told = [finding.values["bridges"] for finding in report.findings if finding.name == "acs-redirect-above-gpus"]
    assert ([set(ports)] if found else []) == [set(text.split(",")) for text in told]
    assert "fit" == report.fitness
