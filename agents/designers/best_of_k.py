"""Several proposals of one model; the gates and a measured probe choose.

The first is the model's answer at its own temperature, which is what ``self`` would propose; the others are sampled. Of
those that the gates admit, the one wins whose probe promises the most groups with a signal, the figure of gate G2.
"""

from __future__ import annotations

from agents.designers.base import DesignContext, Designer, ModelName, ProposalRejected
from agents.schemas import GateReport, Proposal


class BestOfK(Designer):
    name = "best_of_k"

    def __init__(self, *, k: int, temperature: float, asked: ModelName) -> None:
        self._k, self._temperature, self._asked = k, temperature, asked

    def propose(self, context: DesignContext) -> Proposal:
        if context.lab is None:
            raise ValueError("the designer 'best_of_k' asks a model and measures, which only a run can do")
        found: list[Proposal] = []
        errors: list[str] = []
        for take in range(self._k):
            temperature = self._temperature if take else 0.0
            try:
                answer = context.lab.ask(self._asked, take=take, temperature=temperature)
            except ProposalRejected as rejected:
                errors.extend(f"take {take}: {error}" for error in rejected.errors)
                continue
            if not any(answer.changes == other.changes for other in found):
                found.append(answer)
        if not found:
            raise ProposalRejected(self.name, errors, "")
        scores = [score(context.lab.examine(answer.changes)) for answer in found]
        return found[max(range(len(found)), key=lambda index: (scores[index], -index))]


def score(report: GateReport) -> tuple[bool, int, float]:
    """Admitted before refused, then the fewer gates failed, then the larger share of groups with a signal."""
    effective = next((one.figure for one in report.findings if one.gate == "G2" and one.figure is not None), -1.0)
    return report.passed, -sum(not one.passed for one in report.findings), effective
