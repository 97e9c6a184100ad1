"""A run's budget in generated tokens: training, probes and roles are charged, evaluations on the frozen sets are not.

All is counted from files, and only up to the stage that is asked for, so that a node that runs again sees the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graph import layout
from graph.rundir import RunDir
from graph.state import Pointer
from graph.training import stage_result
from graph.work import Work


def charged(run: RunDir, trained: int, designed: int) -> int:
    """Tokens of training of the first ``trained`` stages, and of design and probes of the first ``designed``.

    What the choice of a stage's tasks took (`graph.tasks`) counts with its training: it comes after the budget is set.
    """
    training = sum(stage_result(run, stage).generated_tokens for stage in range(trained))
    chosen = sum(_sum(run, stage, "selection/*/candidates.eval.json", "generated_tokens") for stage in range(trained))
    return training + chosen + sum(design_tokens(run, stage) for stage in range(designed))


def design_tokens(run: RunDir, stage: int) -> int:
    """What roles said and the probed policy answered while a stage was designed, everything that was sent back too."""
    notes = ("notes/*.json", "proposals/*/notes/*.json")
    said = ("answers/*.json", "proposals/*/proposal.json", "proposals/*/critique.json", *notes)
    spoken = sum(_sum(run, stage, pattern, "tokens") for pattern in (*said, "probes/[!m]*.json"))
    called = ("answers/*.json", "proposals/*/*.json", "proposals/*/takes/*.json", *notes)
    return spoken + sum(_called(run, stage, pattern) for pattern in called)


def _called(run: RunDir, stage: int, pattern: str) -> int:
    """What the policy answered to tools that roles called."""
    calls = (call for found in _files(run, stage, pattern) for call in found.get("tool_calls", []))
    return sum(call["tokens"] for call in calls)


def _sum(run: RunDir, stage: int, pattern: str, key: str) -> int:
    return sum(_tokens(run, stage, pattern, key))


def _tokens(run: RunDir, stage: int, pattern: str, key: str) -> Iterator[int]:
    for found in _files(run, stage, pattern):
        if isinstance(found.get(key), int):
            yield found[key]


def _files(run: RunDir, stage: int, pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(run.path(layout.stage_dir(stage)).glob(pattern)):
        found = run.read_if_whole(run.name(path))
        if isinstance(found, dict):
            yield found


def affordable_steps(work: Work, stage: int, current: Pointer) -> int:
    """The profile's steps; for a stage that would leave less than the shortest one, all that the budget has left."""
    profile, budget = work.profile, work.settings.token_budget
    if budget is None:
        return profile.grpo.steps
    left = budget - charged(work.run, trained=stage, designed=stage + 1)
    rest = int(left / tokens_a_step(work, stage, current))
    if rest >= profile.grpo.steps + profile.bounds.min_steps:
        return profile.grpo.steps
    return max(profile.bounds.min_steps, min(rest, profile.bounds.max_steps))


def affords_another(work: Work, stage: int, current: Pointer) -> bool:
    """Whether the budget has a stage of the shortest length left after the stages before this one, and what it takes to
    design it, if that is what the stage before took."""
    budget = work.settings.token_budget
    if budget is None:
        return True
    left = budget - charged(work.run, trained=stage, designed=stage) - design_tokens(work.run, stage - 1)
    return left >= work.profile.bounds.min_steps * tokens_a_step(work, stage, current)


def tokens_a_step(work: Work, stage: int, current: Pointer) -> float:
    """What a step is expected to generate: as one of the stage before did; in stage 000, with answers as long as the
    starting checkpoint's to the validation set."""
    if stage > 0:
        before = stage_result(work.run, stage - 1)
        return before.generated_tokens / before.steps
    start = work.evaluate(current, "validation")
    return work.profile.grpo.batch * start.generated_tokens / (start.n * start.samples)
