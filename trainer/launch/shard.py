"""``python -m trainer.launch.shard --spec FILE --directory DIR``: a checkpoint's answers to a part of a set.

A part is a run of whole chunks of the set in the order of `trainer.evaluate`, answered with the seeds that those chunks
have there, so that the parts together are what one evaluation would have given.
Exit codes: 0 done, 1 a server failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from envsim.api import EnvsimError, Style
from envsim.documents import DocumentError, read_text
from envsim.registry import get
from trainer.checkpoint import CheckpointError, verify
from trainer.dataset import DatasetError, read_dataset
from trainer.evaluate import EvaluationError, evaluate, in_order
from trainer.policy import OwnedPolicy, PolicyError
from trainer.serving.backends import open_policy
from trainer.serving.settings import AnyBackend, TransformersBackend, engine, usual
from trainer.spec import DataRef, Frozen, GenerationSettings, ModelRef, explain

SERVER = "server"
"""Folder of a server's log, beside what it answers."""


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
    backend: AnyBackend = Field(TransformersBackend(), exclude_if=usual)

    def policy(self, directory: Path) -> OwnedPolicy:
        """What answers for the checkpoint; a server that it may be has its log in the directory. To be closed.

        Raises:
            CheckpointError: the checkpoint does not load.
            PolicyError: a server does not come up.
        """
        return open_policy(
            self.backend,
            self.model,
            device=self.device,
            threads=self.threads,
            batch_size=self.batch_size,
            chat_template_kwargs=self.generation.chat_template_kwargs,
            directory=directory / SERVER,
        )


class ShardSpec(Frozen):
    """Instances ``first`` to ``last``, that one not included, of the set in its order."""

    plan: EvaluationPlan
    instances: DataRef
    first: int
    last: int


def answer(spec: ShardSpec, directory: Path) -> None:
    """Answer the part; it goes on where it stopped."""
    plan = spec.plan
    environment = get(plan.environment)
    instances = in_order(environment, read_dataset(environment, spec.instances), plan.style)
    verify(plan.model)
    policy = plan.policy(directory)
    try:
        evaluate(
            policy,
            environment,
            instances[spec.first : spec.last],
            set_name=plan.set,
            model_sha256=plan.model.sha256,
            style=plan.style,
            generation=plan.generation,
            directory=directory,
            samples=plan.samples,
            seed=plan.seed,
            first=spec.first,
            backend=engine(plan.backend),
        )
    finally:
        policy.close()


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
    except PolicyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
