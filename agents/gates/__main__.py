"""``python -m agents.gates``: what share of good and of bad proposals each gate stops, at its default and beside it.

Good are a sober rule's proposals on evidence of planted weaknesses and no change at all; bad are the adversaries'.
Nothing is chosen by whether it passes. Each proposal is generated, measured and probed once, with a policy whose skill
is known, and then judged at every threshold. Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agents.designers import ProposalRejected
from agents.episodes.planted import World, bad_or_good, draw_planted, facts
from agents.gates.context import GateContext, Prediction
from agents.gates.runner import GateSettings, run_gates
from envsim import registry

GOOD = ("teacher", "fixed")
BAD = (
    "always_easiest",
    "always_impossible",
    "oscillate",
    "single_cell",
    "fake_wait",
    "json_garbage",
    "against the evidence",
)
THRESHOLDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "g1": ("min_solvable_share", (0.2, 0.3, 0.4)),
    "g2": ("min_effective", (0.4, 0.5, 0.6)),
    "g2 success": ("max_success", (0.7, 0.8, 0.9)),
    "g3": ("max_trivial", (0.15, 0.25, 0.35)),
    "g4": ("max_hopeless", (0.3, 0.4, 0.5)),
    "g5": ("floor", (0.05, 0.1, 0.15)),
    "g5 fall": ("max_fall", (0.02, 0.04, 0.08)),
    "g6": ("max_distance", (0.35, 0.5, 0.65)),
    "g6 share": ("min_share", (0.01, 0.02, 0.03)),
    "g7": ("min_ratio", (0.7, 0.8, 0.9)),
    "g8": ("strikes", (1, 2, 3)),
}
"""Setting and values, the default among them, by gate."""


def draw_contexts(n: int, seed: int) -> list[tuple[str, GateContext]]:
    """n good proposals and n bad ones, in turn over their kinds: who made each, and what the gates look at."""
    environment = registry.get("lake")
    world = World.of(environment, held_out=True)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x6A7E]))
    found = []
    for number in range(n):
        for kinds in (GOOD, BAD):
            name = kinds[number % len(kinds)]
            planted = draw_planted(world, rng)
            try:
                changes = bad_or_good(world, planted, name, rng).changes
            except ProposalRejected as rejected:
                context = GateContext(
                    environment, world.config, world.initial.difficulty, world.initial, errors=rejected.errors
                )
            else:
                context = facts(world, planted.policy, changes, number, beside_current=True)
            found.append((name, replace(context, predictions=predictions(planted.evidence.cells, name in GOOD))))
    return found


def predictions(cells: Sequence[Any], good: bool) -> list[Prediction]:
    """Two stages of a designer that expects what is measured, or that expects all to be mastered."""
    measured = {cell.cell: cell.valid for cell in cells}
    predicted = {cell: round(100 * valid) if good else 100 for cell, valid in measured.items()}
    return [Prediction(predicted, measured)] * 2


def at(setting: str, field: str, value: float) -> GateSettings:
    gate = setting.split(" ", maxsplit=1)[0]
    whole = GateSettings()
    number = int(value) if field == "strikes" else value
    return whole.model_copy(update={gate: getattr(whole, gate).model_copy(update={field: number})})


def rows(contexts: Sequence[tuple[str, GateContext]]) -> Iterator[dict[str, Any]]:
    """One row a gate, setting and value: the share that this gate stops, of all good, all bad and each kind of bad."""
    for setting, (field, values) in THRESHOLDS.items():
        gate = setting.split(" ", maxsplit=1)[0]
        default = getattr(getattr(GateSettings(), gate), field)
        for value in values:
            stopped: dict[str, list[bool]] = defaultdict(list)
            for name, context in contexts:
                report = run_gates(context, at(setting, field, value))
                hit = any(one.gate == gate.upper() and not one.passed for one in report.findings)
                stopped[name].append(hit)
                stopped["good" if name in GOOD else "bad"].append(hit)
            shares = {name: sum(hits) / len(hits) for name, hits in stopped.items()}
            yield {"gate": gate.upper(), "setting": field, "value": value, "default": value == default, **shares}


def together(contexts: Sequence[tuple[str, GateContext]]) -> dict[str, float]:
    """The share that any gate stops at the defaults, by who proposed."""
    stopped: dict[str, list[bool]] = defaultdict(list)
    for name, context in contexts:
        refused = not run_gates(context).passed
        for key in (name, "good" if name in GOOD else "bad"):
            stopped[key].append(refused)
    return {name: sum(hits) / len(hits) for name, hits in stopped.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents.gates", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=70, help="good proposals, and as many bad ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of Markdown")
    args = parser.parse_args(argv)
    if args.n < len(BAD):
        print(f"error: --n {args.n}, expected at least {len(BAD)}, one for each kind of bad proposal", file=sys.stderr)
        return 2
    if args.seed < 0:
        print(f"error: --seed {args.seed}, expected at least 0", file=sys.stderr)
        return 2
    contexts = draw_contexts(args.n, args.seed)
    found, whole = list(rows(contexts)), together(contexts)
    if args.json:
        print(json.dumps({"rows": found, "together": whole}, indent=1))
        return 0
    print("| gate | setting | value | stops of good | stops of bad | " + " | ".join(BAD) + " |")
    print("|---" * (5 + len(BAD)) + "|")
    for one in found:
        value = f"**{one['value']:g}**" if one["default"] else f"{one['value']:g}"
        shares = " | ".join(f"{one[name]:.0%}" for name in ("good", "bad", *BAD))
        print(f"| {one['gate']} | {one['setting']} | {value} | {shares} |")
    print("| all | defaults | | " + " | ".join(f"{whole[name]:.0%}" for name in ("good", "bad", *BAD)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
