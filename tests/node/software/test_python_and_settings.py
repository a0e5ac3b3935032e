"""Builds of frameworks, the Python of the task, conda's history, and what names in settings refer to."""

from pathlib import Path

import pytest

from nccl_doctor.facts.tables import SettingTarget, SoftwareVersion
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.node.software import environment, installed, python_env, variables
from nccl_doctor.simulate import node


def test_builds_of_frameworks() -> None:
    assert ("2.5.1+cu124", "12.4") == python_env.torch_build(
        "__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\nhip = None"
    )
    assert ("1.13.1", "11.7") == python_env.torch_build("__version__ = '1.13.1'\ndebug = False\ncuda = '11.7'\n")
    assert ("2.5.1+cpu", "none") == python_env.torch_build("__version__ = '2.5.1+cpu'\ncuda: Optional[str] = None\n")
    assert ("2.5.1+rocm6.2", None) == python_env.torch_build(
        "__version__ = '2.5.1+rocm6.2'\ncuda = None\nhip: Optional[str] = '6.2'\n"
    )
    assert (None, None) == python_env.torch_build(None)
    info = 'build_info = collections.OrderedDict([("cuda_version", "12.5"), ("is_cuda_build", True)])'
    assert "12.5" == python_env.tensorflow_build(info.replace('"', "'"))
    assert "none" == python_env.tensorflow_build("build_info = {'is_cuda_build': False, 'is_rocm_build': False}")
    assert None is python_env.tensorflow_build(None)
    assert ("nvidia-nccl-cu12", "2.21.5") == python_env.nccl_pin(
        'Requires-Dist: nvidia-nccl-cu12==2.21.5; platform_system == "Linux"'
    )
    assert ("nvidia-nccl-cu11", "2.14.3") == python_env.nccl_pin("Requires-Dist: nvidia-nccl-cu11 (==2.14.3)")


HISTORY = """==> 2024-05-29 10:00:00 <==
# cmd: /opt/conda/bin/conda create -n train python=3.11
+defaults::python-3.11.9-h955ad1f_0
+defaults::zlib-1.2.13-h5eee18b_1
==> 2024-06-05 10:00:00 <==
# cmd: /opt/conda/bin/conda install nccl
-conda-forge/linux-64::zlib-1.2.13-h5eee18b_1
+conda-forge/linux-64::nccl-2.19.3.1-h0800d71_1
# update specs: ['nccl']
==> 2024-06-06 10:00:00 <==
# cmd: /opt/conda/bin/conda list
"""


def test_the_history_of_conda_tells_what_came_after_pip() -> None:
    first, second = python_env.conda_history(HISTORY, None)
    assert (["python", "zlib"], 1) == (first.packages, first.line)
    assert (["nccl", "zlib"], 5) == (second.packages, second.line)
    assert first.stamp is not None
    installed = {"torch": first.stamp + 600, "horovod": first.stamp + 30 * 86400}
    assert ["torch"] == python_env.older(second, installed)
    assert [] == python_env.older(first, installed)


def test_the_time_zone_of_the_history_comes_from_its_file() -> None:
    plain = python_env.conda_history(HISTORY, None)[-1].stamp
    assert plain is not None
    shifted = python_env.conda_history(HISTORY, plain + 86400 - 9 * 3600)[-1].stamp
    assert plain - 9 * 3600 == shifted


def test_the_interpreter_of_the_task(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/venv/bin/python", "")
    tree.put("/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    tree.put("/venv/lib/python3.12/site-packages/torch-2.7.0.dist-info/METADATA", "")
    tree.put("/usr/bin/python3", "")
    tree.put("/usr/lib/python3/dist-packages/x", "")
    tree.put("/usr/lib/python3.10/os.py", "")
    tree.put("/home/alice/.local/lib/python3.12/site-packages/torch-2.1.0.dist-info/METADATA", "")
    tree.write(tmp_path)
    root = Root(tmp_path)
    found = python_env.find(root, {"PATH": "/venv/bin:/usr/bin", "HOME": "/home/alice"})
    assert found is not None
    assert ("/venv", "3.12", ["env"]) == (found.prefix, found.version, [site.kind for site in found.sites])
    assert [("torch", "2.7.0")] == [(one.name, one.version) for one in python_env.packages(root, found)]
    system = python_env.find(root, {"PATH": "/usr/bin"})
    assert system is not None
    assert ("/usr", "3.10") == (system.prefix, system.version)
    assert None is python_env.find(root, {})


def test_old_and_new_words_for_the_toolkit(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89")
    tree.put("/usr/local/cuda-12.4/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}')
    tree.put("/usr/local/cuda-13/version.json", '{"cuda": ')
    tree.link("/usr/local/cuda", "/usr/local/cuda-12.4")
    tree.put(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\nGCC version: gcc 12",
    )
    tree.write(tmp_path)
    rows = [row for row in installed.collect(Root(tmp_path)) if isinstance(row, SoftwareVersion)]
    assert [("nvidia-driver", "570.124.06"), ("cuda-toolkit", "10.2.89"), ("cuda-toolkit", "12.4.1")] == [
        (row.name, row.version) for row in rows
    ]


def targets(root: Root, **settings: str) -> list[tuple[str, str]]:
    found: list[SettingTarget] = list(environment.targets(root, settings))
    return [(row.part, row.found) for row in found]


@pytest.fixture
def cards(tmp_path: Path) -> Root:
    tree = node.Tree()
    for name in ("eth0", "eth1", "ib0", "lo"):
        tree.put(f"/sys/class/net/{name}/type", 1)
    for name in ("mlx5_0", "mlx5_1", "mlx5_10"):
        tree.put(f"/sys/class/infiniband/{name}/ports/1/state", "4: ACTIVE")
        tree.put(f"/sys/class/infiniband/{name}/ports/1/link_layer", "Ethernet" if name == "mlx5_10" else "InfiniBand")
    for number in range(4):
        tree.put(f"/proc/driver/nvidia/gpus/0000:{number}b:00.0/information", "Model: x")
    tree.put("/opt/topo.xml", "<system/>")
    tree.write(tmp_path)
    return Root(tmp_path)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", [("eth", "eth0 eth1")]),
        ("NCCL_SOCKET_IFNAME", "=eth", [("eth", "")]),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", []),
        ("NCCL_SOCKET_IFNAME", "ens5,ib", [("ens5", ""), ("ib", "ib0")]),
        ("NCCL_IB_HCA", "mlx5_1:1", [("mlx5_1:1", "mlx5_1 mlx5_10")]),
        ("NCCL_IB_HCA", "=mlx5_1:1,mlx5_2", [("mlx5_1:1", "mlx5_1"), ("mlx5_2", "")]),
        ("GLOO_SOCKET_IFNAME", "eth", [("eth", "")]),
        ("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8,eth0", [("eth0", "eth0")]),
        ("UCX_NET_DEVICES", "mlx5_0:1,eth0", [("mlx5_0:1", "mlx5_0"), ("eth0", "eth0")]),
        ("UCX_NET_DEVICES", "all", []),
        ("NCCL_TOPO_FILE", "/opt/topo.xml", [("/opt/topo.xml", "/opt/topo.xml")]),
        ("NCCL_NET_PLUGIN", "aws-ofi", []),
        ("CUDA_VISIBLE_DEVICES", "0,5", [("0", "0"), ("5", "")]),
        ("CUDA_VISIBLE_DEVICES", "GPU-5a3e", [("GPU-5a3e", "GPU-5a3e")]),
        ("CUDA_VISIBLE_DEVICES", "", [("", "")]),
        ("NCCL_IB_DISABLE", "1", [("1", "mlx5_0 mlx5_1")]),
        ("NCCL_IB_DISABLE", "0", []),
        ("NCCL_IB_DISABLE", "yes", []),
        ("NCCL_NET", "Socket", [("Socket", "mlx5_0 mlx5_1")]),
    ],
)  # fmt: skip
def test_what_names_in_settings_stand_for(
    cards: Root, setting: str, value: str, expected: list[tuple[str, str]]
) -> None:
    assert expected == targets(cards, **{setting: value})


def test_secrets_are_no_settings() -> None:
    assert all(
        variables.chosen(name)
        for name in ("NCCL_DEBUG", "NCCL_DEBUG ", "LD_LIBRARY_PATH", "SLURM_JOB_ID", "RANK", "FI_PROVIDER")
    )
    assert not any(
        variables.chosen(name)
        for name in (
            "AWS_SECRET_ACCESS_KEY",
            "SLURM_JWT",
            "HOROVOD_SECRET_KEY",
            "WANDB_API_KEY",
            "HF_TOKEN",
            "EDITOR",
            "NVIDIA_API_KEY",
        )
    )


def test_the_environment_of_a_process_without_environ_json(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/self/environ", "NCCL_DEBUG=INFO\0NCCL_DEBUG=WARN\0HF_TOKEN=x\0broken\0=\0")
    tree.write(tmp_path)
    assert {"NCCL_DEBUG": "INFO"} == variables.variables(Root(tmp_path))
