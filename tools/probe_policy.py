"""Try the current policy on a small sample of a configuration: how often is each task solved?"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import Environment, EnvsimError, Instance, Progress, Style
from tools.context import OverBudget, ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool
from trainer.policy import Policy
from trainer.spec import GenerationSettings

CHUNK = 32
"""Tasks between two reports of progress. A constant, because seeds depend on it."""


class ProbeTask(Frozen):
    """One task of the probe: how many of the samples were valid."""

    id: str
    cell: str
    successes: int = Field(ge=0)
    samples: int = Field(gt=0)

    @property
    def success(self) -> float:
        return self.successes / self.samples


class ProbeResult(Frozen):
    """All tasks of a probe and the tokens that it cost."""

    tasks: list[ProbeTask]
    tokens: int

    def by_cell(self) -> dict[str, float]:
        """Mean success by cell, in the order of first appearance."""
        cells = dict.fromkeys(task.cell for task in self.tasks)
        groups = {cell: [task.success for task in self.tasks if task.cell == cell] for cell in cells}
        return {cell: sum(values) / len(values) for cell, values in groups.items()}


class ProbeArgs(Frozen):
    """Arguments of the tool."""

    values: dict[str, float] = Field({}, description="knobs to set on the current configuration, by path")
    n: int = Field(16, ge=1, le=256, description="number of tasks")


def probe(
    environment: Environment,
    policy: Policy,
    instances: Sequence[Instance],
    *,
    style: Style,
    generation: GenerationSettings,
    samples: int,
    seed: int,
    progress: Progress | None = None,
) -> ProbeResult:
    """``samples`` answers to each task, judged by the verifier. Raises EnvsimError if there are no tasks."""
    if not instances:
        raise EnvsimError("there is nothing to probe; expected at least one instance")
    tasks: list[ProbeTask] = []
    tokens = 0
    for start in range(0, len(instances), CHUNK):
        chunk = instances[start : start + CHUNK]
        answers = policy.generate(
            [environment.prompt(instance, style) for instance in chunk],
            max_new_tokens=generation.max_new_tokens,
            temperature=generation.temperature,
            samples=samples,
            # Far apart, so that the seeds of two probes do not meet.
            seed=seed * 1_000_003 + start,
        )
        for instance, completions in zip(chunk, answers, strict=True):
            valid = sum(environment.score(instance, completion.text).valid for completion in completions)
            tokens += sum(completion.tokens for completion in completions)
            cell = environment.cell(instance)
            tasks.append(ProbeTask(id=instance.id, cell=cell, successes=valid, samples=samples))
        if progress is not None:
            progress(start + len(chunk), len(instances))
    return ProbeResult(tasks=tasks, tokens=tokens)


def probe_policy_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the last accepted configuration and the current policy, within what the role may ask for."""
    environment = context.environment

    def call(args: ProbeArgs) -> ToolResult:
        rollouts = args.n * context.samples
        left = context.max_rollouts - log.rollouts()
        if rollouts > left:
            raise OverBudget(
                f"{args.n} tasks with {context.samples} answers each are {rollouts}, of {context.max_rollouts} "
                f"answers {left} are left; expected n up to {left // context.samples}"
            )
        changed = environment.with_values(context.config, args.values)
        drawn = environment.generate(changed, args.n, context.seed, split="probe", progress=context.progress).instances
        result = probe(
            environment,
            context.policy(),
            drawn,
            style=context.style,
            generation=context.generation,
            samples=context.samples,
            seed=context.seed,
            progress=context.progress,
        )
        found = {"success": result.by_cell(), "n": args.n, "samples": context.samples}
        return ToolResult(found, tokens=result.tokens, rollouts=rollouts)

    return logged_tool(
        log,
        name="probe_policy",
        description="Success of the current policy by cell on tasks drawn from the configuration with these values.",
        args=ProbeArgs,
        call=call,
        refusals=(EnvsimError, OverBudget),
    )
