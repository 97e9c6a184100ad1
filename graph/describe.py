"""``--dry-run``: what a run would do, in words and numbers, without generating or training anything."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from agents.designers import designer_title, get_designer
from agents.designers.base import ModelName
from agents.places import stage_order
from agents.rolespec import ExternalModel, RoleSpec
from graph.prepare import Planned, starting_model
from trainer.profile import Profile, prompts_needed
from trainer.selection import candidates_needed
from trainer.training_settings import GrpoSettings, RehearsalSettings


def describe(planned: Planned, console: Console) -> None:
    """What would be done: settings, sets, stages and the number of completions, without generating or training.

    The plan is told wherever it is asked for. Raises SettingsError behind it if this machine could not carry it out.
    """
    settings, profile = planned.settings, planned.profile
    sets = ["anchor", "validation", "test", *(["benchmark"] if settings.benchmark else [])]
    sizes = {name: set_size(planned, name) for name in sets}
    console.print_json(data=settings.model_dump(mode="json"))
    table = Table(title="plan", title_justify="left")
    for title in ("what", "how much"):
        table.add_column(title)
    grpo, stages = profile.grpo, settings.stages
    low, high = profile.bounds.min_steps, profile.bounds.max_steps
    table.add_row("model", f"{profile.model}, style {profile.style}, {profile.device}")
    preset = None if profile.launch is None else profile.launch.preset
    table.add_row("started by", f"preset {preset}" if preset else "one process of plain Python")
    table.add_row("answered by", f"backend {profile.backend.kind}; in training rollouts {profile.rollouts.kind}")
    table.add_row("loss", loss_line(grpo))
    table.add_row("tracking", ", ".join(str(tracker) for tracker in profile.tracking) or "none")
    table.add_row("sets", ", ".join(f"{name} {n}" for name, n in sizes.items()))
    table.add_row("stage 000", f"{grpo.steps} steps on the initial configuration, {prompts_needed(grpo)} tasks")
    table.add_row("designed stages", f"{stages} by '{designer_title(settings.designer)}', {low} to {high} steps each")
    for number, line in enumerate(speakers(planned)):
        table.add_row("a designed stage, in order" if number == 0 else "", line)
    table.add_row("probe a proposal", f"{profile.probe.tasks} tasks x {profile.probe.samples} answers")
    if profile.selection is not None:
        n = candidates_needed(prompts_needed(grpo), profile.selection)
        table.add_row("choose a stage's tasks", f"from {n} candidates x {profile.selection.samples} answers")
    if profile.role_rehearsal is not None:
        table.add_row("rehearse roles", rehearsal_line(profile.role_rehearsal))
    table.add_row("revisions a stage", f"at most {settings.max_revisions}")
    if settings.token_budget is not None:
        table.add_row("budget", f"{settings.token_budget:,} generated tokens; the run ends when they are spent")
    completions = estimate(planned, sizes)
    for purpose, n in completions.items():
        table.add_row(f"answers: {purpose}", f"about {n:,}")
    console.print(table)
    console.print("dry run: nothing was written", style="yellow")
    start = starting_model(profile)
    console.print(f"the model is here: {start.path}, sha256 {start.sha256[:12]}")


def speakers(planned: Planned) -> Iterator[str]:
    """A line for each role at its place and each node of code between them, in brackets: who is asked, and what is
    called before."""
    for node in stage_order(planned.roles):
        role = planned.roles.get(node)
        yield f"({node})" if role is None else "; ".join([node, *_asked(planned, role)])


def _asked(planned: Planned, role: RoleSpec) -> Iterator[str]:
    settings = planned.settings
    model: ModelName = role.model
    if role.writes == "budget" and settings.budget == "profile":
        yield "not asked, the budget is the profile's"
        return
    if role.writes == "proposal":
        designer = get_designer(settings.designer)
        if designer.model is None:
            yield f"the designer '{designer.name}' in its place"
            return
        model = designer.model
    if role.entrypoint is not None:
        yield f"python {role.entrypoint}"
    elif isinstance(model, ExternalModel):
        yield f"{model.name} at {model.base_url}"
    elif model != "inherit":
        yield f"model {model}"
    if role.tools_before:
        yield f"first calls {', '.join(call.tool for call in role.tools_before)}"
    if role.limits.max_tool_calls:
        yield f"may make {role.limits.max_tool_calls} calls of its own: {', '.join(role.tools)}"
    if role.approval != "never":
        yield f"a person approves: {role.approval}"


def loss_line(grpo: GrpoSettings) -> str:
    """What a loss preset, and the settings that win over it, come to."""
    low = 0.2 if grpo.epsilon is None else grpo.epsilon
    high = low if grpo.epsilon_high is None else grpo.epsilon_high
    return (
        f"{grpo.loss_type} by {grpo.importance_sampling_level}, rewards scaled by {grpo.scale_rewards}, clipped at "
        f"-{low:g} and +{high:g}, learning rate {grpo.learning_rate:g}"
    )


def rehearsal_line(rehearsal: RehearsalSettings) -> str:
    """How stages rehearse the roles; nothing is generated for it."""
    often = "every step" if rehearsal.every == 1 else f"every {rehearsal.every} steps"
    return f"{rehearsal.batch} of {rehearsal.episodes:,} episodes {often}, weight {rehearsal.weight:g}"


def estimate(planned: Planned, sizes: dict[str, int]) -> dict[str, int]:
    """Answers that the run will generate, by purpose, if every proposal passes at the first try."""
    settings, profile = planned.settings, planned.profile
    stages = settings.stages + 1
    sealed = sum(2 * n for name, n in sizes.items() if name not in ("anchor", "validation"))
    return {
        "training": stages * profile.grpo.steps * profile.grpo.batch,
        "evaluation": (stages + 1) * (sizes["anchor"] * (settings.acceptance.samples or 1) + sizes["validation"])
        + sealed,
        "probes": settings.stages * profile.probe.tasks * profile.probe.samples + stages * candidate_answers(profile),
        "roles": settings.stages * len(planned.roles),
    }


def candidate_answers(profile: Profile) -> int:
    """Answers that choosing the tasks of one stage takes."""
    if profile.selection is None:
        return 0
    return candidates_needed(prompts_needed(profile.grpo), profile.selection) * profile.selection.samples


def set_size(planned: Planned, name: str) -> int:
    whole = len(planned.environment.frozen_set(name))
    wanted = getattr(planned.profile.evaluation, name, 0)
    return min(wanted, whole) if wanted else whole
