"""Settings in one line of a shell, a launcher's command or a configuration.

Only variables that NCCL, its plug-ins and the frameworks read are kept, and none whose name looks like a secret.
"""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled

_NAME = (
    r"(?:(?:NCCL|RCCL|OFI_NCCL|FI|UCX|OMPI_MCA|TORCH|PYTORCH|HOROVOD|CUDA|RDMAV|GLOO|NVSHMEM|HSA|HIP|ROCR)_[A-Z0-9_a-z]{1,80}"
    r"|TP_SOCKET_IFNAME|MASTER_ADDR|MASTER_PORT)"
)
_QUOTED = r"\"[^\"$`\n]{0,400}\"|'[^'$`\n]{0,400}'"
_VALUE = rf"(?:{_QUOTED}|[^\s\"'$`;&|()<>]{{0,400}})"
# A line of `env`, of a script, or of a trace; what follows the settings must be their command, or nothing.
_PROGRAM = r"(?:\S{0,200}/)?(?:python\d?|torchrun|mpirun|mpiexec|srun|accelerate|deepspeed|horovodrun|bash|exec|numactl)\b.{0,4000}"
_ASSIGNMENTS = compiled(
    r"[ \t]{0,40}(?:\+{1,8} ?)?(?:(?:export|setenv|declare -x|local) )?"
    rf"(?P<settings>{_NAME}[= ]{_VALUE}(?:[ \t]{{1,8}}{_NAME}={_VALUE}){{0,60}})"
    rf"[ \t]{{0,40}}(?:\\|;.{{0,200}}|#.{{0,200}}|{_PROGRAM})?$"
)
_OPTION = compiled(
    r"(?:^|[ \t])(?:-x|-e|--env|-env|-genv)[ =]"
    rf"(?:(?P<mark>[\"'])(?P<whole>{_NAME}=[^\"'$`\n]{{0,400}})(?P=mark)|(?P<setting>{_NAME}={_VALUE})(?=[ \t\\,]|$))"
)
_PAIR = compiled(rf"(?:^|[ \t])-g?env (?P<name>{_NAME}) (?P<value>{_VALUE})(?=[ \t\\]|$)")  # of MPICH
# `srun --export`, `qsub -v`, `bsub -env`, `apptainer --env`: one setting after the other
_LIST = compiled(
    r"(?:^|[ \t])(?P<option>--export|--env|-v|-env)[ =]"
    r"(?:\"(?P<double>[^\"$`\n]{0,4000})\"|'(?P<single>[^'$`\n]{0,4000})'"
    r"|(?P<bare>(?:[^\s\"']|\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'){1,4000}))"
)
_LISTED = compiled(rf"(?:^|,) ?(?P<setting>{_NAME}=(?:{_QUOTED}|[^\s\"'$`;&|()<>,]{{0,400}}))(?=,|$)")
_OPTIONS = ("--env", "-env")  # which take one setting in other programs, whose value may hold commas
_SEVERAL = compiled(r",[ ]?[A-Za-z_]\w{0,80}=")
_MCA = compiled(
    rf"(?:^|[ \t\"'])--?g?mca {{1,8}}(?P<name>[a-z][a-z0-9_]{{1,80}}) {{1,8}}(?P<value>{_VALUE})(?=[ \t\\\"']|$)"
)
# A command, or a line that goes on with its options: sentences of Open MPI's help show the option, too.
_LAUNCHER = compiled(
    r"[ \t]{0,80}(?:(?:(?:\+{1,8}|\$|exec|time|nohup) |\w{1,80}=\S{0,200} ){0,20}(?:\S{0,200}/)?"
    r"(?:mpirun|mpiexec|orterun|prterun|prun|horovodrun)\b|-{1,2}[a-z])"
)
# What a list or mapping of YAML or JSON holds in a line of its own, also under `Environment:` of `kubectl describe pod`.
_ITEM = compiled(
    rf"[ \t]{{0,80}}(?:- {{1,4}})?(?P<mark>[\"'])(?P<whole>{_NAME}=[^\"'$`\n]{{0,400}})(?P=mark),?$"
    rf"|[ \t]{{0,80}}- {{1,4}}(?P<setting>{_NAME}={_VALUE})$"
)
_PLAIN = r"[^\s\"'$`{}\[\]#&*!|<>%@,][^\s\"'$`]{0,400}"
_MAPPING = compiled(
    rf"(?:[ \t]{{2,80}}|(?=[\"']))(?P<mark>[\"']?)(?P<name>{_NAME})(?P=mark):[ \t]{{1,40}}"
    rf"(?P<value>{_QUOTED}|{_PLAIN}),?(?:[ \t]{{1,8}}#.{{0,200}})?$"
)
_FLOW = compiled(
    rf"[{{,] ?[\"']?name[\"']?: ?[\"']?(?P<name>{_NAME})[\"']?, ?[\"']?value[\"']?: ?(?P<value>{_QUOTED}|[^\s\"'{{}}\[\],]{{1,400}})"
)
_NAMED = compiled(
    rf"[ \t]{{0,80}}(?:- )?[\"']?name[\"']?:[ \t]{{1,8}}(?P<mark>[\"']?)(?P<name>{_NAME})(?P=mark),?[ \t]{{0,8}}$"
)
_VALUED = compiled(rf"[ \t]{{0,80}}[\"']?value[\"']?:[ \t]{{1,8}}(?P<value>{_QUOTED}|{_PLAIN})[ \t]{{0,8}}$")
_SETTING = compiled(rf"(?P<name>{_NAME})(?P<sign>[= ])(?P<value>{_VALUE})")
_SECRET = compiled(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY|AUTH")

_TRACED = compiled(rf"[ \t]{{0,40}}\+{{1,8}} ?{_NAME}={_VALUE}(?:[ \t]{{1,8}}{_NAME}={_VALUE}){{0,60}}[ \t]{{0,8}}$")
_EXPORTED = compiled(
    rf"[ \t]{{0,40}}(?:\+{{1,8}} ?)?(?:export|declare -x|typeset -x)(?P<names>(?:[ \t]{{1,8}}{_NAME}(?:={_VALUE})?){{1,60}})"
)
_EXPORTS_ALL = compiled(r"[ \t]{0,40}\+{1,8} ?set (?:-[a-z]{0,8}a[a-z]{0,8}|-o allexport)[ \t]{0,8}$")

Setting = tuple[str, str]


def is_own_variable(text: str) -> bool:
    """Whether a line of a trace of `set -x` assigns variables of the shell itself: `+ NCCL_DEBUG=INFO`, without a command behind them."""
    return _TRACED.match(text) is not None


def exported(text: str) -> list[str]:
    """The names that a line exports, with a value or without one."""
    found = _EXPORTED.match(text)
    return [setting.partition("=")[0] for setting in found["names"].split()] if found is not None else []


def exports_all(text: str) -> bool:
    """Whether a line of a trace makes the shell export what it assigns from then on: `+ set -a`."""
    return _EXPORTS_ALL.match(text) is not None


def parse_line(text: str) -> Iterator[Setting]:
    """Names and values of the settings in a line; none where a sentence only mentions one.

    ::

        NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 torchrun train.py
        srun --export=ALL,NCCL_DEBUG=INFO python train.py
        mpirun -np 16 --mca btl_tcp_if_include eth0 -x NCCL_IB_HCA=mlx5_0 python train.py
              - NCCL_SOCKET_IFNAME=eth0
    """
    return ((name, value) for name, value in _settings(text) if _SECRET.search(name) is None)


def _settings(text: str) -> Iterator[Setting]:
    line = _ASSIGNMENTS.match(text)
    if line is not None:
        is_setenv = "setenv " in text[: line.start("settings")]
        for setting in _SETTING.finditer(line["settings"]):
            if setting["sign"] == "=" or is_setenv:
                yield setting["name"], setting["value"].strip("\"'")
    elif (item := _ITEM.match(text)) is not None:
        yield _split(item["whole"] or item["setting"])
    elif (pair := _MAPPING.match(text)) is not None:
        yield pair["name"], _unquoted(pair["value"])
    else:
        yield from dict.fromkeys(_options(text))


def _options(text: str) -> Iterator[Setting]:
    listed: list[Setting] = []
    for found in _LIST.finditer(text):
        items = found["double"] or found["single"] or found["bare"] or ""
        if found["option"] not in _OPTIONS or _SEVERAL.search(items):
            listed += (_split(setting["setting"]) for setting in _LISTED.finditer(items))
    yield from listed
    names = {name for name, _ in listed}
    for option in _OPTION.finditer(text):
        setting = _split(option["whole"] or option["setting"])
        if setting[0] not in names:
            yield setting
    for pair in (*_PAIR.finditer(text), *_FLOW.finditer(text)):
        yield pair["name"], _unquoted(pair["value"])
    if "mca" in text and _LAUNCHER.match(text):
        for parameter in _MCA.finditer(text):
            yield f"OMPI_MCA_{parameter['name']}", _unquoted(parameter["value"])


def _split(setting: str) -> Setting:
    name, _, value = setting.partition("=")
    return name, value.strip("\"'")


def parse_name(text: str) -> str | None:
    """The variable that an item of YAML or JSON names whose value comes in the next line: `- name: NCCL_DEBUG`."""
    found = _NAMED.match(text)
    return None if found is None or _SECRET.search(found["name"]) else found["name"]


def parse_value(text: str) -> str | None:
    """The value below a name, `value: "1"`; None for another line, and for one that refers to a secret."""
    found = _VALUED.match(text)
    return None if found is None else _unquoted(found["value"])


def _unquoted(value: str) -> str:
    return value.strip("\"'") if value[:1] in "\"'" else value.rstrip(",")
