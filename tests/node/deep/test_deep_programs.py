"""`--deep` with programs that behave as dcgmi, ib_write_bw, nvbandwidth and all_reduce_perf do; the real ones need GPUs."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.node.deep import active_tests
from nccl_doctor.node.runtime import collect
from nccl_doctor.node.runtime.root import Root
from tests.node.deep.test_deep import ALL_REDUCE, COPY, DCGM_4, PERFTEST

OUTPUT = {
    "nvidia-smi": "",
    "dcgmi": json.dumps(DCGM_4),
    "nvbandwidth": COPY,
    "all_reduce_perf": ALL_REDUCE.format(wrong=0),
    "ib_write_bw": PERFTEST.format(value="390.12"),
}
STATUS = {"dcgmi": 226}  # with tests that failed
PROGRAM = """#!{python} -I
import pathlib, socket, sys, time
folder = pathlib.Path(__file__).parent
name, arguments = pathlib.Path(__file__).name, sys.argv[1:]
with (folder / "asked").open("a") as file:
    print(name, *arguments, file=file)
if name == "nvbandwidth" and arguments[1] != "host_to_device_memcpy_ce":
    sys.exit("ERROR: test not supported")
if name == "ib_write_bw":  # the server waits for one client; a client without a server fails
    port = int(arguments[arguments.index("-p") + 1])
    if arguments[-1] == "localhost":
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            sys.exit(f"Couldn't connect to localhost:{{port}}")
    else:
        with socket.create_server(("127.0.0.1", port)) as server:
            server.accept()
        sys.exit()
if (folder / f"{{name}}.hangs").exists():
    time.sleep(600)
sys.stdout.write((folder / f"{{name}}.out").read_text())
sys.exit({status})
"""


class Machine(Root):
    """The live node, with two cards."""

    def names(self, path: str) -> list[str]:
        return ["mlx5_0", "mlx5_1", "rdmap0"] if path == "/sys/class/infiniband" else super().names(path)

    def value(self, path: str) -> str | None:
        if path.startswith("/sys/class/infiniband/"):
            return "1: DOWN" if "mlx5_1" in path else "4: ACTIVE"
        return super().value(path)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the site with all programs, on a machine with eight GPUs."""
    for name, output in OUTPUT.items():
        (tmp_path / f"{name}.out").write_text(output)
        program = tmp_path / name
        program.write_text(PROGRAM.format(python=sys.executable, status=STATUS.get(name, 0)))
        program.chmod(0o755)
    monkeypatch.setattr(active_tests.pci, "devices", lambda root: [SimpleNamespace(kind="gpu")] * 8)
    monkeypatch.setattr(active_tests, "PORT", 20000 + hash(tmp_path) % 20000)
    return tmp_path


def results(folder: Path) -> dict[str, str]:
    """Tool and test -> outcome and value."""
    rows = list(active_tests.collect(Machine(deep=1, commands=[str(folder)])))
    return {f"{row.tool} {row.test} {row.device}": f"{row.outcome} {row.value}" for row in rows}


def test_each_program_is_run_and_read(programs: Path) -> None:
    found = results(programs)
    assert {
        "dcgm software 0": "pass None", "dcgm software None": "skip None", "dcgm software 3": "fail None",
        "ib_write_bw loopback mlx5_0": "pass 390.12",
        "nvbandwidth host_to_device_memcpy_ce 0": "pass 55.11", "nvbandwidth host_to_device_memcpy_ce 1": "pass 17.8",
        "nvbandwidth device_to_host_memcpy_ce None": "other None",
        "nccl-tests all_reduce_perf None": "pass 441.08",
    } == found  # fmt: skip
    asked = (programs / "asked").read_text().splitlines()
    assert ["nvidia-smi", "dcgmi", "ib_write_bw", "nvbandwidth", "all_reduce_perf"] == list(
        dict.fromkeys(line.split()[0] for line in asked)
    )
    assert "dcgmi diag -r 1 -j" in asked
    assert "all_reduce_perf -b 1G -e 1G -g 8" in asked


@pytest.mark.parametrize("name", ["dcgmi", "nvbandwidth", "all_reduce_perf", "ib_write_bw"])
def test_one_that_hangs_holds_up_only_itself(programs: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / f"{name}.hangs").touch()
    (monkeypatch.setitem(active_tests.DCGM_SECONDS, 1, 0.5) if name == "dcgmi"
     else monkeypatch.setitem(active_tests.SECONDS, name, 2.0))  # fmt: skip
    found = results(programs)
    tool = {"dcgmi": "dcgm", "all_reduce_perf": "nccl-tests"}.get(name, name)
    assert {"other None"} == {said for key, said in found.items() if key.startswith(f"{tool} ")}
    assert {"dcgm", "ib_write_bw", "nvbandwidth", "nccl-tests"} == {key.split()[0] for key in found}
    assert 3 <= len([said for said in found.values() if not said.startswith("other")])


def test_nothing_is_run_while_a_process_uses_a_gpu(programs: Path) -> None:
    (programs / "nvidia-smi.out").write_text("4711\n")
    *rows, said = collect.answer("deep", Machine(deep=1, commands=[str(programs)]))
    assert ([], "absent") == (rows, said["outcome"] if isinstance(said, dict) else None)
    assert 1 == len((programs / "asked").read_text().splitlines())


def test_what_ended_counts_where_the_whole_time_is_over(programs: Path) -> None:
    (programs / "nvbandwidth.hangs").touch()
    rows = active_tests.collect(Machine(deep=1, commands=[str(programs)]))
    assert isinstance(next(rows), ActiveTest)  # before the others have run
    assert "nvbandwidth" not in (programs / "asked").read_text()
