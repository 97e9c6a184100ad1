"""The topology: nodes of code and one node a role, in the order that the role files come to.

With the shipped roles: START -> baseline -> settle -> dataset -> train -> evaluate -> accept_or_roll_back
      -> [evidence -> analyst -> designer -> gates -> critic -> (designer | approval) -> settle -> trainer -> dataset..]
      -> report -> END. A fork goes from baseline straight to the evidence of its first stage of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from agents.places import stage_order
from agents.role_checks import MOST_ROLES
from agents.rolespec import RoleSpec
from graph import nodes, notes, review
from graph.approval import approval, by_person
from graph.context import RunContext, RunInput
from graph.spending import affords_another
from graph.state import RunState
from graph.work import Work
from trainer.usage import cpu_seconds

Graph = CompiledStateGraph[Any, Any, Any, Any]


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
"""What a node of a role does by the state key that it writes; every other key is a note's."""
NODES_A_STAGE = len(CODE) + MOST_ROLES


def build(roles: Mapping[str, RoleSpec], work: Work) -> StateGraph[RunState, RunContext, RunInput, RunState]:
    """The graph, not compiled. ``roles`` are enabled and have passed every check, as ``load_roles`` gives them."""
    graph: StateGraph[RunState, RunContext, RunInput, RunState] = StateGraph(
        RunState, context_schema=RunContext, input_schema=RunInput
    )
    for name, node in CODE.items():
        graph.add_node(name, tracked(name, work, _bind(node, work)), metadata={"kind": "code"})
    for name, role in roles.items():
        speaker = _bind_role(SPEAKERS.get(role.writes, notes.note), work, role)
        metadata = {"kind": "role", "role": name, "description": role.description}
        graph.add_node(name, tracked(name, work, speaker), metadata=metadata)
    order = stage_order(roles)
    following = dict(pairwise(order))
    designer, critic = (_writer(roles, key) for key in ("proposal", "critique"))
    for source, target in following.items():
        if source not in ("gates", critic, "approval", "settle"):
            graph.add_edge(source, target)
    graph.add_conditional_edges(
        "gates", lambda state: after_gates(state, work), {"designed": following["gates"], "by a person": "approval"}
    )
    graph.add_conditional_edges("approval", after_approval, {"edited": "gates", "go on": following["approval"]})
    graph.add_conditional_edges(critic, after_critic, {"revise": designer, "go on": following[critic]})
    graph.add_conditional_edges("settle", after_settle, {"designed": following["settle"], "initial": "dataset"})
    chain(graph, [START, "baseline"])
    graph.add_conditional_edges("baseline", after_baseline, {"a run": "settle", "a fork": "evidence"})
    chain(graph, ["dataset", "train", "evaluate", "accept_or_roll_back"])
    chain(graph, ["report", END])
    graph.add_conditional_edges(
        "accept_or_roll_back", lambda state: after_stage(state, work), {"next stage": "evidence", "done": "report"}
    )
    return graph


def after_baseline(state: RunState) -> str:
    return "a fork" if state["stage"] > 0 else "a run"


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
    stage = state["stage"]
    more = stage <= work.settings.stages and affords_another(work, stage, state["current"])
    return "next stage" if more else "done"


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
            tell_time(work)

    run.__name__ = name
    return run


def tell_time(work: Work) -> None:
    """What the session took so far, by the wall clock and in processor time."""
    work.reporter.event("time", session=work.session, seconds=work.clock.seconds(), cpu=cpu_seconds())


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
