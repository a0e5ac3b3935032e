"""What every node has whatever its hardware."""

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, part


@part
def system(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/sys/kernel/hostname", tree.host)
    tree.put("/proc/sys/kernel/random/boot_id", "6f1c2a7e-3d4b-4c5d-9e8f-0a1b2c3d4e5f")
    tree.put("/proc/uptime", "345600.12 33177600.00")
    tree.put("/sys/class/dmi/id/product_name", machine.product)
    tree.put("/sys/class/dmi/id/sys_vendor", machine.vendor)
    tree.put("/etc/os-release", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu')
    tree.put("/proc/version", "Linux version 5.15.0-105-generic (buildd@builder) (gcc 11.4.0) #115-Ubuntu SMP")
    tree.put("/proc/sys/kernel/osrelease", "5.15.0-105-generic")
