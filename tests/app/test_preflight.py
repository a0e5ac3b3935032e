"""`preflight` as a whole: verdicts, callers, deadlines, several nodes, kept trees."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.schemas import validator
from helpers.waiting import DEADLINE

from nccl_doctor.app import preflight
from nccl_doctor.cli import prologue
from nccl_doctor.cli.fail_open import DRAIN, JOB
from nccl_doctor.cli.main import main
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.facts import wire
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime import collect, redact, tree
from nccl_doctor.node.runtime.recording import Recorder
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.reporters.json_report import schema
from nccl_doctor.simulate import node

MACHINE = "dgx-h100"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    node.build(MACHINE, host="node01").write(folder)
    return folder


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that must be drained, whatever rule says so."""
    for name, fault in node.FAULTS.items():
        if MACHINE not in fault.machines:
            continue
        folder = tmp_path_factory.mktemp("broken")
        node.build(MACHINE, name, host="node02").write(folder)
        if preflight.preflight(Root(folder))[0].fitness == "drain":
            return folder
    raise AssertionError("no fault drains a node")


def run(*arguments: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["preflight", "--state", "-", *arguments])
    return status, *capfd.readouterr()


def finding(action: str, severity: str = "error", message: str = "mlx5_3 is down") -> Finding:
    return Finding(
        rule="NIC003", name="ib-port-down", title="t", severity=severity, role="cause", confidence="certain",
        message=message, why="w", fix="f", hosts="node01", action=action,
    )  # fmt: skip


def report(*findings: Finding, outcome: str = "ok") -> Report:
    collected = [Collection("node01", "gpu", outcome, 0.1, None, 1)]
    made = Report(
        verdict=findings[0].severity if findings else "healthy", inputs=[], job={}, findings=list(findings), checks=[]
    )
    made.fitness = preflight.fitness(made, collected)
    return made


@pytest.mark.parametrize(
    ("found", "outcome", "expected"),
    [
        ([], "ok", "fit"),
        ([], "partial", "fit"),
        ([], "absent", "fit"),
        ([], "hung", "unknown"),
        ([], "failed", "unknown"),
        ([finding("warn", "warning")], "ok", "fit"),
        ([finding("job")], "failed", "job"),
        ([finding("job"), finding("drain")], "ok", "drain"),
        ([finding("drain", "note")], "ok", "fit"),
    ],
)
def test_a_broken_node_comes_before_a_job_that_cannot_work_before_not_knowing(
    found: list[Finding], outcome: str, expected: str
) -> None:
    assert expected == report(*found, outcome=outcome).fitness


@pytest.mark.parametrize("caller", prologue.PROLOGUES)
def test_only_a_broken_node_is_punished(caller: str) -> None:
    chosen = prologue.PROLOGUES[caller]
    assert 0 == prologue.status(chosen, report())
    if caller not in ("npd", "nagios"):
        assert 0 == prologue.status(chosen, report(outcome="hung"))
    assert {"slurm-task": 0, "nagios": 2}.get(caller, DRAIN) == prologue.status(chosen, report(finding("drain")))


def test_the_rule_stands_in_the_first_twenty_characters() -> None:
    text = prologue.reason(report(finding("drain"), finding("drain")))
    assert "NIC003" in text[:20]
    other = finding("drain")
    other.rule = "GPU010"
    assert prologue.reason(report(finding("drain"), finding("drain"), other)).endswith(" (+GPU010)")
    long = prologue.reason(report(finding("drain", message="x\n\x1b[31m" * 500)))
    assert len(long) <= 310
    assert long.isprintable()


def test_words_of_each_caller() -> None:
    bad = report(finding("drain", message="a|b"))
    assert "ERROR nccl-doctor:NIC003 ib-port-down: a|b\n" == prologue.torque(bad)
    assert "" == prologue.torque(report(finding("job")))
    assert prologue.nagios(bad).startswith("NCCL-DOCTOR CRITICAL - a/b | ")
    assert prologue.nagios(report(finding("warn", "warning"))).startswith("NCCL-DOCTOR WARNING - ")
    assert 80 >= len(prologue.detector(report(finding("drain", message="ü" * 200))).encode())
    assert all(line.startswith("print ") for line in prologue.printed(bad).splitlines())
    assert "" == prologue.printed(report())


@pytest.mark.parametrize(
    ("environ", "caller"),
    [
        ({"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "7"}, "slurm"),
        ({"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_ID": "7"}, "slurm"),
        ({"SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_JOB_ID": "7"}, "slurm-task"),
        ({"SLURMD_NODENAME": "n1"}, "slurm-health"),
    ],
)
def test_slurm_says_which_of_its_programs_we_are(environ: dict[str, str], caller: str) -> None:
    assert caller == prologue.of_slurm(environ)


def test_a_healthy_and_a_broken_node(healthy: Path, broken: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("--root", str(healthy), capfd=capfd)
    assert (0, "") == (status, err)
    assert out.startswith("FIT node01: ")
    status, out, err = run("--root", str(broken), capfd=capfd)
    assert (DRAIN, "") == (status, err)
    assert out.startswith("DRAIN node02: ")
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_what_its_schema_says(broken: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("--root", str(broken), "--format", "json", capfd=capfd)
    document = json.loads(out)
    validator(schema()).validate(document)
    assert "drain" == document["fitness"]
    assert "drain" == document["findings"][0]["action"]


def test_metrics_replace_a_file_in_one_step(broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nccl_doctor.prom"
    file.write_text("old")
    before = file.stat().st_ino
    run("--root", str(broken), "--format", "prometheus", "-o", str(file), capfd=capfd)
    text = file.read_text()
    assert before != file.stat().st_ino
    assert 'nccl_doctor_node_fitness{verdict="drain"} 1' in text
    assert all(re.fullmatch(r"(#.*|\w+\{[^{}]*\} [-+.\de]+)", line) for line in text.splitlines())
    assert [file] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--root", "/no/such/folder"],
        ["--root", __file__],
        ["--only", "teapot"],
        ["--nodes", "[["],
        ["--nodes", "-oProxyCommand=x"],
        ["--expect", "/no/such/file"],
        ["--root", "/tmp", "--save", "/tmp/x.tar"],
        ["--timeout", "x"],
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*arguments, capfd=capfd)
    assert (2, "") == (status, out)
    assert 1 == err.count("\n")


class Stuck:
    """Collectors that misbehave."""

    TABLES: Sequence[type] = ()

    def __init__(self, how: str) -> None:
        self.how = how

    def collect(self, root: Root) -> Iterator[Any]:
        if self.how == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM})
            time.sleep(1000)
        if self.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raise":
            raise ValueError("two\nlines")
        if self.how == "print":
            print("to stdout", flush=True)
            os.write(2, b"to stderr\n")
        yield from ()


@pytest.mark.parametrize(
    ("how", "outcome"), [("hang", "hung"), ("stop", "hung"), ("crash", "failed"), ("raise", "failed"), ("print", "ok")]
)
def test_whatever_a_collector_does_there_is_a_verdict(
    how: str, outcome: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("one", "two", "three")
    for name in names:
        monkeypatch.setitem(collect.MODULES, name, name)
        monkeypatch.setitem(sys.modules, f"nccl_doctor.node.{name}", Stuck(how))
    facts = Facts()
    seconds = 1.0 if outcome == "hung" else DEADLINE  # what ends by itself is never cut short
    collect.collect(facts, Root(), "node01", names=names, seconds=seconds)
    assert [(name, outcome) for name in names] == [(row.source, row.outcome) for row in facts.rows(Collection)]
    found = preflight.report_of(facts)
    assert ("fit" if how == "print" else "unknown") == found.fitness
    assert ("", "") == tuple(capfd.readouterr())


def test_a_live_node_without_anything_special_is_not_drained(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("--timeout", "240", "--format", "json", capfd=capfd)
    assert status in (0, 3, JOB), out + err
    assert "" == err
    found = json.loads(out)
    assert "drain" != found["fitness"], found["findings"]
    assert [] == [one for one in found["job"]["collectors"] if one["outcome"] in ("failed", "hung")]


def test_no_heavy_library_is_loaded(healthy: Path) -> None:
    code = (
        "import sys; from nccl_doctor.cli.main import main; "
        f"main(['preflight', '--state', '-', '--root', {str(healthy)!r}]); "
        "print([m for m in ('pandas', 'numpy', 'textual', 'rich', 'hyperscan') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "[]" == done.stderr.strip().splitlines()[-1]


def test_what_was_kept_gives_the_same_verdict(tmp_path: Path) -> None:
    kept, file = tmp_path / "kept", tmp_path / "node.tar.zst"
    kept.mkdir()
    names = ["pci", "infiniband", "ethernet", "storage", "selinux"]
    live = preflight.look(Recorder(kept), names, 20.0, "node01")
    tree.pack(kept, file)
    with tree.opened(file) as folder:
        again = preflight.look(Root(folder), names, 20.0, "node01")
    outcomes = [{row.source: row.outcome for row in facts.rows(Collection)} for facts in (live, again)]
    assert outcomes[0] == outcomes[1]
    pair = [[(f.name, f.message) for f in preflight.report_of(facts).findings] for facts in (live, again)]
    assert pair[0] == pair[1]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".tar.zst"])
def test_trees_are_packed_and_unpacked(healthy: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"node{suffix}"
    tree.pack(healthy, file)
    with tree.opened(file) as folder:
        assert "node01" == Root(folder).value("/proc/sys/kernel/hostname")
    file.write_bytes(file.read_bytes()[:-200])


def test_links_of_a_tree_do_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    folder = tmp_path / "tree"
    (folder / "sys").mkdir(parents=True)
    for name, leads in (("abs", str(tmp_path / "outside")), ("up", "../../outside"), ("loop", "loop"), ("etc", "/etc")):
        (folder / "sys" / name).symlink_to(leads)
    root = Root(folder)
    assert (None, None, None) == (root.text("/sys/abs"), root.text("/sys/up"), root.text("/sys/loop"))
    assert root.text("/sys/etc/passwd") is None


def test_redaction_hides_addresses_users_and_secrets_alike() -> None:
    hide = redact.redactor(b"salt")
    text = hide("10.1.2.3 via 10.1.2.3 aa:bb:cc:dd:ee:ff /home/alice/x API_TOKEN=abc 127.0.0.1")
    first, _, second, mac, home, secret, local = text.split()
    assert first == second != "10.1.2.3"
    assert "aa:bb" not in mac
    assert "alice" not in home
    assert "API_TOKEN=removed" == secret
    assert "127.0.0.1" == local


def test_facts_travel_between_nodes(broken: Path) -> None:
    there = preflight.look(Root(broken))
    here = Facts()
    assert wire.take(here, ["banner of ssh", *wire.dump(there).splitlines()])
    assert [f.name for f in preflight.report_of(there).findings] == [f.name for f in preflight.report_of(here).findings]
    assert not wire.take(Facts(), wire.dump(there).splitlines()[:-1])
    assert not wire.take(Facts(), ['["evidence", [1]]', "[]", "1", '["no_table", []]', '{"a": 1}'])


def test_nodes_are_asked_and_silent_ones_named(healthy: Path, broken: Path, capfd: pytest.CaptureFixture[str]) -> None:
    via = (
        f"sh -c 'case %host in n1) tree={healthy};; n2) tree={broken};; *) echo ssh: cannot reach %host; exit 255;; esac; "
        'exec "$@" --root $tree\' sh'
    )
    status, out, _ = run("--nodes", "n[1-3]", "--via", via, "--timeout", "240", capfd=capfd)
    assert DRAIN == status
    assert out.startswith("DRAIN ")
    assert "(node02)" in out
    assert "node on n3: unreachable, exit status 255: ssh: cannot reach the node" in " ".join(out.split())


def test_analyze_reads_the_tree_of_a_node(broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.tar.zst"
    tree.pack(broken, file)
    outs = []
    for path in (broken, file):
        assert 1 == main(["analyze", "--format", "json", str(path)])
        document = json.loads(capfd.readouterr().out)
        outs.append([one["name"] for one in document["findings"]])
        assert ["node"] == [one["kind"] for one in document["inputs"]]
    assert outs[0] == outs[1]
    assert "drain" == document["findings"][0]["action"]


def test_simulate_writes_a_tree_and_live_facts_are_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tree"
    assert 0 == main(["simulate", "--node", MACHINE, "-o", str(folder)])
    assert 0 == main(["preflight", "--root", str(folder)])
    assert 2 == main(["simulate", "--node", MACHINE, "-o", str(folder)])
    assert 2 == main(["simulate", "--node", MACHINE])
    assert 2 == main(["simulate", "--node", "teapot", "-o", str(tmp_path / "x")])
    assert 2 == main(["facts", "--live", str(folder)])
    capfd.readouterr()
    assert 0 == main(["facts", "--live", "--table", "collection", "--format", "json"])
    assert collect.COLLECTORS[0] in capfd.readouterr().out


def test_a_scheduler_is_told_which_collector_could_not_look() -> None:
    facts = Facts()
    for host in ("n1", "n2"):
        ref = facts.evidence(f"collector gpu of {host}", 1, "hung")
        facts.add([Collection(host, "gpu", "hung", 5.0, "no answer within the time limit", ref)])
    text = prologue.lines(preflight.report_of(facts))
    assert "nccl-doctor: unknown: gpu on n[1-2]: hung, no answer within the time limit\n" in text
