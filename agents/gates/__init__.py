"""The gates: code that checks every proposed configuration and cannot be talked round."""

from agents.gates.context import GateContext, Prediction
from agents.gates.g4_hopeless import hopeless_share
from agents.gates.runner import NOT_ENFORCED, RELATIVE, GateSettings, run_gates

__all__ = ["NOT_ENFORCED", "RELATIVE", "GateContext", "GateSettings", "Prediction", "hopeless_share", "run_gates"]
