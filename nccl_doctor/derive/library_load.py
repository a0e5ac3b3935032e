"""Libraries that could not be loaded, and whether the program could do without them."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Job, LoadFailure, Message, ProcessEnd, Step

KINDS = ("symbol-version-missing", "undefined-symbol", "shared-library-missing", "static-tls-exhausted")
NEAR_END = 400  # lines of the log
_RAISED = (
    r"(^|[\s.\]])(\w*(Error|Exception)|error while loading shared libraries|symbol lookup error)\b|^\S+: \S+: version"
)


@derivation(fills=[LoadFailure], needs=[Message], reads=[Job, ProcessEnd, Step, Communicator])
def load_failures(facts: Facts) -> Iterator[LoadFailure]:
    """Libraries that could not be loaded. Warnings are left out; none is fatal if the program continues after it."""
    marks = ", ".join("?" * len(KINDS))
    query = f"""
        SELECT m.host, m.rank, m.kind, m.fields, m.text REGEXP ?
          AND (j.lines - m.last_line <= ? OR EXISTS (SELECT 1 FROM process_end x WHERE x.exitcode <> 0))
          AND NOT EXISTS (SELECT 1 FROM step s WHERE s.line > m.last_line)
          AND NOT EXISTS (SELECT 1 FROM communicator c JOIN evidence e ON e.id = c.ref
                          WHERE c.phase IN ('complete', 'plain') AND e.line > m.last_line), m.ref
        FROM message m, job j WHERE m.kind IN ({marks}) AND m.text NOT REGEXP '(?i)warn|can ignore'"""
    yield from (LoadFailure(*row) for row in facts.query(query, (_RAISED, NEAR_END, *KINDS)))
