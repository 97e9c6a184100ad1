"""Whether the tasks of a stage can be answered within its limit of tokens: a check with the environment's own answers.

What cannot be answered can earn nothing, and nothing else tells: every answer is cut off, every group earns the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from envsim.api import Environment, Instance, Style
from trainer.trained import TrainingInputError

SAMPLED = 8
"""Tasks with the longest prompts, and as many with the shortest, whose answers are measured."""


def check_room(
    environment: Environment, instances: Sequence[Instance], style: Style, tokenizer: PreTrainedTokenizerBase, room: int
) -> list[str]:
    """Warnings of tasks whose optimal answer, with the token that ends it, does not fit into ``room`` tokens.

    The tasks with the longest prompts stand for the largest. What a policy says before its answer comes on top.

    Raises:
        TrainingInputError: not even one of the tasks with the shortest prompts can be answered.
    """
    by_length = sorted(instances, key=lambda one: sum(len(m["content"]) for m in environment.prompt(one, style)))
    longest = _tokens(environment, by_length[-SAMPLED:], style, tokenizer)
    if (most := max(longest)) <= room:
        return []
    shortest = _tokens(environment, by_length[:SAMPLED], style, tokenizer)
    if (least := min(*shortest, *longest)) > room:
        raise TrainingInputError(
            f"generation.max_new_tokens is {room}, and the shortest optimal answer found needs {least} tokens: no task "
            f"can be solved; expected {most} or more for the largest"
        )
    lost = sum(tokens > room for tokens in longest)
    return [
        f"generation.max_new_tokens is {room}, and {lost} of the {len(longest)} largest tasks need up to {most} tokens "
        "for an optimal answer: they cannot be solved"
    ]


def _tokens(
    environment: Environment, instances: Sequence[Instance], style: Style, tokenizer: PreTrainedTokenizerBase
) -> list[int]:
    answers = [environment.reference_answer(instance, style) for instance in instances]
    return [len(ids) + 1 for ids in tokenizer(answers, add_special_tokens=False)["input_ids"]]
