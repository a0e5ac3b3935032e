"""Views: questions that several rules ask of the tables, written once. Queries of rules and of `sql` read them like tables.

They exist in an open database only; a saved file holds the tables that they are made from.
"""

from typing import NamedTuple


class View(NamedTuple):
    """One view; its query returns the columns in the order in which they are described."""

    name: str
    meaning: str
    columns: dict[str, str]  # column -> what it holds
    query: str


# The link layer of a card that an error names, or of all cards where it names none; NULL where they differ or none is known.
_ONE_LAYER = """CASE WHEN min(link_layer = 'RoCE') = max(link_layer = 'RoCE') THEN iif(max(link_layer = 'RoCE'), 'RoCE', 'IB') END"""
_LAYERS = rf"""
        card AS MATERIALIZED (SELECT name, {_ONE_LAYER} AS layer FROM net_device WHERE link_layer IS NOT NULL GROUP BY name),
        cards AS MATERIALIZED (
          SELECT {_ONE_LAYER} AS layer FROM net_device WHERE link_layer IS NOT NULL AND name NOT LIKE '%\_an%' ESCAPE '\')"""
_LAYER_OF_CARD = "coalesce(c.layer, (SELECT layer FROM cards))"
_JOIN_CARD = "LEFT JOIN card c ON c.name = substr(e.hca, 1, instr(e.hca || ':', ':') - 1)"

VIEWS = (
    View(
        "host_address",
        "An address that exactly one host has. From the interfaces that NCCL names.",
        {"address": "IP address without port", "host": "the host that has it"},
        "SELECT address, min(host) FROM interface WHERE host IS NOT NULL GROUP BY address HAVING count(DISTINCT host) = 1",
    ),
    View(
        "local_death",
        "A sign that a process, a GPU or a node died by itself, so that errors of its peers are consequences.",
        {"ref": "evidence"},
        """
        SELECT ref FROM xid_seen WHERE code <> 45
        UNION ALL
        SELECT c.ref FROM cuda_error c WHERE coalesce(c.code, 0) <> 4
          AND NOT EXISTS (SELECT 1 FROM ib_error e WHERE e.host IS c.host AND e.rank IS c.rank AND e.pid IS c.pid)
        UNION ALL
        SELECT ref FROM process_end
        WHERE (exitcode IN (-4, -7, -8, -9, -11, 132, 135, 136, 137, 139)
            OR signal IN ('SIGKILL', 'SIGSEGV', 'SIGBUS', 'SIGILL', 'SIGFPE'))
          AND (first = 1 OR reporter IN ('kernel', 'torchelastic', 'mpirun', 'horovodrun'))
        UNION ALL
        SELECT ref FROM python_error
        WHERE type NOT REGEXP 'Dist|ChildFailed|Horovod|SystemExit|KeyboardInterrupt|CalledProcess|Backend|Connection|Timeout'
          AND type NOT REGEXP 'RayTask|Actor|WorkerCrashed|ProcessExited|ProcessRaised'
          AND text NOT REGEXP 'NCCL|nccl|[Cc]onnection|closed|[Tt]imed? ?out|aborted'
        UNION ALL
        SELECT ref FROM message WHERE kind IN ('slurm-node-failure', 'slurm-oom-kill', 'k8s-oom-killed', 'oom-killed-process',
          'ray-oom', 'cloud-preempted', 'k8s-evicted', 'slurm-preempted', 'kernel-segfault')
        UNION ALL
        SELECT w.ref FROM watchdog w WHERE w.event = 'fingerprint'
          OR (w.event = 'heartbeat' AND (SELECT h.line FROM evidence h WHERE h.id = w.ref)
            < (SELECT min(v.line) FROM evidence v JOIN ib_error e ON e.ref = v.id))
        """,
    ),
    View(
        "rdma_state",
        "One row: whether RDMA failed by itself, with no port down and nothing dead before it.",
        {"links_up": "1 when no port or card failed and nothing in local_death"},
        """
        SELECT NOT EXISTS (SELECT 1 FROM ib_event WHERE event IN ('port error', 'local catastrophic error'))
          AND NOT EXISTS (SELECT 1 FROM local_death)
        """,
    ),
    View(
        "rdma_expected",
        "One row: what the log shows that makes InfiniBand or RoCE expected on these nodes.",
        {
            "interface": "evidence of an interface of IP over InfiniBand", "device": "evidence of an RDMA device",
            "setting": "evidence of an NCCL_IB setting that asks for it", "plugin": "evidence of a plug-in for it",
            "wanted": "the strongest of them in words",
        },
        r"""
        SELECT *, CASE WHEN interface THEN 'an InfiniBand interface is there' WHEN device THEN 'other processes see RDMA devices'
          WHEN setting THEN 'an NCCL_IB setting asks for it' WHEN plugin THEN 'the image carries an RDMA plug-in'
          ELSE 'it matters only where the nodes have such cards' END
        FROM (SELECT
          (SELECT min(ref) FROM interface WHERE name GLOB 'ib[0-9]*' OR name GLOB 'ibp*' OR name GLOB 'ibs*') AS interface,
          (SELECT min(ref) FROM net_device WHERE name NOT LIKE '%\_an%' ESCAPE '\') AS device,
          (SELECT min(ref) FROM env WHERE (name LIKE 'NCCL\_IB\_%' ESCAPE '\' AND name <> 'NCCL_IB_DISABLE')
             OR (name = 'NCCL_IB_DISABLE' AND CAST(value AS INTEGER) = 0)) AS setting,
          (SELECT min(ref) FROM plugin WHERE name LIKE '%IBext%' OR name LIKE '%RDMA%' OR name LIKE '%SHARP%') AS plugin)
        """,
    ),
    View(
        "rdma_failure",
        "A peer that RDMA could not reach: completion status 12, or ibv_modify_qp that timed out or found no route.",
        {
            "host": "the host that logged it", "rank": "its rank", "hca": "card as the line names it",
            "gid_index": "of ibv_modify_qp", "local_gid": "as logged", "remote_gid": "as logged", "ref": "evidence",
            "address": "of the peer, without port", "what": "the failure in words",
            "timed_out": "0 for ibv_modify_qp that found no route, else 1", "layer": "IB or RoCE, NULL where not known",
            "peer_host": "the host that has the address", "inside": "1 when the peer is on the same host, NULL where not known",
            "link_local": "1 when the local GID is link-local (fe80)", "both_ipv4": "1 when both GIDs hold IPv4 addresses",
            "other_subnet": "1 when these addresses are in different /24 networks",
        },
        f"""
        WITH {_LAYERS.strip()},
        failed AS (
          SELECT e.host, e.rank, e.hca, NULL AS gid_index, e.local_gid, e.remote_gid, e.ref,
            substr(e.peer, 1, instr(e.peer || '<', '<') - 1) AS address, 'completion status 12' AS what, 1 AS timed_out,
            CASE WHEN e.local_gid IS NOT NULL OR e.hca LIKE '%/RoCE' THEN 'RoCE' WHEN e.hca LIKE '%/IB' THEN 'IB'
              ELSE {_LAYER_OF_CARD} END AS layer
          FROM ib_error e {_JOIN_CARD} WHERE e.status = 12
          UNION ALL
          SELECT e.host, e.rank, e.hca, e.gid_index, e.local_gid, e.remote_gid, e.ref, NULL,
            'ibv_modify_qp: ' || coalesce(e.error, 'error ' || e.errno),
            coalesce(e.errno = 110, 0) OR coalesce(e.error = 'Connection timed out', 0),
            coalesce(CASE WHEN e.local_gid LIKE '::ffff:%' THEN 'RoCE' WHEN e.hca LIKE '%/IB' THEN 'IB'
              ELSE {_LAYER_OF_CARD} END, 'RoCE')
          FROM verbs_error e {_JOIN_CARD} WHERE e.call = 'ibv_modify_qp'
            AND (e.errno IN (101, 110, 113) OR e.error IN ('Connection timed out', 'Network is unreachable', 'No route to host'))
        )
        SELECT f.*, o.host, (j.multi_node = 0 OR (o.host IS NOT NULL AND o.host = f.host)),
          f.local_gid LIKE 'fe80%',
          f.local_gid GLOB '::ffff:[0-9]*.[0-9]*' AND f.remote_gid GLOB '::ffff:[0-9]*.[0-9]*',
          f.local_gid GLOB '::ffff:[0-9]*.[0-9]*' AND f.remote_gid GLOB '::ffff:[0-9]*.[0-9]*'
            AND rtrim(f.local_gid, '0123456789') <> rtrim(f.remote_gid, '0123456789')
        FROM failed f JOIN job j LEFT JOIN host_address o ON o.address = f.address
        """,
    ),
    View(
        "gid_state",
        "One row: what the log shows about the choice of the GID index.",
        {
            "forced": "1 when NCCL_IB_GID_INDEX is set to an index, NULL without settings", "forced_low": "1 when that is 0 or 1",
            "value": "of NCCL_IB_GID_INDEX", "nccl": "NCCL's version code, at least 21700 for the format of its errors",
            "low_is_local": "1 when the GIDs of the indexes 0 and 1 are link-local", "table_ref": "evidence of the GID table",
            "refused_index": "GID index that a queue pair refused", "refused_ref": "its evidence",
        },
        """
        SELECT f.*, coalesce(j.nccl_number,
            iif((SELECT count(*) FROM ib_error WHERE status = 12 AND request IS NULL AND hca IS NULL), 21700, NULL)), t.*, q.*
        FROM (SELECT max(name = 'NCCL_IB_GID_INDEX' AND CAST(value AS INTEGER) >= 0),
                max(name = 'NCCL_IB_GID_INDEX' AND CAST(value AS INTEGER) IN (0, 1)),
                max(iif(name = 'NCCL_IB_GID_INDEX', value, NULL)) FROM env) f
        JOIN job j
        JOIN (SELECT max(field(fields, 'gid') LIKE 'fe80%' AND CAST(field(fields, 'index') AS INTEGER) < 2), min(ref)
              FROM message WHERE kind IN ('gid-table-entry', 'gid-table-row') AND coalesce(field(fields, 'type'), '') <> 'IB') t
        JOIN (SELECT max(field(fields, 'gid_index')), min(ref) FROM message WHERE kind = 'ib-qp-bad-gid') q
        """,
    ),
    View(
        "listed_pod",
        "A pod of `kubectl get pods`, as its last row in a file shows it.",
        {
            "pod": "name, behind its namespace where the list has one", "namespace": "where the list has it",
            "base": "name without number and suffix",
            "number": "of the replica", "suffix": "that Kubernetes made up",
            "status": "without the mark of init containers, except `Init:0/1`: how many of them are done",
            "in_init": "1 when the status is that of an init container", "restarts": "of its containers", "age": "as printed, NULL of JSON",
            "node": "name, NULL where the list does not say", "ref": "evidence",
        },
        """
        SELECT coalesce(namespace || '/', '') || pods || coalesce('-' || number, '') || coalesce(suffix, ''),
          namespace, pods, number, suffix,
          iif(status GLOB 'Init:[0-9]*/[0-9]*', status, replace(status, 'Init:', '')), status LIKE 'Init:%', restarts,
          age, nullif(node, '<none>'), ref
        FROM (
          SELECT *, row_number() OVER (PARTITION BY file, namespace, pods, number, suffix ORDER BY last_line DESC) AS back FROM (
            SELECT e.file, m.last_line, m.ref, field(m.fields, 'namespace') AS namespace, field(m.fields, 'pods') AS pods,
              field(m.fields, 'index') AS number, field(m.fields, 'suffix') AS suffix, field(m.fields, 'status') AS status,
              CAST(field(m.fields, 'restarts') AS INTEGER) AS restarts, field(m.fields, 'age') AS age, field(m.fields, 'node') AS node
            FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind = 'k8s-pod-listed'
          )
        ) WHERE back = 1
        """,
    ),
    View(
        "job_end",
        "One row: whether the job ended in order.",
        {"in_order": "1 when it ended in order, 0 when not or not known"},
        "SELECT coalesce(max(shows IN ('ended in order', 'exit status 0')), 0) FROM coverage WHERE aspect = 'end'",
    ),
    View(
        "target_reached",
        "Where a run of MLPerf said that it had reached its target: what failed before or behind it cost nothing.",
        {"file": "input", "line": "of the last such run"},
        "SELECT e.file, max(e.line) AS line FROM mlperf_run m JOIN evidence e ON e.id = m.ref WHERE m.status = 'success' GROUP BY e.file",
    ),
    View(
        "worked_around",
        "A failure that cost nothing: the process used something as good instead, and the job ended in order.",
        {"ref": "evidence of the failure"},
        "SELECT ref FROM fell_back WHERE used NOT LIKE '%Socket%' AND (SELECT in_order FROM job_end)",
    ),
    View(
        "nccl_explained",
        "An error in NCCL's own words, of which a framework's report that a call of NCCL failed is only the echo.",
        {"ref": "evidence"},
        "SELECT ref FROM known_message WHERE program = 'nccl' AND severity = 'error'",
    ),
    View(
        "reported_fault",
        "A line of the message catalogue that reports a fault, graded by what the program did after it; no notes of jobs in order.",
        {
            "host": "host name", "rank": "rank in the job", "kind": "class of the message",
            "fault": "name of the rule that reports it, NULL for the one of its class", "program": "its program",
            "message": "its name in the catalogue", "title": "the program as people call it", "means": "what the line means",
            "said": "program and meaning as one sentence", "causes": "likely causes and what decides", "command": "what to do next",
            "severity": "note where the program went on after it (for what is only possible: made steps), else that of the message",
            "confidence": "that of the message; for an echo possible, or likely where its message is certain",
            "role": "symptom for an echo, NULL for an origin",
            "n": "lines folded into this one", "stamp": "seconds, NULL where the line has no time", "ref": "evidence",
        },
        """
        SELECT k.host, k.rank, k.kind, k.fault, k.program, k.message, k.title, k.means,
          iif(substr(k.means, 1, length(k.title) + 1) = k.title || ' ', '', k.title || ': ') || k.means
            || coalesce(' Ranks: ' || trim(field(k.fields, 'ranks'), '[]') || '.', '')
            || coalesce(' Rank ' || field(k.fields, 'absent') || ' did not answer.', '')
            || coalesce(' Who waited: ' || w.waiters || '.', ''),
          coalesce('Likely: ' || k.causes || '. ', ''), k.command,
          CASE WHEN (SELECT in_order FROM job_end) OR k.ref IN (SELECT ref FROM recovered)
            OR (k.message = 'script-not-runnable' AND k.last_line < made.line)
            OR (k.message = 'command-not-found' AND k.last_line + 200 < i.lines)  -- the script went on
            OR EXISTS (SELECT 1 FROM communicator c JOIN evidence o ON o.id = c.ref WHERE c.host IS k.host AND c.pid IS k.pid
              AND c.phase IN ('complete', 'plain') AND o.file = e.file AND o.line > e.line)
            OR (k.severity = 'warning' AND k.confidence = 'possible' AND k.last_line < (
              SELECT max(position) FROM progress WHERE template REGEXP '(?i)\b(step|iter|iteration|epoch|loss|s/it|it/s)\b'))
            THEN 'note' ELSE k.severity END,
          CASE k.role WHEN 'echo' THEN iif(k.confidence = 'certain', 'likely', 'possible') ELSE k.confidence END,
          iif(k.role = 'echo', 'symptom', NULL), k.n, k.stamp, k.ref
        FROM known_message k JOIN evidence e ON e.id = k.ref LEFT JOIN (
          SELECT t.file, max(o.line) AS line FROM (SELECT file, ref FROM throughput_run UNION ALL SELECT file, ref FROM scalar) t
          JOIN evidence o ON o.id = t.ref GROUP BY t.file
        ) made ON made.file = e.file LEFT JOIN (
          SELECT message, group_concat(waiter, '; ') AS waiters FROM (
            SELECT DISTINCT message, iif(field(fields, 'waiter') GLOB '[0-9]*', 'rank ', '') || field(fields, 'waiter') AS waiter
            FROM known_message WHERE field(fields, 'waiter') IS NOT NULL ORDER BY message, waiter LIMIT 64
          ) GROUP BY message
        ) w ON w.message = k.message LEFT JOIN (
          SELECT path, max(lines) AS lines FROM input GROUP BY path
        ) i ON i.path = e.file
        WHERE k.kind <> 'harmless'
          AND NOT (k.message = 'nccl-error-in' AND EXISTS (SELECT 1 FROM nccl_explained))
          AND NOT (k.severity = 'note' AND coalesce((SELECT in_order FROM job_end), 0))
          -- what kept the processes from starting did not: the job ended in order, or made steps behind it
          AND NOT (k.fault IN ('launch-failed', 'ranks-not-started')
            AND (coalesce((SELECT in_order FROM job_end), 0) OR coalesce(k.last_line < made.line, 0)))
          -- tasks that the batch system ended with SIGTERM because the job was cancelled
          AND NOT (k.message = 'task-ended' AND field(k.fields, 'code') = '143'
            AND EXISTS (SELECT 1 FROM known_message c WHERE c.message = 'job-cancelled'))
          -- a command that a running job did not find: its ranks made steps, or had a communicator whose watchdog spoke
          AND NOT (k.message = 'command-not-found' AND (made.line IS NOT NULL OR EXISTS (SELECT 1 FROM watchdog)))
        """,
    ),
    View(
        "xid_seen",
        "Errors of the driver, and those that a line of clean-up names as its reason although their own line is not there.",
        {
            "host": "host name", "kind": "xid or sxid", "pci": "PCI address", "code": "number", "pid": "process", "process": "its name",
            "text": "what the driver says", "fatal": "1 fatal, 0 not, NULL where the line does not say", "n": "lines folded into this one",
            "stamp": "seconds, NULL where the line has no time", "ref": "evidence",
        },
        """
        SELECT host, kind, pci, code, pid, process, text, fatal, n, stamp, ref FROM xid
        UNION ALL
        SELECT x.host, x.kind, x.pci, x.previous, x.pid, x.process, x.text, x.fatal, x.n, x.stamp, x.ref FROM xid x
        LEFT JOIN (SELECT DISTINCT kind, code, host, pci FROM xid) own
          ON own.kind IS x.kind AND own.code = x.previous AND own.host IS x.host AND own.pci IS x.pci
        WHERE x.previous IS NOT NULL AND own.code IS NULL
        """,
    ),
    View(
        "unreset_xid",
        "An Xid after which the kernel log shows no reset of its GPU.",
        {
            "host": "host name", "pci": "PCI address of the GPU", "code": "number of the Xid", "fatal": "1 fatal, 0 not",
            "text": "what the driver says", "n": "lines folded into this one", "stamp": "seconds, NULL where the line has no time",
            "ref": "evidence", "age": "seconds before the end of the kernel log, 0 where not known",
        },
        """
        SELECT x.host, x.pci, x.code, x.fatal, x.text, x.n, x.stamp, x.ref, coalesce(k.now - x.stamp, 0)
        FROM xid x LEFT JOIN kernel_log k ON k.host IS x.host
        LEFT JOIN (
          SELECT host, pci, max(stamp) AS stamp FROM xid WHERE code = 154 AND text LIKE '%to 0x0 (None)%' GROUP BY host, pci) reset
          ON reset.host IS x.host AND reset.pci IS x.pci
        WHERE x.kind = 'xid' AND NOT coalesce(reset.stamp > x.stamp, 0)
        """,
    ),
)  # fmt: skip


def statements() -> list[str]:
    """What creates the views in a database."""
    return [f"CREATE TEMP VIEW {view.name} ({', '.join(view.columns)}) AS {view.query}" for view in VIEWS]
