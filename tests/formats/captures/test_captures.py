"""Output of host commands and Kubernetes files: read, checked against another reading, hostile ones refused."""

import io
import re
from pathlib import Path

import pytest
import yaml
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuHealth, NodeDriver, NodeGpu
from nccl_doctor.facts.tables.captures import C2cState, GpuMatrix, IbPort, KubePod, NvlinkState, Package
from nccl_doctor.formats import registry
from nccl_doctor.formats.captures import kubernetes, node_commands, packages
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import smi_query

FIXTURES = FIXTURES / "captures"


def node(data: bytes) -> Facts:
    facts = Facts()
    node_commands.read_format(io.BytesIO(data), "capture.txt", facts)
    return facts


def kube(data: bytes) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, kubernetes.read_format(io.BytesIO(data), "job.yaml", facts)


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("topo_nv18.txt", set()),
        ("topo_gpu2_lost.txt", {("gpu-pair-without-nvlink", "warning")}),
        ("nvlink_up.txt", set()),
        ("nvlink_gpu5_down.txt", {("nvlink-down", "error"), ("nvlink-links-inactive", "warning")}),
        ("ibstat_up.txt", set()),
        ("ibstat_bad.txt", {("ib-port-not-active", "warning"), ("ib-port-slow", "warning")}),
        ("pdsh_ibstat.txt", {("ib-port-not-active", "warning")}),
        ("ibv_devinfo_down.txt", {("ib-port-not-active", "warning")}),
        ("lsmod_no_peermem.txt", set()),
        ("fi_info_uneven.txt", {("fi-info-no-rdm-domain", "warning")}),
        ("conda_list.txt", {("two-nccl-packages", "warning")}),
        ("pip_freeze.txt", {("cpu-framework-installed", "warning")}),
        ("efa_installed_packages", set()),
        ("mpijob.yaml", set()),
        (
            "mpijob_bad.yaml",
            {
                ("kube-slots-differ-from-gpus", "error"),
                ("kube-parameter-server-holds-gpu", "warning"),
                ("kube-shm-missing", "warning"),
                ("kube-memlock-missing", "warning"),
            },
        ),
        ("tfjob_ps.yaml", {("kube-parameter-server-holds-gpu", "warning")}),
        ("describe_node.txt", {("kube-gpu-not-allocatable", "warning")}),
        ("fabricmanager.log", {("nvswitch-sxid", "error")}),
        ("fabricmanager_version.log", {("fabric-manager-not-running", "error")}),
        ("smi_q.txt", set()),
        (
            "smi_q_gpu3.txt",
            {
                ("gpu-ecc-uncorrectable-now", "error"),
                ("gpu-row-remap-pending-now", "error"),
                ("gpu-thermal-slowdown", "error"),
                ("gpu-hardware-slowdown", "error"),
                ("gpu-pcie-lanes-captured", "warning"),
            },
        ),
        ("aliases.yaml", {("kube-shm-missing", "warning")}),
    ],
)
def test_a_capture_gets_its_verdict(name: str, findings: set[tuple[str, str]]) -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / name)])
    assert findings == {(f.name, f.severity) for f in report.findings if f.severity != "note"}


def test_a_file_of_which_nothing_can_be_used_is_no_report() -> None:
    with pytest.raises(UsageProblem, match=r"hostile\.yaml: the document that starts in line 1 is not plain YAML"):
        analyze.analyze([str(FIXTURES / "hostile.yaml")])


def test_nvlinks_agree_with_a_count_of_lines() -> None:
    text = (FIXTURES / "nvlink_gpu5_down.txt").read_text()
    blocks = re.split(r"(?m)^GPU \d+: ", text)[1:]
    rows = node(text.encode()).rows(NvlinkState)
    assert [(block.count("GB/s"), block.count("<inactive>")) for block in blocks] == [
        (row.active, row.inactive) for row in rows
    ]


@pytest.mark.parametrize("separator", ["\t", "    "])
def test_the_matrix_reads_with_tabs_and_blanks(separator: str) -> None:
    text = (FIXTURES / "topo_gpu2_lost.txt").read_text().replace("\t", separator)
    rows = node(text.encode()).rows(GpuMatrix)
    assert 90 == len(rows)
    lost = {
        (row.device, row.peer)
        for row in rows
        if row.path == "SYS" and row.device.startswith("GPU") and row.peer.startswith("GPU")
    }
    assert {pair for gpu in range(8) if gpu != 2 for pair in ((f"GPU{gpu}", "GPU2"), ("GPU2", f"GPU{gpu}"))} == lost


def test_ports_of_several_hosts_are_kept_apart() -> None:
    rows = node((FIXTURES / "pdsh_ibstat.txt").read_bytes()).rows(IbPort)
    assert [
        ("node01", "mlx5_0", "Active"), ("node01", "mlx5_1", "Active"),
        ("node02", "mlx5_0", "Active"), ("node02", "mlx5_1", "Initializing"),
    ] == sorted((str(row.host), row.hca, row.state) for row in rows)  # fmt: skip
    lines = [
        "Infiniband device 'mlx5_0' port 1 status:",
        "state: 1: DOWN",
        "phys state: 2: Polling",
        "rate: 10 Gb/sec (4X SDR)",
    ]
    (port,) = node("\n\t".join([*lines, "link_layer: InfiniBand"]).encode()).rows(IbPort)
    assert ("mlx5_0", 1, "Down", "Polling", 10.0, "InfiniBand") == (
        port.hca, port.port, port.state, port.physical, port.rate, port.link_layer,
    )  # fmt: skip


def test_errors_of_the_fabric_manager_are_counted() -> None:
    text = (FIXTURES / "fabricmanager.log").read_text()
    assert [("nvswitch", text.count("[ERROR]"), 2)] == node(text.encode()).query(
        "SELECT f.kind, f.n, e.line FROM fabric_event f JOIN evidence e ON e.id = f.ref"
    )


def test_packages_by_source() -> None:
    facts = Facts()
    packages.read_format(io.BytesIO((FIXTURES / "conda_list.txt").read_bytes()), "conda.txt", facts)
    assert {"cudatoolkit": "conda", "nccl": "conda", "nvidia-nccl-cu12": "pip", "pytorch": "conda"} == {
        row.name: row.source for row in facts.rows(Package)
    }
    facts = Facts()
    packages.read_format(io.BytesIO((FIXTURES / "efa_installed_packages").read_bytes()), "efa", facts)
    assert {"efa-installer": "1.30.0", "efa-config": "1.15_all"}.items() <= {
        row.name: row.version for row in facts.rows(Package)
    }.items()


@pytest.mark.parametrize("name", ["mpijob.yaml", "mpijob_bad.yaml", "tfjob_ps.yaml"])
def test_pods_agree_with_yaml(name: str) -> None:
    data = (FIXTURES / name).read_bytes()
    spec = yaml.safe_load(data)["spec"]
    replicas = spec.get("mpiReplicaSpecs") or spec.get("tfReplicaSpecs")
    facts, reading = kube(data)
    assert len(replicas) == reading.understood
    for row in facts.rows(KubePod):
        container = replicas[row.role]["template"]["spec"]["containers"][0]
        assert replicas[row.role]["replicas"] == row.replicas
        assert container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu") == row.gpus
        assert spec.get("slotsPerWorker") == row.slots


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ((FIXTURES / "hostile.yaml").read_bytes(), "not plain YAML (could not determine a constructor"),
        (
            b"apiVersion: v1\nkind: Pod\nn0: &n0 [x, x]\n"
            + b"".join(b"n%d: &n%d [%s]\n" % (n, n, b", ".join([b"*n%d" % (n - 1)] * 10)) for n in range(1, 12)),
            "not plain YAML (its aliases make it grow beyond bounds)",
        ),
        (b"apiVersion: v1\nkind: Pod\nspec: &a [*a]\n", "not plain YAML (an alias stands for what it is part of)"),
        (b"apiVersion: v1\nkind: Pod\nspec: " + b"[" * 5000, "not plain YAML"),
        (b"apiVersion: v1\nkind: Pod\nspec:\n\tcontainers: [", "not plain YAML"),
        (b"apiVersion: v1\nkind: Pod\nspec: {containers: 5, volumes: {a: b}}\n", None),
        (
            b"apiVersion: v1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: [1], Launcher: {replicas: -9, template: {spec: 7}}}}\n",
            None,
        ),
    ],
)
def test_hostile_and_broken_yaml(data: bytes, note: str | None) -> None:
    assert "kubernetes" == getattr(registry.recognise(data), "kind", None)
    _, reading = kube(data)
    assert (note in (reading.note or "")) if note else reading.note is None


@pytest.mark.parametrize("name", [path.name for path in sorted(FIXTURES.iterdir())])
def test_a_capture_that_is_cut_or_holds_rubbish_is_survived(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / name).read_bytes()
    for number, broken in enumerate(
        (data[: len(data) // 2], data[:-7], data.replace(b"0", b"\xff"), b"\x00".join(data.split(b" ")), data * 3)
    ):
        for module in (node_commands, packages, kubernetes):
            reading = module.read_format(io.BytesIO(broken), f"{name}{number}", Facts())
            assert 0 <= reading.understood <= reading.lines


@pytest.mark.parametrize(
    "piece",
    [
        b"a", b"{", b" ", b"\n", b"# a\n", b"a, ", b"-->", b"<!--x-->\n", b"kind: x\n", b"a==1\n", b'"gpu":', b'{"index": 1}',
        b"<!ENTITY ", b'"n_ranks": ', b"# gpu pwr ", b"1 % ", b"pid, ", b"2024/09/08 13:03:31.000, ",
    ],
)  # fmt: skip
@pytest.mark.timeout(120)  # a search whose cost is the square of its input takes longer than that
def test_recognition_ends_whatever_comes(piece: bytes) -> None:
    heads = [known.begins for known in registry.FORMATS if known.begins is not None]
    starts = (
        b"",
        b"<!--",
        b"<!DOCTYPE ",
        b'{"gpus": [',
        b"apiVersion: a\n",
        b'{"header": {',
        b"2024/09/08 13:03:31.000, ",
    )
    for start in starts:
        data = (start + piece * 65536)[:65536]
        for head in heads:
            found = head.search(data)
            assert found is None or found.end() <= len(data)


def test_the_text_of_nvidia_smi_gives_the_columns_of_its_xml() -> None:
    """Every value that the text prints behind a title is read again by a plain search in the part of its GPU."""
    text = (FIXTURES / "smi_q_gpu3.txt").read_text()
    facts = Facts()
    reading = smi_query.read_format(io.BytesIO(text.encode()), "smi.txt", facts)
    parts = re.split(r"(?m)^GPU 0", text)[1:]
    gpus, health = facts.rows(NodeGpu), facts.rows(GpuHealth)
    assert (None, 8, 8) == (reading.note, len(gpus), len(health))
    for part, gpu, errors in zip(parts, gpus, health, strict=True):
        values = dict(re.findall(r"(?m)^ +(.*?) +: (-?[\d.]+)", part))
        assert float(values["Instantaneous Power Draw"]) == gpu.power
        assert int(values["GPU Current Temp"]) == gpu.temperature
        assert int(values["Minor Number"]) == gpu.gpu == gpu.minor
        assert re.findall(r"Current +: (\d+)x", part) == [str(gpu.pcie_width)]
        assert int(re.findall(r"DRAM Uncorrectable +: (\d+)", part)[0]) == errors.uncorrected
        assert int(re.findall(r"DRAM Correctable +: (\d+)", part)[1]) == errors.corrected_total
        assert ("Pending                           : Yes" in part) == bool(errors.remap_pending)
        assert 0 == errors.remap_banks_none
        assert bool((gpu.reasons or 0) & 0x40) == ("HW Thermal Slowdown           : Active" in part)
    assert {"550.90.07"} == {row.driver for row in facts.rows(NodeDriver)}


def test_a_cut_capture_of_nvidia_smi_says_where_it_ends() -> None:
    text = (FIXTURES / "smi_q.txt").read_text()
    facts = Facts()
    reading = smi_query.read_format(io.BytesIO(text[: len(text) // 2].encode()), "smi.txt", facts)
    assert 0 < len(facts.rows(NodeGpu)) < 8
    assert "8 GPUs are attached and ends after GPU" in (reading.note or "")


def test_the_xml_of_nvidia_smi_is_read_and_its_entities_are_not() -> None:
    gpu = '<gpu id="00000000:18:00.0"><product_name>NVIDIA H100</product_name><utilization><gpu_util>{} %</gpu_util></utilization></gpu>'
    xml = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    whole = f"{xml}<attached_gpus>1</attached_gpus>\n{gpu.format(97)}\n</nvidia_smi_log>\n".encode()
    assert getattr(registry.recognise(whole), "kind", None) == "nvidia-smi-q"
    facts = Facts()
    assert smi_query.read_format(io.BytesIO(whole), "smi.xml", facts).note is None
    assert [97] == [row.util for row in facts.rows(NodeGpu)]
    bomb = whole.replace(b' SYSTEM "nvsmi_device_v12.dtd">', b' [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>').replace(
        b"97 %", b"&b;"
    )
    assert getattr(registry.recognise(bomb), "kind", None) == "nvidia-smi-q"
    facts = Facts()
    assert "entit" in (smi_query.read_format(io.BytesIO(bomb), "smi.xml", facts).note or "")
    assert [] == facts.rows(NodeGpu)


LOG = "node01:101:140 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.4<0>\n"
BOUND = "[node01:04097] MCW rank {0} bound to socket 0[core {0}[hwt 0]]: [{1}][./././.]\n"
CAPTURES = {  # what a person saves with `COMMAND > FILE`, and the finding that must come of it
    "bindings.txt": (
        "".join(BOUND.format(rank, "/".join("B" if core == rank else "." for core in range(4))) for rank in range(4)),
        "numa-misbinding",
    ),
    "unbound.txt": ("[node01:04097] MCW rank 0 is not bound (or bound to all available processors)\n", None),
    "check-build.txt": (
        "Horovod v0.28.1:\n\nAvailable Frameworks:\n    [X] PyTorch\n\nAvailable Controllers:\n    [X] MPI\n\n"
        "Available Tensor Operations:\n    [ ] NCCL\n    [X] MPI\n",
        "horovod-no-nccl",
    ),
    "dmesg.txt": (
        "[1234.567890] NVRM: Xid (PCI:0000:48:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n",
        "xid-79-off-bus",
    ),
    "journal.txt": (
        "Sep 16 10:00:02 node01 kernel: nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 28 LTSSM Fault Up\n",
        "nvswitch-sxid",
    ),
}


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "in a folder with the log"])
def test_captures_that_log_patterns_read_are_files_of_their_own_too(name: str, beside: bool, tmp_path: Path) -> None:
    text, wanted = CAPTURES[name]
    (tmp_path / name).write_text(text)
    if beside:
        (tmp_path / "job.log").write_text(LOG)
    report, _, _ = analyze.analyze([str(tmp_path if beside else tmp_path / name)])
    read = next(read for read in report.inputs if read.path.endswith(name))
    assert ("job-log", True) == (read.kind, read.understood > 0)
    found = {finding.name for finding in report.findings}
    assert wanted in found if wanted else not found


def test_a_capture_belongs_to_the_host_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(LOG + LOG.replace("node01", "node02"))
    for host, name in (("node01", "smi_q.txt"), ("node02", "smi_q_gpu3.txt")):
        (tmp_path / host).mkdir()
        (tmp_path / host / "smi.txt").write_bytes((FIXTURES / name).read_bytes())
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert {"node02"} == {f.hosts for f in report.findings if f.name.startswith("gpu-")}


def test_traffic_and_capabilities_of_nvlinks() -> None:
    head = "GPU {0}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000000{0}-2222-3333-4444-555555555555)\n"
    traffic = "".join(
        head.format(gpu) + f"\t Link 0: Data Tx: {gpu}00 KiB\n\t Link 0: Data Rx: 7 KiB\n\t Link 1: Data Tx: N/A\n"
        for gpu in range(2)
    )
    able = (
        head.format(2)
        + "\t Link 0, P2P is supported: true\n\t Link 1, P2P is supported: false\n\t Link 1, Link is supported: false\n"
    )
    facts = Facts()
    node_commands.read_format(io.BytesIO((traffic + able).encode()), "nvlink.txt", facts)
    assert [(0, 2, 0, 7, None), (1, 2, 100, 7, None), (2, 2, None, None, 1)] == facts.query(
        "SELECT gpu, links, sent, received, without_p2p FROM nvlink_use"
    )
    assert [] == facts.query("SELECT * FROM nvlink_state")


def test_a_row_of_the_matrix_that_came_twice_counts_once() -> None:
    lines = (FIXTURES / "topo_nv18.txt").read_text().splitlines()
    row = next(line for line in lines if line.startswith("GPU2"))
    facts = analyze.read_text("\n".join([line for line in lines for _ in range(1 + (line is row))]) + "\n")
    once = analyze.read_text("\n".join(lines) + "\n")
    assert once.query("SELECT device, peer, path FROM gpu_matrix") == facts.query(
        "SELECT device, peer, path FROM gpu_matrix"
    )


def test_links_between_gpu_and_cpu_of_superchips(tmp_path: Path) -> None:
    def superchip(gpu: int, speeds: list[str]) -> str:
        links = [f"\t C2C Link {at}: {speed}" for at, speed in enumerate(speeds)]
        return "\n".join(
            [f"GPU {gpu}: NVIDIA GH200 120GB (UUID: GPU-{gpu:08}-1111-2222-3333-444444444444)", *links, ""]
        )

    healthy, slow = ["44.712 GB/s"] * 10, ["44.712 GB/s"] * 9 + ["11.178 GB/s"]
    facts = node(
        (
            superchip(0, healthy) + superchip(1, slow) + superchip(2, ["44.712 GB/s", "<inactive>", "9.9.9 GB/s"])
        ).encode()
    )
    assert [(10, 0, 44.712, 447.12), (10, 0, 11.178, 413.586), (1, 1, 44.712, 44.712)] == [
        (row.active, row.inactive, row.speed, round(row.total, 3)) for row in facts.rows(C2cState)
    ]
    assert [] == facts.rows(NvlinkState)
    for speeds, expected in ((healthy, []), (["11.178 GB/s"] * 10, ["c2c-bandwidth-low"])):
        (tmp_path / "c2c.txt").write_text(superchip(0, speeds))
        report, _, _ = analyze.analyze([str(tmp_path / "c2c.txt")])
        assert expected == [finding.name for finding in report.findings]
        assert [447.12 if not expected else 111.78] == [round(row.value, 2) for row in report.measures]


def test_a_torn_number_ends_no_list_of_links() -> None:
    lines = ["GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)", "\t Link 0: 26..562 GB/s", "\t Link 1: <inactive>"]
    facts = Facts()
    node_commands.read_format(io.BytesIO("\n".join(lines).encode()), "nvlink.txt", facts)
    assert [1] == [row.inactive for row in facts.rows(NvlinkState)]
