"""`rules new`, `rules check` and `rules format`: a new rule fails its check until it is filled in, and passes then."""

import tomllib
from pathlib import Path

import pytest

from nccl_doctor.cli.main import main
from nccl_doctor.rules import folder, loader
from nccl_doctor.rules.rule_text import rule_text


def port(event: str) -> dict[str, list[dict[str, str]]]:
    return {"ib_event": [{"host": "node01", "hca": "mlx5_0", "event": event}]}


FILLED = {
    "title": "A port went down",
    "query": "SELECT host, hca, ref FROM ib_event WHERE event = 'port error'",
    "needs": ["ib_event"],
    "message": "{host}: {hca} went down",
    "why": "The ranks on it stop.",
    "fix": "Look at the cable of {hca}.",
    "references": ["ibv_get_async_event(3)"],
    "example": [
        {"name": "down", "rows": port("port error"), "expect": [{"hca": "mlx5_0"}]},
        {"name": "up", "rows": port("port active"), "expect": []},
    ],
}


def test_a_new_rule_passes_once_it_is_filled_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["rules", "new", "network/port-went-down", "--into", str(tmp_path)])
    path = tmp_path / "network" / "port-went-down.toml"
    told = capsys.readouterr().out
    text = path.read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        assert (f"line {number}: {line}" in told) == ("FILL IN" in line)
    assert 1 == main(["rules", "check", str(path)])
    said = capsys.readouterr().out
    for key in ("title", "query", "why", "fix", "references", "example 'the fault'", "example 'no fault'"):
        assert f"{path}: {key} is still to be filled in" in said
    path.write_text(rule_text({**tomllib.loads(text), **FILLED}), "utf-8")
    assert 0 == main(["rules", "check", str(path)]), capsys.readouterr().out
    assert 0 == main(["rules", "check", str(tmp_path)])
    assert 2 == main(["rules", "new", "network/port-went-down", "--into", str(tmp_path)])
    assert "file exists" in capsys.readouterr().err


def test_an_id_that_two_shipped_rules_have_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = tmp_path / "rules"
    (shipped / "network").mkdir(parents=True)
    for name in ("port-went-down", "port-is-gone"):
        rule = {
            "id": "NET999",
            "name": name,
            "severity": "error",
            "role": "cause",
            "confidence": "certain",
            "since": "0.1",
        }
        (shipped / "network" / f"{name}.toml").write_text(rule_text({**rule, **FILLED}), "utf-8")
    for module in (folder, loader):
        monkeypatch.setattr(module, "shipped_folder", lambda: shipped)
    loader.load_usable.cache_clear()
    try:
        assert 1 == main(["rules", "check", str(shipped / "network" / "port-went-down.toml")])
    finally:
        loader.load_usable.cache_clear()
    assert "NET999 is already used by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("port-down", "is not GROUP/NAME"),
        ("a/b/c", "is not GROUP/NAME"),
        ("../x", "is not GROUP/NAME"),
        ("network/Port_Down", "kebab-case"),
        ("network/disk-full", "already used by"),
        ("network/disk full", "kebab-case"),
    ],
)
def test_a_rule_that_cannot_be_called_so_is_refused(
    tmp_path: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["rules", "new", name, "--into", str(tmp_path)])
    assert said in capsys.readouterr().err
    assert [] == list(tmp_path.rglob("*.toml"))


def test_format_writes_the_one_style_and_loses_no_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "site" / "a-port.toml"
    path.parent.mkdir()
    rule = {
        "id": "SITE001",
        "name": "a-port",
        "severity": "note",
        "role": "cause",
        "confidence": "likely",
        "since": "0.1",
    }
    good = rule_text({**rule, **FILLED})
    path.write_text(good.replace("'''", '"""').replace('needs = ["ib_event"]', "needs = [\n  'ib_event',\n]"), "utf-8")
    assert 0 == main(["rules", "format", str(path)])
    assert good == path.read_text("utf-8")
    path.write_text("# ours\n" + good, "utf-8")
    assert 2 == main(["rules", "format", str(path)])
    assert "holds comments" in capsys.readouterr().err
    assert "# ours\n" + good == path.read_text("utf-8")


def test_a_former_name_finds_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["rules", "show", "SCHED005"])
    assert 'name = "more-processes-than-gpus"' in capsys.readouterr().out
