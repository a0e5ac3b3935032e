"""Settings that `env`, `export`, `set -x` and the options of launchers show."""

import io
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env
from nccl_doctor.formats.captures import shell_settings
from nccl_doctor.formats.captures.setting_lines import parse_line

SETTINGS = "SELECT host, rank, name, value, n FROM env ORDER BY name, value, host, rank"


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO")]),
        ("export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", [("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1")]),
        ('declare -x NCCL_SOCKET_IFNAME="^docker0,lo"', [("NCCL_SOCKET_IFNAME", "^docker0,lo")]),
        ("+ NCCL_P2P_DISABLE=1", [("NCCL_P2P_DISABLE", "1")]),
        ("+ export 'FI_PROVIDER=efa'", []),
        ("setenv NCCL_NET_GDR_LEVEL PHB", [("NCCL_NET_GDR_LEVEL", "PHB")]),
        ("    export UCX_TLS=rc,cuda_copy  # not tcp", [("UCX_TLS", "rc,cuda_copy")]),
        (
            "NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 torchrun --nproc_per_node 8 train.py",
            [("NCCL_DEBUG", "INFO"), ("NCCL_IB_DISABLE", "1")],
        ),
        (
            "mpirun -np 16 -x NCCL_DEBUG=INFO -x PATH -x NCCL_IB_TC=106 python train.py",
            [("NCCL_DEBUG", "INFO"), ("NCCL_IB_TC", "106")],
        ),
        ("docker run --gpus all -e NCCL_SHM_DISABLE=1 image", [("NCCL_SHM_DISABLE", "1")]),
        (
            "srun -n 8 --export=ALL,NCCL_DEBUG=INFO,HOME=/root,NCCL_IB_TC=106 ./a.out",
            [("NCCL_DEBUG", "INFO"), ("NCCL_IB_TC", "106")],
        ),
        ("#SBATCH --export='NIL,NCCL_IB_HCA=mlx5_0'", [("NCCL_IB_HCA", "mlx5_0")]),
        ('srun --export="ALL,FI_PROVIDER=efa" ./a.out', [("FI_PROVIDER", "efa")]),
        (
            "srun --export=ALL,NCCL_IB_HCA='mlx5_0,mlx5_1',NCCL_DEBUG=WARN ./a.out",
            [("NCCL_IB_HCA", "mlx5_0,mlx5_1"), ("NCCL_DEBUG", "WARN")],
        ),
        ("qsub -v UCX_TLS=rc,NCCL_DEBUG=INFO job.pbs", [("UCX_TLS", "rc"), ("NCCL_DEBUG", "INFO")]),
        ('bsub -env "all, NCCL_DEBUG=INFO" -n 8 ./a.out', [("NCCL_DEBUG", "INFO")]),
        (
            "apptainer exec --nv --env NCCL_DEBUG=INFO,UCX_TLS=tcp image.sif ./a.out",
            [("NCCL_DEBUG", "INFO"), ("UCX_TLS", "tcp")],
        ),
        ("docker run --env NCCL_IB_HCA=mlx5_0,mlx5_1 image", [("NCCL_IB_HCA", "mlx5_0,mlx5_1")]),
        (
            "docker run -e \"NCCL_SOCKET_IFNAME=eth0\" -e 'GLOO_SOCKET_IFNAME=eth1' image",
            [("NCCL_SOCKET_IFNAME", "eth0"), ("GLOO_SOCKET_IFNAME", "eth1")],
        ),
        ("mpiexec -n 4 -genv NCCL_DEBUG INFO -env UCX_TLS=tcp ./a.out", [("UCX_TLS", "tcp"), ("NCCL_DEBUG", "INFO")]),
        (
            "+ PATH=/opt/bin /opt/openmpi/bin/mpirun -np 8 -mca btl ^openib --mca btl_tcp_if_include eth0 ./a.out",
            [("OMPI_MCA_btl", "^openib"), ("OMPI_MCA_btl_tcp_if_include", "eth0")],
        ),
        ("    --mca pml ucx \\", [("OMPI_MCA_pml", "ucx")]),
        ('horovodrun -np 4 --mpi-args="--mca pml ob1" python train.py', [("OMPI_MCA_pml", "ob1")]),
        ("You can pass --mca btl_base_warn_component_unused 0 to mpirun to hide this", []),
        ("      - NCCL_SOCKET_IFNAME=eth0", [("NCCL_SOCKET_IFNAME", "eth0")]),
        ('                "NCCL_IB_DISABLE=1",', [("NCCL_IB_DISABLE", "1")]),
        ("      NCCL_IB_DISABLE:  1", [("NCCL_IB_DISABLE", "1")]),
        ('      NCCL_IB_HCA: "mlx5_0,mlx5_1"  # two ports', [("NCCL_IB_HCA", "mlx5_0,mlx5_1")]),
        ('  "NCCL_DEBUG": "INFO",', [("NCCL_DEBUG", "INFO")]),
        ("      NCCL_DEBUG:  <set to the key 'debug' of config map 'nccl'>  Optional: false", []),
        (
            'env: [{name: NCCL_DEBUG, value: "INFO"}, {name: FI_PROVIDER, value: efa}]',
            [("NCCL_DEBUG", "INFO"), ("FI_PROVIDER", "efa")],
        ),
        ('"env":[{"name":"NCCL_DEBUG","value":"WARN"}]', [("NCCL_DEBUG", "WARN")]),
        ("NCCL_ERROR: timeout", []),
        ("  NCCL_DEBUG: INFO shows more", []),
        ("      WANDB_API_KEY: abc", []),
        ("export NCCL_ASYNC_ERROR_HANDLING=$HANDLING", []),
        ("NCCL_P2P_DISABLE=1 may help on such machines", []),
        ("Run with NCCL_DEBUG=INFO for details", []),
        ("# export NCCL_IB_DISABLE=1", []),
        ("NCCL_DEBUG INFO", []),
        ("export TORCH_HUB_TOKEN=abc", []),
        ("export HF_HOME=/data", []),
    ],
)
def test_settings_of_a_line(line: str, settings: list[tuple[str, str]]) -> None:
    assert settings == list(parse_line(line))


def test_an_environment_names_what_is_misspelt_and_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "env.txt"
    file.write_text("HOME=/root\nNCCL_P2P_DISABLE=1\nNCCL_IB_HCAS=mlx5_0\nWORLD_SIZE=16\n")
    report, facts, problems = analyze.analyze([str(file)])
    assert [] == problems
    assert [(None, None, "NCCL_IB_HCAS", "mlx5_0", 1), (None, None, "NCCL_P2P_DISABLE", "1", 1)] == facts.query(
        SETTINGS
    )
    assert {"p2p-disabled-by-env", "env-unknown-name"} <= {finding.name for finding in report.findings}
    assert "shell-settings" == report.inputs[0].kind


def test_settings_of_hosts_are_told_apart_and_repeats_counted() -> None:
    text = "".join(
        f"node0{host}: export NCCL_DEBUG=INFO\nnode0{host}: export NCCL_IB_TC={host}\nnode0{host}: export NCCL_DEBUG=INFO\n"
        for host in (1, 2)
    )
    facts = analyze.read_text(text)
    assert [
        ("node01", None, "NCCL_DEBUG", "INFO", 2),
        ("node02", None, "NCCL_DEBUG", "INFO", 2),
        ("node01", None, "NCCL_IB_TC", "1", 1),
        ("node02", None, "NCCL_IB_TC", "2", 1),
    ] == facts.query(SETTINGS)


def test_a_script_in_front_of_a_job_does_not_make_its_log_another_one(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    init = "node01:7:7 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\nnode01:7:7 [0] NCCL INFO Using network IB\n"
    file.write_text(f"+ export NCCL_SOCKET_IFNAME=eth0\n+ srun python train.py\n{init}")
    report, facts, _ = analyze.analyze([str(file)])
    assert "nccl-log" == report.inputs[0].kind
    assert 2 == len(facts.query("SELECT 1 FROM env WHERE name = 'NCCL_SOCKET_IFNAME' AND value = 'eth0'"))


def test_what_is_no_text_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_bytes(b"export NCCL_DEBUG=INFO\n" + bytes(range(128, 256)) * 40 + b"\nexport NCCL_IB_TC='\nexport NCCL_")
    assert [(None, None, "NCCL_DEBUG", "INFO", 1)] == analyze.analyze([str(file)])[1].query(SETTINGS)


def test_prefixes_of_launchers_tell_hosts_and_tasks_apart_where_a_line_holds_nothing_else() -> None:
    facts = analyze.read_text("gpu01: NCCL_IB_DISABLE=1\ngpu02: PATH=/bin\n[pod/train-0/main] NCCL_IB_DISABLE=1\n")
    assert [("gpu01", None, "NCCL_IB_DISABLE", "1", 1), ("train-0", None, "NCCL_IB_DISABLE", "1", 1)] == facts.query(
        SETTINGS
    )
    assert [(None, 0, "NCCL_IB_TC", "0", 1), (None, 1, "NCCL_IB_TC", "106", 1)] == analyze.read_text(
        "0: NCCL_IB_TC=0\n1: NCCL_IB_TC=106\n"
    ).query(SETTINGS)


CONTAINER = """\
kind: Pod
spec:
  containers:
  - name: main
    env:
    - name: NCCL_IB_DISABLE
      value: "1"
    - name: NCCL_DEBUG
      valueFrom:
        configMapKeyRef: {name: nccl, key: debug}
    - name: NCCL_SOCKET_IFNAME
"""


@pytest.mark.parametrize("lead", ["apiVersion: v1\n", "# values of a chart\n", ""])
def test_the_environment_of_containers_is_read(tmp_path: Path, lead: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(lead + CONTAINER)
    report, facts, problems = analyze.analyze([str(file)])
    assert [] == problems
    assert [(None, None, "NCCL_IB_DISABLE", "1", 1)] == facts.query(SETTINGS)
    assert "ib-disabled-by-env" in {finding.name for finding in report.findings}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["+ NCCL_TEST=0", "+ srun python train.py"], []),
        (["+ export NCCL_IB_TC=106", "+ NCCL_IB_TC=106"], ["NCCL_IB_TC"]),
        (["+ NCCL_IB_TC=106", "+ NCCL_TEST=0", "+ export NCCL_IB_TC"], ["NCCL_IB_TC"]),
        (["+ NCCL_IB_TC=106 python train.py"], ["NCCL_IB_TC"]),
        (["+ set -a", "+ NCCL_IB_TC=106", "+ set +a"], ["NCCL_IB_TC"]),
        (["NCCL_IB_TC=106"], ["NCCL_IB_TC"]),
    ],
)
def test_what_a_traced_shell_keeps_for_itself_is_no_setting(lines: list[str], names: list[str]) -> None:
    facts = Facts()
    shell_settings.read_format(io.BytesIO("\n".join([*lines, ""]).encode()), "job.log", facts)
    assert names == [row.name for row in facts.rows(Env)]
