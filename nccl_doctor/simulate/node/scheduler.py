"""Faults of an invented job: what the scheduler granted, how it is launched, its settings and its logins."""

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.software import variables
from nccl_doctor.simulate.node.tree import Tree, fault

IB = ("nd-a100-v4", "nd-h100-v5", "dgx-h100")
RDMA = (*IB, "b200-roce")
EFA = ("p3dn", "p4d", "p5", "p5en")


@fault("fewer-gpus-than-granted")
def _gpus(tree: Tree, machine: Machine) -> None:
    more = machine.gpus + 1
    listed = ",".join(str(index) for index in range(more))
    variables(tree, SLURM_JOB_GPUS=listed, SLURM_GPUS_ON_NODE=str(more), CUDA_VISIBLE_DEVICES=None)


@fault("fewer-cpus-than-gpus")
def _cpus(tree: Tree, machine: Machine) -> None:
    variables(tree, SLURM_CPUS_ON_NODE="1", SLURM_PROCID=None, SLURM_CPUS_PER_TASK=None)


@fault("fewer-cpus-than-granted")
def _binding(tree: Tree, machine: Machine) -> None:
    variables(tree, SLURM_CPUS_PER_TASK=str(machine.cores + 32))


@fault("world-size-differs-from-tasks")
def _world(tree: Tree, machine: Machine) -> None:
    variables(tree, WORLD_SIZE="24", LOCAL_WORLD_SIZE=None)


@fault("more-processes-than-gpus")
def _processes(tree: Tree, machine: Machine) -> None:
    tree.extra["launchers"] = {"torchrun": {"nnodes": "2", "nproc_per_node": str(2 * machine.gpus)}}


@fault("rendezvous-on-loopback")
def _loopback(tree: Tree, machine: Machine) -> None:
    tree.command(f"getent ahosts {tree.host}", f"127.0.1.1       STREAM {tree.host}\n")


@fault("rendezvous-unreachable")
def _unreachable(tree: Tree, machine: Machine) -> None:
    variables(tree, RANK=str(machine.gpus), SLURM_PROCID=str(machine.gpus), MASTER_ADDR="gpu-a")
    tree.command("getent ahosts gpu-a", "", 2)


@fault("socket-ifname-names-no-interface")
def _ifname(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_SOCKET_IFNAME="enp71s0")


@fault("ib-hca-names-no-device", *RDMA)
def _hca(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_IB_HCA="hfi1_0")


@fault("setting-file-missing")
def _topology(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_TOPO_FILE="/opt/site/topo.xml")


@fault("visible-devices-wrong")
def _visible(tree: Tree, machine: Machine) -> None:
    variables(tree, CUDA_VISIBLE_DEVICES="0,0,1,2")


@fault("setting-device-missing")
def _gloo(tree: Tree, machine: Machine) -> None:
    variables(tree, GLOO_SOCKET_IFNAME="enp71s0")


@fault("fast-network-switched-off", *IB)
def _off(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_IB_DISABLE="1")


@fault("provider-without-efa", *EFA)
def _provider(tree: Tree, machine: Machine) -> None:
    variables(tree, FI_PROVIDER="tcp")


@fault("task-setting-unknown")
def _typo(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_SOCKET_IFNAMES="eth0")


@fault("task-setting-left-over")
def _leftover(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_P2P_DISABLE="1")


@fault("setting-value-with-blanks-or-quotes")
def _quotes(tree: Tree, machine: Machine) -> None:
    variables(tree, NCCL_SOCKET_IFNAME='"eth0"')
