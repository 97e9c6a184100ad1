"""The seedling's card: what it is, how it was made, and what it can do, measured.

``python -m trainer.seedling.card --roles ROLES.json --sweep SWEEP.json --out FILE`` measures validity by map size and
number of agents and writes Markdown; the two JSON files come from
``python -m agents.bench --random --drawn 200 --json`` and ``python -m trainer.seedling.sweep``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envsim import registry
from envsim.api import Environment
from trainer.checkpoint import ROLES, resolve
from trainer.policy import Policy, TransformersPolicy

SMALLEST = {2: 3, 3: 3, 4: 4, 5: 5}
"""Smallest map for a number of agents, as in the benchmark sets."""


def validity(policy: Policy, environment: Environment, n: int, seed: int) -> dict[int, dict[str, float]]:
    """Greedy valid rate by number of agents and map size on ``n`` fresh instances a cell of the validation split."""
    table: dict[int, dict[str, float]] = {}
    for agents, smallest in SMALLEST.items():
        data = environment.default_config().model_dump(mode="json")
        for size, knobs in data["sizes"].items():
            knobs["data_ratio"] = float(int(size) >= smallest)
        data["agents"] = {str(agents): 1.0}
        config = environment.config_model.model_validate(data)
        cells = [cell for cell, share in environment.shares(config).items() if share > 0]
        instances = environment.generate(config, n * len(cells), seed, split="validation").instances
        answers = policy.generate(
            [environment.prompt(i, "compact") for i in instances], max_new_tokens=160, temperature=0.0
        )
        verdicts: dict[str, list[bool]] = {cell: [] for cell in cells}
        for instance, [answer] in zip(instances, answers, strict=True):
            verdicts[environment.cell(instance)].append(environment.score(instance, answer.text).valid)
        table[agents] = {cell: sum(found) / len(found) for cell, found in verdicts.items()}
    return table


def render(
    facts: Mapping[str, Any],
    table: Mapping[int, Mapping[str, float]],
    roles: Mapping[str, Any],
    sweep: Mapping[str, Any],
) -> str:
    """The card as Markdown. ``facts`` are those of ``recipe.json`` with ``sha256``, instances a cell ``n`` and those of
    the adapter's ``recipe.json`` as ``adapter``."""
    cells = list(table[2])
    lines = [
        "# Seedling",
        "",
        "The embedded model of Envwright: built from random weights by its recipe, weak on purpose. It",
        "speaks no language; it reads tables and writes plans and small JSON answers.",
        "",
        f"- parameters: {facts['parameters']:,}; vocabulary: {facts['vocabulary']}; Qwen3, kept in float16",
        f"- weights and tokenizer, sha256: `{facts['sha256']}`",
        f"- shown: {facts['plan_rows']:,} plans (training split only), {facts['role_rows']:,} role episodes;"
        f" {facts['minutes']:.1f} minutes of training on one core of the machine that built it",
        f"- last losses: plans {facts['plan_loss']:.3f}, roles {facts['role_loss']:.3f} (nats a token)",
        f"- then the roles, by an adapter of rank {facts['adapter']['recipe']['rank']} on all linear layers"
        f" ({facts['adapter']['parameters']:,} numbers): {facts['adapter']['role_rows']:,} role episodes beside"
        f" {facts['adapter']['plan_rows']:,} plans, {facts['adapter']['minutes']:.1f} minutes; last losses"
        f" {facts['adapter']['role_loss']:.3f} and {facts['adapter']['plan_loss']:.3f}",
        "",
        "Built by",
        "```bash",
        "python -m agents.episodes --n 60000 --seed 0 --planted 0 --out episodes.jsonl",
        "python -m trainer.seedling --episodes episodes.jsonl --out trainer/assets/seedling",
        "python -m agents.episodes --n 12000 --seed 1 --out roles.jsonl",
        "python -m trainer.seedling.adapter --episodes roles.jsonl --out trainer/assets/seedling/roles",
        "```",
        "with the recipes of `trainer/seedling/recipe.py`. The same seed gives the same bytes on the same machine;",
        "another CPU rounds otherwise. When the first two lines were run, the rule that the roles learn",
        "(`agents/teacher.py`) was another; the adapter teaches the present one. `trainer.adapters` merges it into the",
        "weights in `~/.cache/envwright` when the seedling is first used, with the same bytes everywhere.",
        "",
        f"## Valid plans (%, greedy, {facts['n']} instances a cell)",
        "`python -m trainer.seedling.card` measures this table on fresh instances of the validation split.",
        "",
        "| agents | " + " | ".join(cells) + " |",
        "|---" * (len(cells) + 1) + "|",
    ]
    for agents, row in table.items():
        shown = [f"{100 * row[cell]:.0f}" if cell in row else "" for cell in cells]
        lines.append(f"| {agents} | " + " | ".join(shown) + " |")
    lines += [
        "",
        "## Roles",
        "`python -m agents.bench --random --drawn 200 --json`: share of valid answers, and agreement with the rule that"
        " it learnt from.",
        "",
    ]
    lines += [
        "| role | valid, constrained | agreement | valid, unconstrained | random weights: valid | agreement |",
        "|---" * 6 + "|",
    ]
    own, by_chance = roles[next(iter(roles))], roles["random weights"]
    for role, score in own["constrained"].items():
        free, chance = own["unconstrained"][role], by_chance["constrained"][role]
        lines.append(
            f"| {role} | {score['valid']:.2f} | {score['agreement']:.2f} | {free['valid']:.2f} "
            f"| {chance['valid']:.2f} | {chance['agreement']:.2f} |"
        )
    ours, chance = own["direction"], by_chance["direction"]
    lines += [
        "",
        "Direction: one cell's evidence turns from hopeless to learnable, all else equal; the proposed step on its data"
        f" moves the right way in {ours['right']:.0%} of the pairs (wrong way {ours['wrong']:.0%}); at random weights"
        f" {chance['right']:.0%} (wrong way {chance['wrong']:.0%}).",
        "",
        "## Learning rate of GRPO",
        f"`python -m trainer.seedling.sweep`: one stage of {sweep['steps']} steps on the default configuration from"
        " this checkpoint; macro validity on the validation set (%), one seed.",
        "",
        "| rate | before | after |",
        "|---|---|---|",
    ]
    lines += [f"| {row['rate']:g} | {100 * sweep['before']:.1f} | {100 * row['after']:.1f} |" for row in sweep["rates"]]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.seedling.card", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="seedling")
    parser.add_argument("--roles", type=Path, required=True)
    parser.add_argument("--sweep", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    ref = resolve(args.model)
    table = validity(TransformersPolicy(ref, threads=2), registry.get("lake"), args.n, args.seed)
    facts = json.loads((Path(ref.path) / "recipe.json").read_text(encoding="utf-8"))
    roles, sweep = (json.loads(path.read_text(encoding="utf-8")) for path in (args.roles, args.sweep))
    adapter = json.loads((ROLES / "recipe.json").read_text(encoding="utf-8"))
    facts |= {"sha256": ref.sha256, "n": args.n, "adapter": adapter}
    args.out.write_text(render(facts, table, roles, sweep), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
