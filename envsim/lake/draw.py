"""Instances and plans as text, with ANSI colours if asked for.

``a`` to ``z`` are the agents, ``A`` to ``Z`` their goals, ``A1`` to ``Z1`` first goals, ``@`` holes, ``.`` ice. The
27th agent is ``a2``, its goal ``A2``.
"""

from __future__ import annotations

from collections.abc import Sequence

from envsim.api import Replay
from envsim.lake.grid import FREE, HOLE, Cell
from envsim.lake.instance import LakeInstance

COLOURS = (32, 166, 36, 169, 214)
"""An agent's colour among the terminal's 256: Okabe and Ito's palette, as near as that has it."""
WATER, FAULT, GOOD = 24, 160, 28
_Marks = dict[Cell, list[tuple[str, int | None]]]
"""Texts in a cell, each with its colour."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def agent_name(agent: int) -> str:
    """``a`` for agent 0, ``b`` for 1; after ``z`` comes ``a2``."""
    turn, letter = divmod(agent, len(_ALPHABET))
    return _ALPHABET[letter] + (str(turn + 1) if turn else "")


def goal_name(agent: int) -> str:
    """``A`` for agent 0."""
    return agent_name(agent).upper()


def via_name(agent: int) -> str:
    """``A1`` for the first goal of agent 0."""
    return f"{goal_name(agent)}1"


def paint(text: str, colour: int | None) -> str:
    """Text in bold in one of the terminal's 256 colours; as it is for None."""
    return text if colour is None else f"\x1b[1;38;5;{colour}m{text}\x1b[0m"


def draw_map(
    rows: Sequence[str],
    agents: Sequence[Cell],
    goals: Sequence[Cell],
    via: Sequence[Cell] | None = None,
    *,
    colour: bool = False,
) -> str:
    """The map with row and column numbers. A cell shows whoever is in it and whose goal it is.

    An agent outside the map is not shown.
    """
    marks = _marks(rows, agents, goals, via)
    return _table(rows, marks, _width(marks), colour)


def draw_instance(instance: LakeInstance, *, colour: bool = False) -> str:
    """The map, the agents' ends, and what is certified. What somebody wrote has its name for a title, and no split."""
    lines = [
        f"{instance.id}  ({instance.split})" if instance.name is None else f"{instance.name}  (id {instance.id})",
        draw_map(instance.rows, instance.starts, instance.goals, instance.via, colour=colour),
    ]
    lines += [f"{_agent(i, colour)}: {' -> '.join(map(_cell, _way(instance, i)))}" for i in range(instance.agents)]
    if instance.success_rate < 1:
        lines.append(f"a move goes where it is meant to with probability {instance.success_rate:g}, else aside")
    certificate = instance.certificate
    if certificate is None:
        lines.append("not certified")
    elif not certificate.solvable:
        lines.append("proven unsolvable")
    else:
        shown = certificate.model_dump(exclude={"solvable", "plan"})
        lines += [f"{name.replace('_', ' ')}: {'unknown' if value is None else value}" for name, value in shown.items()]
        lines.append(f"plan: {' '.join(certificate.plan or [])}")
    return "\n".join(lines)


def draw_replay(instance: LakeInstance, replay: Replay, *, colour: bool = False) -> str:
    """A plan step by step up to its first fault or its end, what each agent does, and the verdict."""
    scenes = [
        _marks(instance.rows, [(r, c) for r, c in state], instance.goals, instance.via) for state in replay.states
    ]
    width = max(map(_width, scenes))
    blocks = []
    for t, marks in enumerate(scenes):
        moves = replay.actions[t - 1] if t else []
        done = ", ".join(f"{_agent(i, colour)} {move}" for i, move in enumerate(moves))
        blocks.append(f"step {t}{': ' if done else ''}{done}\n{_table(instance.rows, marks, width, colour)}")
    shade = GOOD if replay.verdict.valid else FAULT
    blocks.append(
        ": ".join(filter(None, (paint(outcome(replay), shade if colour else None), outcome_details(instance, replay))))
    )
    return "\n\n".join(blocks)


def outcome(replay: Replay) -> str:
    """The kind of the verdict in words."""
    return replay.verdict.outcome.replace("_", " ").replace("valid suboptimal", "valid")


def outcome_details(instance: LakeInstance, replay: Replay) -> str:
    """Who, where and when of the first fault; the makespan of a valid plan, and its chance where moves may slip."""
    verdict = replay.verdict
    if verdict.valid:
        chance = "" if verdict.success is None else f", succeeds with {100 * verdict.success:.1f} %"
        return f"{verdict.cost} step{'' if verdict.cost == 1 else 's'}{chance}"
    fault = verdict.fault
    if fault is None or fault.agent is None:
        return "no plan to replay"
    if (
        replay.verdict.outcome == "goal_not_reached"
        and tuple(replay.states[-1][fault.agent]) == instance.goals[fault.agent]
    ):
        return f"agent {agent_name(fault.agent)} was never at {via_name(fault.agent)}"
    agents = " and ".join(agent_name(agent) for agent in faulty_agents(replay))
    where = "" if fault.location is None else f" at {fault.location}"
    if verdict.outcome == "edge_conflict":
        cells = [_cell(state[fault.agent]) for state in replay.states[-2:]]
        return f"{agents} swap {', '.join(cells)}, t = {fault.step}"
    return f"agent{'s' if ' ' in agents else ''} {agents}{where}, t = {fault.step}"


def faulty_agents(replay: Replay) -> list[int]:
    """The agent of the first fault, and the one that it collides with; empty if the fault is nobody's."""
    fault = replay.verdict.fault
    if fault is None or fault.agent is None:
        return []
    agent, now, before = fault.agent, replay.states[-1], replay.states[-2:][0]
    others = [i for i in range(len(now)) if i != agent]
    if replay.verdict.outcome == "vertex_conflict":
        return [agent, *[i for i in others if now[i] == now[agent]][:1]]
    if replay.verdict.outcome == "edge_conflict":
        return [agent, *[i for i in others if (now[i], before[i]) == (before[agent], now[agent])][:1]]
    return [agent]


def describe(instance: LakeInstance) -> str:
    """An instance in a sentence."""
    agents = "; ".join(f"{agent_name(i)} {' to '.join(map(_cell, _way(instance, i)))}" for i in range(instance.agents))
    holes = sum(row.count(HOLE) for row in instance.rows)
    return f"Lake of {len(instance.rows)} x {len(instance.rows[0])} cells, {holes} of them holes. Agents: {agents}."


def _marks(rows: Sequence[str], agents: Sequence[Cell], goals: Sequence[Cell], via: Sequence[Cell] | None) -> _Marks:
    """What stands in each cell in which there is an agent or a goal."""
    marks: _Marks = {}
    for cells, name in ((agents, agent_name), (goals, goal_name), (via or (), via_name)):
        for i, cell in enumerate(cells):
            marks.setdefault(cell, []).append((name(i), COLOURS[i % len(COLOURS)]))
    for cell, found in marks.items():
        if _inside(rows, cell) and rows[cell[0]][cell[1]] == HOLE:
            found.append((HOLE, WATER))
    return marks


def _inside(rows: Sequence[str], cell: Cell) -> bool:
    return 0 <= cell[0] < len(rows) and 0 <= cell[1] < len(rows[0])


def _width(marks: _Marks) -> int:
    return 1 + max((sum(len(text) for text, _ in found) for found in marks.values()), default=1)


def _table(rows: Sequence[str], marks: _Marks, width: int, colour: bool) -> str:
    width = max(width, len(str(len(rows[0]) - 1)) + 1)
    gutter = max(3, len(str(len(rows) - 1)) + 1)

    def shown(found: Sequence[tuple[str, int | None]]) -> str:
        space = " " * (width - sum(len(text) for text, _ in found))
        return space + "".join(paint(text, shade if colour else None) for text, shade in found)

    # Most cells of a large map are empty in every step of a plan.
    empty = {FREE: shown([(FREE, None)]), HOLE: shown([(HOLE, WATER)])}
    lines = [[f"{r:>{gutter}}", *map(empty.__getitem__, row)] for r, row in enumerate(rows)]
    for cell, found in marks.items():
        if _inside(rows, cell):
            lines[cell[0]][cell[1] + 1] = shown(found)
    head = " " * gutter + "".join(f"{c:>{width}}" for c in range(len(rows[0])))
    return "\n".join([head, *map("".join, lines)])


def _agent(agent: int, colour: bool) -> str:
    return paint(agent_name(agent), COLOURS[agent % len(COLOURS)] if colour else None)


def _cell(cell: Sequence[int]) -> str:
    return f"({cell[0]},{cell[1]})"


def _way(instance: LakeInstance, agent: int) -> list[Cell]:
    """Where an agent starts, what it visits, where it ends."""
    via = [] if instance.via is None else [instance.via[agent]]
    return [instance.starts[agent], *via, instance.goals[agent]]
