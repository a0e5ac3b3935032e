"""A comparison as Markdown, to paste into an issue or a ticket."""

from nccl_doctor.diagnosis.comparison import Comparison
from nccl_doctor.reporters import Options
from nccl_doctor.reporters import comparison_words as words
from nccl_doctor.reporters.markdown import escaped


def render(comparison: Comparison, options: Options) -> str:
    """Returns the comparison with a table of changes and lists of new and gone findings."""
    lines = [f"## {words.HEADS[comparison.verdict]}: {escaped(words.headline(comparison))}", ""]
    lines += [
        f"- {name}: {escaped(words.run(side))}" for name, side in (("A", comparison.before), ("B", comparison.after))
    ]
    for heading, findings in (("New", comparison.appeared), ("Gone", comparison.gone)):
        if findings:
            lines += ["", f"**{heading}**", "", *(f"- {escaped(words.finding(one, comparison))}" for one in findings)]
    if comparison.changes:
        lines += ["", "| changed | A | B | |", "|---|---|---|---|"]
        lines += [
            "| " + " | ".join(escaped(cell) for cell in (one.what, one.before, one.after, words.effect(one))) + " |"
            for one in comparison.changes
        ]
    for heading, topics in (
        ("Same", comparison.same),
        ("Only in A", comparison.only_before),
        ("Only in B", comparison.only_after),
    ):
        if topics:
            lines += ["", f"{heading}: {', '.join(topics)}"]
    if advice := words.advice(comparison):
        lines += ["", f"**Next** {escaped(advice, code=True)}"]
    return "\n".join(lines) + "\n"
