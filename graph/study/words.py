"""``findings.md`` of a study: what its rows say as Markdown tables, for documents and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from graph.study.effects import ArmSummary, Finding, findings, summaries
from graph.study.page import budget_of, by_size, kinds, points, probability, signed, verdict
from graph.study.plan import Loaded
from graph.study.rows import Row, macro_of

EFFECTS = ("contrast", "outcome", "family", "seeds", "points", "95 % interval", "SD", "p (t)", "p (signs)", "p (Holm)")
ARMS = ("arm", "seeds", "sampled", "greedy", "optimal", "anchor area", "stages", "kept", "own", "reused")
SPENT = ("training", "probes", "roles")


def words(loaded: Loaded, rows: Sequence[Row]) -> str:
    """Effects, arms, what each arm spent, and the sealed sets by cell and number of agents."""
    plan, budget = loaded.plan, budget_of(loaded)
    found, arms = findings(plan, rows, budget), summaries(plan, rows, budget)
    head = [f"# {plan.name}", "", plan.question, "", f"{len(rows)} runs, {kinds(rows)}.", ""]
    if plan.primary is not None:
        head += [verdict(next((one for one in found if one.family == "primary"), None)), ""]
    tables = [
        table(EFFECTS, map(_effect, found)),
        table(ARMS, map(_arm, arms)),
        table(("tokens", "charged", *SPENT, "core-minutes"), (_spent(one, rows) for one in arms)),
        *_sealed(arms, rows),
    ]
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
    return [one.arm, str(len(one.seeds)), *scores, f"{one.stages:.1f}", *shares]


def _spent(one: ArmSummary, rows: Sequence[Row]) -> list[str]:
    means = [fmean(row.tokens[kind] for row in rows if row.arm == one.arm) for kind in SPENT]
    return [one.arm, *(f"{tokens:,.0f}" for tokens in (one.charged, *means)), f"{one.cpu_minutes:.1f}"]


def _sealed(arms: Sequence[ArmSummary], rows: Sequence[Row]) -> Iterator[str]:
    """Valid answers of the start and of each arm's champions: the test set by cell, and every other sealed set."""
    if not rows:
        return
    name = "test_sampled" if "test_sampled" in rows[0].after else "test"
    cells, others = by_size(rows[0].after[name].cells), sorted(set(rows[0].after) - {"test", "test_sampled"})
    sides = {"start": [rows[0].before]} | {one.arm: [row.after for row in rows if row.arm == one.arm] for one in arms}
    yield table(
        ("valid, %", *cells, *others),
        (
            [
                label,
                *(points(fmean(sets[name].shares("valid")[cell] for sets in own)) for cell in cells),
                *(points(fmean(macro_of(sets[other], "valid") for sets in own)) for other in others),
            ]
            for label, own in sides.items()
        ),
    )
