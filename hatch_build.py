"""Puts into the wheel what is made from the program: parsed rules, patterns and derivations, man pages, completion, a format for lnav."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MAKE = """
import sys
sys.path.insert(0, ".")
from nccl_doctor.derive import registry
from nccl_doctor.knowledge import catalogue
from nccl_doctor.log import line_patterns
from nccl_doctor.node.host import kernel_log
from nccl_doctor.rules import loader
list(map(catalogue.part, catalogue.PARTS))
loader.load_rules(), line_patterns.load(), kernel_log.grammar(), registry.steps()
"""
# The program is found in the current folder, which has to be named: pipx sets PYTHONSAFEPATH. PYTHONPATH does not do it: pip's isolated
# build drops every folder from it that is installed as editable in the environment of pip itself.
SHARE = "import pathlib, sys; sys.path[:0] = ['.', 'packaging']; import share; share.main(pathlib.Path(sys.argv[1]))"


class CompiledData(BuildHookInterface[Any]):
    """Loads them once, which writes `nccl_doctor/common/compiled`, and names that folder."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A checkout parses when it is first used, and has no folder share, so an editable installation needs nothing."""
        if version == "standard":
            subprocess.run([sys.executable, "-c", MAKE], cwd=self.root, check=True)
            build_data["artifacts"].append("/nccl_doctor/common/compiled/*.json")
            share = Path(self.root) / "build" / "share"
            subprocess.run([sys.executable, "-c", SHARE, share], cwd=self.root, check=True)
            self.build_config.target_config["shared-data"] = {"build/share": "share"}
