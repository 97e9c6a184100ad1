"""The verifier's verdict as TRL reward functions: validity's credit, and optimality, weighted by the spec.

The validity reward is the verdict's ``credit``. Where actions are certain and the reward is sparse that is 0 or 1.
Under action noise a valid answer earns its probability of success; with shaping every answer earns its progress to the
first fault beside, so that a group without a valid answer still tells better from worse. Every valid answer earns more
than every invalid one to the same task, whatever the noise, the shaping and the bonus for optimality.

Shaping by potentials (a reward for each step, the difference of a potential between two states) is not offered: over a
whole answer it sums to the potential of the start, which is the same for all answers to a prompt, and group-relative
advantages subtract whatever is the same. There is no reward for format, length or effort; a stage may punish answers
near its limit of tokens (``grpo.overlong``), which costs a valid answer less than validity earns.

Where advantages are divided by the deviation of their group (``scale_rewards: group``), what a group lacks in spread is
made good: among answers that are all invalid the weight of progress cancels out, and tells only against a valid one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from envsim.api import Environment, Instance, Verdict
from trainer.spec import RewardWeights

INSTANCE_COLUMN = "instance"
"""Dataset column that carries the instance as a JSON string; nested columns would be None-filled by Arrow."""
VALID, SUCCESS, PROGRESS = "answers/valid", "answers/success", "answers/progress"
"""Names under which the shares and means of a batch are logged."""


class RewardFunction(Protocol):
    """TRL's contract: one float a completion; every dataset column arrives as a keyword of the same length."""

    __name__: str

    def __call__(
        self, *, completions: Sequence[list[dict[str, str]]], instance: Sequence[str], **columns: Any
    ) -> list[float]: ...


def reward_functions(environment: Environment) -> list[RewardFunction]:
    """``[valid, optimal]``, in the order of `reward_weights`; each completion is verified once for both.

    ``valid`` logs the `figures` of its batch through TRL's keyword ``log_metric`` where it is given, and through
    ``log_extra`` what the kept completions say beside their rewards.
    """
    batch: tuple[list[str], list[str]] = ([], [])
    verdicts: list[Verdict] = []
    tasks: dict[str, Instance] = {}

    def verify(completions: Sequence[list[dict[str, str]]], instance: Sequence[str]) -> list[Verdict]:
        nonlocal batch, verdicts, tasks
        wanted = (list(instance), [completion[-1]["content"] for completion in completions])
        if wanted != batch:
            tasks = {text: environment.instance_model.model_validate_json(text) for text in set(wanted[0])}
            batch = wanted
            verdicts = [environment.score(tasks[text], answer) for text, answer in zip(*wanted, strict=True)]
        return verdicts

    def valid(
        *,
        completions: Sequence[list[dict[str, str]]],
        instance: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[str]], None] | None = None,
        **_: Any,
    ) -> list[float]:
        found = verify(completions, instance)
        if log_extra is not None:
            log_extra("instance_id", [tasks[text].id for text in instance])
            log_extra("cell", [environment.cell(tasks[text]) for text in instance])
            log_extra("outcome", [verdict.outcome for verdict in found])
        if log_metric is not None:
            # One by one: TRL takes the mean over all calls of all processes, each of which sees its own rows alone.
            for name, values in figures(found).items():
                for value in values:
                    log_metric(name, value)
        return [verdict.credit for verdict in found]

    def optimal(*, completions: Sequence[list[dict[str, str]]], instance: Sequence[str], **_: Any) -> list[float]:
        return [float(verdict.optimal) for verdict in verify(completions, instance)]

    return [valid, optimal]


def figures(verdicts: Sequence[Verdict]) -> dict[str, list[float]]:
    """Whether each answer is valid; the success of the valid answers to noisy tasks and the progress of the answers to
    shaped tasks, each only where there are some."""
    success = [verdict.success for verdict in verdicts if verdict.success is not None]
    progress = [verdict.progress for verdict in verdicts if verdict.shaping > 0]
    found = {VALID: [float(verdict.valid) for verdict in verdicts], SUCCESS: success, PROGRESS: progress}
    return {name: values for name, values in found.items() if values}


def reward_weights(weights: RewardWeights) -> list[float]:
    """Weights in the order of `reward_functions`."""
    return [weights.valid, weights.optimal]
