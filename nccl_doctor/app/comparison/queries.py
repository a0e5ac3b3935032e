"""Queries whose answers are compared between two runs, in the order in which they are shown."""

from typing import NamedTuple

from nccl_doctor.derive.node_differences import TRAITS


class Words(NamedTuple):
    """Something that is stated in words. The query gives rows (what, value, how many state it, ref)."""

    topic: str
    needs: tuple[str, ...]  # tables, one of which must have been looked at; without them the run does not tell
    query: str
    lacking: str = ""  # what is said of an item that only the other run has; empty: nothing


class Number(NamedTuple):
    """Something that is measured. The query gives rows (what, value, unit, spread, ref); the first one of an item counts."""

    topic: str
    needs: tuple[str, ...]
    query: str
    better: int  # 1: more is better; -1: less is; 0: neither
    share: float | None  # of the value, from which on a change counts; None: what the user says
    least: float = 0.0  # a smaller change never counts


# Settings that decide how a job communicates. Files, addresses and ids differ between any two runs.
_SETTINGS = (
    "SELECT name, value, count(DISTINCT coalesce(host, '') || ' ' || coalesce(rank, pid, '')), min(ref) FROM env"
    " WHERE name REGEXP '^(NCCL|RCCL|OFI_NCCL|FI|UCX|OMPI_MCA|TORCH|PYTORCH|CUDA|HOROVOD|GLOO|OMP|MKL|XLA|HSA|NVSHMEM|MELLANOX|TF|LD)_'"
    " AND name NOT REGEXP '(DEBUG_FILE|DUMP_FILE|HOSTID|COMM_ID|JOB_ID|_ADDR|_PORT|_DUMP|VISIBLE_DEVICES)$'"
    " GROUP BY name, value"
)
# What carries data: `NET/IB/GDRDMA`, `P2P/CUMEM`, `SHM/direct`.
_CARRIER = "transport || coalesce('/' || network, '') || coalesce('/' || method, '') || CASE gdr WHEN 1 THEN '/GDRDMA' ELSE '' END"

RUNS: tuple[Words | Number, ...] = (
    Number(
        "speed",
        ("steady",),
        "SELECT 'speed of ' || t.tool,"
        " CASE WHEN t.unit = 'steps/s' THEN s.rate ELSE coalesce(s.job_rate / t.gpus, s.job_rate, s.rate) END,"
        " t.unit || CASE WHEN t.unit = 'steps/s' THEN '' WHEN s.job_rate IS NULL THEN ' of a ' || t.scope"
        " WHEN t.gpus IS NULL THEN '' ELSE ' a GPU' END,"
        " s.mad / s.rate, s.ref FROM steady s JOIN throughput_run t USING (run) WHERE s.rate > 0 ORDER BY s.points DESC",
        better=1,
        share=None,
    ),
    Number(
        "speed",
        ("steady",),
        "SELECT 'speed of ' || t.tool, s.seconds, 's a step', NULL, s.ref FROM steady s JOIN throughput_run t USING (run)"
        " WHERE s.rate IS NULL AND s.seconds > 0 ORDER BY s.points DESC",
        better=-1,
        share=None,
    ),
    Number(
        "speed",
        ("trace",),
        "SELECT 'traced steps', median(step_s), 's a step', NULL, min(ref) FROM trace WHERE step_s > 0",
        better=-1,
        share=None,
    ),
    Number(
        "bandwidth",
        ("bench_limit",),
        "SELECT coalesce(r.operation, 'collective') || ', large sizes', l.plateau, 'GB/s', NULL, l.ref"
        " FROM bench_limit l JOIN bench_run r USING (run) WHERE l.plateau > 0 ORDER BY r.rows DESC",
        better=1,
        share=None,
    ),
    Number(
        "bandwidth",
        ("bench_limit",),
        "SELECT coalesce(r.operation, 'collective') || ', small sizes', l.floor_us, 'us', NULL, l.ref"
        " FROM bench_limit l JOIN bench_run r USING (run) WHERE l.floor_us > 0 ORDER BY r.rows DESC",
        better=-1,
        share=0.25,
        least=5.0,
    ),
    Number(
        "bandwidth",
        ("copy_test",),
        "SELECT 'copies, ' || t.test, median(r.value), t.unit, NULL, min(r.ref) FROM copy_test t JOIN copy_rate r ON r.test = t.number"
        " WHERE r.value IS NOT NULL AND t.measure = 'bandwidth' GROUP BY t.tool, t.test",
        better=1,
        share=None,
    ),
    Number(
        "bandwidth",
        ("copy_test",),
        "SELECT 'copies, ' || t.test, median(r.value), t.unit, NULL, min(r.ref) FROM copy_test t JOIN copy_rate r ON r.test = t.number"
        " WHERE r.value IS NOT NULL AND t.measure = 'latency' GROUP BY t.tool, t.test",
        better=-1,
        share=0.25,
    ),
    Number(
        "bandwidth",
        ("active_test",),
        "SELECT CASE tool WHEN 'perftest' THEN 'RDMA, ' WHEN 'fio' THEN 'storage, ' ELSE '' END || test, median(value), unit, NULL,"
        " min(ref) FROM active_test WHERE unit <> 'us' AND (tool IN ('perftest', 'fio') OR tool IN ('iperf3', 'netperf') AND test = 'tcp')"
        " GROUP BY tool, test",
        better=1,
        share=None,
    ),
    Number(
        "bandwidth",
        ("c2c_state",),
        "SELECT 'NVLink-C2C', min(total), 'GB/s', NULL, min(ref) FROM c2c_state GROUP BY NULL HAVING count(*) > 0",
        better=1,
        share=0.05,
    ),
    Number(
        "communication",
        ("trace",),
        "SELECT 'communication that nothing hides', 100 * sum(exposed_s) / sum(span_s), '% of the time', NULL, min(ref)"
        " FROM trace WHERE span_s > 0 GROUP BY NULL HAVING count(*) > 0",
        better=-1,
        share=0.2,
        least=3.0,
    ),
    Number(
        "communication",
        ("timeline",),
        "SELECT 'negotiation of Horovod', median(negotiate_ms), 'ms', NULL, min(ref) FROM timeline"
        " GROUP BY NULL HAVING count(negotiate_ms) > 0",
        better=-1,
        share=0.25,
        least=1.0,
    ),
    Number(
        "input",
        ("steady",),
        "SELECT t.tool || ' waits for data', 100 * s.data, '% of a step', NULL, s.ref FROM steady s"
        " JOIN throughput_run t USING (run) WHERE s.data IS NOT NULL ORDER BY s.points DESC",
        better=-1,
        share=0.2,
        least=3.0,
    ),
    Words(
        "transport",
        ("connection",),
        f"SELECT CASE same_host WHEN 1 THEN 'inside a host' WHEN 0 THEN 'between hosts' ELSE 'connections' END, {_CARRIER},"
        " sum(connections), min(ref) FROM link GROUP BY 1, 2",
    ),
    Words("transport", ("network",), "SELECT 'network', name, count(*), min(ref) FROM network GROUP BY name"),
    Words(
        "transport",
        ("gdr",),
        "SELECT 'GPUDirect RDMA', CASE WHEN enabled THEN 'enabled' ELSE 'disabled' END, count(*), min(ref) FROM gdr GROUP BY 2",
    ),
    Number(
        "transport",
        ("connection",),
        "SELECT 'network cards that a host uses', median(cards), '', NULL, min(ref) FROM"
        " (SELECT count(DISTINCT device) AS cards, min(ref) AS ref FROM connection WHERE device IS NOT NULL GROUP BY host)"
        " GROUP BY NULL HAVING count(*) > 0",
        better=1,
        share=0.0,
    ),
    Number(
        "transport",
        ("ring",),
        "SELECT 'channels', max(channels), '', NULL, min(ref) FROM ring GROUP BY NULL HAVING max(channels) > 0",
        better=0,
        share=0.0,
    ),
    Words(
        "network devices",
        ("net_device",),
        "SELECT 'devices', name || ':' || port || '/' || link_layer, count(DISTINCT host), min(ref) FROM net_device GROUP BY 2",
    ),
    Words(
        "network devices",
        ("interface",),
        "SELECT 'interface for ' || purpose, name, count(DISTINCT host), min(ref) FROM interface"
        " WHERE purpose IN ('bootstrap', 'socket', 'oob') GROUP BY 1, 2",
    ),
    Words(
        "versions",
        ("library",),
        "SELECT name, version, count(*), min(ref) FROM library GROUP BY name, version",
    ),
    Words("versions", ("package",), "SELECT name, version, 1, min(ref) FROM package GROUP BY name, version", "not installed"),
    Words(
        "plug-ins",
        ("plugin",),
        "SELECT 'plug-in for ' || kind, coalesce(name || ' ', '') || outcome, count(*), min(ref) FROM plugin"
        " WHERE outcome IN ('loaded', 'failed', 'rejected') GROUP BY 1, 2",
        "none",
    ),
    Words("settings", ("env",), _SETTINGS, "not set"),
    Words(
        "parallel layout",
        ("run_setting",),
        "SELECT name, value, count(*), min(ref) FROM run_setting GROUP BY name, value",
        "not stated",
    ),
    Number(
        "steps",
        ("loss_scale",),
        "SELECT 'skipped steps', 100.0 * coalesce(sum(l.skipped), 0) / sum(t.points), '% of the steps', NULL,"
        " coalesce(min(l.ref), min(t.ref)) FROM throughput_run t LEFT JOIN loss_scale l USING (run)"
        " WHERE t.tool IN ('megatron', 'deepspeed', 'fairseq') GROUP BY NULL HAVING sum(t.points) > 0",
        better=-1,
        share=0.5,
        least=1.0,
    ),
    Number(
        "GPUs",
        ("gpu_use",),
        "SELECT 'utilisation', median(util_median), '%', NULL, min(ref) FROM gpu_use GROUP BY NULL HAVING count(util_median) > 0",
        better=1,
        share=0.05,
        least=3.0,
    ),
    Number(
        "GPUs",
        ("gpu_use",),
        "SELECT 'SM clock', median(clock_median), 'MHz', NULL, min(ref) FROM gpu_use GROUP BY NULL HAVING count(clock_median) > 0",
        better=1,
        share=0.03,
    ),
    Number(
        "GPUs",
        ("gpu_use",),
        "SELECT 'power', median(power_median), 'W', NULL, min(ref) FROM gpu_use GROUP BY NULL HAVING count(power_median) > 0",
        better=0,
        share=0.1,
    ),
    Words("GPUs", ("gpu_use",), "SELECT 'model', model, count(*), min(ref) FROM gpu_use WHERE model IS NOT NULL GROUP BY model"),
    Words(
        "GPUs",
        ("gpu_throttle",),
        "SELECT 'clocks held back by', reason, count(*), min(ref) FROM gpu_throttle WHERE share > 0.05 GROUP BY reason",
        "nothing",
    ),
    Number(
        "start",
        ("init_timing",),
        "SELECT 'slowest communicator', max(total), 's', NULL, ref FROM init_timing GROUP BY NULL HAVING max(total) > 0",
        better=-1,
        share=0.5,
        least=2.0,
    ),
    *(
        Words(
            "nodes",
            ("collection",),
            f"WITH told(host, name, value, ref) AS ({query})"
            " SELECT name, value, count(*), min(ref) FROM told WHERE value IS NOT NULL GROUP BY 1, 2",
        )
        for subject, query in TRAITS.items()
        if subject != "setting"
    ),
    *(
        Words("nodes", (table,), f"SELECT '{what}', {value}, count(*), min(ref) FROM {table} WHERE {value} IS NOT NULL GROUP BY 2")
        for table, what, value in (
            ("node_gpu", "VBIOS", "vbios"),
            ("node_gpu", "power limit in W", "power_limit"),
            ("node_gpu", "application clock in MHz", "clock_app"),
            ("node_gpu", "persistence mode", "persistence"),
            ("node_gpu", "MIG", "mig"),
            ("node_gpu", "PCIe lanes of a GPU", "pcie_width"),
            ("node_gpu", "active NVLinks", "links_active"),
            ("rdma_stack", "GPUDirect module", "peermem"),
            ("cpu_governor", "CPU governor", "governor"),
            ("security_mode", "SELinux and AppArmor", "system || ' ' || mode"),
        )
    ),
    Words(
        "nodes",
        ("ib_port",),
        "SELECT 'ports', state || coalesce(' ' || CAST(rate AS INTEGER) || ' Gb/s', '') || coalesce(' ' || link_layer, ''),"
        " count(*), min(ref) FROM ib_port GROUP BY 2",
    ),
    Words(
        "nodes",
        ("net_link",),
        "SELECT 'MTU of network cards', mtu, count(*), min(ref) FROM net_link"
        " WHERE kind IN ('physical', 'ipoib', 'bond') AND state = 'up' AND mtu IS NOT NULL GROUP BY 2",
    ),
    Words(
        "nodes",
        ("kernel_setting",),
        "SELECT name, value, count(*), min(ref) FROM kernel_setting"
        " WHERE name NOT IN ('boot_id', 'uptime', 'release') GROUP BY 1, 2",
    ),
    Words(
        "nodes",
        ("task_limit",),
        "SELECT 'limit ' || name || ' of ' || process, soft, count(*), min(ref) FROM task_limit GROUP BY 1, 2",
    ),
    Words("size", ("job",), "SELECT 'hosts', hosts, 1, NULL FROM job WHERE hosts IS NOT NULL"),
    Words("size", ("job",), "SELECT 'ranks', ranks, 1, NULL FROM job WHERE ranks IS NOT NULL"),
    Words(
        "size",
        ("throughput_run",),
        "SELECT 'GPUs of ' || tool, gpus, count(*), min(ref) FROM throughput_run WHERE gpus IS NOT NULL GROUP BY 1, 2",
    ),
    Words("hosts", ("host",), "SELECT 'hosts', name, 1, ref FROM host"),
)  # fmt: skip
