"""What `preflight` believes and runs when root calls it: nothing that a job or its user can change."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.prologues import program

from nccl_doctor.cli import slurm
from nccl_doctor.cli.main import main
from nccl_doctor.cli.site import preflight_rules
from nccl_doctor.common import parse_cache
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="what root believes and runs")
CALL = [sys.executable, "-I", "-m", "nccl_doctor", "preflight", "--state", "-", "--timeout", "60"]


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("well")
    node.build("dgx-h100", host="node01").write(folder)
    return folder


@root_only
@pytest.mark.parametrize("path", [None, "", ".", "{evil}", "{evil}:/usr/bin"])
def test_no_command_of_the_path_or_the_current_folder_is_run(tmp_path: Path, path: str | None) -> None:
    """`env -i nccl-doctor preflight` in a folder with an `ip` ran it: without PATH the shell's default has the folder `.`."""
    evil, proof = tmp_path / "evil", tmp_path / "proof"
    evil.mkdir()
    for name in ("ip", "chronyc", "timedatectl", "getent", "scontrol", "nvidia-smi", "horovodrun"):
        program(evil / name, f"/usr/bin/touch {proof}")
    environ = {} if path is None else {"PATH": path.format(evil=evil)}
    done = subprocess.run([*CALL, "--deep"], env=environ, cwd=evil, capture_output=True, check=False)
    assert done.returncode != 2, done.stderr
    assert not proof.exists()


@root_only
def test_commands_run_with_an_environment_of_ours_in_the_root_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "IFS", "NCCL_DOCTOR_DEBUG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    said = Root().run("env")
    folder = Root().run("pwd")
    assert said is not None
    assert folder is not None
    assert {"PATH", "LC_ALL", "HOME"} == {line.partition("=")[0] for line in said.text.splitlines()} - {
        "PWD",
        "_",
        "SHLVL",
    }
    assert "/" == folder.text.strip()


@root_only
def test_a_folder_of_the_site_is_searched_only_where_root_alone_can_write(tmp_path: Path) -> None:
    program(tmp_path / "site-command", "echo site")
    found = Root(commands=[str(tmp_path)]).run("site-command")
    assert found is not None
    assert "site" == found.text.strip()
    tmp_path.chmod(0o777)
    assert Root(commands=[str(tmp_path)]).run("site-command") is None


@root_only
def test_a_library_of_the_job_is_not_loaded(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc)")
    proof, source = tmp_path / "proof", tmp_path / "evil.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void)\n"
        f'{{ FILE *file = fopen("{proof}", "w"); if (file) fclose(file); }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(source)], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    load = [sys.executable, "-I", "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"]
    subprocess.run(load, env=environ, check=True)
    assert proof.exists()  # the library is one that the loader finds
    proof.unlink()
    subprocess.run([*CALL, "--only", "gpu"], env=environ, capture_output=True, check=False)
    assert not proof.exists()


@root_only
@pytest.mark.parametrize("option", ["--config", "--expect", "--settings"])
@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_a_file_that_others_can_write_is_refused(
    well: Path, tmp_path: Path, option: str, mode: int, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.toml"
    file.write_text("")
    assert 0 == main(["preflight", "--state", "-", "--root", str(well), option, str(file)])
    assert "" == capfd.readouterr().err
    file.chmod(mode)
    status = main(["preflight", "--state", "-", "--root", str(well), option, str(file)])
    assert {"--settings": 0}.get(option, 2) == status  # settings that are refused turn on observe mode
    assert "is not read" in capfd.readouterr().err
    assert 0 == main(["preflight", "--state", "-", "--for", "lsf", "--root", str(well), option, str(file)])


@root_only
@pytest.mark.parametrize("spoil", ["file", "folder", "owner"])
def test_rules_that_others_can_write_are_left_out(tmp_path: Path, spoil: str) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "x.toml").touch()
    assert ((rules,), []) == preflight_rules([str(rules)], tmp_path / "absent")
    if spoil == "file":
        (rules / "x.toml").chmod(0o666)
    elif spoil == "folder":
        rules.chmod(0o777)
    else:
        os.chown(rules / "x.toml", 65534, 65534)
    found, problems = preflight_rules([str(rules)], tmp_path / "absent")
    assert (0, 1) == (len(found), len(problems))


def test_no_home_is_looked_at_for_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / ".config" / "nccl-doctor" / "rules"
    rules.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    assert ((), []) == preflight_rules([], tmp_path / "absent")


@root_only
def test_a_poisoned_parse_cache_is_not_read(tmp_path: Path) -> None:
    source = tmp_path / "rule.toml"
    source.write_text("x")
    folder = tmp_path / "compiled"
    assert "real" == parse_cache.remembered("r", [source], lambda: "real", folder)
    kept = folder / "r.json"
    head, _ = kept.read_text().split("\n")
    kept.write_text(f'{head}\n"poison"')
    assert "poison" == parse_cache.remembered("r", [source], lambda: "real", folder)  # the key fits
    kept.chmod(0o666)
    assert "real" == parse_cache.remembered("r", [source], lambda: "real", folder)
    kept.chmod(0o644)
    os.chown(kept, 65534, 65534)
    assert "real" == parse_cache.remembered("r", [source], lambda: "real", folder)


def test_what_is_saved_is_for_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "node.tar.gz"
    os.umask(os.umask(0))
    main(["preflight", "--state", "-", "--only", "host", "--timeout", "60", "--save", str(file)])
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("option", ["--save", "--output", "--learn"])
def test_a_link_in_a_folder_of_everybody_is_not_followed(tmp_path: Path, option: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "node.tar"
    link.symlink_to(victim)
    main(["preflight", "--state", "-", "--only", "host", "--timeout", "60", option, str(link)])
    assert "precious" == victim.read_text()


def test_a_device_is_not_replaced(well: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["preflight", "--state", "-", "--root", str(well), "-o", "/dev/null"])
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    main(["preflight", "--state", "-", "--only", "host", "--save", "/dev/null"])
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@root_only
def test_a_configuration_of_slurm_that_others_can_write_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "scontrol", 'echo "State=IDLE Reason=${SLURM_CONF:-none}"')
    monkeypatch.setattr(slurm, "FOLDERS", (str(tmp_path),))
    configuration = tmp_path / "slurm.conf"
    configuration.touch()
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    assert ("IDLE", str(configuration)) == slurm._state("n1", ())
    configuration.chmod(0o666)
    assert ("IDLE", "none") == slurm._state("n1", ())


@root_only
def test_a_home_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """The file server is away: whatever looks at the home blocks in the kernel, as a parent that read ~/.config did."""
    if not Path("/dev/fuse").exists() or shutil.which("unshare") is None:
        pytest.skip("no /dev/fuse or no unshare")
    home = tmp_path / "home"
    home.mkdir()
    helper = ROOT / "tests" / "helpers" / "hung_mount.py"
    environ = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_STATE_HOME": f"{home}/.state",
        "TMPDIR": str(home),
    }
    command = [sys.executable, "-I", "-m", "nccl_doctor", "preflight", "--for", "lsf", "--timeout", "5", "--state", "-"]
    done = subprocess.run(
        ["unshare", "-m", sys.executable, str(helper), str(home), *command], env=environ, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert 124 != done.returncode, done.stderr
    assert done.stdout.startswith("nccl-doctor: "), done.stderr
