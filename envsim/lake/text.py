"""Prompts in both styles, answers as text, and ``parse``, which reads a plan from whatever a model wrote.

``parse`` serves both styles: an answer that mentions ``"plan"`` is read as JSON, any other as compact cells. It never
raises on what a model may write, and never completes half an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from envsim.api import Message, Style
from envsim.lake.grid import HOLE, Cell
from envsim.lake.instance import LakeInstance

Plan = list[list[Cell]]

_NUMBER = r"(-?(?:0|[1-9][0-9]{0,8}))"
_CELL = re.compile(rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)\s*")
_JSON = json.JSONDecoder()
_MAX_TRIES = 64
"""Opening braces tried for one mention of the plan: bounds the work on text made of braces."""

RULES = """You plan the moves of several agents on a frozen lake so that all of them reach their goals as soon as \
possible.

Rules
- A cell is [row, column]; [0, 0] is the top left. On the map "." is ice and "@" is a hole.
- Time goes in steps. In every step each agent moves to a cell that shares a side with its own, or stays.
- No agent may leave the map or enter a hole.
- Two agents may never be in the same cell at the same time, and may never swap their cells in one step. An agent may \
enter a cell that another agent leaves in the same step.
- An agent that has reached its goal stays there unless you move it, and still blocks its cell. At the end every \
agent must be at its own goal.
- The fewer steps until the last agent has arrived, the better."""

VIA_RULE = """
- An agent with a via cell must have been in it at some time before it arrives at its goal for good."""

SLIP_RULE = """
- The ice is slippery: a move goes where it was meant to with probability {success}, and to each of the two sides of \
that direction with probability {side}. A slip off the map leaves the agent in its cell; to stay never slips."""

ANSWER = """

Answer with one JSON object and nothing after it:
{"plan": [[[r, c], [r, c], ...], [[r, c], ...], ...]}
One list of cells for each agent in order, the first cell is the agent's start, then one cell for each step."""

SYSTEM = RULES + ANSWER


class ParseError(ValueError):
    """An answer holds no whole plan; the text says why. ``outcome`` is the verdict that it leads to."""

    def __init__(self, reason: str, outcome: str = "parse_error") -> None:
        super().__init__(reason)
        self.outcome = outcome


def _cells(cells: Iterable[Cell]) -> str:
    return "".join(f"({r},{c})" for r, c in cells)


def prompt(instance: LakeInstance, style: Style) -> list[Message]:
    """Messages that pose the task: one user message (compact), or system and user (full).

    Via cells and a success rate below 1 are told where the instance has them; nothing else changes.
    """
    rows = instance.rows
    square = len(rows) == len(rows[0])
    if style == "compact":
        shape = f"{len(rows)}" if square else f"{len(rows)}x{len(rows[0])}"
        holes = _cells((r, c) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == HOLE)
        slip = "" if instance.success_rate == 1 else f" slip {_share(1 - instance.success_rate)}"
        via = "" if instance.via is None else f"via {_cells(instance.via)}\n"
        text = (
            f"plan {shape} {instance.agents}{slip}\nholes {holes}\n"
            f"from {_cells(instance.starts)}\n{via}to {_cells(instance.goals)}"
        )
        return [{"role": "user", "content": text}]
    agents = "\n".join(_agent(instance, i) for i in range(instance.agents))
    text = f"Map, {len(rows)} rows of {len(rows[0])} cells:\n" + "\n".join(rows) + f"\n\n{agents}"
    return [{"role": "system", "content": _system(instance)}, {"role": "user", "content": text}]


def _system(instance: LakeInstance) -> str:
    q = instance.success_rate
    slip = "" if q == 1 else SLIP_RULE.format(success=_share(q), side=_share((1 - q) / 2))
    return RULES + ("" if instance.via is None else VIA_RULE) + slip + ANSWER


def _agent(instance: LakeInstance, agent: int) -> str:
    via = "" if instance.via is None else f", via {list(instance.via[agent])}"
    return f"Agent {agent}: start {list(instance.starts[agent])}{via}, goal {list(instance.goals[agent])}"


def _share(value: float) -> str:
    return f"{round(value, 6):g}"


def padded(plan: Sequence[Sequence[Cell]]) -> Plan:
    """All paths at the length of the longest, each padded with its last cell."""
    steps = max(map(len, plan))
    return [[*path, *[path[-1]] * (steps - len(path))] for path in plan]


def render(plan: Sequence[Sequence[Cell]], style: Style) -> str:
    """A plan as the answer that ``prompt`` asks for in a style."""
    if style == "compact":
        return "".join(_cells(step) for step in zip(*padded(plan), strict=True))
    return json.dumps({"plan": plan}, separators=(",", ":"))


def parse(answer: str, agents: int) -> Plan:
    """The plan in an answer: for each agent its cells, t = 0 first. Raises ParseError."""
    text = answer.rpartition("</think>")[2]
    if "<think>" in text:
        raise ParseError("the thinking never ends, so there is no answer")
    if not text.strip():
        raise ParseError("the answer is empty")
    plan = _from_json(text) if '"plan"' in text else _from_cells(text, agents)
    if len(plan) != agents:
        raise ParseError(f"{len(plan)} paths for {agents} agents", "wrong_agent_count")
    if not all(plan):
        raise ParseError("a path is empty")
    return plan


def _from_cells(text: str, agents: int) -> Plan:
    text = text.strip()
    cells: list[Cell] = []
    position = 0
    while match := _CELL.match(text, position):
        cells.append((int(match[1]), int(match[2])))
        position = match.end()
    if position < len(text) or not cells:
        raise ParseError(f"no cell at {text[position : position + 20]!r}")
    if len(cells) % agents:
        raise ParseError(f"{len(cells)} cells do not divide among {agents} agents: the last step is half")
    return [cells[i::agents] for i in range(agents)]


def _from_json(text: str) -> Plan:
    mention = len(text)
    while (mention := text.rfind('"plan"', 0, mention)) >= 0:
        brace = mention
        for _ in range(_MAX_TRIES):
            brace = text.rfind("{", 0, brace)
            if brace < 0:
                break
            try:
                found, end = _JSON.raw_decode(text, brace)
            except (ValueError, RecursionError):
                continue
            if end > mention and "plan" in found:
                return _paths(found["plan"])
    raise ParseError('no complete JSON object with "plan"')


def _paths(value: Any) -> Plan:
    if not isinstance(value, list):
        raise ParseError("the plan is not a list")
    plan: Plan = []
    for path in value:
        if not isinstance(path, list):
            raise ParseError("a path is not a list of cells")
        cells: list[Cell] = []
        for cell in path:
            match cell:
                case [int(r), int(c)] if not isinstance(r, bool) and not isinstance(c, bool):
                    cells.append((r, c))
                case _:
                    raise ParseError("a cell is not [row, column]")
        plan.append(cells)
    return plan
