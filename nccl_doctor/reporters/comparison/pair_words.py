"""Texts shared by the reporters of comparisons."""

from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.comparison import CHOSEN, Change, Comparison, Side
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.reporters import words
from nccl_doctor.reporters.words import HEADLINES, clean

HEADS = {**HEADLINES, "same": "SAME"}


def headline(comparison: Comparison) -> str:
    """Returns the most important change in one clause, without the word of the verdict."""
    worse = [change for change in comparison.changes if change.effect == "worse"]
    parts = [clean(finding.title) for finding in comparison.appeared[:1] if finding.severity != "note"]
    parts += [f"{clean(change.what)} {effect(change) or 'worse'}" for change in worse[:1]]
    if parts:
        return "; ".join(parts)
    if comparison.verdict == "same":
        return "no difference in what both runs show"
    if comparison.verdict == "inconclusive":
        return "the two runs show nothing that can be compared"
    better = [change for change in comparison.changes if change.effect == "better"]
    if better:
        return f"{clean(better[0].what)} {effect(better[0]) or 'better'}"
    if comparison.gone and not comparison.changes:
        return f"{counted(len(comparison.gone), 'finding')} gone"
    return f"{counted(len(comparison.changes), 'difference')}, none of them a fault by itself"


def effect(change: Change) -> str:
    """`-31%`, `12 times`; empty if there is no number."""
    if change.ratio is None:
        return ""
    return f"{(change.ratio - 1) * 100:+.0f}%" if change.ratio < 3 else f"{change.ratio:.0f} times"


def run(side: Side) -> str:
    """`good.log: healthy · 16 ranks on 2 hosts · NCCL 2.21.5 · network IB`."""
    return clean(f"{' '.join(side.paths)}: {' · '.join([HEADS[side.verdict].lower(), *words.job(side.job)])}")


def finding(one: Finding, comparison: Comparison) -> str:
    """Returns a finding of one run, and a note if the other run has no facts for its rule."""
    where = words.scope(one)
    note = unasked(one, comparison)
    return clean(
        f"{one.severity} {one.rule} {one.name}  {one.title}{f' · {where}' if where else ''}{f' ({note})' if note else ''}"
    )


def unasked(one: Finding, comparison: Comparison) -> str:
    """Returns a note for a finding for whose rule the other run has no facts; else nothing."""
    return "the other run has no facts for this" if one.rule in comparison.unasked else ""


def changed(change: Change) -> str:
    """`18.9 → 2.10 samples/s  (-89%, worse)`."""
    notes = ", ".join(filter(None, [effect(change), change.effect if change.effect != "other" else ""]))
    unit = f" {change.unit}" if change.unit else ""
    return clean(f"{change.before} → {change.after}{unit}" + (f"  ({notes})" if notes else ""))


def advice(comparison: Comparison) -> str:
    """Returns what to do next; empty if nothing is worse."""
    is_worse = any(change.effect == "worse" for change in comparison.changes)
    for one in comparison.appeared:
        if one.severity != "note" or (is_worse and one.role != "symptom"):
            return one.fix
    suspects = [change for topic in CHOSEN for change in comparison.changes if change.topic == topic]
    if is_worse and suspects:
        return f"Revert one difference at a time and measure again. Start with {clean(suspects[0].what)}."
    if comparison.verdict == "inconclusive":
        return "Run both with NCCL_DEBUG=INFO and compare the logs, the folders of `record`, or the trees of `preflight --save`."
    return ""
