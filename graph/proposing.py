"""A proposal of the run's designer: the config designer role for models, the designer's own rule for all others.

Both leave the same file, so that gates, critic and report need not know who designed.
"""

from __future__ import annotations

from typing import Any

from agents.designers import DesignContext, Designer, ProposalRejected
from agents.rolespec import RoleSpec
from agents.schemas import Cost
from graph import layout
from graph.laboratory import RunLaboratory, ask_model
from graph.speaking import recorded
from graph.state import RunState
from graph.work import Work


def propose_with(work: Work, state: RunState, role: RoleSpec, inputs: dict[str, Any]) -> dict[str, Any]:
    """The recorded proposal of this round. ``parsed`` is None if the designer gave nothing usable.

    What it cost lies beside it, whoever designed.
    """
    file = layout.in_round(state["stage"], state["revision"], "proposal.json")
    designer = work.designer()
    lab = RunLaboratory(work, state, role, inputs)
    context = DesignContext(
        environment=work.environment,
        config=work.config(state["config"]),
        evidence=inputs["evidence"],
        diagnosis=inputs["diagnosis"],
        stage=state["stage"],
        seed=work.seed(state["stage"], "designer", state["revision"]),
        gate_report=inputs["gate_report"],
        conditions=inputs["conditions"],
        style=work.profile.style,
        revision=state["revision"],
        lab=lab,
    )
    lab.context = context
    if designer.model is not None:
        answer = ask_model(work, state, role, file, inputs, context, designer.model)
        charge(work, state, Cost.model_validate(answer["cost"]))
        return answer
    remembered = memory(work, state, designer.name)
    if remembered is not None:
        designer.load_state_dict(remembered)
    known = {
        "designer": designer.state_dict(),
        "settings": work.settings.designer,
        "config": context.config.model_dump(mode="json"),
        "evidence": context.evidence.model_dump(mode="json"),
        "gates": context.gate_report.model_dump(mode="json") if context.gate_report else None,
        "conditions": [one.model_dump(mode="json") for one in context.conditions],
        "policy": state["current"]["sha256"],
        "seed": context.seed,
    }
    answer = recorded(work, file, role.name, known, lambda: own_proposal(role, designer, context, lab))
    charge(work, state, Cost.model_validate(answer["cost"]))
    return answer


def charge(work: Work, state: RunState, cost: Cost) -> None:
    """Write down what the proposal of this round cost, and say it once."""
    file = layout.in_round(state["stage"], state["revision"], "cost.json")
    found = cost.model_dump(mode="json")
    if work.run.read_if_whole(file) != found:
        work.run.write(file, found)
        work.reporter.event("design_cost", stage=state["stage"], revision=state["revision"], **found)


def own_proposal(role: RoleSpec, designer: Designer, context: DesignContext, lab: RunLaboratory) -> dict[str, Any]:
    """What a designer that is no model proposes in the role's place, in the shape of the role's answer, with what it
    remembers afterwards."""
    raw, errors, parsed = "", [], None
    try:
        parsed = designer.propose(context).model_dump(mode="json")
    except ProposalRejected as rejected:
        raw, errors = rejected.raw, rejected.errors
    return {
        "by": designer.name,
        "role": role.name,
        "parsed": parsed,
        "raw": raw,
        "attempts": [],
        "errors": errors,
        "tokens": lab.cost.output_tokens,
        "fallback": False,
        "cost": lab.cost.model_dump(mode="json"),
        "memory": designer.state_dict(),
    }


def memory(work: Work, state: RunState, designer: str) -> dict[str, Any] | None:
    """What the designer of this name remembered after its last proposal of this run, None before the first."""
    places = [(state["stage"], revision) for revision in range(state["revision"] - 1, -1, -1)]
    for stage in range(state["stage"] - 1, 0, -1):
        last = work.run.read(layout.in_stage(stage, "plan.json"))["revision"]
        # A person may have written the last one.
        places += [(stage, revision) for revision in range(last, -1, -1)]
    for stage, revision in places:
        answer = work.run.read_if_there(layout.in_round(stage, revision, "proposal.json"))
        if answer is not None and answer["by"] == designer and "memory" in answer:
            return dict(answer["memory"])
    return None
