"""``python -m trainer.launch.shard --spec FILE --directory DIR``: a checkpoint's answers to a part of a set.

A part is a run of whole chunks of the set in the order of `trainer.evaluate`, answered with the seeds that those chunks
have there, so that the parts together are what one evaluation would have given. Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from envsim.api import EnvsimError, Message, Style
from envsim.documents import DocumentError, read_text
from envsim.registry import get
from trainer.checkpoint import CheckpointError, verify
from trainer.dataset import DatasetError, read_dataset
from trainer.evaluate import EvaluationError, evaluate, in_order
from trainer.policy import Completion, Policy, TransformersPolicy
from trainer.spec import DataRef, Frozen, GenerationSettings, ModelRef, explain


class EvaluationPlan(Frozen):
    """What the parts of an evaluation have in common."""

    environment: str
    style: Style
    set: str
    model: ModelRef
    generation: GenerationSettings
    samples: int
    seed: int
    device: Literal["cpu", "cuda"]
    threads: int
    batch_size: int

    def policy(self) -> TransformersPolicy:
        """The checkpoint in this process."""
        return TransformersPolicy(
            self.model,
            device=self.device,
            threads=self.threads,
            batch_size=self.batch_size,
            chat_template_kwargs=self.generation.chat_template_kwargs,
        )


class ShardSpec(Frozen):
    """Instances ``first`` to ``last``, that one not included, of the set in its order."""

    plan: EvaluationPlan
    instances: DataRef
    first: int
    last: int


class Shifted:
    """A policy whose seeds are those of a place further on in the set."""

    def __init__(self, policy: Policy, shift: int) -> None:
        self._policy = policy
        self._shift = shift

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        return self._policy.generate(
            prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            samples=samples,
            seed=seed + self._shift,
            schema=schema,
        )


def answer(spec: ShardSpec, directory: Path) -> None:
    """Answer the part; it goes on where it stopped."""
    plan = spec.plan
    environment = get(plan.environment)
    instances = in_order(environment, read_dataset(environment, spec.instances), plan.style)
    verify(plan.model)
    evaluate(
        Shifted(plan.policy(), spec.first),
        environment,
        instances[spec.first : spec.last],
        set_name=plan.set,
        model_sha256=plan.model.sha256,
        style=plan.style,
        generation=plan.generation,
        directory=directory,
        samples=plan.samples,
        seed=plan.seed,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.launch.shard", description=__doc__.partition("\n")[0])
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of a ShardSpec")
    parser.add_argument("--directory", type=Path, required=True, help="where the answers go")
    options = parser.parse_args(arguments)
    try:
        answer(ShardSpec.model_validate_json(read_text(options.spec)), options.directory)
    except ValidationError as error:
        print(f"--spec {options.spec} is no part of an evaluation: {explain(error)}", file=sys.stderr)
        return 2
    except (CheckpointError, DatasetError, DocumentError, EnvsimError, EvaluationError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
