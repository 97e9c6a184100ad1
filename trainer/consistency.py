"""Numbers that are each in range and yet cannot be trained with together."""

from __future__ import annotations

from trainer.failures import StageInputError
from trainer.launch.presets import unworkable
from trainer.spec import AnySpec, GenerationSettings, RewardWeights, RolloutSettings, SftSpec
from trainer.training_settings import GrpoSettings, OverlongPenalty


def contradiction(
    grpo: GrpoSettings,
    generation: GenerationSettings,
    rollouts: RolloutSettings,
    device: str,
    reward: RewardWeights,
) -> str | None:
    """Why numbers that are each in range cannot be trained with together, in one line; None if they can."""
    micro = grpo.micro_batch or grpo.batch
    if grpo.batch % grpo.group:
        return f"grpo.batch {grpo.batch} is no multiple of grpo.group {grpo.group}; groups must be whole"
    if grpo.batch % micro:
        return f"grpo.batch {grpo.batch} is no multiple of grpo.micro_batch {micro}"
    if generation.temperature == 0:
        return "generation.temperature is 0: greedy answers of a group are all alike; expected > 0"
    if rollouts.kind != "transformers" and device != "cuda":
        return f"rollouts {rollouts.kind} need device cuda, got {device}; use rollouts transformers"
    return None if grpo.overlong is None else _overlong_contradiction(grpo.overlong, generation, reward)


def _overlong_contradiction(
    overlong: OverlongPenalty, generation: GenerationSettings, reward: RewardWeights
) -> str | None:
    if overlong.cache >= generation.max_new_tokens:
        return (
            f"grpo.overlong.cache {overlong.cache} leaves no answer unpunished; expected less than "
            f"generation.max_new_tokens {generation.max_new_tokens}"
        )
    if overlong.weight >= reward.valid:
        return (
            f"grpo.overlong.weight {overlong.weight:g} makes a short wrong answer worth as much as a long valid one; "
            f"expected less than reward.valid {reward.valid:g}"
        )
    return None


def check_spec(spec: AnySpec) -> None:
    """Raises StageInputError for numbers that do not go together or would train nothing."""
    if isinstance(spec, SftSpec):
        # Whatever the numbers of a supervised stage, its tasks are shown again until they suffice.
        return
    grpo = spec.grpo
    if (why := contradiction(grpo, spec.generation, spec.rollouts, spec.device, spec.reward)) is not None:
        raise StageInputError(why)
    if spec.ranks is not None:
        lora = spec.lora is not None
        why = unworkable(spec.ranks, grpo, device=spec.device, rollouts=spec.rollouts.kind, lora=lora)
        if why is not None:
            raise StageInputError(why)
    if spec.role_rehearsal is not None and spec.role_rehearsal.every > grpo.steps:
        raise StageInputError(
            f"role_rehearsal.every {spec.role_rehearsal.every} exceeds grpo.steps {grpo.steps}: the stage would "
            "rehearse nothing"
        )
    needed = grpo.steps * grpo.batch // grpo.group
    if spec.dataset.n < needed:
        raise StageInputError(
            f"the dataset has {spec.dataset.n} prompts, expected at least {needed} = {grpo.steps} steps x {grpo.batch} "
            f"completions / {grpo.group} a prompt; generate more or train fewer steps"
        )
