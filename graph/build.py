"""The topology: code and roles as one LangGraph, built from the role files.

START -> baseline -> settle -> dataset -> train -> evaluate -> accept_or_roll_back
      -> [evidence -> roles and gates by their places -> (revise | approval) -> settle -> trainer role -> dataset ...]
      -> report -> END.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.rolespec import RoleSpec
from graph import nodes, review
from graph.state import RunState
from graph.work import Work

Node = Callable[[RunState, Work], RunState]
CODE: Mapping[str, Node] = {
    "baseline": nodes.baseline,
    "evidence": review.evidence,
    "gates": review.gates,
    "settle": nodes.settle,
    "dataset": nodes.dataset,
    "train": nodes.train,
    "evaluate": nodes.evaluate,
    "accept_or_roll_back": nodes.accept_or_roll_back,
    "report": nodes.report,
}
SPEAKERS: Mapping[str, Callable[[RunState, Work, RoleSpec], RunState]] = {
    "diagnosis": review.diagnose,
    "proposal": review.propose,
    "critique": review.criticise,
    "budget": review.budget,
}
