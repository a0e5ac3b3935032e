"""What a site may change without touching a rule: parameters, severities and rules that are switched off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.common.trusted import read_settings
from nccl_doctor.rules.schema import Rule


@dataclass(frozen=True)
class Config:
    """Content of a `--config` file.

    ``off = ["NET007"]``, ``[severity] NET003 = "note"``, ``[params.NET003] min_ratio = 0.9``; ids, names and former ones work.
    """

    off: frozenset[str] = frozenset()
    severity: dict[str, str] = field(default_factory=dict)
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: Path = Path("the configuration")

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Raises UsageProblem on a file that cannot be read or holds anything unknown."""
        import tomllib  # most sites have no such file

        try:
            data = tomllib.loads(read_settings(path))
        except OSError as error:
            raise UsageProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except RecursionError:
            raise UsageProblem(f"{path}: lists or tables are nested too deeply") from None
        except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
            raise UsageProblem(f"{path}: {' '.join(str(error).split())[:200]}") from None
        if unknown := set(data) - {"off", "severity", "params"}:
            raise UsageProblem(f"{path}: unknown key {', '.join(sorted(unknown))}; known are off, severity, params")
        off, severity, params = data.get("off", []), data.get("severity", {}), data.get("params", {})
        if not isinstance(off, list) or not isinstance(severity, dict) or not isinstance(params, dict):
            raise UsageProblem(f"{path}: off is a list, severity and params are tables")
        for name, given in params.items():
            if not isinstance(given, dict):
                raise UsageProblem(f"{path}: params.{name} is a table: [params.{name}] and lines of parameter = value")
        for name, value in severity.items():
            if value not in SEVERITIES:
                raise UsageProblem(f"{path}: severity of {name} must be one of {', '.join(SEVERITIES)}")
        return cls(frozenset(map(str, off)), severity, params, path)

    def apply(self, rules: Sequence[Rule], others: Callable[[], Sequence[Rule]] = tuple) -> list[Rule]:
        """The rules as this site wants them.

        One file serves `analyze` and `preflight`: it may name rules of `others`, which are not asked now and are loaded only
        where a name is not among `rules`. Raises UsageProblem where the file names a rule that does not exist.
        """
        named = self.off | set(self.severity) | set(self.params)
        if not named:
            return list(rules)
        unknown = named - _keys(rules)
        if unknown and (unknown := unknown - _keys(others())):
            raise UsageProblem(f"{self.path}: no rule is called {', '.join(sorted(unknown))}")
        chosen = []
        for rule in rules:
            if self.off.intersection(rule.keys):
                continue
            decided = next((self.severity[k] for k in rule.keys if k in self.severity), "")
            params = {**rule.params}
            for key in rule.keys:
                given = self.params.get(key, {})
                if wrong := set(given) - set(rule.params):
                    raise UsageProblem(f"{self.path}: rule {key} has no parameter {', '.join(sorted(wrong))}")
                for name, value in given.items():
                    if not _is_like(value, rule.params[name]):
                        kind = "a text" if isinstance(rule.params[name], str) else "a number"
                        raise UsageProblem(f"{self.path}: params.{key}.{name} must be {kind}")
                params.update(given)
            chosen.append(replace(rule, severity=decided or rule.severity, decided=decided, params=params))
        return chosen


def _keys(rules: Sequence[Rule]) -> set[str]:
    return {key for rule in rules for key in rule.keys}


def _is_like(value: Any, default: Any) -> bool:
    """Whether a rule can take this value for a parameter with that default."""
    if isinstance(default, str):
        return isinstance(value, str)
    return isinstance(value, int | float) and abs(value) < 1 << 63
