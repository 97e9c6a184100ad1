"""What the tools of one role may touch, and nothing else of a run.

No file of a sealed set is in here: the validation failures are one file, evaluations come as aggregates of the open
sets, and tasks to try are drawn afresh from the probe split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsim.api import Environment, Progress, Style

if TYPE_CHECKING:
    # Whoever only reads role files need not wait for torch.
    from trainer.policy import Policy
    from trainer.spec import EvalReport, GenerationSettings


class OverBudget(ValueError):
    """A call that needs more of the policy's answers than the role may ask for."""


def no_progress(done: int, total: int) -> None:
    """For callers that show none."""


@dataclass(frozen=True)
class ToolContext:
    """The dependencies of a role's tools. Whatever costs something to have is a function."""

    environment: Environment
    config: Any
    """The last accepted configuration."""
    proposed: Any
    """This round's proposed configuration; None where there is none."""
    policy: Callable[[], Policy]
    """The current checkpoint."""
    style: Style
    generation: GenerationSettings
    """Answer length and temperature of a probe."""
    samples: int
    """Answers to each task of a probe."""
    seed: int
    failures: Path
    """The file of replayed validation failures of the current checkpoint."""
    history: Sequence[Mapping[str, Any]]
    """One entry a designed stage so far, oldest first."""
    evaluate: Callable[[str], EvalReport]
    """The current checkpoint's report on an open set."""
    max_rollouts: int
    """Answers of the policy that all calls together may ask for."""
    progress: Progress = no_progress
