"""What a designer may have measured before it proposes, and what that costs.

Every measurement is a file made once from its inputs, so that a designer that is killed and asked again gets the same
answers; it is charged again all the same, because the cost belongs to the proposal and not to the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.designers import DesignContext, ModelName, ProposalRejected, get_designer
from agents.rolespec import RoleSpec
from agents.schemas import Change, Cost, GateReport, Proposal
from graph import layout
from graph.gating import judged, open_conditions, probed
from graph.speaking import speak
from graph.state import RunState
from graph.work import Work
from tools.probe_policy import ProbeResult, ProbeTask
from trainer.spec import canonical_hash


class RunLaboratory:
    """The laboratory of one proposal; see ``agents.designers.Laboratory``. ``cost`` grows with what is asked of it."""

    def __init__(self, work: Work, state: RunState, role: RoleSpec, inputs: Mapping[str, Any]) -> None:
        self.cost = Cost()
        self._work, self._state, self._role, self._inputs = work, state, role, inputs
        self._examined: set[str] = set()
        self.context: DesignContext | None = None
        """What the rule answers from if a model that is asked gives nothing usable."""

    def examine(self, changes: Sequence[Change]) -> GateReport:
        work, state = self._work, self._state
        conditions = open_conditions(work, state["stage"], state["revision"])
        proposed, report = judged(work, state, changes, conditions)
        key = canonical_hash(proposed.model_dump(mode="json")) if proposed is not None else ""
        if proposed is not None and key not in self._examined:
            self._examined.add(key)
            probe = work.profile.probe
            self.cost += Cost(probe_rollouts=probe.tasks * probe.samples, probe_tokens=report.probe_tokens)
        return report

    def probe(self, config: Any, *, tasks: int, samples: int, draw: int) -> list[ProbeTask]:
        work, stage = self._work, self._state["stage"]
        seed = work.seed(stage, "designer probe", draw)
        inputs = {
            "config": config.model_dump(mode="json"),
            "policy": self._state["current"]["sha256"],
            "seed": seed,
            "n": [tasks, samples],
        }

        def make() -> dict[str, Any]:
            with work.clock.span("instances"), work.reporter.bar("generating the designer's probe") as update:
                drawn = work.environment.generate(config, tasks, seed, split="probe", progress=update).instances
            return probed(work, self._state, drawn, seed, samples=samples).model_dump(mode="json")

        found = ProbeResult.model_validate(
            work.run.once(layout.probe_file(stage, canonical_hash(inputs)), inputs, make)
        )
        self.cost += Cost(probe_rollouts=tasks * samples, probe_tokens=found.tokens)
        return found.tasks

    def ask(self, model: ModelName, *, take: int, temperature: float) -> Proposal:
        assert self.context is not None
        file = layout.in_round(self._state["stage"], self._state["revision"], f"takes/{take}.json")
        answer = ask_model(
            self._work, self._state, self._role, file, self._inputs, self.context, model, temperature, take
        )
        self.cost += Cost.model_validate(answer["cost"])
        if answer["fallback"] or answer["parsed"] is None:
            raise ProposalRejected(str(model), answer["errors"], answer["raw"])
        return Proposal.model_validate(answer["parsed"])


def ask_model(  # noqa: PLR0917
    work: Work,
    state: RunState,
    role: RoleSpec,
    file: str,
    inputs: Mapping[str, Any],
    context: DesignContext,
    model: ModelName,
    temperature: float | None = None,
    take: int = 0,
) -> dict[str, Any]:
    """The config designer role answered by a model; the teacher's rule is its fallback."""
    changed: dict[str, Any] = {} if model == "inherit" else {"model": model}
    if temperature is not None:
        changed["temperature"] = temperature
    asked = role.model_copy(update=changed) if changed else role
    return speak(
        work,
        state,
        asked,
        file,
        inputs,
        config=context.config,
        evidence=context.evidence,
        rule=lambda: get_designer("teacher").propose(context),
        take=take,
    )
