"""Puts what the package keeps of its rules, patterns and derivations into the wheel, for installations in which it cannot be written."""

import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MAKE = """
from nccl_doctor.derive import registry
from nccl_doctor.log import line_patterns
from nccl_doctor.node.host import kernel_log
from nccl_doctor.rules import loader
loader.load_rules(), line_patterns.load(), kernel_log.grammar(), registry.steps()
"""


class CompiledData(BuildHookInterface[Any]):
    """Loads them once, which writes `nccl_doctor/common/compiled`, and names that folder."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A checkout does this when it is first used, so an editable installation needs nothing."""
        if version == "standard":
            subprocess.run([sys.executable, "-c", MAKE], cwd=self.root, check=True)
            build_data["artifacts"].append("/nccl_doctor/common/compiled/*.json")
