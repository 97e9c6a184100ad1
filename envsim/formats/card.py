"""The text of a dataset card: YAML front matter and Markdown, every number counted from the instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from envsim.lake.config import EnvConfig
from envsim.lake.grid import HOLE
from envsim.lake.instance import LakeInstance

_LABELS: dict[str, Callable[[LakeInstance], str]] = {
    "topology": lambda instance: instance.topology,
    "placement": lambda instance: instance.placement,
    "goals per agent": lambda instance: "1" if instance.via is None else "2",
    "success_rate": lambda instance: f"{instance.success_rate:g}",
    "shaping": lambda instance: f"{instance.shaping:g}",
}
"""What instances may have beyond the plain lake; counted in the card where any has."""
_PLAIN = {"topology": "random", "placement": "uniform", "goals per agent": "1", "success_rate": "1", "shaping": "0"}

COLUMNS = {
    "id": "Rows x columns, number of agents, and the beginning of two hashes: up to symmetry, and of the exact layout",
    "hash": "sha256 of the layout up to rotation, reflection and the order of agents",
    "split": "The split, fixed by `hash`: no two splits share a layout up to symmetry",
    "size": "The longer side of the map, in cells",
    "agents": "Number of agents",
    "name": "What its author calls it; null if it has only its `id`",
    "rows": "The map, a string a row: `.` free, `@` hole",
    "starts": "The cell (row, column) of each agent at time 0; (0, 0) is the top left",
    "goals": "The cell (row, column) where each agent must be at the end",
    "via": "A cell that each agent must visit before its goal; null if there is none",
    "topology": "How the holes were laid out; null for `random`",
    "placement": "How starts and goals were placed; null for `uniform`",
    "success_rate": "Probability that a move goes where it was meant to; null for 1",
    "shaping": "Weight of the progress of an invalid plan in its reward; null for 0",
    "certificate": "What an exact solver proved; null if the instance was not solved. Its fields:",
}
"""What each column of an instance is."""

CERTIFICATE = {
    "solvable": "Whether all agents can reach their goals without a fault; false only if that is proved",
    "distances": "Each agent's shortest distance on its own, in moves; -1 if there is no way",
    "makespan": "The least possible time of the last arrival",
    "sum_of_costs": "The least possible sum of the agents' times of last arrival",
    "sum_of_costs_at_makespan": "The least sum of costs of a plan of the least makespan",
    "needs_wait_soc": "Whether every plan of the least sum of costs contains a wait",
    "needs_wait_makespan": "Whether every plan of the least makespan contains a wait",
    "reference_has_wait": "Whether `plan` contains a wait",
    "paths_collide": "Whether the agents' lexicographically first shortest paths collide",
    "coordination_cost": "`sum_of_costs` minus the sum of `distances`",
    "plan": "A plan of the least makespan, a string an agent: `L D R U` moves, `S` stays",
}
"""What each field of a certificate is; null = not known."""

_RULES = """\
Each row is one task of multi-agent path finding: several agents on a grid with holes, each with a start and a goal.
Time goes in steps; in a step each agent moves to a cell that shares a side with its own, or stays. No agent may leave
the map or enter a hole, no two may be in one cell at one time, and no two may swap cells in one step; following and
rotating are allowed. An agent at its goal stays and still blocks its cell. A plan is valid if at its end every agent is
at its goal, and optimal if it also has the least makespan."""


def card(
    front: Mapping[str, Any], instances: Sequence[LakeInstance], columns: Sequence[str], config: EnvConfig | None
) -> str:
    """The whole ``README.md``."""
    head = yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True, width=100)
    certified = [instance.certificate for instance in instances if instance.certificate is not None]
    solvable = sum(certificate.solvable for certificate in certified)
    waits = [c.needs_wait_soc for c in certified if c.needs_wait_soc is not None]
    holes = [_hole_ratio(instance) for instance in instances]
    different = len({instance.hash for instance in instances})
    parts = [
        f"---\n{head}---\n",
        f"# {front['pretty_name']}\n",
        f"{_RULES}\n",
        "## What is in it\n",
        f"{len(instances)} instances, {different} of them different up to symmetry. "
        f"{len(certified)} have a certificate, of which {solvable} are solvable and {len(certified) - solvable} are "
        f"proven unsolvable. Of {len(waits)} whose cheapest plans are known, {sum(waits)} need a wait. "
        f"The share of holes is {min(holes):.3f} to {max(holes):.3f}, {sum(holes) / len(holes):.3f} on average.\n",
        _counts("split", instances, lambda instance: instance.split),
        _counts("map", instances, _shape),
        _counts("agents", instances, lambda instance: str(instance.agents)),
        *(_counts(name, instances, key) for name, key in _LABELS.items() if {*map(key, instances)} - {_PLAIN[name]}),
        "## Columns\n",
        _columns(columns),
        "## Where it comes from\n",
        _source(front["envsim"], config),
        "## Using it\n",
        "```python\nfrom datasets import load_dataset\n\ndata = load_dataset(PATH_OR_REPOSITORY)\n```\n",
        "`jsonl/` holds the same rows, one JSON object a line. sha256 of the files:\n",
        "".join(f"- `{file}`: `{value}`\n" for file, value in front["envsim"]["sha256"].items()),
        f"Licence: {front['license']}.\n",
    ]
    return "\n".join(parts)


def _shape(instance: LakeInstance) -> str:
    return f"{len(instance.rows)}x{len(instance.rows[0])}"


def _hole_ratio(instance: LakeInstance) -> float:
    return sum(row.count(HOLE) for row in instance.rows) / (len(instance.rows) * len(instance.rows[0]))


def _counts(title: str, instances: Sequence[LakeInstance], key: Callable[[LakeInstance], str]) -> str:
    counts = Counter(map(key, instances))
    order = sorted(counts, key=lambda name: ([int(part) for part in name.split("x") if part.isdigit()], name))
    return f"| {title} | instances |\n|---|---|\n" + "".join(f"| {name} | {counts[name]} |\n" for name in order)


def _columns(columns: Sequence[str]) -> str:
    text = ""
    for name in columns:
        text += f"- `{name}`: {COLUMNS[name]}\n"
        if name == "certificate":
            text += "".join(f"  - `{field}`: {meaning}\n" for field, meaning in CERTIFICATE.items())
    return text


def _source(section: Mapping[str, Any], config: EnvConfig | None) -> str:
    seed = "" if section["seed"] is None else f" with seed {section['seed']}"
    if config is None:
        return f"Exported by Envwright{seed}; the configuration is not recorded.\n"
    # Only what the configuration leaves at its defaults is not in its own dump: here the reader should see that, too.
    whole = {name: getattr(config, name) for name in type(config).model_fields}
    whole["sizes"] = {size: entry.model_dump() for size, entry in config.sizes.items()}
    text = yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=100)
    return (
        f"Generated by Envwright{seed} from the configuration below, whose hash is `{section['config_hash']}`. "
        "Weights are normalised, and a map size of data_ratio 0 is left out.\n\n"
        f"```yaml\n{text}```\n"
    )
