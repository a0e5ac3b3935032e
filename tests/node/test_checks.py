"""docs/checks.md names every rule about nodes and no others; the parsers of stuck tools, packet filters and ports."""

import re
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

from nccl_doctor.app import preflight
from nccl_doctor.facts import wire
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.host import stuck_processes
from nccl_doctor.node.network import firewall
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.scheduler import launch
from nccl_doctor.node.software import elf, environment
from nccl_doctor.rules import loader, schema
from nccl_doctor.simulate import node

PAGE = ROOT / "docs" / "checks.md"


def test_every_rule_about_nodes_stands_in_the_list_of_checks() -> None:
    rows = re.findall(r"^\| ([A-Z0-9_]+) \|.*?\| (.*?) \| (.*)\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 150
    named = {name for _, cell, _ in rows for name in re.findall(r"`([\w-]+)`", cell)}
    assert {rule.name for rule in loader.load_rules((), schema.NODE)} == named
    assert [] == [check for check, cell, remark in rows if cell == "–" and not remark.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"4321 (nvidia-smi) D 1 {'0 ' * 15}1 0 345600 0", stuck_processes.Process(4321, "nvidia-smi", "D", 1, 345600)),
        (f"7 (a) b (c)) Z 1 {'0 ' * 15}3 0 12 0", stuck_processes.Process(7, "a) b (c)", "Z", 3, 12)),
        ("4321 (nvidia-smi) D 1", None),
        ("", None),
        ("\x00\xff (x) y", None),
    ],
)
def test_a_process_is_read_whatever_its_name(text: str, expected: stuck_processes.Process | None) -> None:
    assert expected == stuck_processes.parse(text)


@pytest.mark.parametrize(
    ("stack", "driver"),
    [
        ("[<0>] rwsem_down_write_slowpath+0x2a/0x40\n[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n", "nvidia"),
        ("[<0>] wait_func+0x1a/0x60 [mlx5_core]\n[<0>] uverbs_ioctl+0x9/0x10 [ib_uverbs]", "mlx5_core"),
        ("[<0>] kernel_clone+0x1af/0x3e0\n[<0>] __do_sys_vfork+0x43/0x70", None),
        ("[<0>] request_wait_answer+0x12/0x20 [fuse]", None),
        ("", None),
        (None, None),
    ],
)
def test_the_stack_names_the_driver(stack: str | None, driver: str | None) -> None:
    assert driver == stuck_processes.driver_of(stack)


@pytest.mark.parametrize("fault", ["nvidia-tool-stuck", "task-stuck-in-kernel"])
def test_the_name_of_a_tool_in_state_d_does_not_drain(fault: str, tmp_path: Path) -> None:
    """Every user can call a program nvidia-smi and let it wait for a child of vfork."""
    tree = node.build("dgx-h100", fault)
    tree.write(tmp_path / "genuine")
    assert "drain" == preflight.preflight(Root(tmp_path / "genuine"))[0].fitness
    tree.extra["processes"] = {"rows": [[4321, "nvidia-smi", "D", 913.0, 1, None]]}
    tree.put("/proc/4321/wchan", "kernel_clone")
    tree.put("/proc/4321/stack", "[<0>] kernel_clone+0x1af/0x3e0\n[<0>] __do_sys_vfork+0x43/0x70")
    tree.write(tmp_path / "forged")
    assert "fit" == preflight.preflight(Root(tmp_path / "forged"))[0].fitness


def test_only_tools_that_wait_and_zombies_matter() -> None:
    assert stuck_processes.matters(stuck_processes.Process(1, "nvidia-smi", "D", 1, 1))
    assert not stuck_processes.matters(stuck_processes.Process(1, "nvidia-smi", "S", 1, 1))
    assert not stuck_processes.matters(stuck_processes.Process(1, "cp", "D", 1, 1))
    assert stuck_processes.matters(stuck_processes.Process(1, "cp", "Z", 1, 1))


NFT = """table inet filter {
	set nodes {
		type ipv4_addr
		elements = { 10.1.0.1 }
	}

	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif "lo" accept
		tcp dport 22 accept
		ip saddr 10.1.0.0/16 counter packets 5 bytes 300 accept
	}

	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		tcp dport 22 accept
		reject with icmpx admin-prohibited
	}
}
"""
IPTABLES = """*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
COMMIT
"""


def test_chains_that_refuse_are_read() -> None:
    assert [
        firewall.Chain("inet filter input", "drop", "", 1),
        firewall.Chain("inet firewalld filter_INPUT", "accept", "reject with icmpx admin-prohibited", 0),
    ] == list(firewall.nft(NFT))
    assert [firewall.Chain("filter INPUT", "accept", "-j REJECT --reject-with icmp-host-prohibited", 0)] == list(
        firewall.iptables(IPTABLES)
    )
    assert [] == [*firewall.nft("table x {\nchain"), *firewall.iptables("\xff"), *firewall.nft("")]


def test_without_the_right_to_read_filters_there_are_no_facts(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        list(firewall.collect(Root(tmp_path)))


def test_listeners_of_a_port() -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   3: 0100007F:733C 00000000:0000 {} 00000000:00000000 00:00000000 00000000  1003        0 48211 1 0\n"
    assert [1003] == launch.listeners(head + row.format("0A"), 29500)
    assert [] == launch.listeners(head + row.format("01"), 29500)
    assert [] == launch.listeners(head + row.format("0A"), 22)
    assert [] == launch.listeners("\xff" * 100, 22)


def test_interfaces_of_plug_ins_are_read_from_the_file(tmp_path: Path) -> None:
    genuine = Path(sys.executable).resolve().read_bytes()[: 1 << 20]
    file = tmp_path / "libnccl-net.so"
    file.write_bytes(genuine + b"\0ncclNetPlugin_v9\0ncclNetPlugin_v10\0ncclCollNetPlugin_v11\0")
    assert (9, 10) == elf.span(elf.look(str(file)))
    file.write_bytes(genuine)
    assert (None, None) == elf.span(elf.look(str(file)))


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"cpus": 256}, "host-cpus-missing"),
        ({"nvme": 8}, "host-drives-missing"),
        ({"memory": 4096}, "host-memory-missing"),
    ],
)
def test_parts_are_compared_with_what_the_site_expects(wanted: dict[str, int], name: str, tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    facts = preflight.look(Root(tmp_path), ("host",))
    expectations.add(facts, {"host": wanted})
    report = preflight.report_of(facts)
    assert (name, "drain") == (report.findings[0].name, report.fitness)
    assert f"cpus = {node.MACHINES['dgx-h100'].cores}" in expectations.learn(facts)


def test_what_has_no_lines_shows_its_own_text(tmp_path: Path) -> None:
    node.build("dgx-h100", "rendezvous-port-taken").write(tmp_path)
    report, facts = preflight.preflight(Root(tmp_path))
    assert "MASTER_PORT=29500" in report.findings[0].evidence[0].text
    assert facts.text_evidence("environment", "a") != facts.text_evidence("environment", "b")
    assert facts.text_evidence("environment", "a") == facts.text_evidence("environment", "a")


def test_evidence_of_several_nodes_is_kept_apart() -> None:
    one, two, both = Facts(), Facts(), Facts()
    for facts, text in ((one, "up"), (two, "down")):
        facts.add([Collection(text, "pci", "ok", 0.1, None, facts.evidence("/sys/x", 1, text))])
        assert wire.take(both, wire.dump(facts).splitlines(), f"node-{text}")
    rows = both.rows(Collection)
    shown = [(row.host, both.evidence_rows([row.ref])[0]) for row in rows]
    assert [("up", "node-up:/sys/x", "up"), ("down", "node-down:/sys/x", "down")] == [
        (host, place.file, place.text) for host, place in shown
    ]


def test_a_folder_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ["ok", "missing", "not-a-folder"] == [
        environment._state(str(tmp_path / name)) for name in ("", "nothing", "file")
    ]
