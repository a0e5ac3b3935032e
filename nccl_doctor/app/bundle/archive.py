"""Makes the archive: inputs are read twice, once for the names in them and once to write their copies."""

import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from nccl_doctor.app.analyze import read_facts
from nccl_doctor.app.bundle.redaction import Redactor, known_secrets, users_in
from nccl_doctor.common.errors import UsageProblem, why_not_kept
from nccl_doctor.facts.schema import table_name
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TABLES
from nccl_doctor.formats import registry
from nccl_doctor.inputs import sources
from nccl_doctor.inputs.detect import sniff
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, buffered, read_head

HEAD = 65_536
LINE = 1 << 20  # bytes that are looked at together
NO_TEXT = frozenset(
    ["sqlite", "pickle", "tar", "zip", "compressed", "program", "image", "pdf", "hdf5", "numpy", "binary", "empty"]
)


class Copy(NamedTuple):
    """One input as it will stand in the archive."""

    name: str
    size: int
    start: int  # in the spool


class Bundle:
    """Redacted copies of inputs, kept in a spool until somebody agrees to write them."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Read all inputs. Raises UsageProblem where nothing can be copied."""
        secrets = known_secrets()
        facts, _ = read_facts(paths)
        found = list(sources.expand(paths, registry.is_known))
        self.left_out = [f"{one.name}: {one.reason}" for one in found if isinstance(one, sources.InputProblem)]
        inputs = [one for one in found if isinstance(one, sources.Source)]
        self.redactor = Redactor(hosts_in(facts), _users(inputs), secrets)
        try:
            self._spool: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self.copies = [copy for source in inputs if (copy := self._copied(source)) is not None]
            self._spool.flush()
        except OSError as error:
            raise UsageProblem(f"the copies {why_not_kept(error)}") from None
        if not self.copies:
            raise UsageProblem("nothing can be bundled: " + "; ".join(self.left_out[:3] or ["no input is text"]))

    def _copied(self, source: sources.Source) -> Copy | None:
        start = self._spool.tell()
        try:
            with sources.open_stream(source) as stream:
                head = read_head(stream, HEAD)
                if sniff(head, source.name) in NO_TEXT:
                    self.left_out.append(f"{source.name}: is not text, so that nothing can be replaced in it")
                    return None
                for text in _lines(Joined(head, stream)):
                    self._spool.write(self.redactor(text).encode("utf-8", "surrogateescape"))
        except sources.InputProblem as problem:
            self.left_out.append(f"{source.name}: {problem.reason}; what came before is in the bundle")
        return Copy(self._name(source.name), self._spool.tell() - start, start)

    def _name(self, name: str) -> str:
        """The path in the archive: relative, without `..`, redacted."""
        parts = [part for part in name.replace("!", "/").split("/") if part not in ("", ".", "..", "-")]
        for end in (".gz", ".bz2", ".xz", ".zst"):  # copies are plain
            parts[-1:] = [parts[-1].removesuffix(end)] if parts else ["stdin.log"]
        return "bundle/" + "/".join(self.redactor(part) for part in parts[-3:])

    def write(self, target: IO[bytes]) -> None:
        """Write the archive, gzip-compressed tar, in the order of the inputs."""
        seen: set[str] = set()
        with tarfile.open(fileobj=target, mode="w:gz") as archive:
            for at, copy in enumerate(self.copies):
                member = tarfile.TarInfo(copy.name if copy.name not in seen else f"{copy.name}.{at}")
                seen.add(member.name)
                member.size, member.mode = copy.size, 0o600
                self._spool.seek(copy.start)
                archive.addfile(member, self._spool)

    def close(self) -> None:
        """Give the space of the spool back."""
        with suppress(OSError):
            self._spool.close()


def hosts_in(facts: Facts) -> set[str]:
    """Every name of a host in the facts."""
    named: set[str] = set()
    for table in TABLES:
        for column in {"host", "src_host", "dst_host", "peer_host", "name"} & {*table._fields}:  # type: ignore[attr-defined]
            if column != "name" or table.__name__ in ("HostAlias", "HostName"):
                query = f"SELECT DISTINCT {column} FROM {table_name(table)} WHERE {column} IS NOT NULL"
                named.update(str(name) for (name,) in facts.query(query))
    return named | {name.partition(".")[0] for name in named}


def _users(inputs: Sequence[sources.Source]) -> Iterator[str]:
    """Names of users in all inputs."""
    for source in inputs:
        with suppress(sources.InputProblem), sources.open_stream(source) as stream:
            for line in _lines(stream):
                yield from users_in(line)


def _lines(stream: Readable) -> Iterator[str]:
    """The lines of a stream with their ends; longer ones come in pieces."""
    reader = buffered(stream)
    while line := reader.readline(LINE):
        yield line.decode("utf-8", "surrogateescape")
