"""A comparison as JSON, described by `reporters/schema/comparison-1.json`."""

import json
from dataclasses import asdict, replace
from importlib import resources
from typing import Any

from nccl_doctor import __version__
from nccl_doctor.diagnosis.comparison import SCHEMA, Comparison
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.json_report import cleaned


def render(comparison: Comparison, options: Options) -> str:
    """The comparison as one JSON document."""
    return json.dumps(document(comparison), indent=1, ensure_ascii=False, default=str) + "\n"


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain dictionaries and lists, free of control characters."""
    content = {
        "schema": SCHEMA,
        "tool": {"name": "nccl-doctor", "version": __version__},
        **asdict(replace(comparison, pictures=[])),
    }
    del content["pictures"]
    return {key: cleaned(value) for key, value in content.items()}


def schema() -> dict[str, Any]:
    """The JSON Schema of `document`."""
    text = (resources.files("nccl_doctor.reporters") / "schema" / "comparison-1.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
