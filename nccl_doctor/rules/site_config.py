"""What a site may change without touching a rule: parameters, severities and rules that are switched off."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.rules.schema import Rule


@dataclass(frozen=True)
class Config:
    """Content of a `--config` file.

    ``off = ["NET007"]``, ``[severity] NET003 = "note"``, ``[params.NET003] min_ratio = 0.9``; ids and names both work.
    """

    off: frozenset[str] = frozenset()
    severity: dict[str, str] = field(default_factory=dict)
    params: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Raises UsageProblem on a file that cannot be read or holds anything unknown."""
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise UsageProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageProblem(f"{path}: {error}") from None
        if unknown := set(data) - {"off", "severity", "params"}:
            raise UsageProblem(f"{path}: unknown key {', '.join(sorted(unknown))}; known are off, severity, params")
        off, severity, params = data.get("off", []), data.get("severity", {}), data.get("params", {})
        if not isinstance(off, list) or not isinstance(severity, dict) or not isinstance(params, dict):
            raise UsageProblem(f"{path}: off is a list, severity and params are tables")
        for name, value in severity.items():
            if value not in SEVERITIES:
                raise UsageProblem(f"{path}: severity of {name} must be one of {', '.join(SEVERITIES)}")
        return cls(frozenset(map(str, off)), severity, params)

    def apply(self, rules: Sequence[Rule], others: Callable[[], Sequence[Rule]] = tuple) -> list[Rule]:
        """The rules as this site wants them.

        One file serves `analyze` and `preflight`: it may name rules of `others`, which are not asked now and are loaded only
        where a name is not among `rules`. Raises UsageProblem where the file names a rule that does not exist.
        """
        unknown = (self.off | set(self.severity) | set(self.params)) - _keys(rules)
        if unknown and (unknown := unknown - _keys(others())):
            raise UsageProblem(f"the configuration names no rule of ours: {', '.join(sorted(unknown))}")
        chosen = []
        for rule in rules:
            keys = (rule.id, rule.name)
            if self.off.intersection(keys):
                continue
            decided = next((self.severity[k] for k in keys if k in self.severity), "")
            params = {**rule.params}
            for key in keys:
                given = self.params.get(key, {})
                if wrong := set(given) - set(rule.params):
                    raise UsageProblem(f"rule {rule.id} has no parameter {', '.join(sorted(wrong))}")
                params.update(given)
            chosen.append(replace(rule, severity=decided or rule.severity, decided=decided, params=params))
        return chosen


def _keys(rules: Sequence[Rule]) -> set[str]:
    return {key for rule in rules for key in (rule.id, rule.name)}
