"""``python -m agents.gates``: what share of good and of bad proposals each gate stops, at its default and beside it.

Good are a sober rule's proposals on evidence of planted weaknesses; bad are the adversaries', one that steps against
the evidence (which is the critic's to see, not the gates'), and a sober one whose designer twice predicted that all is
mastered. Nothing is chosen by whether it passes. Each proposal is generated, measured and probed once, with a policy
whose skill is known, and then judged at every threshold. Exit codes: 0 done, 2 bad input.
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

GOOD = "teacher"
FIXED = "fixed"
"""No change at all: neither good nor bad."""
OVERCONFIDENT = "overconfident"
BAD = (
    "always_easiest",
    "always_impossible",
    "oscillate",
    "single_cell",
    "fake_wait",
    "json_garbage",
    "against the evidence",
    OVERCONFIDENT,
)
KINDS = (*[GOOD] * 4, FIXED, *BAD)
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
    """n proposals of every kind, and four times as many good ones: who made each, and what the gates look at."""
    environment = registry.get("lake")
    world = World.of(environment, held_out=True)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x6A7E]))
    found = []
    for number in range(n * len(KINDS)):
        name = KINDS[number % len(KINDS)]
        planted = draw_planted(world, rng)
        try:
            changes = bad_or_good(world, planted, GOOD if name == OVERCONFIDENT else name, rng).changes
        except ProposalRejected as rejected:
            context = GateContext(
                environment, world.config, world.initial.difficulty, world.initial, errors=rejected.errors
            )
        else:
            context = facts(world, planted.policy, changes, number, beside_current=True)
        if name == OVERCONFIDENT:
            rates = {cell.cell: cell.valid for cell in planted.evidence.cells}
            context = replace(context, predictions=[Prediction(dict.fromkeys(rates, 100), rates)] * 2)
        found.append((name, context))
    return found


def at(setting: str, field: str, value: float) -> GateSettings:
    gate = setting.split(" ", maxsplit=1)[0]
    whole = GateSettings()
    number = int(value) if field == "strikes" else value
    return whole.model_copy(update={gate: getattr(whole, gate).model_copy(update={field: number})})


def rows(contexts: Sequence[tuple[str, GateContext]]) -> Iterator[dict[str, Any]]:
    """One row a gate, setting and value: the share that this gate stops, by kind and of all bad ones."""
    for setting, (field, values) in THRESHOLDS.items():
        gate = setting.split(" ", maxsplit=1)[0]
        default = getattr(getattr(GateSettings(), gate), field)
        for value in values:
            settings = at(setting, field, value)
            hits = [(name, gate.upper() in failed(context, settings)) for name, context in contexts]
            yield {"gate": gate.upper(), "setting": field, "value": value, "default": value == default, **shares(hits)}


def together(contexts: Sequence[tuple[str, GateContext]]) -> dict[str, float]:
    """The share that any gate stops at the defaults, by kind and of all bad ones."""
    return shares([(name, bool(failed(context, GateSettings()))) for name, context in contexts])


def failed(context: GateContext, settings: GateSettings) -> set[str]:
    return {one.gate for one in run_gates(context, settings).findings if not one.passed}


def shares(hits: Sequence[tuple[str, bool]]) -> dict[str, float]:
    groups: dict[str, list[bool]] = defaultdict(list)
    for name, hit in hits:
        groups[name].append(hit)
        if name in BAD:
            groups["bad"].append(hit)
    return {name: sum(found) / len(found) for name, found in groups.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents.gates", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2, help="proposals of a kind and seed, four times as many good ones")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--json", action="store_true", help="one JSON object in place of Markdown")
    args = parser.parse_args(argv)
    for name, value, least in (("n", args.n, 1), ("seeds", min(args.seeds), 0)):
        if value < least:
            print(f"error: --{name} {value}, expected at least {least}", file=sys.stderr)
            return 2
    contexts = [one for seed in args.seeds for one in draw_contexts(args.n, seed)]
    found, whole = list(rows(contexts)), together(contexts)
    if args.json:
        print(json.dumps({"rows": found, "together": whole}, indent=1))
        return 0
    columns = (GOOD, "bad", FIXED, *BAD)
    print("| gate | setting | value | good | all bad | " + " | ".join(columns[2:]) + " |")
    print("|---" * (3 + len(columns)) + "|")
    for one in found:
        value = f"**{one['value']:g}**" if one["default"] else f"{one['value']:g}"
        shares = " | ".join(f"{one[name]:.0%}" for name in columns)
        print(f"| {one['gate']} | {one['setting']} | {value} | {shares} |")
    print("| all | defaults | | " + " | ".join(f"{whole[name]:.0%}" for name in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
