"""Symptom classes: what causes explain and symptoms belong to, so that neither lists the names of the other.

```
["@hang"]                                  # rules/_symptoms.toml
meaning = "Ranks wait in a collective that does not end."
includes = ["@stuck", "@rank-behind"]      # what explains @hang explains these classes as well
```
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from nccl_doctor.common.parse_cache import remembered_toml
from nccl_doctor.rules.folder import shipped_folder

FILE = "_symptoms.toml"


class SymptomClass(NamedTuple):
    """One class of symptoms."""

    name: str
    meaning: str
    includes: tuple[str, ...]


@cache
def load_classes() -> dict[str, SymptomClass]:
    """Name -> class."""
    file = shipped_folder() / FILE
    content = remembered_toml("symptoms", file)
    return {
        name: SymptomClass(name, entry["meaning"], tuple(entry.get("includes", ()))) for name, entry in content.items()
    }


def with_including(names: Iterable[str]) -> set[str]:
    """These classes and all that include them."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [other.name for other in load_classes().values() if name in other.includes]
    return found
