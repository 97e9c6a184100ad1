"""The nodes that move a stage along: baseline, configuration, dataset, training, evaluation, decision, report.

Every node may run again after a crash: what it makes is a file, and a file that is there is read. Nodes are plain
functions of (state, work) and run in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agents.changes import describe_changes
from agents.designers import designer_title
from agents.schemas import Budget
from envsim.api import EnvsimError
from graph import layout, words
from graph.acceptance import Comparison, compare, judge, nothing_learnt, stopped
from graph.benchmark import benchmark_tables
from graph.curves import stage_series, tell_run
from graph.fork import forked_state
from graph.inputs import written_by
from graph.prepare import initial_config
from graph.progress import Stopped
from graph.rehearsal import role_episodes
from graph.report import write_report
from graph.spending import affordable_steps
from graph.state import PERSON, STATE_VERSION, Pointer, RunState
from graph.tasks import stage_tasks
from graph.training import (
    interruption_line,
    known_without_signal,
    note_no_signal,
    resumption_lines,
    stage_result,
    stopped_by,
    without_signal,
)
from graph.work import Work, start_pointer
from tools.launch_stage import launch_stage_tool
from tools.log import ToolLog
from trainer.evaluate import Rollout, read_rollouts, rollouts_path
from trainer.profile import prompts_needed, stage_spec
from trainer.spec import DataRef, EvalReport, StageResult, StageSpec
from trainer.stage import StageCancelled, StageError, run_stage

SHOWN_FIGURES = ("reward", "valid", "success", "progress")
"""Of a training step, in this order; success and progress are there where tasks are noisy or shaped."""


def baseline(_: RunState, work: Work) -> RunState:
    """The starting checkpoint on anchor, validation and test: what every later claim is compared with.

    From here a run comes to stage 000, and a fork to its first stage of its own, whatever began its thread.
    """
    work.reporter.heading("start: the checkpoint before any training")
    start = start_pointer(work, 0.0)
    reports = {name: work.evaluate(start, name) for name in ("anchor", "validation", *sealed_sets(work))}
    for name in ("anchor", "test"):
        work.reporter.line(score_line(name, reports[name]), indent=2)
    start = start_pointer(work, reports["anchor"].macro_valid)
    initial = "initial_config.json"
    work.run.write(initial, initial_config(work.settings, work.environment).model_dump(mode="json"))
    return forked_state(work.run) or RunState(
        schema_version=STATE_VERSION,
        stage=0,
        revision=0,
        review="approve",
        why="the initial configuration",
        current=start,
        champion=start,
        config=initial,
        reused=0,
    )


def settle(state: RunState, work: Work) -> RunState:
    """Fix the stage's configuration: the initial one, the approved proposal, or the last accepted one again."""
    stage, revision = state["stage"], state["revision"]
    approved = stage > 0 and state["review"] == "approve"
    before = work.config(state["config"])
    config = work.config(layout.in_round(stage, revision, "config.json")) if approved else before
    proposal = work.run.read(layout.in_round(stage, revision, "proposal.json")) if approved else None
    persons = proposal is not None and proposal["by"] == PERSON
    designer = PERSON if persons else designer_title(work.settings.designer)
    plan = {
        "source": "initial" if stage == 0 else designer if approved else "reused",
        "own": proposal is not None and not proposal["fallback"] and not persons,
        "reason": proposal["parsed"]["rationale"] if proposal else state["why"],
        "changes": describe_changes(work.environment, before, config),
        "revision": revision,
    }
    work.run.write(layout.in_stage(stage, "config.json"), config.model_dump(mode="json"))
    work.run.write(layout.in_stage(stage, "plan.json"), plan)
    if stage > 0 and not approved:
        work.reporter.line(f"the last accepted configuration is used again: {state['why']}", style="yellow", indent=2)
    return RunState(reused=reused_stages(work, stage))


def reused_stages(work: Work, stage: int) -> int:
    """Designed stages up to this one on the last accepted configuration again. From files: a node may run twice."""
    plans = [work.run.read_if_there(layout.in_stage(number, "plan.json")) for number in range(1, stage + 1)]
    return sum(plan is not None and plan["source"] == "reused" for plan in plans)


def dataset(state: RunState, work: Work) -> RunState:
    """The stage's frozen tasks. A proposal that passed its probe and still cannot fill them is not trained on."""
    stage = state["stage"]
    proposed = stage > 0 and state["review"] == "approve"
    try:
        made = tasks(work, stage, state["current"])
    except EnvsimError as error:
        if not proposed:
            raise
        rejected = RunState(**{**state, "review": "reject", "why": f"the tasks cannot be generated: {error}"})
        settle(rejected, work)
        made = tasks(work, stage, state["current"])
    work.reporter.event("dataset", stage=stage, n=made["n"], difficulty=made["measurement"]["difficulty"])
    return RunState(reused=reused_stages(work, stage))


def tasks(work: Work, stage: int, current: Pointer) -> dict[str, Any]:
    """Enough prompts for every step of the budget. Raises EnvsimError."""
    n = prompts_needed(work.profile.grpo.model_copy(update={"steps": stage_budget(work, stage, current).steps}))
    return stage_tasks(work, stage, n, current)


def train(state: RunState, work: Work) -> RunState:
    """One RL stage in its own process; a stage that is done is read, one that is running is joined.

    One whose tasks gave no signal at all leaves the checkpoint that it started from.
    """
    stage = state["stage"]
    budget = stage_budget(work, stage, state["current"])
    if work.profile.device == "cuda" or work.profile.backend.kind == "vllm":
        work.release()

    def wanted() -> StageSpec:
        return spec_of(work, stage, state["current"], budget.steps, budget.learning_rate_scale)

    if not (without_signal(work.run, stage) and known_without_signal(work.run, wanted())):
        launch(state, work, budget, wanted)
    result = stage_result(work.run, stage)
    work.clock.move(result.seconds.get("start_up", 0.0), "training", "start-up")
    for line in (training_line(result), *resumption_lines(result)):
        work.reporter.line(line, indent=2)
    for warning in result.warnings:
        work.reporter.line(f"warning: {warning}", style="yellow", indent=2)
    new = Pointer(stage=stage, path=work.run.name(result.model.path), sha256=result.model.sha256, anchor=0.0)
    return RunState(new=new)


def launch(state: RunState, work: Work, budget: Budget, wanted: Callable[[], StageSpec]) -> None:
    """Train the stage through the tool that holds its budget to the bounds. Raises Stopped and StageError."""
    stage = state["stage"]
    directory = work.run.path(layout.stage_dir(stage))
    log = ToolLog()
    with (
        work.clock.span("training"),
        stage_series(work, stage) as curves,
        work.reporter.bar(f"training stage {stage:03d}") as update,
    ):

        def tell(event: dict[str, Any]) -> None:
            curves.event(event)
            if event["event"] == "step":
                shown = {name: event[name] for name in SHOWN_FIGURES if name in event}
                update(event["step"], event["steps"], **shown)
            if event["event"] == "attempt_ended":
                work.reporter.line(interruption_line(event), indent=2)

        bounds = work.profile.bounds
        tool = launch_stage_tool(
            log,
            spec=lambda steps, scale: spec_of(work, stage, state["current"], steps, scale),
            directory=directory,
            steps=(bounds.min_steps, bounds.max_steps),
            on_progress=tell,
            run=partial(run_stage, stop=work.stop, launcher=work.launcher()),
        )
        try:
            tool.invoke({"steps": budget.steps, "learning_rate_scale": budget.learning_rate_scale})
        except StageCancelled as cancelled:
            raise Stopped from cancelled
        except StageError as failure:
            if not note_no_signal(work.run, wanted(), state["current"], failure):
                raise
        else:
            if refusal := log.calls[-1].error:
                raise StageError(f"stage {stage:03d} was not launched: {refusal}")
    asked = written_by(work, "budget") if stage > 0 and work.settings.budget == "role" else None
    who = {"stage": stage, "revision": state["revision"], "role": None if asked is None else asked.name}
    for call in log.calls:
        work.reporter.event("tool", **who, **call.model_dump(mode="json"))


def evaluate(state: RunState, work: Work) -> RunState:
    """The trained checkpoint on anchor (to decide) and validation (to learn from)."""
    reports = {name: work.evaluate(state["new"], name) for name in ("anchor", "validation")}
    return RunState(new=Pointer(**{**state["new"], "anchor": reports["anchor"].macro_valid}))


def accept_or_roll_back(state: RunState, work: Work) -> RunState:
    """Keep the stage or return to the champion, and go on to the next stage."""
    stage, settings = state["stage"], work.settings.acceptance
    comparison = compare_checkpoints(work, state["current"], state["new"], "anchor")
    trip = stopped_by(work.run, stage)
    if without_signal(work.run, stage):
        judgement = nothing_learnt(state["current"], state["champion"])
    elif trip is not None:
        judgement = stopped(trip, state["champion"])
    else:
        judgement = judge(comparison, state["new"], state["champion"], settings)
    decision = {
        "stage": stage,
        **judgement.model_dump(mode="json"),
        **({} if trip is None else {"stopped": str(trip)}),
        "trained_from": state["current"],
        "before": scores(work, state["current"], "anchor"),
        "after": scores(work, state["new"], "anchor"),
        **comparison.model_dump(mode="json"),
    }
    work.run.write(layout.in_stage(stage, "decision.json"), decision)
    verdict = "kept" if judgement.accepted else "rolled back"
    work.reporter.line(
        f"stage {stage:03d} {verdict}: anchor valid {words.percent(state['current']['anchor'])} -> "
        f"{words.percent(state['new']['anchor'])}; {judgement.reason}",
        style="green" if judgement.accepted else "red",
        indent=2,
    )
    work.reporter.event("decided", stage=stage, accepted=judgement.accepted, reason=judgement.reason)
    tell_run(work)
    write_report(work.run, work.environment, work.identity, work.frozen_set("validation"))
    accepted_config = layout.in_stage(stage, "config.json") if judgement.accepted else state["config"]
    return RunState(
        stage=stage + 1,
        revision=0,
        # A word on this stage's proposal says nothing of the next one's.
        review="approve",
        why="",
        current=judgement.current,
        champion=judgement.champion,
        config=accepted_config,
    )


def report(state: RunState, work: Work) -> RunState:
    """The sealed sets after the run, and the page."""
    work.reporter.heading("end: the champion on the sealed test set")
    start, champion = start_pointer(work, 0.0), state["champion"]
    result: dict[str, Any] = {"champion": champion, "reused": state["reused"], "sets": {}, "benchmark": []}
    for name in sealed_sets(work):
        after = work.evaluate(champion, name)
        comparison = compare_checkpoints(work, start, champion, name)
        result["sets"][name] = {
            "before": scores(work, start, name),
            "after": scores(work, champion, name),
            **comparison.model_dump(mode="json"),
        }
        work.reporter.line(score_line(name, after), indent=2)
    if work.settings.benchmark:
        takes = {"start": rollouts(work, start, "benchmark"), "champion": rollouts(work, champion, "benchmark")}
        result["benchmark"] = benchmark_tables(work.environment, work.frozen_set("benchmark"), takes)
    work.run.write(layout.RESULT, result)
    page = write_report(work.run, work.environment, work.identity, work.frozen_set("validation"))
    return RunState(report=work.run.name(page))


def sealed_sets(work: Work) -> tuple[str, ...]:
    return ("test", "benchmark") if work.settings.benchmark else ("test",)


def stage_budget(work: Work, stage: int, current: Pointer) -> Budget:
    """The trainer role's budget; stage 000 has the profile's, or what the run's tokens are enough for."""
    given = work.run.read_if_whole(layout.in_stage(stage, "budget.json"))
    if given is None:
        steps = affordable_steps(work, stage, current)
        budget = Budget(reason="the profile's budget", steps=steps, learning_rate_scale=1.0)
        work.run.write(layout.in_stage(stage, "budget.json"), budget.model_dump(mode="json"))
        return budget
    return Budget.model_validate(given)


def spec_of(work: Work, stage: int, current: Pointer, steps: int, learning_rate_scale: float) -> StageSpec:
    """Everything that decides what the stage computes, from files and the profile."""
    made = work.run.read(layout.in_stage(stage, "dataset.json"))
    path = work.run.path(layout.in_stage(stage, "dataset.jsonl"))
    return stage_spec(
        work.profile,
        environment=work.settings.environment,
        stage=stage,
        seed=work.seed(stage, "training"),
        init_model=work.reference(current),
        dataset=DataRef(path=str(path), sha256=made["sha256"], n=made["n"]),
        steps=steps,
        learning_rate_scale=learning_rate_scale,
        episodes=role_episodes(work),
    )


def compare_checkpoints(work: Work, before: Pointer, after: Pointer, set_name: str) -> Comparison:
    old, new = rollouts(work, before, set_name), rollouts(work, after, set_name)
    return compare(old, new, work.settings.acceptance, seed=work.seed("bootstrap", set_name))


def rollouts(work: Work, pointer: Pointer, set_name: str) -> list[Rollout]:
    return read_rollouts(rollouts_path(work.run.path(layout.eval_dir(pointer["stage"])), set_name))


def scores(work: Work, pointer: Pointer, set_name: str) -> dict[str, float]:
    done = work.evaluate(pointer, set_name)
    return {"macro_valid": done.macro_valid, "macro_optimal": done.macro_optimal, "n": done.n}


def score_line(name: str, report: EvalReport) -> str:
    cells = "  ".join(f"{cell} {100 * one.valid:.0f}" for cell, one in report.cells.items())
    return (
        f"{name}: {words.percent(report.macro_valid)} valid, {words.percent(report.macro_optimal)} optimal "
        f"({report.n} instances{f' x {report.samples}' if report.samples > 1 else ''}; valid by cell: {cells})"
    )


def training_line(result: StageResult) -> str:
    worth = [
        f", {what} {value:.3f}"
        for what, value in (("success of valid plans", result.success), ("progress", result.progress))
        if value is not None
    ]
    return (
        f"trained {result.steps} steps: reward {result.reward_first:.2f} -> {result.reward_last:.2f}, "
        f"{100 * result.zero_variance_share:.0f} % without signal, weights moved by {result.weight_change:.2f}"
        + "".join(worth)
        + ("" if result.rehearsed is None else f"; {result.rehearsed}")
        + ("" if result.tripped is None else f"; stopped early, {result.tripped}")
    )
