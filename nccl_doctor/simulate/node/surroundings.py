"""What else can be wrong with the task and the host of an invented node."""

from nccl_doctor.simulate.node.host import interface, say
from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.software import variables
from nccl_doctor.simulate.node.tree import Tree, fault, part

EFA = ("p3dn", "p4d", "p5", "p5en")
PLUGIN = "libnccl-net.so"
_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
_OPEN = """table inet filter {
\tchain input {
\t\ttype filter hook input priority filter; policy accept;
\t}
}
"""


def listening(port: int, uid: int) -> str:
    """A line of /proc/net/tcp."""
    return f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid:5} 0 48211 1 0 100 0 0 10 0"


@part
def parts(tree: Tree, machine: Machine) -> None:
    for number in range(2):
        tree.put(f"/sys/class/nvme/nvme{number}/model", "Invented NVMe 3.84TB")
    tree.put("/proc/net/tcp", f"{_HEAD}\n{listening(22, 0)}")
    say(tree, "folders", **{"uid": 1000, "/home/alice": "ok"})
    say(tree, "processes", rows=[[812, "sh", "Z", 3.5, 1, None]])
    tree.command("nft list ruleset", _OPEN)
    for path, known in tree.extra.get("libraries", {}).items():
        if known.get("nccl") and known.get("elf"):
            known["interfaces"] = [5, 6, 7, 8]
        if path.endswith(PLUGIN):
            known["interfaces"] = [6, 7, 8, 9]


@fault("rendezvous-port-taken")
def _port(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/net/tcp", f"{_HEAD}\n{listening(22, 0)}\n{listening(29500, 1003)}")


@fault("gloo-interface-not-chosen", "p4d", "dgx-h100", "b200-roce")
def _gloo(tree: Tree, machine: Machine) -> None:
    interface(tree, "eth1")
    text = tree.files["/proc/net/route"].rstrip("\n")
    tree.put("/proc/net/route", f"{text}\neth1\t0001010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0")


@fault("fork-setting-on-efa", *EFA)
def _fork(tree: Tree, machine: Machine) -> None:
    variables(tree, RDMAV_FORK_SAFE="1")


@fault("home-folder-unusable")
def _home(tree: Tree, machine: Machine) -> None:
    say(tree, "folders", **{"/home/alice": "missing"})


@fault("nvidia-tool-stuck")
def _stuck(tree: Tree, machine: Machine) -> None:
    say(tree, "processes", rows=[[4321, "nvidia-smi", "D", 913.0, 1, "nvidia"]])


@fault("zombies-left")
def _zombie(tree: Tree, machine: Machine) -> None:
    say(tree, "processes", rows=[[4321, "python", "Z", 913.0, 4, None]])


@fault("firewall-refuses-others")
def _filter(tree: Tree, machine: Machine) -> None:
    rules = 'ct state established,related accept\n\t\tiif "lo" accept\n\t\ttcp dport 22 accept'
    told = f"policy accept;\n\t\t{rules}\n\t\treject with icmpx admin-prohibited"
    tree.command("nft list ruleset", _OPEN.replace("policy accept;", told))


@fault("zone-reclaim-on")
def _reclaim(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/sys/vm/zone_reclaim_mode", 1)


@fault("plugin-interface-unknown", *EFA)
def _interface(tree: Tree, machine: Machine) -> None:
    for path, known in tree.extra["libraries"].items():
        if path.endswith(PLUGIN):
            known["interfaces"] = [3, 4]
