"""Designers without a model and without chance: the teacher's rule, and no change at all."""

from __future__ import annotations

from agents import teacher
from agents.designers.base import DesignContext, Designer, proposal
from agents.schemas import Proposal


class Teacher(Designer):
    """The rule that the seedling learnt from."""

    name = "teacher"

    def propose(self, context: DesignContext) -> Proposal:
        knobs = context.environment.knobs(context.config)
        return teacher.propose(
            context.evidence, context.diagnosis, knobs, context.gate_report, list(context.conditions)
        )


class Fixed(Designer):
    """The same configuration again: the baseline that every curriculum must beat."""

    name = "fixed"

    def propose(self, context: DesignContext) -> Proposal:
        return proposal(context, "no change", [])
