"""`nccl-doctor preflight`: is this node fit for the job."""

import gc
import os
from typing import Any

import click

from nccl_doctor.cli import prologue
from nccl_doctor.cli.value_types import PATH, NumberRange

# Paths are of the type PATH: click.Path looks at the file, which may lie on a mount that hangs.
FORMATS = ("text", "json", "prometheus", "facts")


@click.command("preflight")
@click.option(
    "--for", "caller", type=click.Choice(list(prologue.PROLOGUES)), help="Exit status and words for this caller."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write there, replaced in one step.")
@click.option("--expect", type=PATH, metavar="FILE", help="What the site expects of this node.")
@click.option("--learn", type=PATH, metavar="FILE", help="Write such a file from this node.")
@click.option("--timeout", type=NumberRange(0.1, 600), help="Seconds for all of it; 5 if nothing else says so.")
@click.option("--only", metavar="NAMES", help="Only these collectors, separated by commas.")
@click.option("--deep", is_flag=True, help="Also what takes minutes: writes to mounts, DCGM, bandwidth tests.")
@click.option("--peers", metavar="NODES", help="Log in to these nodes with ssh, as mpirun would.")
@click.option("--root", type=PATH, metavar="DIR|FILE", help="Read a tree of a node that --save kept.")
@click.option("--save", type=PATH, metavar="FILE.tar.zst", help="Keep what was read as such a tree.")
@click.option("--redact", is_flag=True, help="Without addresses, names of users and secrets in what --save keeps.")
@click.option("--state", type=PATH, metavar="DIR", help="Folder of what is remembered; - for none.")
@click.option("--caller", "name", metavar="NAME", help="Whose counters are compared; of --for and --format otherwise.")
@click.option("--forget", metavar="RULE|all", help="Forget a finding that was to stay until a reset, and stop.")
@click.option("--with-connection", is_flag=True, hidden=True, help="End when the standard input ends.")
@click.option("--nodes", metavar="NODES", help="Ask these nodes and compare them.")
@click.option(
    "--via", default="ssh", show_default=True, help="ssh, srun, or a command in which %host stands for a node."
)
@click.option(
    "--observe",
    "--no-drain",
    "observe",
    is_flag=True,
    help="Report what would be done; drain nothing, fail no job, end with 0.",
)
@click.option(
    "--settings",
    "settings_file",
    type=PATH,
    metavar="FILE",
    help="The site's settings; /etc/nccl-doctor/preflight.toml if not given.",
)
@click.option("--explain-config", is_flag=True, help="Show each setting, its value, where it comes from, and stop.")
@click.option("--resume", is_flag=True, help="With --for slurm: give back a fit node that we drained.")
@click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated.")
@click.option("--config", type=PATH, metavar="FILE", help="Parameters, severities, rules off.")
@click.option("-v", "--verbose", is_flag=True, help="Notes too, all evidence, and why it matters.")
def command(**options: Any) -> int:
    """Check whether this node is fit for the job, in about a second.

    One of: fit; drain (the node is broken); job (the node is fine, this job cannot work as launched); unknown (it could
    not look). Exit status 0 fit, 90 drain, 91 job, 2 wrong usage, 3 unknown or our own failure. With --for a scheduler only
    a verdict ends with 90 or 91: whatever else goes wrong ends with 0 and one line in syslog, so that the job runs.
    """
    gc.set_threshold(50_000)  # of a short life, collecting garbage was a tenth
    os.umask(0o022)  # that of the caller may leave files that nobody, or everybody, can write
    from nccl_doctor.cli import preflight_run

    return preflight_run.run(preflight_run.Request(**options))
