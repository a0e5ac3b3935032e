"""Output of commands that administrators run on nodes and clusters."""

import re

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

_FAMILIES = (b"NCCL_", b"RCCL_", b"OFI_NCCL_", b"FI_", b"UCX_", b"OMPI_MCA_", b"TORCH_", b"GLOO_", b"HOROVOD_")
# How settings begin in a line; a line break stands for its start.
_STARTS = (
    b"\n", b"export ", b"setenv ", b"+ ", b"-x ", b"-e ", b"--env ", b"--env=", b"env ",
    b": ", b"] ", b"| ",  # the prefix of a launcher; `name: ` of YAML
    b"  ", b"- ", b",", b'"', b"'",
)  # fmt: skip
SETTINGS = (*(start + family for start in _STARTS for family in _FAMILIES), b"-mca ")
FORMATS = (
    Format(
        "kubernetes",
        "kubernetes",
        tables=("kube_pod", "kube_resource", "message", "process_end", "env", "kube_node"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:(?:#|---)[^\n]*)?\n){0,40}(?=(?:[^\n]*\n){0,400}?kind: ?[\"']?"
            rb"(?:TFJob|PyTorchJob|MPIJob|PaddleJob|XGBoostJob|JAXJob|Pod|Job|StatefulSet|Deployment|DaemonSet|ReplicaSet|List)\b)"
            rb"(?:apiVersion|kind|metadata|spec): ?"
            # a list, which says so behind its items only
            rb"|\AapiVersion: v1\r?\nitems:\r?\n {0,4}- apiVersion: [^\n]{1,80}\n {2,6}kind: (?:\w{2,20}Job|Pod|Job|StatefulSet|Node)\b"
            rb"|\AName: +\S{1,253}\r?\nRoles: "  # kubectl describe node
        ),
        leads=True,
        quotes=True,
    ),
    Format(
        "kube-nodes",
        "kube_nodes",
        tables=("kube_node", "host_number"),
        inside=(b"ROLES ", b"CPU(cores) ", b"LastHeartbeatTime "),
        reach=4 << 20,
    ),
    Format(
        "pod-description",
        "pod_states",
        tables=("message", "process_end"),
        inside=(b"Restart Count:", b"  Exit Code:  "),
        reach=1 << 20,
    ),
    Format(
        "host-commands",
        "host_commands",
        tables=(
            "host_number",
            "task_limit",
            "host_memory",
            "shared_memory",
            "mount",
            "mount_probe",
            "rdma_gid",
            "gpu_pair",
            "ib_port",
            "bond_member",
            "message",
            "listed_process",
            "lustre_target",
        ),
        inside=(
            b"PID %CPU",
            b" MEM USAGE / LIMIT",
            b"PID  PPID",
            b"PID    PPID",
            b" STAT ",
            b"PR  NI",
            b"Ethernet Channel Bonding Driver: ",
            b"PhysLinkState:..",
            b"/sys/class/infiniband/",
            b" %util",
            b"max locked memory",
            b"Max locked memory",
            b"-l: locked-in-memory",
            b"buff/cache",
            b"Puffer/Cache",
            b"tampons/cache",
            b"buffers     cached",
            b"MemTotal:  ",
            b"NUMA node(s):",
            b"node 0 cpus:",
            b"Cpu(s):",
            b"Performance counter stats for",
            b"Mounted on",
            b"Eingeh\xc3\xa4ngt auf",
            b"Mont\xc3\xa9 sur",
            b"Montado en",
            b"proc on /proc type proc",
            b"proc /proc proc ",
            b" type nfs",
            b" type lustre ",
            b" type ext4 (",
            b"LnkSta:",
            b" physical_state ",
            b"PORT\tINDEX\tGID",
            b"GPU0\tGPU1",
            b"= Chipset not supported",
            b"IFACE   rxpck/s",
            b"IFACE   rxerr/s",
            b" mounted on /",
            b" with fstype nfs",
            b".import=",
            b"_server_uuid=",
            b"-osc-ffff",
            b"-mdc-ffff",
            b"health_check=",
            b".stats=\nsnapshot_time",
            b".md_stats=\nsnapshot_time",
        ),
        reach=1 << 20,
        after=("slurm-job", "packages", "slurm-accounting", "gpu-metrics"),
    ),
    Format(
        "shell-settings",
        "shell_settings",
        tables=("env",),
        inside=SETTINGS,
        after=("host-commands",),
    ),
    Format(
        "host-values",
        "host_values",
        tables=("host_value",),
        # four hosts whose names differ in their digits, each with a word
        begins=compiled(
            rb"\A(?!(?i:rank|local_rank|step|epoch|iter|layer|block|stage|line|item|test|run|fold|batch|cpu|cuda|dev|device|eth|ib|mlx\d_"
            rb"|nvme|sd|port|slot|core|thread|worker|task|job|fan|temp|group|class|col|row|key|level|seed|phase|chunk|part|bin|gpu\d:)\d)"
            rb"(?P<stem>[A-Za-z][A-Za-z_-]{0,40})\d{1,6}[\w.-]{0,80}: [^\s:=]{1,60}\n"
            rb"(?:(?P=stem)\d{1,6}[\w.-]{0,80}: [^\s:=]{1,60}(?:\n|\Z)){3}"
        ),
        last=True,  # values under headings may be anything
        after=("node-capture", "listed-things"),
    ),
    Format(
        "cpu-samples",
        "cpu_samples",
        tables=("host_use",),
        inside=(b" %idle", b" swpd   free ", b"usr sys idl "),
        reach=16 << 20,
        after=("training-steps", "node-capture"),
    ),
    Format(
        "cpu-exports",
        "cpu_exports",
        tables=("host_use",),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?(?:# hostname;interval;timestamp;CPU;%"  # sadf -d
            rb"|\{\s{0,20}\"sysstat\"\s{0,4}:\s{0,20}\{"
            rb"|\"(?:Dstat|dool|Dool) [\d.]{1,12} CSV output\""
            rb"|(?:RESET\r?\n)?CPU \S{1,253} \d{9,12} 20\d\d/\d\d/\d\d \d\d:\d\d:\d\d \d)"  # atop -P
        ),
        inside=(b"# hostname;interval;timestamp;CPU", b' CSV output"'),
        reach=4 << 20,
        heading=compiled(
            rb"^(?:# hostname;interval;timestamp;CPU|\"(?:Dstat|[Dd]ool) [\d.]{1,12} CSV output\")", re.MULTILINE
        ),
        leads=True,
    ),
    Format(
        "packages",
        "packages",
        tables=("package",),
        begins=compiled(
            rb"\A(?:# packages in environment at |# EFA installer version: "
            rb"|Package +Version *(?:Editable project location *)?\r?\n-{4,}"
            rb"|(?:[A-Za-z0-9][\w.-]{0,80}==[\w.+!-]{1,60}\r?\n){5})"
        ),
        inside=(
            b"# packages in environment at ",
            b"\nPackage   ",
            b"\ntorch==",
            b"\nnvidia-nccl-cu",
            b"\ntensorflow==",
            b"\nhorovod==",
        ),
        reach=1 << 20,
        leads=True,
    ),
    Format(
        "environment-report",
        "environment_report",
        tables=("software_version", "package", "message"),
        inside=(
            b"CUDA used to build PyTorch",
            b"Is CUDA available",
            b"PyTorch version (",
            b"torch cuda version ...",
            b"CUDA available: ",
        ),
        reach=1 << 20,
        after=("training-steps", "node-capture", "nvidia-smi"),
    ),
    Format(
        "node-capture",
        "node_commands",
        tables=(
            "gpu_matrix",
            "nvlink_state",
            "nvlink_use",
            "c2c_state",
            "ib_port",
            "kernel_module",
            "ofi_domain",
            "fabric_event",
        ),
        inside=(
            b"GPU0\tGPU1",
            b"GPU0    GPU1",
            b"CPU Affinity",
            b"Link 0: Data ",
            b"Link 0: <inactive>",
            b"C2C Link 0: ",
            *(b"Link 0: %d" % digit for digit in range(10)),  # GB/s
            b"Link 0, P2P is supported: ",
            b"CA type: ",
            b"Infiniband device '",
            b"hca_id:",
            b"Size  Used by",
            b"    domain: ",
            b"[ERROR] [tid ",
        ),
        reach=1 << 20,
        after=("gpu-samples",),
    ),
)
