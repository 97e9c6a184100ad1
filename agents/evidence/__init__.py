"""Evidence for the roles: statistics, clustered failures and history, built from a run's files."""

from agents.evidence.blocks import BLOCKS, EvidenceSettings, without
from agents.evidence.budget import BudgetError, fit
from agents.evidence.build import (
    build_evidence,
    choose_failures,
    read_failures,
    training_evidence,
)
from agents.evidence.silent import silent_shares

__all__ = [
    "BLOCKS",
    "BudgetError",
    "EvidenceSettings",
    "build_evidence",
    "choose_failures",
    "fit",
    "read_failures",
    "silent_shares",
    "training_evidence",
    "without",
]
