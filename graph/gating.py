"""Facts for the gates, measured once: what a proposal would really give, and how the current policy does on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.changes import apply_changes, check_conditions
from agents.gates import NOT_ENFORCED, RELATIVE, GateContext, Prediction, run_gates
from agents.schemas import Change, GateFinding, GateReport, Proposal
from envsim.api import EnvsimError, Measurement, YieldError
from graph import layout
from graph.state import PERSON, Pointer, RunState
from graph.training import stage_result
from graph.work import Work
from tools.probe_policy import ProbeResult, probe
from trainer.profile import prompts_needed
from trainer.spec import canonical_hash


def gate_report(work: Work, state: RunState) -> GateReport:
    """The report on this round's proposal; its configuration, if there is one, is written beside it."""
    stage, revision = state["stage"], state["revision"]
    file = layout.in_round(stage, revision, "gates.json")
    answer = work.run.read(layout.in_round(stage, revision, "proposal.json"))
    # No critic stands above a person.
    conditions = [] if answer["by"] == PERSON else open_conditions(work, stage, revision)
    inputs = {
        "proposal": answer["parsed"],
        "base": work.run.read(state["config"]),
        "policy": state["current"]["sha256"],
        "conditions": [condition.model_dump(mode="json") for condition in conditions],
        "settings": work.settings.gates.model_dump(mode="json"),
    }

    def make() -> dict[str, Any]:
        return examine(work, state, answer, conditions).model_dump(mode="json")

    return GateReport.model_validate(work.run.once(file, inputs, make))


def examine(work: Work, state: RunState, answer: dict[str, Any], conditions: list[Change]) -> GateReport:
    """Apply the changes, generate, probe, and run every gate; then check the critic's conditions."""
    base = work.config(state["config"])
    if answer["parsed"] is None:
        why = f"no usable proposal: {'; '.join(answer['errors']) or 'the answer did not parse'}"
        return refused(work, state, base, {"errors": [why]})
    changes = Proposal.model_validate(answer["parsed"]).changes
    proposed, report = judged(work, state, changes, conditions)
    if proposed is not None:
        file = layout.in_round(state["stage"], state["revision"], "config.json")
        work.run.write(file, proposed.model_dump(mode="json"))
    return report


def judged(
    work: Work, state: RunState, changes: Sequence[Change], conditions: Sequence[Change]
) -> tuple[Any | None, GateReport]:
    """What these changes to the last accepted configuration give, and every gate's word; no configuration if they
    give none."""
    base = work.config(state["config"])
    try:
        proposed = apply_changes(work.environment, base, changes)
        unmet = check_conditions(work.environment, criticised(work, state, base), proposed, conditions, base=base)
        facts = {"proposed": proposed, **measured(work, state, proposed)}
    except YieldError as error:
        return None, refused(work, state, base, {"errors": [str(error)], "error_cells": [error.cell]})
    except EnvsimError as error:
        return None, refused(work, state, base, {"errors": [str(error)]})
    report = run_gates(gate_context(work, state, base, facts), work.settings.gates)
    if RELATIVE & failed_gates(report):
        report = beside_current(work, state, base, facts)
    if not conditions or not report.enforced:
        return proposed, report
    finding = conditions_finding(conditions, unmet)
    findings = [*report.findings, finding]
    return proposed, report.model_copy(update={"findings": findings, "passed": report.passed and finding.passed})


def failed_gates(report: GateReport) -> set[str]:
    """The gates that failed, or would have if they were on."""
    return {one.gate for one in report.findings if not one.passed or one.reason.startswith(NOT_ENFORCED)}


def refused(work: Work, state: RunState, base: Any, facts: dict[str, Any]) -> GateReport:
    """The report on what cannot even be generated."""
    return run_gates(gate_context(work, state, base, facts), work.settings.gates)


def measured(work: Work, state: RunState, config: Any) -> dict[str, Any]:
    """What a configuration really gives, and how the current policy does on it.

    One seed a stage: the same configuration gets the same probe, so that proposing it again wins nothing. What it gives
    is measured on as many training tasks as the stage may need at most, drawn as the stage would draw them: what the
    few tasks of the probe yield says too little about rare ones. Raises YieldError.
    """
    stage = state["stage"]
    data = config.model_dump(mode="json")
    seed, dataset_seed = work.seed(stage, "probe"), work.seed(stage, "dataset")
    most = prompts_needed(work.profile.grpo.model_copy(update={"steps": work.profile.bounds.max_steps}))
    inputs = {"config": data, "policy": state["current"]["sha256"], "seeds": [seed, dataset_seed], "n": most}

    def make() -> dict[str, Any]:
        with work.clock.span("instances"), work.reporter.bar("generating tasks") as update:
            given = work.environment.generate(config, most, dataset_seed, progress=update).measurement
        with work.clock.span("instances"), work.reporter.bar("generating the probe") as update:
            tasks = work.environment.generate(config, work.profile.probe.tasks, seed, split="probe", progress=update)
        tried = probed(work, state, tasks.instances, seed)
        return {"measured": given.model_dump(mode="json"), **tried.model_dump(mode="json")}

    found = work.run.once(layout.probe_file(stage, canonical_hash(data)), inputs, make)
    tried = ProbeResult(tasks=found["tasks"], tokens=found["tokens"])
    return {
        "measured": Measurement.model_validate(found["measured"]),
        "probe": tried.tasks,
        "probe_tokens": tried.tokens,
    }


def probed(work: Work, state: RunState, instances: list[Any], seed: int, *, samples: int | None = None) -> ProbeResult:
    """The current policy on these tasks, with as many answers each as the profile says if not told otherwise."""
    policy = work.policy(state["current"])
    generation = work.profile.generation.model_copy(update={"temperature": work.profile.probe.temperature})
    with work.clock.span("evaluation"), work.reporter.bar("probing the current policy") as update:
        return probe(
            work.environment,
            policy,
            instances,
            style=work.profile.style,
            generation=generation,
            samples=work.profile.probe.samples if samples is None else samples,
            seed=seed,
            progress=update,
        )


def gate_context(work: Work, state: RunState, base: Any, facts: dict[str, Any]) -> GateContext:
    stage = state["stage"]
    last = work.run.read(layout.in_stage(stage - 1, "decision.json"))
    return GateContext(
        environment=work.environment,
        current=base,
        current_difficulty=given(work, accepted_stage(state)).difficulty,
        initial=given(work, 0),
        anchor_dropped=not last["accepted"],
        predictions=predictions(work, stage),
        **facts,
    )


def beside_current(work: Work, state: RunState, base: Any, facts: dict[str, Any]) -> GateReport:
    """The report again with the current configuration's own probe: where that is no better, easing is a remedy.

    Measured only where it can matter, and left out if the current configuration cannot be drawn again.
    """
    try:
        own = measured(work, state, base)
    except EnvsimError:
        own = {"probe": ()}
    return run_gates(gate_context(work, state, base, {**facts, "current_probe": own["probe"]}), work.settings.gates)


def conditions_finding(conditions: Sequence[Change], unmet: list[str]) -> GateFinding:
    """Whether a revision does what the critic asked for; reported like a gate."""
    met = len(conditions) - len(unmet)
    return GateFinding(
        gate="conditions",
        passed=not unmet,
        figure=float(met),
        threshold=float(len(conditions)),
        reason="; ".join(unmet) or "the revision meets the critic's conditions",
    )


def open_conditions(work: Work, stage: int, revision: int) -> list[Change]:
    """What the critic asked of this revision."""
    found = work.run.read_if_there(layout.in_round(stage, revision - 1, "critique.json")) if revision else None
    return [Change.model_validate(one) for one in found["parsed"]["conditions"]] if found else []


def criticised(work: Work, state: RunState, base: Any) -> Any:
    """The configuration that the conditions are relative to: the criticised proposal's, or the base if it had none."""
    file = layout.in_round(state["stage"], state["revision"] - 1, "config.json")
    return work.config(file) if work.run.exists(file) else base


def given(work: Work, stage: int) -> Measurement:
    """What a stage's configuration really gave."""
    return Measurement.model_validate(work.run.read(layout.in_stage(stage, "dataset.json"))["measurement"])


def accepted_stage(state: RunState) -> int:
    """The stage whose configuration was accepted last; 0 if it is still the initial one."""
    parts = state["config"].split("/")
    return int(parts[1]) if len(parts) > 1 else 0


def trained(work: Work, stage: int) -> Pointer:
    """The checkpoint that a stage made."""
    model = stage_result(work.run, stage).model
    return Pointer(stage=stage, path=work.run.name(model.path), sha256=model.sha256, anchor=0.0)


def predictions(work: Work, stage: int) -> list[Prediction]:
    """What the designer itself predicted in finished stages that trained on its proposal, and what came of it.

    Counted from the last stage that G8 sent back: bad predictions cost that one stage, and then count no more.
    """
    found: list[Prediction] = []
    for number in range(1, stage):
        plan = work.run.read(layout.in_stage(number, "plan.json"))
        if plan["source"] == "reused" and refused_by(work, number, plan["revision"], "G8"):
            found.clear()
        guess = prediction(work, number)
        if guess is not None:
            found.append(guess)
    return found


def prediction(work: Work, stage: int) -> Prediction | None:
    """What a finished stage's own proposal predicted, and what was measured; None if it trained on no such proposal."""
    plan = work.run.read(layout.in_stage(stage, "plan.json"))
    if plan["source"] == "reused" or not plan["own"]:
        return None
    answer = work.run.read(layout.in_round(stage, plan["revision"], "proposal.json"))
    report = work.evaluate(trained(work, stage), "validation")
    rates = {cell: stats.valid for cell, stats in report.cells.items()}
    return Prediction(predicted=answer["parsed"]["predicted"], measured=rates)


def refused_by(work: Work, stage: int, revision: int, gate: str) -> bool:
    """Whether the gate failed the last proposal of a stage."""
    report = work.run.read_if_there(layout.in_round(stage, revision, "gates.json"))
    return report is not None and any(one["gate"] == gate and not one["passed"] for one in report["findings"])
