"""What captures other than logs show, one clause each: timelines, traces, dumps, stacks, samples, topology files, node commands."""

from collections.abc import Callable, Iterator

from nccl_doctor.common.plurals import counted
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.summary import GPU_OF_USE, Clause, amount, cluster, folded, listed, printed, profiles
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    AccountedJob,
    ActiveTest,
    C2cState,
    Captured,
    CopyRate,
    CopyTest,
    FabricCheck,
    GpuMatrix,
    GpuPair,
    GpuProcess,
    GpuUse,
    HostNumber,
    HostUse,
    HostValue,
    IbPort,
    InspectorColl,
    KubeNode,
    KubePod,
    LinkCounter,
    LinkQuality,
    ListedGpu,
    ListedNumber,
    ListedState,
    Message,
    Mount,
    MountProbe,
    NodeGpu,
    NvlinkState,
    NvlinkUse,
    OfiDomain,
    Package,
    PanelSeries,
    PrintedNumber,
    Process,
    ProfileShare,
    QueuedJob,
    RasComm,
    RasGroup,
    RdmaDevice,
    RdmaGid,
    Recorder,
    RecorderCall,
    SchedulerNode,
    Stack,
    ThroughputRun,
    Timeline,
    TimelineRank,
    TopoFile,
    TopoGpu,
    TopoGraph,
    Trace,
)


@derivation(
    fills=[Captured],
    needs=[
        GpuMatrix, GpuProcess, GpuUse,
        InspectorColl, NvlinkState, OfiDomain, ProfileShare, RasComm, Recorder, Stack, Timeline, TopoFile, TopoGraph,
        Trace, LinkCounter, LinkQuality, RasGroup, NvlinkUse, QueuedJob, SchedulerNode, CopyTest, C2cState, FabricCheck, ActiveTest,
        HostNumber, HostUse, HostValue, IbPort, KubeNode, KubePod, ListedGpu, Message, PanelSeries,
        GpuPair, Package, RdmaGid, Mount, AccountedJob, PrintedNumber, ThroughputRun, ListedNumber, ListedState,
    ],
    reads=[CopyRate, MountProbe, NodeGpu, Process, RdmaDevice, RecorderCall, TimelineRank, TopoGpu],
)  # fmt: skip
def captured(facts: Facts) -> Iterator[Captured]:
    """One row a kind of capture that is there."""
    for kind, clause in CLAUSES.items():
        for text, ref in clause(facts):
            yield Captured(kind, text, ref)


def _timelines(facts: Facts) -> Iterator[Clause]:
    ranks = facts.query("SELECT count(DISTINCT rank) FROM timeline_rank")[0][0]
    files, length, shown, tensors, ref = facts.query(
        "SELECT count(DISTINCT file), sum(length_s), max(ranks), max(tensors), min(ref) FROM timeline"
    )[0]
    if files:
        number = max(shown or 0, ranks or 0)
        of = f" of {counted(number, 'rank')}" if number else ""
        yield f"Horovod timeline{of}: {counted(tensors, 'tensor')} over {length:.3g} s", ref


_ACCELERATORS = {"rocm": " on AMD GPUs (ROCm)", "mtia": " on MTIA", "xpu": " on Intel GPUs", "hpu": " on Gaudi"}


def _traces(facts: Facts) -> Iterator[Clause]:
    rows = facts.query(
        "SELECT rank, file, world, span_s, steps, ref, workload, accelerator FROM trace WHERE tool IS NOT 'nsys' ORDER BY rank"
    )
    if rows:
        ranks = sorted({rank for rank, *_ in rows if rank is not None})
        world = max((row[2] for row in rows if row[2]), default=None)
        who = folded(ranks) if ranks else counted(len(rows), "process")
        of = f" of {world}" if world and ranks else ""
        steps = min((row[4] for row in rows if row[4]), default=0)
        what = counted(steps, "step") if steps else "no whole step"
        kind = " of inference" if {row[6] for row in rows} == {"inference"} else ""
        where = next((_ACCELERATORS[row[7]] for row in rows if row[7] in _ACCELERATORS), "")
        yield (
            f"torch.profiler trace{kind}{where} of {who}{of}: {what} in {max(row[3] for row in rows):.3g} s",
            rows[0][5],
        )
    gpus, span, ref = facts.query("SELECT count(*), max(span_s), min(ref) FROM trace WHERE tool = 'nsys'")[0]
    if gpus:
        yield f"Nsight Systems profile of {counted(gpus, 'GPU')}: {span:.3g} s", ref


def _dumps(facts: Facts) -> Iterator[Clause]:
    rows = facts.query("SELECT rank, file, entries, ref FROM recorder ORDER BY rank")
    if rows:
        ranks = sorted({rank for rank, *_ in rows if rank is not None})
        who = folded(ranks) if ranks else counted(len(rows), "process")
        calls, open_ = facts.query("SELECT count(*), coalesce(sum(finished = 0), 0) FROM recorder_call")[0]
        yield f"flight recorder dump of {who}: {counted(calls, 'call')}, {open_} not finished", rows[0][3]


def _stacks(facts: Facts) -> Iterator[Clause]:
    processes, threads, ref = facts.query(
        "SELECT count(DISTINCT coalesce(host, '') || pid), count(*), min(ref) FROM stack"
    )[0]
    if threads:
        doing = facts.query(
            "SELECT group_concat(DISTINCT doing) FROM (SELECT doing FROM stack WHERE main = 1 AND parent IS NULL ORDER BY doing)"
        )[0][0]
        where = f", main thread in {doing.replace(',', ', ')}" if doing else ""
        yield f"stacks of {counted(processes, 'process')}: {counted(threads, 'thread')}{where}", ref


def _processors(facts: Facts) -> Iterator[Clause]:
    # vmstat does not say of which host it tells: beside named hosts that is one of them
    rows = facts.query(
        "SELECT max(cpu_mean), ref FROM host_use WHERE seconds IS NULL AND cpu_mean IS NOT NULL"
        " AND (host IS NOT NULL OR NOT EXISTS (SELECT 1 FROM host_use WHERE host IS NOT NULL)) GROUP BY host ORDER BY 1 DESC"
    )
    if rows:
        high, low = f"{rows[0][0]:.3g}", f"{rows[-1][0]:.3g}"
        waits = facts.query(
            "SELECT host, max(cpu_wait) FROM host_use WHERE cpu_wait >= 5 GROUP BY host ORDER BY 2 DESC"
        )
        wait = (
            f", up to {waits[0][1]:.3g} % waiting for storage" + (f" ({waits[0][0]})" * bool(waits[0][0]))
            if waits
            else ""
        )
        yield (
            f"CPUs of {counted(len(rows), 'host')} {high if high == low else f'{low} to {high}'} % busy{wait}",
            rows[0][1],
        )


def _samples(facts: Facts) -> Iterator[Clause]:
    gpus, seconds, ref = facts.query(
        "SELECT count(*), max(seconds), min(ref) FROM (SELECT max(seconds) AS seconds, min(ref) AS ref FROM gpu_use"
        f" GROUP BY host, gpu, {GPU_OF_USE})"
    )[0]
    if gpus:
        yield f"samples of {counted(gpus, 'GPU')}" + (f" over {seconds:,.0f} s" if seconds else ""), ref


def _topologies(facts: Facts) -> Iterator[Clause]:
    for gpus, nets, cpus, written, ref in facts.query(
        "SELECT max(gpus), max(nets), max(cpus), min(written), min(ref) FROM topo_file GROUP BY NULL HAVING count(*)"
    ):
        parts = [
            counted(number, noun) for number, noun in ((gpus, "GPU"), (nets, "NIC"), (cpus, "NUMA node")) if number
        ]
        xgmi, c2c = facts.query("SELECT sum(xgmi), max(c2c) FROM topo_gpu")[0]
        parts += ["xGMI between GPUs"] if xgmi else []
        parts += [f"C2C of {c2c / 1000:.0f} GB/s"] if c2c else []
        kind = "topology file written for NCCL_TOPO_FILE" if written else "topology file"
        yield f"{kind}: " + ", ".join(parts), ref
    for graphs, channels, ref in facts.query(
        "SELECT count(*), max(channels), min(ref) FROM topo_graph GROUP BY NULL HAVING count(*)"
    ):
        yield f"graph file: {counted(graphs, 'graph')} with up to {counted(channels, 'channel')}", ref


def _states(facts: Facts) -> Iterator[Clause]:
    for comms, size, missing, ref in facts.query(
        "SELECT count(*), max(size), coalesce(sum(missing), 0), min(ref) FROM ras_comm GROUP BY NULL HAVING count(*)"
    ):
        yield (
            f"RAS report: {counted(comms, 'communicator')} of up to {counted(size or 0, 'rank')}, {missing} missing",
            ref,
        )
    for comms, size, nodes, status, errors, ref in facts.query(
        "SELECT sum(comms), max(size), max(nodes), group_concat(DISTINCT status), group_concat(DISTINCT errors), min(ref)"
        " FROM ras_group GROUP BY NULL HAVING count(*)"
    ):
        on = f" on {counted(nodes, 'node')}" if nodes > 1 else ""
        yield (
            f"RAS report: {counted(comms, 'communicator')} of up to {counted(size, 'rank')}{on}, {status}, {errors}",
            ref,
        )
    for ranks, calls, ref in facts.query(
        "SELECT count(DISTINCT rank), sum(n), min(ref) FROM inspector_coll GROUP BY NULL HAVING count(*)"
    ):
        yield f"measured inside NCCL: {counted(calls, 'collective')} of {counted(ranks, 'rank')}", ref


def _panels(facts: Facts) -> Iterator[Clause]:
    for series, files, ref in facts.query(
        "SELECT count(*), count(DISTINCT file), min(ref) FROM panel_series GROUP BY NULL HAVING count(*)"
    ):
        yield f"Grafana: {series:,} series of {counted(files, 'panel')}", ref


_LISTS = {
    "nvidia-smi": "nvidia-smi -L",
    "dcgmi": "dcgmi discovery",
    "nvidia-smi mig": "nvidia-smi mig",
    "rocminfo": "rocminfo",
}


def _gpu_lists(facts: Facts) -> Iterator[Clause]:
    for tool, gpus, hosts, models, model, instances, ref in facts.query(
        "SELECT tool, count(*), count(DISTINCT host), count(DISTINCT model), max(model), sum(instances), min(ref)"
        " FROM listed_gpu GROUP BY tool"
    ):
        on = f" on {counted(hosts, 'host')}" if hosts > 1 else ""
        divided = f", {counted(instances, 'instance')} of MIG" if instances else ""
        yield f"{_LISTS[tool]}: {counted(gpus, 'GPU')}{on}" + (f", {model}" if models == 1 else "") + divided, ref


def _commands(facts: Facts) -> Iterator[Clause]:
    devices = "SELECT count(DISTINCT device), min(ref) FROM gpu_matrix WHERE device "
    gpus, ref = facts.query(devices + "LIKE 'GPU%'")[0]
    if gpus:
        nics = facts.query(devices + "NOT LIKE 'GPU%'")[0][0]
        best = facts.query(
            "SELECT DISTINCT path FROM gpu_matrix WHERE device LIKE 'GPU%' AND peer LIKE 'GPU%' ORDER BY path"
        )
        paths = ", ".join(path for (path,) in best)
        beside = f" and {counted(nics, 'NIC')}" if nics else ""
        yield f"nvidia-smi topo -m: {counted(gpus, 'GPU')}{beside}" + (f", {paths} between GPUs" if paths else ""), ref
    for gpus, active, inactive, speed, ref in facts.query(
        "SELECT count(*), sum(active), sum(inactive), min(speed), min(ref) FROM nvlink_state GROUP BY NULL HAVING count(*)"
    ):
        up = f", {active} of {active + inactive} links up" if active + inactive else ""
        yield f"nvidia-smi nvlink: {counted(gpus, 'GPU')}{up}" + (f" at {speed:g} GB/s" if speed else ""), ref
    for gpus, sent, most, least, without, ref in facts.query(
        "SELECT count(*), sum(sent), max(links), min(links), sum(without_p2p), min(ref) FROM nvlink_use GROUP BY NULL HAVING count(*)"
    ):
        links = f"{least} to {most} links" if least != most else counted(most, "link")
        parts = [f"nvidia-smi nvlink: {counted(gpus, 'GPU')} with {links} each"]
        parts += [f"{sent / (1 << 20):,.4g} GiB sent"] if sent is not None else []
        parts += [f"{without} without P2P"] if without is not None else []
        parts += ["their counters are off"] if sent is None and without is None else []
        yield ", ".join(parts), ref
    for gpus, active, inactive, total, ref in facts.query(
        "SELECT count(*), sum(active), sum(inactive), min(total), min(ref) FROM c2c_state GROUP BY NULL HAVING count(*)"
    ):
        up = f"{active} of {active + inactive} links up"
        yield f"nvidia-smi c2c: {counted(gpus, 'GPU')}, {up}, {total:.4g} GB/s to the CPU", ref
    for providers, domains, ref in facts.query(
        "SELECT group_concat(DISTINCT provider), count(DISTINCT domain), min(ref) FROM ofi_domain GROUP BY NULL HAVING count(*)"
    ):
        yield f"fi_info: provider {providers.replace(',', ', ')}, {counted(domains, 'domain')}", ref


_NUMBERS_SHOWN = 4
_MOST_ERRORS = """
SELECT coalesce(host || ' ', '') || link, name, max(value) FROM link_counter
WHERE source = ? AND value > 0 AND name NOT IN ('port_xmit_wait', 'pci_write_stalled_percent') AND name NOT GLOB '*_pause'
"""
_COUNTS = {
    "PCIe link": "SELECT count(*),"
    " ', ' || sum('downgraded' IN (field(fields, 'width_state'), field(fields, 'speed_state'))) || ' downgraded',"
    " min(ref) FROM message WHERE kind = 'lspci-link' GROUP BY NULL HAVING count(*)",
    "GID": "SELECT count(*), ' of ' || count(DISTINCT device || port) || ' RDMA ports, ' || sum(scope = 'ipv4') || ' with an IPv4 address',"
    " min(ref) FROM rdma_gid WHERE NOT EXISTS (SELECT 1 FROM rdma_device) GROUP BY NULL HAVING count(*)",
    "pair": "SELECT count(*), ' of GPUs, ' || sum(read > 0) || ' without P2P', min(ref) FROM gpu_pair WHERE gpu < peer"
    " AND NOT EXISTS (SELECT 1 FROM node_gpu) GROUP BY NULL HAVING count(*)",
    "mounted file system": "SELECT count(*), ', ' || sum(read_only) || ' read-only', min(ref) FROM mount"
    " WHERE NOT EXISTS (SELECT 1 FROM mount_probe) GROUP BY NULL HAVING count(*)",
}


_PORTS = f"""
SELECT count(*), sum(state LIKE 'Active%'), coalesce(min(iif(state LIKE 'Active%', rate, NULL)), min(rate)),
  coalesce(max(iif(state LIKE 'Active%', rate, NULL)), max(rate)), min(ref), (
  SELECT group_concat(coalesce(host || ' ', '') || hca || iif(port > 1, '/' || port, '') || ' ' || coalesce(physical, state), ', ')
  FROM (SELECT * FROM ib_port WHERE state NOT LIKE 'Active%' ORDER BY ref LIMIT {_NUMBERS_SHOWN}))
FROM ib_port GROUP BY NULL HAVING count(*)
"""


def _host_commands(facts: Facts) -> Iterator[Clause]:
    """What commands about hosts show: of several hosts the range, of file systems the fullest."""
    for ports, active, least, rate, ref, names in facts.query(_PORTS):
        speed = "" if not rate else f", {rate:g} Gb/s" if rate == least else f", {least:g} to {rate:g} Gb/s"
        rest = f"; not active: {names}" + ", …" * (ports - active > _NUMBERS_SHOWN) if names else ""
        yield f"{counted(ports, 'RDMA port')}, {active} active" + speed + rest, ref
    shown: dict[str, list[Clause]] = {}
    for command, name, low, high, unit, hosts, ref in facts.query(
        "SELECT command, name, min(value), max(value), unit, count(DISTINCT coalesce(host, '')), min(ref) FROM host_number"
        " GROUP BY command, name ORDER BY command, iif(command IN ('df', 'lfs df', 'nfsiostat', 'lctl', 'sar'),"
        " iif(unit = '%', -1e15, 0) - max(value), min(ref))"
    ):
        least, most = amount(low, unit), amount(high, unit)
        on = f" on {counted(hosts, 'host')}" if hosts > 1 else ""
        value = most if least == most else f"{least} to {most}"
        shown.setdefault(command, []).append((f"{name} {value}{on}", ref))
    for what, query in _COUNTS.items():
        for number, rest, ref in facts.query(query):
            yield counted(number, what) + (rest or ""), ref
    for command, clauses in shown.items():
        yield f"{command}: " + ", ".join(text for text, _ in clauses[:_NUMBERS_SHOWN]), clauses[0][1]


def _links(facts: Facts) -> Iterator[Clause]:
    for source, links, hosts, bad, ref in facts.query(
        "SELECT source, count(DISTINCT coalesce(host, '') || ' ' || link), count(DISTINCT host),"
        " count(DISTINCT iif(value > 0, coalesce(host, '') || ' ' || link, NULL)), min(ref) FROM link_counter"
        " WHERE name NOT IN ('port_xmit_wait', 'pci_write_stalled_percent') AND name NOT GLOB '*_pause' GROUP BY source"
    ):
        on = f" on {counted(hosts, 'host')}" if hosts > 1 else ""
        most = facts.query(_MOST_ERRORS, (source,)) if bad else []
        which = "".join(f", most on {link}: {name} {value:,}" for link, name, value in most)
        yield f"{source}: error counters of {counted(links, 'link')}{on}, {bad} not zero{which}", ref
    for stages, errors, warnings, ref in facts.query(
        "SELECT count(*), sum(errors), sum(warnings), min(ref) FROM fabric_check GROUP BY NULL HAVING count(*)"
    ):
        yield f"ibdiagnet: {counted(stages, 'stage')}, {counted(errors, 'error')}, {counted(warnings, 'warning')}", ref
    for test, runs, worst, usual, unit, ref in facts.query(
        "SELECT iif(tool IN ('perftest', 'hpl', 'gpu-burn', 'hpcg'), '', tool || ' ') || test, count(*),"
        " iif(unit IN ('us', 'ms', 's'), max(value), min(value)), median(value), unit, min(ref) FROM active_test"
        " WHERE (tool IN ('perftest', 'iperf3', 'netperf', 'fio', 'osu', 'hpl', 'imb', 'ucx', 'fabtests', 'deepep', 'gpu-burn',"
        " 'ior', 'stream', 'babelstream', 'hpcg', 'mdtest', 'io500', 'dlio', 'elbencho')"
        " OR (tool = 'serving' AND test IN ('request rate', 'output rate', 'mean TTFT', 'mean TPOT', 'mean latency')))"
        " AND value IS NOT NULL"
        " GROUP BY tool, test, unit ORDER BY tool, test <> 'score', test, unit"
    ):
        over = f" over {runs:,} runs, {_plain(worst)} at worst" if runs > 1 else ""
        yield f"{test}: {_plain(usual)} {unit}".rstrip() + over, ref
    for tests, nodes, failed, ref in facts.query(
        "SELECT count(DISTINCT test), count(DISTINCT host), count(DISTINCT iif(outcome = 'fail', host, NULL)), min(ref)"
        " FROM active_test WHERE tool = 'superbench' GROUP BY NULL HAVING count(*)"
    ):
        bad = f", failed on {counted(failed, 'node')}" if failed else ""
        yield f"SuperBench: {counted(tests, 'result')} of {counted(nodes, 'node')}{bad}", ref
    for ports, worst, ref in facts.query(
        "SELECT count(*), max(effective_ber), min(ref) FROM link_quality GROUP BY NULL HAVING count(*)"
    ):
        rate = f", bit error rate after correction up to {worst:.0e}" if worst is not None else ""
        yield f"mlxlink: {counted(ports, 'port')}{rate}", ref


def _plain(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.4g}"


def _copies(facts: Facts) -> Iterator[Clause]:
    for tool, tests, gpus, hosts, ref in facts.query(
        "SELECT tool, count(*), max(gpus), count(DISTINCT host), min(ref) FROM copy_test WHERE status = 'passed' GROUP BY tool"
    ):
        on = f" on each of {counted(hosts, 'host')}" if hosts > 1 else ""
        yield f"{tool}: {counted(tests, 'test')} of copies with {counted(gpus, 'GPU')}{on}", ref


CLAUSES: dict[str, Callable[[Facts], Iterator[Clause]]] = {
    "timeline": _timelines,
    "trace": _traces,
    "flight-recorder": _dumps,
    "stacks": _stacks,
    "gpu-samples": _samples,
    "gpu-processes": profiles.processes,
    "cpu-samples": _processors,
    "topology": _topologies,
    "nccl-state": _states,
    "node-command": _commands,
    "gpu-list": _gpu_lists,
    "panels": _panels,
    "host-command": _host_commands,
    "link": _links,
    "copies": _copies,
    "scheduler": cluster.scheduler,
    "pods": cluster.pods,
    "nodes": cluster.nodes,
    "host-value": cluster.host_values,
    "packages": cluster.packages,
    "accounting": cluster.accounting,
    "profile": profiles.clauses,
    "listed": listed.clauses,
    "printed": printed.clauses,
}
