"""The same report from one process, several, and a Dask cluster: `python bench/same_report.py FOLDER…`.

Each file below the folders is read alone, and each folder that holds several of them as a whole; logs are cut into parts of
10 kB. Printed is every key of the JSON report that differs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.same_report import differences

from nccl_doctor.log.readers import cluster


def inputs(folders: list[Path]) -> Iterator[list[Path]]:
    """Single files, and the folders that hold several."""
    for top in folders:
        for folder in sorted({path.parent for path in top.rglob("*") if path.is_file()}):
            files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "case.json")
            yield from ([file] for file in files)
            if len(files) > 1 and folder != top:
                yield [folder]


def main(folders: list[Path]) -> int:
    different = 0
    given = list(inputs(folders))
    with cluster.connected("local:2", print) as client:
        for paths in given:
            found = differences(paths, client)
            different += bool(found)
            for line in found[:5]:
                print(f"{paths[0]}: {line[:400]}", flush=True)
    print(f"{len(given):,} inputs, {different} with another report")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main([Path(text) for text in sys.argv[1:]]))
