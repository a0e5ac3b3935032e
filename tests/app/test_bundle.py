"""`bundle`: what may be given away finds the same, and tells nobody's name."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.analyze import analyze
from nccl_doctor.app.bundle.archive import Bundle
from nccl_doctor.app.bundle.redaction import Redactor, known_secrets
from nccl_doctor.cli.main import main
from nccl_doctor.simulate.scenario import write_log
from nccl_doctor.simulate.spec import Spec

PLANTED = {
    "frontier-b07": "frontier-b07.lab.acme.example.com",
    "alice_w": "export USER=alice_w; cd /home/alice_w/moonshot/llm && python train.py",
    "moonshot": "loading /lustre/moonshot/data/tokens.bin",
    "10.77.3.9": "connecting to 10.77.3.9:29500",
    "b8:ce:f6:12:34:56": "link/ether b8:ce:f6:12:34:56",
    "hunter2secret": "DB_PASSWORD=hunter2secret",
    "AKIAIOSFODNN7EXAMPLE": "using AKIAIOSFODNN7EXAMPLE",
    "alice@acme.example.com": "mail alice@acme.example.com when done",
    "1650221234567": "Serial Number : 1650221234567",
    "0c42a1030012abcd": "node_guid: 0x0c42a1030012abcd",
    "GPU-5d1a2c3b-1111-2222-3333-444455556666": "GPU 0: (UUID: GPU-5d1a2c3b-1111-2222-3333-444455556666)",
}


SECRETS = known_secrets()


def found(path: Path) -> list[tuple[str, str, str]]:
    report = analyze([str(path)])[0]
    return [(report.verdict, one.rule, one.ranks) for one in report.findings]


def unpacked(bundle: Path, folder: Path) -> Path:
    with tarfile.open(bundle) as archive:
        archive.extractall(folder, filter="data")
    return folder / "bundle"


@pytest.mark.parametrize("fault", ["xid-79-off-bus", "tcp-fallback", "dev-shm-full", "connection-refused", None])
def test_the_copy_of_a_log_gives_the_same_findings_and_no_name(fault: str | None, tmp_path: Path) -> None:
    lines = [line.replace("dgx-012", "frontier-b07") for line in write_log(Spec(nodes=3, gpus=4, fault=fault))]
    log = tmp_path / "alice_w-job.log"
    assert any("frontier-b07" in line for line in lines)
    log.write_text("\n".join([*PLANTED.values(), *lines, ""]))
    target = tmp_path / "out.tar.gz"
    assert 0 == main(["bundle", str(log), "-o", str(target), "--yes"])
    copy = unpacked(target, tmp_path / "copy")
    (text,) = [path.read_text() for path in copy.rglob("*") if path.is_file()]
    assert [] == [name for name in PLANTED if name.lower() in text.lower()]
    assert not [path for path in copy.rglob("*") if "alice" in path.name]
    assert found(log) == found(copy)


@pytest.mark.parametrize(
    "name",
    ["demo.log", "job/xid-hang", "throughput/megatron_16.log", "timeline/slow_rank2_4r.json", "gpu/hot_gpu2.csv"],
)
def test_the_copy_of_any_input_gives_the_same_findings(name: str, tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"
    assert 0 == main(["bundle", str(FIXTURES / name), "-o", str(target), "--yes"])
    assert found(FIXTURES / name) == found(unpacked(target, tmp_path / "copy"))


def test_equal_things_get_equal_words() -> None:
    redact = Redactor(["gpu-a01", "gpu-a02"], ["bob"])
    assert "host-001 host-002 host-001" == redact("gpu-a01 gpu-a02 GPU-A01")
    assert "-1host-001:1:2" == redact("-1gpu-a01:1:2")
    assert "host-001-ib0 host-[001-002] nccl.host-001.77" == redact("gpu-a01-ib0 gpu-a[01-02] nccl.gpu-a01.77")
    assert "user-001 /home/user-001/x.py" == redact("bob /home/bob/x.py")
    assert "10.0.1.4 10.0.1.5 10.0.2.4" == redact("192.168.7.4 192.168.7.5 192.168.8.4")


@pytest.mark.parametrize(
    "line",
    [
        "node:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
        "libfabric 1.22.0.1, driver 535.104.05, firmware version 28.39.1002",
        "Bootstrap : Using lo:127.0.0.1<0>, MASTER_ADDR=localhost",
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py:1501",
        "0000:43:00.0 at 12:34:56.789, std::runtime_error, c10::Error, busId 43000",
        "2026-06-26T02:29:22.123456+00:00 step 12 loss 3.141",
    ],
)
def test_what_the_diagnosis_reads_stays(line: str) -> None:
    assert line == Redactor(["n01"], ["bob"], known_secrets())(line)


@given(st.text(max_size=300))
def test_any_text_is_taken_and_nothing_is_replaced_twice(text: str) -> None:
    redact = Redactor(["gpu-a01"], ["bob"])
    once = redact(text)
    assert "gpu-a01" not in once.lower().split()
    assert redact(once).count("host-") == once.count("host-")


def test_nothing_is_written_before_somebody_agreed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.tar.gz"
    assert 2 == main(["bundle", str(FIXTURES / "demo.log"), "-o", str(target)])
    shown = capsys.readouterr()
    assert " -> host-001" in shown.out
    assert "--yes" in shown.err
    assert not target.exists()


def test_what_is_not_text_is_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "job.log").write_bytes((FIXTURES / "demo.log").read_bytes())
    bundle = Bundle([str(tmp_path / "job.log"), str(tmp_path / "model.bin")])
    assert 1 == len(bundle.copies)
    assert any("model.bin" in one for one in bundle.left_out)
    bundle.close()
    assert 2 == main(["bundle", str(tmp_path / "model.bin"), "-o", str(tmp_path / "o.tar.gz"), "--yes"])
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_secrets_are_counted_and_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text((FIXTURES / "demo.log").read_text() + "HF_TOKEN=hf_veryverysecretvalue\n")
    assert 0 == main(["bundle", str(log), "-o", str(tmp_path / "o.tar.gz"), "--yes", "-v"])
    assert "veryverysecret" not in capsys.readouterr().out


NUMBERED = (
    "AKIA{}IOSFODNN7EXAM",
    "token={}abc",
    "10.{}.3.9",
    "node-{}",
    "v{} is fine",
    "serial number A{}77",
    "sk-{}{}",
    "x{}@y.org",
)


@given(st.lists(st.tuples(st.sampled_from([*NUMBERED, *PLANTED.values()]), st.integers(0, 99_999)), max_size=30))
def test_what_is_remembered_of_lines_that_differ_in_digits_changes_nothing(drawn: list[tuple[str, int]]) -> None:
    lines = [f"{text.replace('{}', str(number))} step {number}" for text, number in drawn]
    remembering, forgetful = (Redactor(["node-12", "node-7"], ["bob1"], SECRETS) for _ in range(2))
    for line in lines:
        expected = forgetful(line)
        forgetful._quiet.clear()
        forgetful._plain.clear()
        assert expected == remembering(line)


@pytest.mark.parametrize("before", [0, 1, 480, 495, 990, 999, 1000, 2487])
def test_secrets_of_a_long_line_are_found_in_short_windows(before: int) -> None:
    """A pattern of others took 200 s for a line of 300 kB."""
    asked = list[int]()

    class Windows:
        pattern = "tok_[a-z]{16}"

        def finditer(self, line: str, start: int, end: int) -> Iterator[re.Match[str]]:
            asked.append(end - start)
            return re.compile(self.pattern).finditer(line, start, end)

        def match(self, line: str, start: int) -> re.Match[str] | None:
            return re.compile(self.pattern).match(line, start)

    line = f"{'-' * before}tok_{'a' * 16}{'-' * (4_000 - before)}tok_{'b' * 16}"
    found = Redactor([], [], [cast(re.Pattern[str], Windows())])(line)

    assert f"{'-' * before}removed-001{'-' * (4_000 - before)}removed-002" == found
    assert max(asked) <= 1_000


@pytest.mark.parametrize("numbers", ["1-99999999", "1-99999999,1-99999999", f"1-{'9' * 5_000}", "01-999999999999"])
def test_a_list_of_millions_of_hosts_is_one_name(numbers: str) -> None:
    redactor = Redactor({"gpu01"})
    assert "on host-1 and host-1" == redactor(f"on gpu[{numbers}] and gpu[{numbers}]").replace("001", "1")
    assert 1 == len(redactor.replaced["host"])


def test_a_name_of_thousands_of_labels_is_read_label_by_label() -> None:
    line = ".".join(["a"] * 30_000) + ".gpu01.acme.com b.gpu01.log"
    assert ".".join(["a"] * 30_000) + ".host-001.example b.host-001.log" == Redactor({"gpu01"})(line)


def test_lists_of_hosts_share_one_budget() -> None:
    redactor = Redactor({"gpu01"})
    for first in range(100):
        redactor(f"on gpu[{first}0001-{first}9999]")
    assert len(redactor.replaced["host"]) < 300_000


def test_a_secret_that_is_longer_than_a_window_is_removed_whole() -> None:
    token = "eyJ" + "hbGci" * 20 + "." + "eyJ" + "dXNlcg" * 400 + "." + "c2ln" * 300
    for before in (0, 5, 480, 990, 1_500):
        shown = Redactor(["gpu-a01"], [], SECRETS)("x" * before + " Bearer " + token + " " + "y" * 3_000)
        assert "dXNlcg" * 5 not in shown, before
        assert "removed-001" in shown, before
