"""Words that the reporters of comparisons share."""

from nccl_doctor.diagnosis.comparison import Change, Comparison, Side
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.reporters import words
from nccl_doctor.reporters.words import HEADLINES, clean

CHOSEN = ("settings", "versions", "plug-ins", "network devices", "nodes", "hosts")  # topics that somebody decided
HEADS = {**HEADLINES, "same": "SAME"}


def headline(comparison: Comparison) -> str:
    """What matters most of the changes in one clause, without the verdict's word."""
    worse = [change for change in comparison.changes if change.effect == "worse"]
    parts = [clean(finding.title) for finding in comparison.appeared[:1] if finding.severity != "note"]
    parts += [f"{clean(change.what)} {effect(change) or 'worse'}" for change in worse[:1]]
    if parts:
        return "; ".join(parts)
    if comparison.verdict == "same":
        return "nothing that both runs tell has changed"
    if comparison.verdict == "inconclusive":
        return "the two runs tell nothing that could be compared"
    better = [change for change in comparison.changes if change.effect == "better"]
    if better:
        return f"{clean(better[0].what)} {effect(better[0]) or 'better'}"
    if comparison.gone and not comparison.changes:
        return f"{words.counted(len(comparison.gone), 'finding')} gone"
    return f"{words.counted(len(comparison.changes), 'difference')}, none of them a fault by itself"


def effect(change: Change) -> str:
    """`-31%`, `12 times`; empty where no number tells."""
    if change.ratio is None:
        return ""
    return f"{(change.ratio - 1) * 100:+.0f}%" if change.ratio < 3 else f"{change.ratio:.0f} times"


def run(side: Side) -> str:
    """`good.log: healthy · 16 ranks on 2 hosts · NCCL 2.21.5 · network IB`."""
    return clean(f"{' '.join(side.paths)}: {' · '.join([HEADS[side.verdict].lower(), *words.job(side.job)])}")


def finding(one: Finding, comparison: Comparison) -> str:
    """A finding of one run, and whether the other one could have shown it."""
    unasked = " (the other run does not tell)" if one.rule in comparison.unasked else ""
    where = words.scope(one)
    return clean(f"{one.severity} {one.rule} {one.name}  {one.title}{f' · {where}' if where else ''}{unasked}")


def changed(change: Change) -> str:
    """`18.9 → 2.10 samples/s  (-89%, worse)`."""
    told = ", ".join(filter(None, [effect(change), change.effect if change.effect != "other" else ""]))
    unit = f" {change.unit}" if change.unit else ""
    return clean(f"{change.before} → {change.after}{unit}" + (f"  ({told})" if told else ""))


def advice(comparison: Comparison) -> str:
    """What to do next; empty where nothing is worse."""
    is_worse = any(change.effect == "worse" for change in comparison.changes)
    for one in comparison.appeared:
        if one.severity != "note" or (is_worse and one.role != "symptom"):
            return one.fix
    suspects = [change for topic in CHOSEN for change in comparison.changes if change.topic == topic]
    if is_worse and suspects:
        return f"Put back one difference at a time and measure again, first {clean(suspects[0].what)}."
    if comparison.verdict == "inconclusive":
        return (
            "Run both with NCCL_DEBUG=INFO and compare their logs, folders of `record`, or trees of `preflight --save`."
        )
    return ""
