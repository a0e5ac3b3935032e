"""Trees of nodes that `preflight --save` kept, as inputs."""

import os.path
from pathlib import Path

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input

TREE_SECONDS = 30.0  # for the collectors that read a kept tree of a node


def is_tree(path: str) -> bool:
    """Whether a path is the tree of a node, as a folder or as an archive."""
    name = Path(path).name
    if path == "-" or not (".t" in name or os.path.isdir(path)):  # noqa: PTH112  (Path raises where it may not look)
        return False
    from nccl_doctor.node.runtime import tree

    return tree.is_tree(Path(path))


def read_tree(facts: Facts, path: str) -> None:
    """Read the tree of a node that `preflight --save` kept."""
    from nccl_doctor.node.runtime import expectations, tree  # slow to import, and most inputs are logs
    from nccl_doctor.node.runtime.collect import collect
    from nccl_doctor.node.runtime.root import Root

    with tree.opened(Path(path)) as folder:
        root = Root(folder)
        collect(facts, root, root.host_name(), seconds=TREE_SECONDS)
    expectations.add(facts, {})
    facts.add([Input(path, "node", 0, 0, 0, 0, None)])
