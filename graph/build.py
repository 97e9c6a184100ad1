"""The topology: nodes of code and one node a role, built from the role files.

START -> baseline -> settle -> dataset -> train -> evaluate -> accept_or_roll_back
      -> [evidence -> analyst -> designer -> gates -> critic -> (designer | approval) -> settle -> trainer -> dataset..]
      -> report -> END.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from langgraph.graph import END, START, StateGraph

from agents.rolespec import RoleSpec
from graph import nodes, review
from graph.approval import approval, by_person
from graph.context import RunContext, RunInput
from graph.state import RunState
from graph.work import Work


class StateNode(Protocol):
    """What LangGraph calls; it goes by the name of the parameter."""

    def __call__(self, state: RunState) -> RunState: ...


CODE: Mapping[str, Callable[[RunState, Work], RunState]] = {
    "baseline": nodes.baseline,
    "settle": nodes.settle,
    "dataset": nodes.dataset,
    "train": nodes.train,
    "evaluate": nodes.evaluate,
    "accept_or_roll_back": nodes.accept_or_roll_back,
    "evidence": review.evidence,
    "gates": review.gates,
    "approval": approval,
    "report": nodes.report,
}
SPEAKERS: Mapping[str, Callable[[RunState, Work, RoleSpec], RunState]] = {
    "diagnosis": review.diagnose,
    "proposal": review.propose,
    "critique": review.criticise,
    "budget": review.budget,
}
NODES_A_STAGE = len(CODE) + len(SPEAKERS)


def build(roles: Mapping[str, RoleSpec], work: Work) -> StateGraph[RunState, RunContext, RunInput, RunState]:
    """The graph, not compiled. ``roles`` are in the order of their places, as ``load_roles`` gives them."""
    graph: StateGraph[RunState, RunContext, RunInput, RunState] = StateGraph(
        RunState, context_schema=RunContext, input_schema=RunInput
    )
    for name, node in CODE.items():
        graph.add_node(name, tracked(name, work, _bind(node, work)), metadata={"kind": "code"})
    for name, role in roles.items():
        speaker = _bind_role(SPEAKERS[role.writes], work, role)
        metadata = {"kind": "role", "role": name, "description": role.description}
        graph.add_node(name, tracked(name, work, speaker), metadata=metadata)
    names = list(roles)
    designer, critic = (_writer(roles, key) for key in ("proposal", "critique"))
    place_of_designer, place_of_critic = names.index(designer), names.index(critic)
    before = names[: place_of_designer + 1]
    between = names[place_of_designer + 1 : place_of_critic + 1]
    after = names[place_of_critic + 1 :]
    chain(graph, [START, "baseline", "settle"])
    chain(graph, [*after, "dataset", "train", "evaluate", "accept_or_roll_back"])
    chain(graph, ["evidence", *before, "gates"])
    chain(graph, between)
    graph.add_conditional_edges(
        "gates", lambda state: after_gates(state, work), {"designed": between[0], "by a person": "approval"}
    )
    graph.add_conditional_edges("approval", after_approval, {"edited": "gates", "go on": "settle"})
    chain(graph, ["report", END])
    graph.add_conditional_edges(critic, after_critic, {"revise": designer, "go on": "approval"})
    graph.add_conditional_edges("settle", after_settle, {"designed": after[0], "initial": "dataset"})
    graph.add_conditional_edges(
        "accept_or_roll_back", lambda state: after_stage(state, work), {"next stage": "evidence", "done": "report"}
    )
    return graph


def after_critic(state: RunState) -> str:
    return "revise" if state["review"] == "revise" else "go on"


def after_gates(state: RunState, work: Work) -> str:
    """No critic stands above a person."""
    return "by a person" if by_person(work, state) else "designed"


def after_approval(state: RunState) -> str:
    return "edited" if state["review"] == "revise" else "go on"


def after_settle(state: RunState) -> str:
    return "designed" if state["stage"] > 0 else "initial"


def after_stage(state: RunState, work: Work) -> str:
    return "next stage" if state["stage"] <= work.settings.stages else "done"


def recursion_limit(stages: int, max_revisions: int) -> int:
    """More steps than any run of the graph can take; a loop that escapes its counter ends here."""
    return (stages + 1) * NODES_A_STAGE * (max_revisions + 1) + NODES_A_STAGE


def tracked(name: str, work: Work, node: Callable[[RunState], RunState]) -> StateNode:
    """The node with a place to stop before it and the time written down after it."""

    def run(state: RunState) -> RunState:
        work.reporter.check()
        work.reporter.event("node", node=name, stage=state.get("stage"), revision=state.get("revision"))
        try:
            return plain(node(state))
        finally:
            work.reporter.event("time", session=work.session, seconds=work.clock.seconds())

    run.__name__ = name
    return run


def plain(update: RunState) -> RunState:
    """The update itself, once it is known to be plain JSON. Raises TypeError or ValueError where the fault was made."""
    json.dumps(update, allow_nan=False)
    return update


def chain(graph: StateGraph[Any, Any, Any, Any], names: Sequence[str]) -> None:
    for source, target in pairwise(names):
        graph.add_edge(source, target)


def _bind(node: Callable[[RunState, Work], RunState], work: Work) -> Callable[[RunState], RunState]:
    return lambda state: node(state, work)


def _bind_role(
    node: Callable[[RunState, Work, RoleSpec], RunState], work: Work, role: RoleSpec
) -> Callable[[RunState], RunState]:
    return lambda state: node(state, work, role)


def _writer(roles: Mapping[str, RoleSpec], key: str) -> str:
    return next(name for name, role in roles.items() if role.writes == key)
