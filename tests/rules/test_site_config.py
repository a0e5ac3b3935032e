"""What a site changes with --config: ids, names and former names all work; a wrong value is one line with file and key."""

from pathlib import Path

import pytest

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.rules.schema import Rule
from nccl_doctor.rules.site_config import Config


def rule() -> Rule:
    return Rule(
        "NET001", "a-name", "t", "warning", "cause", "likely", "0.1", [], "SELECT 1 AS ref", "m", "w", "f",
        params={"share": 0.5, "word": "x"}, aliases=["NET099", "a-former-name"],
    )  # fmt: skip


def config(folder: Path, text: str) -> Config:
    path = folder / "site.toml"
    path.write_text(text, "utf-8")
    return Config.read(path)


@pytest.mark.parametrize("key", ["NET001", "a-name", "NET099", "a-former-name"])
def test_a_rule_goes_by_its_id_its_name_and_former_ones(tmp_path: Path, key: str) -> None:
    assert [] == config(tmp_path, f'off = ["{key}"]').apply([rule()])
    (changed,) = config(tmp_path, f'[severity]\n{key} = "note"\n[params.{key}]\nshare = 1').apply([rule()])
    assert ("note", "note", {"share": 1, "word": "x"}) == (changed.severity, changed.decided, changed.params)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('off = ["NET002"]', "no rule is called NET002"),
        ("off = 5", "off is a list"),
        ("off = [5]", "no rule is called 5"),
        ("[params]\nNET001 = 5", "params.NET001 is a table"),
        ("[params.NET001]\nother = 5", "rule NET001 has no parameter other"),
        ("[params.NET001]\nshare = 'x'", "params.NET001.share must be a number"),
        ("[params.NET001]\nshare = nan", "params.NET001.share must be a number"),
        ("[params.NET001]\nshare = [1]", "params.NET001.share must be a number"),
        ("[params.NET001]\nword = 5", "params.NET001.word must be a text"),
        (f"[params.NET001]\nshare = {'9' * 400}", "params.NET001.share must be a number"),
        (f"[params.NET001]\nshare = {'9' * 5000}", "Exceeds the limit"),
        (f"off = {'[' * 3000}{']' * 3000}", "nested too deeply"),
        ("[severity]\nNET001 = 5", "severity of NET001 must be one of"),
        ("[severity]\nNET001 = ['note']", "severity of NET001 must be one of"),
        ("colour = 1", "unknown key colour"),
        ("off = [", ""),
    ],
)
def test_a_wrong_value_is_one_line_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        config(tmp_path, text).apply([rule()])
    assert str(caught.value).startswith(f"{tmp_path / 'site.toml'}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
