"""The wheel holds all that the commands need, and the make targets say what is missing."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from helpers.places import ROOT
from helpers.prologues import install


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment},
        cwd=ROOT, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, ROOT
    )
    assert 0 == done.returncode, done.stderr
    (built,) = folder.glob("nccl_doctor-*.whl")
    return built


def test_the_wheel_holds_rules_patterns_knowledge_and_schema(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "nccl_doctor"
    expected = {
        f"nccl_doctor/{p.relative_to(source)}"
        for p in source.rglob("*")
        if p.suffix in (".py", ".toml", ".json", ".typed")
    }
    expected |= {f"nccl_doctor/rules/data/{p.relative_to(ROOT / 'rules')}" for p in (ROOT / "rules").rglob("*.toml")}
    assert set() == expected - names
    assert [] == [name for name in names if name.startswith(("tests", "fixtures", "bench"))]


@pytest.mark.parametrize("name", ["MAKE", "SHARE"])
def test_the_build_finds_the_program_where_python_does_not_search_the_folder(name: str, tmp_path: Path) -> None:
    code = f"import hatch_build, sys; sys.path[:] = [one for one in sys.path if one != {str(ROOT)!r}]; exec(hatch_build.{name})"
    done = run(
        sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}", tmp_path, PYTHONSAFEPATH="1"
    )
    assert 0 == done.returncode, done.stderr


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are borrowed from this environment, so that no network is needed; its own code and rules are not."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert 0 == done.returncode, done.stderr
    borrowed = tmp_path / "borrowed"
    borrowed.mkdir()
    for entry in Path(pytest.__file__).parent.parent.iterdir():
        if "nccl_doctor" not in entry.name:
            (borrowed / entry.name).symlink_to(entry)
    code = "import nccl_doctor, nccl_doctor.rules.loader as r; print(nccl_doctor.__file__);"
    code += "print(r.shipped_folder()); print(len(r.load_rules()))"
    where = run(python, "-P", "-c", code, PYTHONPATH=str(borrowed)).stdout.split()
    assert [True, True] == [Path(path).is_relative_to(tmp_path / "env") for path in where[:2]]
    assert len(list((ROOT / "rules").glob("*/*.toml"))) == int(where[2])
    command = tmp_path / "env" / "bin" / "nccl-doctor"
    done = run(command, "analyze", ROOT / "fixtures" / "demo.log", PYTHONPATH=str(borrowed))
    assert 1 == done.returncode, done.stderr
    assert done.stdout.startswith("ERROR: ")


def test_the_version_is_that_of_the_installation() -> None:
    code = "import nccl_doctor; print(nccl_doctor.__version__)"
    said = run(sys.executable, "-P", "-c", code).stdout.strip()
    assert f"nccl-doctor {said}\n" == run(sys.executable, "-m", "nccl_doctor", "--version").stdout
    assert metadata.version("nccl-doctor") == said
    assert "0.0.0\n" == run(sys.executable, "-S", "-c", code).stdout  # a copy that nobody installed


def test_the_wheel_brings_its_rules_and_patterns_parsed(wheel: Path, tmp_path: Path) -> None:
    """Nothing is parsed, and nothing is written, at the first start of an installation."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import tomllib; tomllib.loads = None; from pathlib import Path; from nccl_doctor.common import parse_cache;"
        "from nccl_doctor.rules import loader;"
        "from nccl_doctor.log import line_patterns; print(parse_cache.FOLDER, len(loader.load_rules()), len(line_patterns.load()))"
    )
    done = run(sys.executable, "-P", "-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_make_says_what_python_lacks(tmp_path: Path) -> None:
    """A Python without venv and ensurepip, as Debian ships it, gives a clear line and no half-made environment."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run("make", "demo", f"VENV={tmp_path}/env", f"PYTHON={python}")
    assert 2 == done.returncode
    assert "cannot make virtual environments" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "env").exists()


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    done = run("make", "demo", f"VENV={tmp_path}/env", "PYTHON=")
    assert 2 == done.returncode
    assert "needs Python 3.11 or newer" in done.stderr


def test_one_file_holds_what_preflight_needs(wheel: Path, tmp_path: Path) -> None:
    """Built as `make pyz` does, from the packages of this environment; run without home, user or path, as by a prolog."""
    site, file = tmp_path / "site", tmp_path / "nccl-doctor.pyz"
    done = run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
    assert 0 == done.returncode, done.stderr
    packages = Path(pytest.__file__).parent.parent
    for name in ("click", "psutil", "ClusterShell", "yaml", "pynvml.py"):
        (site / name).symlink_to(packages / name)
    entry = "nccl_doctor.__main__:run"
    done = run(
        sys.executable,
        "-m",
        "shiv",
        "--site-packages",
        site,
        "--compile-pyc",
        "--entry-point",
        entry,
        "--output-file",
        file,
    )
    assert 0 == done.returncode, done.stderr
    assert 0 == run(sys.executable, ROOT / "pyz_start.py", file).returncode
    command = [sys.executable, "-S", file, "preflight", "--state", "-", "--only", "pci,ethernet,selinux"]
    cache = tmp_path / "cache"
    done = subprocess.run(command, capture_output=True, text=True, env={"SHIV_ROOT": str(cache)}, check=False, cwd="/")
    assert done.returncode in (0, 90, 91), done.stderr
    assert done.stdout.startswith(("FIT ", "JOB ", "DRAIN ")), done.stdout
    _called_directly(file, tmp_path)
    if os.geteuid() == 0:
        _launched(file, cache, tmp_path)


def _called_directly(file: Path, folder: Path) -> None:
    """Without the launcher: a cache that others can write, one that cannot be written, no home."""

    def ends(caller: str, *before: str, **environ: str) -> tuple[int, str]:
        command = [*before, sys.executable, "-S", str(file), "preflight", "--state", "-", "--only", "pci"]
        done = subprocess.run(
            command + (["--for", caller] if caller else []),
            capture_output=True,
            text=True,
            env=environ,
            check=False,
            cwd="/",
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    poisoned = folder / "poisoned"
    shutil.copytree(folder / "cache", poisoned)
    module = next(poisoned.rglob("nccl_doctor/__init__.py"))
    module.write_text("raise SystemExit(90)")
    module.chmod(0o666)
    for caller, status in (("", 3), ("lsf", 0)):
        assert (status, f"others can write {module}") == _with(ends(caller, SHIV_ROOT=str(poisoned)), module)
    for place in ("/dev/full", "relative", "/proc/nothing"):
        assert 3 == ends("", SHIV_ROOT=place)[0]
        assert 0 == ends("slurm", SHIV_ROOT=place)[0]
    assert ends("lsf", SHIV_ROOT=str(folder / "cache"), SHIV_ENTRY_POINT="os:abort", SHIV_INTERPRETER="1")[
        1
    ].startswith("nccl-")
    if os.geteuid() == 0 and shutil.which("unshare"):
        full = 'mount -t tmpfs -o size=64k none /var && mkdir /var/cache && exec "$@"'
        status, said = ends("lsf", "unshare", "-m", "/bin/sh", "-c", full, "sh", HOME="/no/such")
        assert "unshare" in said or "mount" in said or (0, True) == (status, "cannot be unpacked" in said), said


def _with(ended: tuple[int, str], path: Path) -> tuple[int, str]:
    return ended[0], f"others can write {path}" if f"others can write {path}" in ended[1] else ended[1]


def _launched(file: Path, cache: Path, folder: Path) -> None:
    """The launcher runs it from the cache that root unpacked, and refuses a cache that somebody else could have changed."""
    launch = install(folder, sys.executable) / "launch.sh"
    text = re.sub(r"(?m)^CACHE=\S+", f"CACHE={cache}", launch.read_text())
    launch.write_text(re.sub(r"(?m)^PROGRAM='.*?'", f"PROGRAM={file}", text))
    for link in cache.rglob("*"):
        os.chown(link, 0, 0, follow_symlinks=False)
    call = ["/bin/sh", "-p", str(launch), "lsf", "--state", "-", "--only", "pci"]

    def ends() -> tuple[int, str]:
        done = subprocess.run(
            call, capture_output=True, text=True, env={"SHIV_ROOT": "/tmp/evil"}, check=False, cwd="/"
        )
        return done.returncode, done.stdout + done.stderr

    status, said = ends()
    assert 0 == status
    assert said.startswith("nccl-doctor: fit: ")
    module = next(cache.rglob("nccl_doctor/__init__.py"))
    module.chmod(0o666)
    status, said = ends()
    assert 0 == status
    assert f"not only root can change the program: {module}; nothing is drained" in said
    shutil.rmtree(cache)
    status, said = ends()
    assert 0 == status
    assert "nothing is drained" in said
    assert "Traceback" not in said


PACKAGING = ROOT / "packaging"
# The image: the system's libraries and its Python, read-only, and the program; no /etc, no home, no network, no privileges.
IN_IMAGE = """
root=$1 base=$2 packages=$3; shift 3
for path in /usr /lib /lib64 /bin /proc /sys /dev "$base" "$packages"; do
    [ -e "$path" ] || continue
    mkdir -p "$root$path" && mount --rbind "$path" "$root$path" && mount -o remount,ro,bind "$root$path" 2>/dev/null || exit 200
done
exec chroot --userspec=65532:65532 "$root" /usr/bin/env -i PATH=/usr/bin:/bin \\
    PYTHONPATH=/opt/nccl-doctor:/opt/borrowed "$base/bin/python3" -P -m nccl_doctor "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can make a root of its own")
def test_the_files_of_the_image_work_in_an_empty_root(wheel: Path, open_path: Path) -> None:
    """As packaging/Dockerfile puts them together, where no container can be built; packages are borrowed as above."""
    root, packages = open_path / "root", Path(pytest.__file__).parent.parent
    program = root / "opt" / "nccl-doctor"
    done = run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", program, wheel)
    assert 0 == done.returncode, done.stderr
    borrowed = root / "opt" / "borrowed"
    borrowed.mkdir()
    for entry in packages.iterdir():
        if "nccl_doctor" not in entry.name:
            (borrowed / entry.name).symlink_to(entry)
    (root / "data").mkdir()
    shutil.copy(ROOT / "fixtures" / "demo.log", root / "data")
    for folder in (root, *root.rglob("*")):
        if not folder.is_symlink():
            folder.chmod(folder.stat().st_mode | (0o555 if folder.is_dir() else 0o444))
    start = ["unshare", "-m", "-n", "/bin/sh", "-c", IN_IMAGE, "sh", root, sys.base_prefix, packages]
    done = run(*start, "analyze", "/data/demo.log")
    if done.returncode == 200 or "unshare" in done.stderr:
        pytest.skip("this machine allows no mounts")
    assert 1 == done.returncode, done.stderr
    assert done.stdout.startswith("ERROR: The locked-memory limit")
    done = run(*start, "preflight", "--state", "-", "--only", "pci,ethernet")
    assert done.returncode in (0, 90, 91), done.stderr
    assert done.stdout.startswith(("FIT ", "JOB ", "DRAIN ")), done.stdout


def test_the_image_is_run_without_privileges_and_made_from_files_that_exist() -> None:
    text = (PACKAGING / "Dockerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    assert 2 == len(stages)
    assert len({stage.split()[0] for stage in stages}) == 1  # an environment runs with the Python that made it
    assert re.findall(r"^USER (\d+):(\d+)$", stages[1], re.M) == [("65532", "65532")]
    assert [] == re.findall(r"^(?:RUN|ADD)\b", stages[1], re.M)
    kept = re.findall(r"^!(\S+)$", (PACKAGING / "Dockerfile.dockerignore").read_text(), re.M)
    assert all((ROOT / name).exists() for name in kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"nccl_doctor", "rules", "packaging", "hatch_build.py", "pyproject.toml", "constraints.txt"}
    assert needed | {project["project"]["readme"], *project["project"]["license-files"]} == set(kept)


def test_the_pods_are_what_the_schema_of_kubernetes_says_and_have_no_rights() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes" / "exporter.yaml").read_text()))
    assert ["Namespace", "ServiceAccount", "DaemonSet"] == [one["kind"] for one in documents]
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)
    _, account, daemons = documents
    pod = daemons["spec"]["template"]["spec"]
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    assert (False, False) == (account["automountServiceAccountToken"], pod["automountServiceAccountToken"])
    assert daemons["spec"]["selector"]["matchLabels"] == daemons["spec"]["template"]["metadata"]["labels"]
    (container,) = pod["containers"]
    user = pod["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in (PACKAGING / "Dockerfile").read_text()
    rights = container["securityContext"]
    assert (False, True, ["ALL"]) == (
        rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"], rights["capabilities"]["drop"],
    )  # fmt: skip
    (port,) = container["ports"]
    assert container["command"][-1] == f"prometheus:0.0.0.0:{port['containerPort']}"
    container["volumeMount"] = []
    with pytest.raises(validate.ValidationError):
        validate.validate(daemons, validate.latest_version(), strict=True)


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    units = []
    for unit in sorted((PACKAGING / "systemd").iterdir()):
        assert "/opt/nccl-doctor/bin/nccl-doctor" in unit.read_text() or unit.suffix == ".timer"
        units.append(tmp_path / unit.name)
        units[-1].write_text(unit.read_text().replace("/opt/nccl-doctor/bin/nccl-doctor", "/bin/true"))
    done = run("systemd-analyze", "verify", *units)
    assert (0, "") == (done.returncode, done.stderr)
    (tmp_path / "bad.service").write_text("[Service]\nExecStart=relative\n")
    assert 0 != run("systemd-analyze", "verify", tmp_path / "bad.service").returncode


def test_the_wheel_brings_man_pages_completion_and_a_format_for_lnav(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shared = {name.partition(".data/data/share/")[2] for name in archive.namelist() if ".data/data/" in name}
    assert {"man/man1/nccl-doctor.1", "bash-completion/completions/nccl-doctor"} <= shared
    assert {"zsh/site-functions/_nccl-doctor", "lnav/formats/nccl_doctor/nccl_log.json"} <= shared
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    assert {"/packaging", "/hatch_build.py", "/action.yml"} <= set(
        included
    )  # a wheel can be built from the source archive
