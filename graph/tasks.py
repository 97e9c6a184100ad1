"""The frozen tasks of a stage: drawn from its configuration and, if the profile asks for it, chosen by a probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envsim.api import EnvsimError
from graph import layout
from graph.state import Pointer
from graph.work import Work
from trainer.dataset import write_dataset
from trainer.selection import Selection, candidates_needed, select
from trainer.spec import canonical_hash
from trainer.training_settings import SelectionSettings

KNOWN_EFFORT = 5.0
"""What a task may cost in a designed stage, as a multiple: its configuration has passed the gates or has run before."""


def stage_tasks(work: Work, stage: int, n: int, current: Pointer) -> dict[str, Any]:
    """What dataset.json says of the n tasks in dataset.jsonl, none twice. Raises EnvsimError, also where the
    configuration has too few tasks that differ.

    ``measurement`` is of all that was drawn: what the configuration gives, whatever a choice takes of it.
    """
    config = work.config(layout.in_stage(stage, "config.json"))
    seed = work.seed(stage, "dataset")
    effort = KNOWN_EFFORT if stage > 0 else 1.0
    settings = work.profile.selection
    drawn = n if settings is None else candidates_needed(n, settings)

    def make() -> dict[str, Any]:
        with work.clock.span("instances"), work.reporter.bar("generating tasks") as update:
            generated = work.environment.generate(config, drawn, seed, effort=effort, progress=update)
        instances: Sequence[Any] = generated.instances
        found = {}
        if settings is not None:
            instances, record = chosen(work, stage, n, current, settings, instances)
            found = {"selection": record.model_dump(mode="json")}
        refuse_repeats(work, instances)
        written = write_dataset(instances, work.run.path(layout.in_stage(stage, "dataset.jsonl")))
        measurement = generated.measurement.model_dump(mode="json")
        return {"n": n, "sha256": written.sha256, "measurement": measurement, **found}

    inputs = {"config": config.model_dump(mode="json"), "n": n, "seed": seed}
    if settings is not None:
        inputs |= {"selection": settings.model_dump(mode="json"), "policy": current["sha256"]}
    return dict(work.run.once(layout.in_stage(stage, "dataset.json"), inputs, make))


def refuse_repeats(work: Work, instances: Sequence[Any]) -> None:
    """A stage makes one pass over tasks that differ; an environment whose space runs out repeats some.

    Raises EnvsimError.
    """
    differ = len({canonical_hash(work.environment.prompt(one, work.profile.style)) for one in instances})
    if differ < len(instances):
        raise EnvsimError(
            f"only {differ} of {len(instances)} tasks differ: the configuration has too few; spread the data over more "
            "cells, let their knobs vary, or train fewer steps"
        )


def chosen(  # noqa: PLR0917
    work: Work, stage: int, n: int, current: Pointer, settings: SelectionSettings, candidates: Sequence[Any]
) -> tuple[list[Any], Selection]:
    """The tasks that the current policy sometimes solves; what it costs to find them is booked as a probe."""
    policy = work.policy(current)
    asked = canonical_hash([current["sha256"], *(candidate.hash for candidate in candidates)])
    with work.clock.span("evaluation"), work.reporter.bar("choosing tasks") as update:
        instances, record = select(
            policy,
            work.environment,
            candidates,
            n,
            settings=settings,
            group=work.profile.grpo.group,
            model_sha256=current["sha256"],
            style=work.profile.style,
            generation=work.profile.generation,
            directory=work.run.path(layout.selection_dir(stage, asked)),
            seed=work.seed(stage, "selection"),
            progress=update,
        )
    work.reporter.line(str(record), indent=2)
    work.reporter.event("selected", stage=stage, **record.model_dump(mode="json", exclude={"schema_version"}))
    return instances, record
