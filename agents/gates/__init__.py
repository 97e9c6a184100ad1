"""The gates: code that checks every proposed configuration and cannot be talked round."""

from agents.gates.context import GateContext, Prediction
from agents.gates.g4_hopeless import hopeless_share
from agents.gates.runner import RELATIVE, GateSettings, run_gates

__all__ = ["RELATIVE", "GateContext", "GateSettings", "Prediction", "hopeless_share", "run_gates"]
