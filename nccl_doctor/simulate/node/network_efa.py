"""What Amazon's software for EFA adds to an invented node: installer, libfabric's answer, NCCL's plug-in."""

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.network import Card, cards, load
from nccl_doctor.simulate.node.tree import Tree, part

COMMAND = "fi_info -p efa -t FI_EP_RDM"
PLUGIN = "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
FABRIC = "/opt/amazon/efa/lib"


@part
def efa(tree: Tree, machine: Machine) -> None:
    own = [card for card in cards(machine) if card.nic.kind == "efa"]
    if not own:
        return
    load(tree, "gdrdrv")
    tree.put("/sys/module/efa/version", "2.17.3g")
    tree.put(
        "/opt/amazon/efa_installed_packages",
        "# EFA installer version: 1.43.1\n# Debug packages installed: no\n# Packages installed:\n"
        "efa-config_1.18_all efa-profile_1.7_all libfabric1-aws_2.1.0amzn5.0_amd64 libnccl-ofi_1.16.3-1_amd64\n"
        "libfabric1-aws_2.1.0amzn5.0_amd64",
    )
    say(tree, own)
    tree.put("/etc/ld.so.conf.d/100_ofinccl.conf", PLUGIN)
    tree.put("/etc/ld.so.conf.d/efa.conf", FABRIC)
    tree.put(f"{FABRIC}/libfabric.so.1", "(libfabric)")
    plugin(tree)


def say(tree: Tree, own: list[Card]) -> None:
    """What `fi_info` lists: each device for both fabrics."""
    entries = [
        f"provider: efa\n    fabric: {fabric}\n    domain: {card.device}-rdm\n    version: 201.0\n"
        f"    type: FI_EP_RDM\n    protocol: FI_PROTO_EFA"
        for fabric in ("efa", "efa-direct")
        for card in own
    ]
    tree.command(COMMAND, "\n".join(entries))


def plugin(tree: Tree, folder: str = PLUGIN, **changed: object) -> None:
    """The plug-in in this folder, and what it says about itself."""
    path = f"{folder}/libnccl-net.so"
    library = {"size": 2513400, "elf": True, "needed": ["libfabric.so.1", "libc.so.6"], **changed}
    tree.put(path, "(aws-ofi-nccl)")
    tree.extra.setdefault("libraries", {})[path] = library
