"""nccl-doctor: diagnoses distributed GPU jobs from the logs and files that they leave behind.

`from nccl_doctor import analyze` and the other names of `nccl_doctor.api` are imported when they are first used, because
`preflight` and shell completion have no time for them; `__version__` is read then too.
"""

TYPE_CHECKING = False  # as of `typing`, which is not imported for this

if TYPE_CHECKING:
    from nccl_doctor.api import *  # noqa: F403

    __version__: str

_API = frozenset(
    (
        "Change", "Comparison", "CoverageRow", "Finding", "MeasureRow", "Place", "QueryProblem", "Report", "UsageProblem",
        "analyze", "compare", "explain",
    )
)  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module("nccl_doctor.api"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_API, "__version__"])


def _version() -> str:
    """That of the installation, which the tag of git or the commits since give; a copy that nobody installed has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("nccl-doctor")
    except PackageNotFoundError:
        return "0.0.0"
