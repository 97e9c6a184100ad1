"""The rules of a sober environment engineer, one a role.

They are what the seedling's role episodes teach, every shipped role's fallback, and the ``teacher`` designer. Each rule
reads only what the compact prompts show, rounded as they show it, so that a model which reads the prompt can follow it.

The idea is that of sampling for learnability (arXiv 2408.15099): train where success is neither certain nor rare, let
go slowly of what is mastered or hopeless, and turn a knob of each learnable cell towards the fault seen there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.schemas import (
    Budget,
    CellEvidence,
    Change,
    Critique,
    Diagnosis,
    Evidence,
    GateFinding,
    GateReport,
    Proposal,
    Standing,
)
from envsim.api import Knob

MASTERED = 85
"""Success in percent from which a cell counts as mastered."""
HOPELESS = 15
"""Success in percent below which a cell counts as hopeless: of a group of answers hardly one succeeds."""
STUCK = 5
"""Success in percent up to which nothing counts as solved at all."""
FERTILE = 30
"""Success in percent from which a learnable cell is raised: below it most groups teach little."""
ENOUGH_DATA = 40
"""A learnable cell with at least this share (percent) is not raised further."""
LITTLE_DATA = 4
"""A cell with at most this share (percent) is not lowered further."""
EASE_BELOW = 20
"""A learnable cell below this success (percent) is eased; from it on, the fault seen there is practised more."""
MOST_WAITS, MOST_HOLES, LEAST = 50, 40, 10
"""Bounds (percent) of that practice and of that easing."""
GAIN = 10
"""The success (percentage points) that a raised cell is expected to gain in one stage."""
SHOWN_FAILURES = 8
"""Failures that the compact prompt has room for."""
CONFLICTS = ("vertex_conflict", "edge_conflict")


def percent5(ratio: float) -> int:
    """A ratio in percent, to the nearest 5: how prompts show success."""
    return 5 * int(ratio * 20 + 0.5)


def percent(ratio: float) -> int:
    """A ratio in whole percent, halves up: how prompts show knobs."""
    return int(100 * ratio + 0.5)


def standing(success: int) -> Standing:
    if success >= MASTERED:
        return "mastered"
    return "learnable" if success >= HOPELESS else "hopeless"


def frontier(standings: Mapping[str, Standing]) -> str:
    """The hardest learnable cell (cells come easiest first); without one, the easiest hopeless, else the last cell."""
    names = list(standings)
    for wanted, order in (("learnable", reversed(names)), ("hopeless", iter(names))):
        for cell in order:
            if standings[cell] == wanted:
                return cell
    return names[-1]


def stuck(evidence: Evidence) -> bool:
    """Whether hardly anything is ever solved: its failures say that nothing works, and only easing can change that."""
    return all(percent5(cell.valid) <= STUCK for cell in evidence.cells)


def diagnose(evidence: Evidence) -> Diagnosis:
    """Failure analyst: the standing of every cell and the fault that rules at the frontier."""
    cells = {c.cell: standing(percent5(c.valid)) for c in evidence.cells}
    edge = frontier(cells)
    fault = next(c.top_fault for c in evidence.cells if c.cell == edge) or "none"
    shown = evidence.failures[:SHOWN_FAILURES]
    ids = [f.id for f in shown if f.cell == edge] or [f.id for f in shown[:1]]
    return Diagnosis(
        summary=f"frontier {edge}, fault {fault}",
        dominant_fault=fault,
        cells=cells,
        evidence_ids=ids[:4],
    )


def _at_fault(gate_report: GateReport | None) -> list[GateFinding]:
    return [f for f in gate_report.findings if not f.passed] if gate_report else []


def _data_op(success_standing: Standing, success: int, share: int) -> str:
    if success_standing == "learnable":
        return "up" if success >= FERTILE and share < ENOUGH_DATA else "keep"
    return "down" if share > LITTLE_DATA else "keep"


def propose(
    evidence: Evidence,
    diagnosis: Diagnosis,
    knobs: Mapping[str, Knob],
    gate_report: GateReport | None,
    conditions: Sequence[Change],
) -> Proposal:
    """Config designer: more of what can be learnt, less of the rest, and practice of the faults that are seen.

    Where nothing can be learnt anywhere it eases, whatever the faults are.
    """
    if stuck(evidence):
        return _ease(evidence, knobs)
    ops = {
        c.cell: _data_op(diagnosis.cells[c.cell], percent5(c.valid), percent(c.knobs["data_ratio"]))
        for c in evidence.cells
    }
    for finding in _at_fault(gate_report):
        if finding.gate in ("G2", "G3", "G4"):
            ops.update({cell: "down" for cell in finding.cells if cell in ops})
        if finding.gate == "G6":
            ops.update({cell: "keep" for cell, op in ops.items() if op == "down"})
    for condition in conditions:
        cell, _, knob = condition.path.rpartition(".")
        if cell in ops and knob == "data_ratio" and condition.op in ("up", "down", "keep"):
            ops[cell] = condition.op
    edge = frontier(diagnosis.cells)
    changes = []
    for c in evidence.cells:
        if f"{c.cell}.data_ratio" in knobs:
            changes.append(Change.model_validate({"path": f"{c.cell}.data_ratio", "op": ops[c.cell]}))
        turned = _turn(c) if diagnosis.cells[c.cell] == "learnable" else None
        if turned and turned.path in knobs:
            changes.append(turned)
    predicted = {}
    for c in evidence.cells:
        success = percent5(c.valid)
        predicted[c.cell] = min(95, success + GAIN) if diagnosis.cells[c.cell] == "learnable" else success
    fault = next(c.top_fault for c in evidence.cells if c.cell == edge) or "none"
    return Proposal(rationale=f"frontier {edge}, fault {fault}", changes=changes[:16], predicted=predicted)


def _ease(evidence: Evidence, knobs: Mapping[str, Knob]) -> Proposal:
    """The data goes to the easiest cell, which loses holes and waits: a policy that never succeeds learns from nothing
    harder."""
    easiest = evidence.cells[0].cell
    changes = []
    for c in evidence.cells:
        op = "up" if c.cell == easiest else "down" if percent(c.knobs["data_ratio"]) > LITTLE_DATA else "keep"
        changes.append(Change.model_validate({"path": f"{c.cell}.data_ratio", "op": op}))
    for name, least in (("hole_ratio", LEAST), ("wait_ratio", 0)):
        if f"{easiest}.{name}" in knobs and percent(evidence.cells[0].knobs[name]) > least:
            changes.append(Change(path=f"{easiest}.{name}", op="down"))
    predicted = {c.cell: percent5(c.valid) + (GAIN if c.cell == easiest else 0) for c in evidence.cells}
    return Proposal(rationale=f"nothing is solved; ease, from {easiest}", changes=changes, predicted=predicted)


def eases(proposal: Proposal, cells: Sequence[str], knobs: Mapping[str, Knob]) -> bool:
    """Whether a proposal raises the easiest cell's share, or lowers another knob of any cell, and hardens nothing."""
    turns = [(*change.path.rsplit(".", 1), _sign(change, knobs)) for change in proposal.changes if "." in change.path]
    other = [sign for cell, name, sign in turns if cell in cells and name != "data_ratio"]
    first = [sign for cell, name, sign in turns if cell == cells[0] and name == "data_ratio"]
    return (1 in first or -1 in other) and -1 not in first and 1 not in other


def _sign(change: Change, knobs: Mapping[str, Knob]) -> int:
    """1 if the change raises its knob, -1 if it lowers it."""
    if change.op != "set":
        return {"up": 1, "down": -1, "keep": 0}[change.op]
    now = knobs[change.path].value if change.path in knobs else 0.0
    value = now if change.value is None else change.value
    return (value > now) - (value < now)


def _turn(cell: CellEvidence) -> Change | None:
    """One step on a cell's hole or wait ratio: towards its fault if that is sometimes mastered, else away from it."""
    if cell.top_fault in CONFLICTS:
        name, most = "wait_ratio", MOST_WAITS
    elif cell.top_fault == "hole":
        name, most = "hole_ratio", MOST_HOLES
    else:
        return None
    value = percent(cell.knobs[name])
    if percent5(cell.valid) >= EASE_BELOW:
        return Change(path=f"{cell.cell}.{name}", op="up") if value < most else None
    return Change(path=f"{cell.cell}.{name}", op="down") if value > LEAST else None


def critique(evidence: Evidence, proposal: Proposal, gate_report: GateReport | None) -> Critique:
    """Safety critic: the gates' findings first, then changes that go against the evidence."""
    failed = _at_fault(gate_report)
    if any(f.gate == "G5" for f in failed):
        return Critique(reason="the task would become too easy", verdict="reject", conditions=[])
    lowered = {change.path for change in proposal.changes if change.op == "down"}
    wanted: dict[str, str] = {}
    # Where nothing is solved, the easiest cell is the only hope, whatever a gate finds of it.
    easiest_hope = evidence.cells[0].cell if stuck(evidence) else None
    for finding in failed:
        if finding.gate in ("G2", "G3", "G4"):
            paths = [f"{cell}.data_ratio" for cell in finding.cells if cell != easiest_hope]
            wanted.update({path: "down" for path in paths if path not in lowered})
    if failed:
        return Critique(reason=f"gate {failed[0].gate} failed", verdict="revise", conditions=_conditions(wanted))
    success = {c.cell: percent5(c.valid) for c in evidence.cells}
    for change in proposal.changes:
        cell, _, knob = change.path.rpartition(".")
        if knob != "data_ratio" or cell not in success:
            continue
        if cell == easiest_hope:
            if change.op == "down":
                wanted[change.path] = "up"
            continue
        if change.op == "up" and standing(success[cell]) != "learnable":
            wanted[change.path] = "down"
        if change.op == "down" and standing(success[cell]) == "learnable":
            wanted[change.path] = "up"
    if wanted:
        return Critique(reason="against the evidence", verdict="revise", conditions=_conditions(wanted))
    return Critique(reason="follows the evidence", verdict="approve", conditions=[])


def _conditions(wanted: Mapping[str, str]) -> list[Change]:
    return [Change.model_validate({"path": path, "op": op}) for path, op in list(wanted.items())[:4]]


def budget(evidence: Evidence, steps_low: int, steps_high: int) -> Budget:
    """Trainer: a short stage if most groups teach nothing; a smaller step after a roll-back."""
    rolled_back = bool(evidence.history) and not evidence.history[-1].accepted
    silent = evidence.zero_variance_share is not None and percent5(evidence.zero_variance_share) > 70
    return Budget(
        reason="last stage rolled back" if rolled_back else "groups teach little" if silent else "groups teach",
        steps=steps_low if silent else steps_high,
        learning_rate_scale=0.5 if rolled_back else 1.0,
    )
