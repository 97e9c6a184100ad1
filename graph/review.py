"""The nodes of a designed stage: evidence, the four roles, the gates between them, and a person's approval.

A critic may add conditions and may reject; it can never lift a gate. Whatever is sent back more often than the run
allows leaves the stage on the last accepted configuration.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from langgraph.types import interrupt

from agents import teacher
from agents.changes import apply_changes, check_conditions
from agents.designers import Situation, get_designer
from agents.evidence import build_evidence
from agents.gates import GateContext, Prediction, hopeless_share, run_gates
from agents.rolespec import RoleSpec
from agents.schemas import Budget, Change, Critique, Diagnosis, Evidence, GateFinding, GateReport, Proposal
from envsim.api import EnvsimError, Measurement, YieldError
from graph import layout, words
from graph.speaking import parsed, recorded, speak
from graph.state import RunState
from graph.work import Work
from tools.probe_policy import ProbeResult, probe
