"""A proposal of the run's designer: the config designer role for models, the designer's own rule for all others.

Both leave the same file, so that gates, critic and report need not know who designed.
"""

from __future__ import annotations

from typing import Any

from agents.designers import DesignContext, Designer, ProposalRejected, get_designer
from agents.rolespec import RoleSpec
from graph import layout
from graph.speaking import recorded, speak
from graph.state import RunState
from graph.work import Work


def propose_with(work: Work, state: RunState, role: RoleSpec, inputs: dict[str, Any]) -> dict[str, Any]:
    """The recorded proposal of this round. ``parsed`` is None if the designer gave nothing usable."""
    file = layout.in_round(state["stage"], state["revision"], "proposal.json")
    designer = get_designer(work.settings.designer)
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
    )
    if designer.model is not None:
        asked = role.model_copy(update={"model": designer.model}) if designer.model != "inherit" else role
        return speak(
            work,
            state,
            asked,
            file,
            inputs,
            config=context.config,
            evidence=context.evidence,
            rule=lambda: get_designer("teacher").propose(context),
        )
    remembered = memory(work, state)
    if remembered is not None:
        designer.load_state_dict(remembered)
    known = {
        "designer": designer.state_dict(),
        "config": context.config.model_dump(mode="json"),
        "evidence": context.evidence.model_dump(mode="json"),
        "gates": context.gate_report.model_dump(mode="json") if context.gate_report else None,
        "conditions": [one.model_dump(mode="json") for one in context.conditions],
        "seed": context.seed,
    }
    return recorded(work, file, role.name, known, lambda: own_proposal(designer, context))


def own_proposal(designer: Designer, context: DesignContext) -> dict[str, Any]:
    """What a designer that is no model proposes, in the shape of a role's answer, with what it remembers afterwards."""
    raw, errors, parsed = "", [], None
    try:
        parsed = designer.propose(context).model_dump(mode="json")
    except ProposalRejected as rejected:
        raw, errors = rejected.raw, rejected.errors
    return {
        "by": designer.name,
        "role": designer.name,
        "parsed": parsed,
        "raw": raw,
        "attempts": [],
        "errors": errors,
        "tokens": 0,
        "fallback": False,
        "memory": designer.state_dict(),
    }


def memory(work: Work, state: RunState) -> dict[str, Any] | None:
    """What the designer remembered after its last proposal of this run, None before the first."""
    places = [(state["stage"], revision) for revision in range(state["revision"] - 1, -1, -1)]
    for stage in range(state["stage"] - 1, 0, -1):
        last = work.run.read(layout.in_stage(stage, "plan.json"))["revision"]
        # A person may have written the last one.
        places += [(stage, revision) for revision in range(last, -1, -1)]
    for stage, revision in places:
        answer = work.run.read_if_there(layout.in_round(stage, revision, "proposal.json"))
        if answer is not None and answer["by"] == work.settings.designer and "memory" in answer:
            return dict(answer["memory"])
    return None
