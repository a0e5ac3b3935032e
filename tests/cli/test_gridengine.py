"""A real Grid Engine whose prolog is ours, run as root with the variables of the job."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.gridengine_cluster import Cluster, cluster, missing
from helpers.prologues import install, ours, program

from nccl_doctor.simulate import node

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(scope="module")
def gridengine() -> Iterator[Cluster]:
    with cluster() as running:
        node.build("dgx-h100", host="ge1").write(running.folder / "well")
        node.build("dgx-h100", "gpu-off-the-bus", host="ge1").write(running.folder / "broken")
        yield running


def use(running: Cluster, python: Path | str) -> None:
    scripts = install(running.folder, python)
    program(running.folder / "prolog", f"exec {scripts}/gridengine-prolog.sh")


def test_a_healthy_node_runs_the_job(gridengine: Cluster) -> None:
    use(gridengine, ours(gridengine.folder, f"--root {gridengine.folder}/well"))
    done = gridengine.submit("/bin/echo", "ran")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "ran" in (gridengine.folder / "out" / "job").read_text()
    assert "" == gridengine.states()


def test_a_user_cannot_run_anything_as_root_through_the_prolog(gridengine: Cluster) -> None:
    """The variables of `qsub -v` reach the prolog: PATH, NCCL_DOCTOR and the others must not be believed."""
    use(gridengine, ours(gridengine.folder, f"--root {gridengine.folder}/well"))
    evil = gridengine.folder / "out" / "evil"
    evil.mkdir()
    proof = gridengine.folder / "proof"  # only root can write there
    for name in ("env", "sh", "sed", "timeout", "logger", "python3", "ip", "nccl-doctor"):
        program(evil / name, f"/usr/bin/touch {proof}")
    (evil / "sitecustomize.py").write_text(f"open({str(proof)!r}, 'w')\n")
    variables = {
        "PATH": str(evil), "NCCL_DOCTOR": str(evil / "nccl-doctor"), "NCCL_DOCTOR_OPTIONS": f"--rules {evil}",
        "PYTHONPATH": str(evil), "PYTHONHOME": str(evil), "LD_LIBRARY_PATH": str(evil), "HOME": str(evil), "SHIV_ROOT": str(evil),
        "ENV": str(evil / "env"), "BASH_ENV": str(evil / "env"), "PYTHON": str(evil / "python3"), "LIMIT": "0",
    }  # fmt: skip
    done = gridengine.submit("/bin/true", variables=variables)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert not proof.exists()
    # The same script without its first line of defence shows that the attack works where nothing stops it.
    program(gridengine.folder / "prolog", '"${NCCL_DOCTOR:-true}"')
    gridengine.submit("/bin/true", variables=variables)
    assert proof.exists()


PRELOADED = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) { if (geteuid() == 0) close(creat("%s", 0644)); }
"""


def test_a_library_of_the_user_is_not_loaded_into_the_prolog(gridengine: Cluster) -> None:
    """No script could stop it: the loader runs before the shell. Grid Engine must leave LD_PRELOAD out for root."""
    use(gridengine, ours(gridengine.folder, f"--root {gridengine.folder}/well"))
    proof, source = gridengine.folder / "preloaded", gridengine.folder / "out" / "evil.c"
    library = source.with_suffix(".so")
    source.write_text(PRELOADED % proof)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(library)}, check=True)
    assert proof.exists()  # where nothing leaves it out
    proof.unlink()
    done = gridengine.submit("/bin/true", variables={"LD_PRELOAD": str(library), "LD_AUDIT": str(library)})
    assert 0 == done.returncode, done.stdout + done.stderr
    assert not proof.exists()


@pytest.mark.parametrize("python", ["/no/such/python3", "exit 1", "kill -KILL $$", "exit 100", "exit 99"])
def test_whatever_is_wrong_with_the_tool_the_job_runs(gridengine: Cluster, python: str) -> None:
    use(gridengine, python if python.startswith("/") else program(gridengine.folder / "python3", python))
    done = gridengine.submit("/bin/true")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "" == gridengine.states()


def test_a_broken_node_takes_no_jobs(gridengine: Cluster) -> None:
    use(gridengine, ours(gridengine.folder, f"--root {gridengine.folder}/broken"))
    gridengine.submit("/bin/true", wait=False)
    try:
        gridengine.wait(lambda: "E" in gridengine.states())
        assert "qw" in gridengine.run("qstat", "-u", "*").stdout  # the job waits for another node
    finally:
        gridengine.run("qdel", "-u", "*")
        gridengine.run("qmod", "-cq", "all.q")


def test_a_job_that_cannot_work_is_in_error_and_not_the_node(gridengine: Cluster) -> None:
    use(gridengine, program(gridengine.folder / "python3", "exit 91"))
    gridengine.submit("/bin/true", wait=False)
    try:
        gridengine.wait(lambda: "Eqw" in gridengine.run("qstat", "-u", "*").stdout)
        assert "" == gridengine.states()
    finally:
        gridengine.run("qdel", "-u", "*")
