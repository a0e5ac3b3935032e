"""Software of an invented node: a conda environment with PyTorch and Horovod, CUDA, MPI, containers, and the task of a Slurm job."""

import re
from typing import Any, NamedTuple

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, fault, part

ENV = "/opt/conda/envs/train"
SITE = f"{ENV}/lib/python3.11/site-packages"
TORCH = f"{SITE}/torch/lib/libtorch_cuda.so"
NCCL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
HOROVOD = f"{SITE}/horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so"
LIBS = "/usr/lib/x86_64-linux-gnu"
_BUILT = 1_717_000_000.0  # when pip installed
_HISTORY = "2024-05-29 16:20:00"  # when conda did, in local time


class Stack(NamedTuple):
    """Releases that belong together."""

    driver: str
    cuda: str
    torch: str
    nccl: str


_STACK = Stack("550.90.07", "12.4", "2.5.1+cu124", "2.21.5")
_BLACKWELL = Stack("570.124.06", "12.8", "2.7.1+cu128", "2.26.2")


def stack(machine: Machine) -> Stack:
    return _BLACKWELL if machine.capability >= (10, 0) else _STACK


def driver(tree: Tree, machine: Machine) -> str:
    """The driver that the tree has already."""
    found = re.search(
        r"NVRM version:.{0,200}?\s(\d{3,}\.\d+(?:\.\d+)?)\s", tree.files.get("/proc/driver/nvidia/version", "")
    )
    return found[1] if found else stack(machine).driver


def variables(tree: Tree, **values: str | None) -> None:
    """Set variables of the task; None takes one away."""
    environ = tree.extra.setdefault("environ", {})
    environ.update({name: value for name, value in values.items() if value is not None})
    for name in [name for name, value in values.items() if value is None]:
        environ.pop(name, None)


def library(tree: Tree, path: str, **values: Any) -> None:
    """A shared library and what it says about itself."""
    tree.put(path, "")
    tree.extra.setdefault("libraries", {})[path] = {"size": 251_616_632, "elf": True, **values}


def package(tree: Tree, name: str, version: str, site: str = SITE, metadata: str = "") -> None:
    info = f"{site}/{name}-{version}.dist-info"
    tree.put(
        f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{metadata}"
    )
    tree.put(f"{info}/INSTALLER", "pip")
    tree.put(f"{info}/RECORD", f"{name}/__init__.py,,")
    tree.extra.setdefault("times", {})[f"{info}/RECORD"] = _BUILT


@part
def task(tree: Tree, machine: Machine) -> None:
    """The variables of a rank of a job on two nodes."""
    gpus = ",".join(str(index) for index in range(machine.gpus))
    variables(
        tree,
        PATH=f"{ENV}/bin:/usr/local/cuda/bin:{_mpi(machine)}/bin:/usr/bin:/bin",
        LD_LIBRARY_PATH="/usr/local/cuda/lib64",
        CONDA_PREFIX=ENV, CONDA_DEFAULT_ENV="train", HOME="/home/alice", USER="alice", CUDA_VISIBLE_DEVICES=gpus,
        SLURM_JOB_ID="4711", SLURM_JOB_NUM_NODES="2", SLURM_NTASKS=str(2 * machine.gpus), SLURM_PROCID="0",
        SLURM_TASKS_PER_NODE=f"{machine.gpus}(x2)", SLURM_JOB_GPUS=gpus, SLURM_GPUS_ON_NODE=str(machine.gpus),
        SLURM_CPUS_ON_NODE=str(machine.cores), SLURM_CPUS_PER_TASK=str(machine.cores // machine.gpus),
        MASTER_ADDR=tree.host, MASTER_PORT="29500", WORLD_SIZE=str(2 * machine.gpus), RANK="0",
        LOCAL_WORLD_SIZE=str(machine.gpus),
    )  # fmt: skip
    tree.command(f"getent ahosts {tree.host}", f"10.1.0.4        STREAM {tree.host}\n10.1.0.4        DGRAM\n")
    tree.folders.add("/usr/local/cuda-12/lib64")


def _mpi(machine: Machine) -> str:
    return "/opt/amazon/openmpi" if machine.vendor == "Amazon EC2" else "/opt/openmpi"


@part
def python(tree: Tree, machine: Machine) -> None:
    """The conda environment, with frameworks that pip installed."""
    has = stack(machine)
    tree.put(f"{ENV}/bin/python", "")
    tree.put(f"{ENV}/conda-meta/python-3.11.9-h955ad1f_0.json", "{}")
    tree.put(f"{ENV}/conda-meta/history", _block(_HISTORY, "python=3.11", "python-3.11.9-h955ad1f_0"))
    tree.extra.setdefault("times", {})[f"{ENV}/conda-meta/history"] = _BUILT - 600
    pin = f'Requires-Dist: nvidia-nccl-cu12=={has.nccl}; platform_system == "Linux"'
    package(tree, "torch", has.torch, metadata=pin)
    package(tree, "nvidia_nccl_cu12", has.nccl)
    package(tree, "horovod", "0.28.1")
    _torch(tree, has.torch, has.cuda)
    library(tree, NCCL, nccl=has.nccl, cuda=has.cuda, calls_nccl=True)
    library(tree, TORCH, needed=["libnccl.so.2"], rpath=["$ORIGIN/../../nvidia/nccl/lib", "$ORIGIN"], calls_nccl=True)
    library(tree, HOROVOD, needed=["libnccl.so.2"], calls_nccl=True)
    tree.put(f"{ENV}/lib/libstdc++.so.6.0.33", "")
    tree.link(f"{ENV}/lib/libstdc++.so.6", "libstdc++.so.6.0.33")


def _torch(tree: Tree, version: str, cuda: str | None) -> None:
    built = f"'{cuda}'" if cuda else "None"
    tree.put(
        f"{SITE}/torch/version.py",
        f"from typing import Optional\n\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {built}\n"
        "git_version = '0'\nhip: Optional[str] = None\n",
    )


def _block(stamp: str, asked: str, *packages: str) -> str:
    lines = "\n".join(f"+conda-forge/linux-64::{name}" for name in packages)
    return f"==> {stamp} <==\n# cmd: /opt/conda/bin/conda install -y {asked}\n# conda version: 24.5.0\n{lines}\n# update specs: ['{asked}']"


@part
def system(tree: Tree, machine: Machine) -> None:
    """Toolkit, compiler, MPI, runtime of C++."""
    cuda = stack(machine).cuda
    tree.link("/usr/local/cuda", "cuda-12")
    tree.put("/usr/local/cuda-12/version.json", f'{{"cuda": {{"name": "CUDA SDK", "version": "{cuda}.1"}}}}')
    tree.put("/usr/local/cuda-12/bin/nvcc", "")
    tree.put(f"{_mpi(machine)}/bin/mpirun", "")
    tree.put(f"{_mpi(machine)}/share/openmpi/mpicc-wrapper-data.txt", "project=Open MPI\nversion=4.1.7\nlanguage=C")
    tree.put(f"{LIBS}/libstdc++.so.6.0.30", "")
    tree.link(f"{LIBS}/libstdc++.so.6", "libstdc++.so.6.0.30")
    tree.command("g++ --version", "g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\nCopyright (C) 2021\n")
    tree.put("/etc/ld.so.cache", f"glibc-ld.so.cache1.1\0libcuda.so.1\0{LIBS}/libcuda.so.1\0")


@part
def containers(tree: Tree, machine: Machine) -> None:
    """Docker with NVIDIA's toolkit."""
    tree.put("/etc/docker/daemon.json", '{"exec-opts": ["native.cgroupdriver=systemd"], "runtimes": {"nvidia": {}}}')
    tree.put("/usr/bin/nvidia-ctk", "")
    tree.command("nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d\n")
    tree.put("/etc/cdi/nvidia.yaml", _specification(driver(tree, machine), machine.gpus))
    for number in range(machine.gpus):
        tree.link(f"/dev/char/195:{number}", f"../nvidia{number}")
        tree.stat(f"/dev/char/195:{number}", mode=0o20666)


def _specification(version: str, gpus: int) -> str:
    devices = "".join(
        f'- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia{number}\n  name: "{number}"\n'
        for number in range(gpus)
    )
    library = f"{LIBS}/libcuda.so.{version}"
    mounts = f"containerEdits:\n  mounts:\n  - containerPath: {library}\n    hostPath: {library}"
    return f"cdiVersion: 0.5.0\ndevices:\n{devices}kind: nvidia.com/gpu\n{mounts}"


@part
def settings(tree: Tree, machine: Machine) -> None:
    """A settings file of the site that only asks for warnings."""
    tree.put("/etc/nccl.conf", "# of the site\nNCCL_DEBUG=WARN")


@fault("nccl-packages-overwrite-each-other")
def _two_packages(tree: Tree, machine: Machine) -> None:
    package(tree, "nvidia_nccl_cu11", "2.20.5")
    library(tree, NCCL, nccl="2.20.5", cuda="11.0", calls_nccl=True)


@fault("nccl-not-of-framework")
def _preload(tree: Tree, machine: Machine) -> None:
    library(tree, "/opt/nccl/lib/libnccl.so.2", nccl="2.18.3", cuda="12.1", calls_nccl=True)
    variables(tree, LD_PRELOAD="/opt/nccl/lib/libnccl.so.2")


@fault("preload-missing")
def _preload_missing(tree: Tree, machine: Machine) -> None:
    variables(tree, LD_PRELOAD="/opt/nccl/lib/libnccl.so.2")


@fault("cuda-stubs-in-library-path")
def _stubs(tree: Tree, machine: Machine) -> None:
    tree.put("/usr/local/cuda-12/lib64/stubs/libcuda.so", "")
    variables(tree, LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs:/usr/local/cuda/lib64")


@fault("cuda-compat-older-than-driver")
def _compat(tree: Tree, machine: Machine) -> None:
    tree.put("/usr/local/cuda-12/compat/libcuda.so.525.147.05", "")
    variables(tree, LD_LIBRARY_PATH="/usr/local/cuda/compat:/usr/local/cuda/lib64")


@fault("driver-older-than-cuda")
def _driver(tree: Tree, machine: Machine) -> None:
    _torch(tree, "2.9.0+cu130", "13.0")


@fault("nccl-conf-line-ignored")
def _conf(tree: Tree, machine: Machine) -> None:
    tree.put("/etc/nccl.conf", "# of the site\nNCCL_DEBUG = WARN")


@fault("framework-without-cuda")
def _cpu(tree: Tree, machine: Machine) -> None:
    _torch(tree, "2.5.1+cpu", None)


@fault("horovod-built-without-nccl")
def _horovod(tree: Tree, machine: Machine) -> None:
    library(tree, HOROVOD, needed=["libmpi.so.40"], calls_nccl=False)


@fault("horovod-nccl-differs")
def _horovod_static(tree: Tree, machine: Machine) -> None:
    library(tree, HOROVOD, needed=["libmpi.so.40"], calls_nccl=True, nccl="2.18.3", cuda="12.1")


@fault("compiler-too-old-for-horovod")
def _compiler(tree: Tree, machine: Machine) -> None:
    tree.command("g++ --version", "g++ (GCC) 4.8.5 20150623 (Red Hat 4.8.5-44)\nCopyright (C) 2015\n")


@fault("conda-changed-after-pip")
def _conda(tree: Tree, machine: Machine) -> None:
    text = tree.files[f"{ENV}/conda-meta/history"]
    later = _block("2024-06-05 16:20:00", "openmpi", "openmpi-4.1.6-hc5af2df_101", "libstdcxx-ng-13.2.0-hc0a3c3a_7")
    tree.put(f"{ENV}/conda-meta/history", text + later)
    tree.extra["times"][f"{ENV}/conda-meta/history"] = _BUILT - 600 + 7 * 86400


@fault("user-site-shadows-environment")
def _user_site(tree: Tree, machine: Machine) -> None:
    site = "/home/alice/.local/lib/python3.11/site-packages"
    package(tree, "nvidia_nccl_cu12", "2.19.3", site=site)


@fault("cxx-runtime-older")
def _cxx(tree: Tree, machine: Machine) -> None:
    tree.put("/opt/gcc-7/lib64/libstdc++.so.6.0.24", "")
    tree.link("/opt/gcc-7/lib64/libstdc++.so.6", "libstdc++.so.6.0.24")
    variables(tree, LD_LIBRARY_PATH="/opt/gcc-7/lib64:/usr/local/cuda/lib64")


@fault("nccl-library-broken")
def _broken(tree: Tree, machine: Machine) -> None:
    library(tree, NCCL, size=0, elf=False)


@fault("cdi-spec-stale")
def _cdi(tree: Tree, machine: Machine) -> None:
    tree.put("/etc/cdi/nvidia.yaml", _specification("535.161.08", machine.gpus))


@fault("dev-char-links-missing")
def _dev_char(tree: Tree, machine: Machine) -> None:
    tree.remove("/dev/char")


@fault("container-toolkit-old")
def _toolkit(tree: Tree, machine: Machine) -> None:
    tree.command("nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.14.3\ncommit: 53b24618a542\n")
