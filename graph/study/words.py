"""``findings.md`` of a study: what its rows say as Markdown tables, for documents and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graph.study.effects import ArmSummary, Finding, findings, summaries
from graph.study.page import budget_of, kinds, points, probability, signed, verdict
from graph.study.plan import Loaded
from graph.study.rows import Row

EFFECTS = ("contrast", "outcome", "family", "seeds", "points", "95 % interval", "SD", "p (t)", "p (signs)", "p (Holm)")
ARMS = ("arm", "seeds", "sampled", "greedy", "optimal", "anchor area", "tokens", "stages", "kept", "own", "reused")


def words(loaded: Loaded, rows: Sequence[Row]) -> str:
    """The tables of the page's effects and arms."""
    plan, budget = loaded.plan, budget_of(loaded)
    found, arms = findings(plan, rows, budget), summaries(plan, rows, budget)
    head = [f"# {plan.name}", "", plan.question, "", f"{len(rows)} runs, {kinds(rows)}.", ""]
    if plan.primary is not None:
        head += [verdict(next((one for one in found if one.family == "primary"), None)), ""]
    tables = [table(EFFECTS, map(_effect, found)), table(ARMS, map(_arm, arms))]
    return "\n".join([*head, *tables])


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    ruler = ["---", *["---:"] * (len(columns) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (columns, ruler, *lines))


def _effect(one: Finding) -> list[str]:
    interval = "–" if one.low is None else f"{signed(one.low)} to {signed(one.high)}"
    test = one.test
    return [
        f"{one.contrast.treatment} - {one.contrast.control}",
        one.contrast.outcome,
        one.family,
        str(len(one.seeds)),
        signed(one.delta),
        interval,
        points(test.sd if test else None),
        probability(test.p_t if test else None),
        probability(test.p_signs if test else None),
        probability(one.p_holm),
    ]


def _arm(one: ArmSummary) -> list[str]:
    shares = [f"{100 * share:.0f} %" for share in (one.kept, one.own, one.reused)]
    scores = [points(one.outcomes.get(name)) for name in ("test_sampled", "test_valid", "test_optimal", "anchor_area")]
    return [one.arm, str(len(one.seeds)), *scores, f"{one.charged:,.0f}", f"{one.stages:.1f}", *shares]
