"""The site's settings of `preflight`: /etc/nccl-doctor/preflight.toml.

A setting is a field of `Settings`: its annotation is its type, its default holds where the file says nothing, and its metadata
say what it means and which values are accepted. `load` never raises. A key that is unknown or whose value has the wrong type
is left out with one line in `problems`. A file that exists and cannot be used at all (not TOML, unreadable, writable by others
than root) leaves the defaults and turns on `observe`: what the site wanted is unknown, so no node is drained for it.

    # /etc/nccl-doctor/preflight.toml
    observe = true
    timeout = 5.0
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common.trusted import distrust, distrust_tree, read
from nccl_doctor.node.runtime import children

PLACE = Path("/etc/nccl-doctor/preflight.toml")
RULES = Path("/etc/nccl-doctor/rules")
SECONDS = 1.0  # for a file that was named: it may lie on a mount that hangs
_DEFAULT = "default"


def setting(default: Any, meaning: str, *, least: float | None = None, most: float | None = None) -> Any:
    """A field of `Settings`: default, meaning, and for numbers the range that is accepted."""
    return field(default=default, metadata={"meaning": meaning, "least": least, "most": most})


@dataclass(frozen=True)
class Settings:
    """What a site can set. Supported types: bool, int, float, str, tuple[str, ...]."""

    observe: bool = setting(False, "report what would be done, and neither drain a node nor fail a job")
    timeout: float = setting(5.0, "seconds from the start to the verdict; --timeout replaces it", least=0.5, most=600)
    expect: str = setting("", "file with what the site expects of this node, as --expect")
    config: str = setting("", "file that switches rules off and changes severities and parameters, as --config")
    rules: tuple[str, ...] = setting((), "further folders of rules, as --rules")
    grace: float = setting(
        120.0,
        "seconds that a fault with a possible cause outside the node must last before it drains",
        least=0,
        most=86400,
    )
    grace_checks: int = setting(2, "checks in a row that must find such a fault before it drains", least=1, most=1000)
    cap: int = setting(5, "nodes that may be drained for one rule within cap_window; 0 is no limit", least=0)
    cap_share: float = setting(
        0.1, "share of the nodes of the cluster, where Slurm tells it, that lowers cap", least=0, most=1
    )
    cap_window: float = setting(3600.0, "seconds in which drained nodes count", least=60)
    cap_folder: str = setting("", "folder that all nodes share, to count drained nodes where there is no Slurm")
    hung_checks: int = setting(
        5, "checks in a row in which the GPU driver hangs before that drains; 0 is never", least=0
    )
    hung_seconds: float = setting(240.0, "seconds over which these checks must extend", least=0)
    clean_checks: int = setting(3, "clean checks in a row before --resume gives back a node that we drained", least=1)
    deep_level: int = setting(
        1, "level of `dcgmi diag -r` that --deep runs: 1 seconds, 2 minutes, 3 a quarter of an hour", least=1, most=3
    )
    deep_timeout: float = setting(
        720.0, "seconds for --deep, 2400 for level 3; --timeout replaces it", least=10, most=7200
    )
    slurm_conf: str = setting("", "slurm.conf for scontrol where Slurm does not name it, as in a HealthCheckProgram")
    commands: tuple[str, ...] = setting((), "further folders of external commands, such as /opt/slurm/bin")


class Loaded(NamedTuple):
    """Settings, where each comes from (`default` or the file), and one line for each thing that was wrong."""

    settings: Settings
    sources: dict[str, str]
    problems: list[str]

    def with_options(self, given: dict[str, Any]) -> "Loaded":
        """The same with the values of options, where they were given (are not None)."""
        values = {name: value for name, value in given.items() if value is not None}
        return self._replace(
            settings=replace(self.settings, **values), sources=self.sources | dict.fromkeys(values, "option")
        )


def load(named: Path | None = None) -> Loaded:
    """The settings of the file that was named, else of the usual place. Never raises, whatever the file is."""
    file = named or PLACE
    sources = {one.name: _DEFAULT for one in fields(Settings)}
    try:
        why, text = children.ask(lambda: _read(file), SECONDS) if named else _read(file)
        if why is not None:
            return _refused(sources, f"{file} is not read: {why}")
        if text is None:
            return _refused(sources, f"{file} does not exist") if named else Loaded(Settings(), sources, [])
        import tomllib  # most nodes have no such file

        data = tomllib.loads(text)
    except TimeoutError:
        return _refused(sources, f"{file} is not read: it gives no answer")
    except OSError as error:
        return _refused(sources, f"{file} is not read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return _refused(sources, f"{file} is not read: {' '.join(str(error).split())}")
    values, problems = _checked(data, str(file))
    if "observe" in data and "observe" not in values:
        values["observe"] = True
    return Loaded(Settings(**values), sources | dict.fromkeys(values, str(file)), problems)


def _read(file: Path) -> tuple[str | None, str | None]:
    """Why the file is not used, and its content; neither where there is none."""
    try:
        return (why, None) if (why := distrust(file)) else (None, read(file).decode("utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError) as error:
        return str(getattr(error, "strerror", None) or error), None


def explain(loaded: Loaded) -> str:
    """Each setting with its value, where the value comes from and what it means; then the files, and which are refused."""
    rows = [
        (one.name, _toml(getattr(loaded.settings, one.name)), loaded.sources[one.name], one.metadata["meaning"])
        for one in fields(Settings)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"# {problem}" for problem in loaded.problems]
    lines += [
        f"{name:<{widths[0]}} = {value:<{widths[1]}}  # {source + ':':<{widths[2] + 1}} {meaning}"
        for name, value, source, meaning in rows
    ]
    holds = loaded.settings
    named = [holds.expect, holds.config, holds.slurm_conf, *holds.rules, *holds.commands]
    lines += [f"# {path}: {_use(path)}" for path in (str(PLACE), str(RULES), *named) if path]
    return "\n".join(lines) + "\n"


def _use(path: str) -> str:
    if not Path(path).exists():
        return "absent"
    why = distrust_tree(path) if Path(path).is_dir() else distrust(path)
    return f"refused: {why}" if why else "trusted"


def _refused(sources: dict[str, str], problem: str) -> Loaded:
    problem += "; the defaults hold and nothing is drained (observe = true)"
    return Loaded(Settings(observe=True), {**sources, "observe": "the file was refused"}, [problem])


def _checked(data: dict[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    known = {one.name: one for one in fields(Settings)}
    values: dict[str, Any] = {}
    problems = []
    for name, value in data.items():
        if name not in known:
            problems.append(f"{file}: unknown key {name} is left out")
            continue
        wanted, limits = known[name].type, known[name].metadata
        if wanted is float and type(value) is int:
            value = float(value)
        if wanted in (bool, int, float, str):
            good, noun = type(value) is wanted, {bool: "true or false", str: "a text"}.get(wanted, "a number")
        else:
            good, noun = isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of texts"
            value = tuple(value) if good else value
        least, most = limits["least"], limits["most"]
        if not good:
            problems.append(f"{file}: {name} must be {noun}; it is left out")
        elif (least is not None and not value >= least) or (most is not None and not value <= most):  # also refuses NaN
            problems.append(f"{file}: {name} must be between {least} and {most}; it is left out")
        else:
            values[name] = value
    return values, problems


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
