"""Several nodes at once: the same question through ssh, srun or a command of the site, and one fact base of all answers."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.own_command import own_command
from nccl_doctor.facts import wire
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection

VIAS = {
    "ssh": "ssh -o BatchMode=yes -o ConnectTimeout=5 -n %host --",
    "srun": "srun --overlap --nodes=1 --ntasks=1 --nodelist=%host --",
}
FANOUT = 64  # nodes that are asked at the same time
_MOST = 1_000_000  # nodes of one set
_DIGITS = 18  # of a number in a set
_PARTS = re.compile(r"\[(?P<ranges>[^\[\]]*)\]|,")  # of a set: ranges of a name, and what is between two names
GRACE = 10.0  # seconds for connecting and for the transfer of the answer


def ask(nodes: Sequence[str], via: str, command: Sequence[str], seconds: float) -> dict[str, tuple[int | None, str]]:
    """Node -> exit status (None where the time was over) and output of a command that runs on all of them."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
    from ClusterShell.Task import task_self
    from ClusterShell.Worker.Exec import ExecWorker

    task = task_self()
    task.set_info("fanout", FANOUT)
    words = f"{VIAS.get(via, via)} {shlex.join(command)}"
    if via == "ssh":
        # the remote shell splits the words again; without -n the remote command notices a closed connection
        words = f"{VIAS[via].replace(' -n ', ' ')} {shlex.quote(shlex.join(command))}"
    worker = ExecWorker(
        NodeSet.fromlist(list(nodes), resolver=RESOLVER_NOGROUP),
        handler=None,
        timeout=seconds + GRACE,
        command=words,
        stderr=False,
    )
    task.schedule(worker)
    task.run()
    late = {str(node) for node in worker.iter_keys_timeout()}
    output: dict[str, Any] = {str(node): bytes(buffer) for buffer, keys in worker.iter_buffers() for node in keys}
    status = {str(node): code for code, keys in worker.iter_retcodes() for node in keys}
    return {
        node: (None if node in late else status.get(node), output.get(node, b"").decode("utf-8", "replace"))
        for node in nodes
    }


def most_nodes(text: str) -> int:
    """At most how many nodes a set without groups can name; ClusterShell would hold all of them."""
    total, count = 0, 1
    for part in _PARTS.finditer(text):
        ranges = part["ranges"]
        if ranges is None:
            total, count = total + count, 1
            continue
        spans = [span.partition("/")[0].partition("-") for span in ranges.split(",")]
        if any(len(end) > _DIGITS for first, _, last in spans for end in (first, last)):
            return _MOST + 1
        count *= sum(
            max(1, int(last) - int(first) + 1) if first.isdecimal() and last.isdecimal() else 1
            for first, _, last in spans
        )
    return total + count


def names(text: str) -> list[str]:
    """`gpu[001-064]` as names. Raises UsageProblem where the text is not a node set."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    if most_nodes(text) > _MOST:
        raise UsageProblem(f"{text} is more than {_MOST:,} nodes")
    try:
        found = [str(node) for node in NodeSet(text)]
    except (NodeSetException, GroupResolverError, GroupSourceError, ValueError) as error:  # a number of 5,000 digits
        raise UsageProblem(f"{text} is no set of nodes: {error}") from None
    if not found:
        raise UsageProblem("the set of nodes is empty")
    if wrong := [node for node in found if node.startswith("-")]:
        raise UsageProblem(f"{wrong[0]} is no name of a node")
    return found


def of_job(job: str) -> tuple[list[str], str]:
    """The nodes of a Slurm job and the command prefix that reaches them. Raises UsageProblem where Slurm does not know the job."""
    try:
        done = subprocess.run(
            ["squeue", "-h", "-j", job, "-o", "%N"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageProblem(f"squeue cannot be asked for job {job}: {error}") from None
    if done.returncode or not done.stdout.strip():
        raise UsageProblem(f"Slurm knows no running job {job}: {' '.join(done.stderr.split()) or 'no nodes'}")
    return names(done.stdout.strip()), within(job)


def within(job: str) -> str:
    """The command prefix that reaches a node through a Slurm job running there."""
    return VIAS["srun"].replace("--overlap", f"--overlap --jobid={shlex.quote(job)}")


def collect(nodes: Sequence[str], via: str, command: Sequence[str], seconds: float) -> Facts:
    """The facts of all nodes, as our own command prints them with `--format facts`.

    A node that does not answer is a row of `collection`, and the others go on.
    """
    facts = Facts()
    program = ["nccl-doctor"] if via in VIAS else own_command()
    answers = ask(nodes, via, [*program, *command], seconds)
    for node, (status, output) in answers.items():
        if wire.take(facts, output.splitlines(), node):
            continue
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        why = "no answer within the time limit" if status is None else f"exit status {status}: {last[:200]}"
        ref = facts.evidence(f"node {node}", 1, why)
        facts.add([Collection(node, "node", "unreachable", seconds, why, ref)])
    return facts
