"""An instance or a step of a plan as text: ``a`` to ``e`` are the agents, ``A`` to ``E`` their goals, ``@`` holes."""

from __future__ import annotations

from collections.abc import Sequence

from envsim.lake.grid import Cell
from envsim.lake.instance import LakeInstance


def draw_map(rows: Sequence[str], agents: Sequence[Cell], goals: Sequence[Cell]) -> str:
    """The map with row and column numbers. A cell shows whoever is in it and whose goal it is."""
    marks = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    for cells, first in ((goals, "A"), (agents, "a")):
        for i, cell in enumerate(cells):
            before = marks.get(cell, "")
            marks[cell] = chr(ord(first) + i) + ("" if before in (".", "@") else before)
    width = max(map(len, marks.values())) + 1
    head = "   " + "".join(f"{c:>{width}}" for c in range(len(rows[0])))
    lines = [f"{r:>3}" + "".join(f"{marks[r, c]:>{width}}" for c in range(len(row))) for r, row in enumerate(rows)]
    return "\n".join([head, *lines])


def draw_instance(instance: LakeInstance) -> str:
    """The map, the agents' ends, and what is certified."""
    lines = [
        f"{instance.id}  ({instance.split})",
        draw_map(instance.rows, instance.starts, instance.goals),
    ]
    for i, (start, goal) in enumerate(zip(instance.starts, instance.goals, strict=True)):
        lines.append(f"{chr(ord('a') + i)}: ({start[0]},{start[1]}) -> ({goal[0]},{goal[1]})")
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
