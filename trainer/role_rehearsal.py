"""What a stage of GRPO rehearses beside its tasks: role episodes, so that learning to plan costs no skill as a role.

Every so many optimizer steps a batch of episodes adds its gradient to the policy's. Its rows are shared out to all
micro-batches of all processes of the step, so that a pass holds few more rows than it would, and each part adds to the
loss of its own micro-batch: there is one backward pass where there was one. A part's loss is divided by the answer
tokens of the whole batch and, since gradients are averaged over processes, multiplied by their number: the parts add up
to the mean over the batch's tokens, whoever computes them.

Which episodes a step shows follows from the spec's seed and the step alone, so that a stage that goes on from a
checkpoint shows what it would have shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ConfigDict, Field, ValidationError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from envsim.api import Message
from trainer.dataset import DatasetError, frozen_lines
from trainer.files import hash_file, write_atomic
from trainer.frozen import Frozen, explain
from trainer.imitation import Row, answer_end, collate, row_of, summed_loss
from trainer.spec import DataRef, RoleRehearsal, StageSpec
from trainer.trained import TrainingInputError

ROLE_LOSS = "role_loss"
_DRAWS = 0x401E
"""Sets the order of episodes apart from what else is drawn with the spec's seed."""


class Episode(Frozen):
    """A role that is asked, and the right answer: a row of ``python -m agents.episodes``, whose other keys say more."""

    model_config = ConfigDict(extra="ignore")

    messages: list[Message] = Field(min_length=1)
    answer: str = Field(min_length=1)


def write_episodes(rows: Sequence[str], path: Path) -> DataRef:
    """Write episodes, each the JSON of one, as lines of a file that stages may rehearse from."""
    write_atomic(path, "".join(row + "\n" for row in rows))
    return DataRef(path=str(path), sha256=hash_file(path), n=len(rows))


def read_episodes(reference: DataRef) -> list[Episode]:
    """The episodes of a file, in its order, once its bytes are those of the reference.

    Raises:
        DatasetError: the file is missing, has other bytes or another count, or a line is no episode.
    """
    what = "the file of role episodes"
    lines = frozen_lines(reference, what, rows="episodes", remedy="write it with python -m agents.episodes")
    episodes = []
    for number, line in enumerate(lines, start=1):
        try:
            episodes.append(Episode.model_validate_json(line))
        except ValidationError as error:
            raise DatasetError(f"{what} {reference.path}, line {number} is no episode: {explain(error)}") from error
    return episodes


class Rehearsal:
    """The role episodes of a stage as tokens, and what a step is shown of them."""

    def __init__(self, spec: StageSpec, settings: RoleRehearsal, rows: Sequence[Row], pad_token: int) -> None:
        self._seed = spec.seed
        self._settings = settings
        self._rows = rows
        self._pad = pad_token

    def due(self, step: int) -> bool:
        """Whether an optimizer step, counted from 1, rehearses."""
        return step % self._settings.every == 0

    def rows(self, step: int) -> list[Row]:
        """What a step is shown, short rows first: every episode once in an order of its own, then every one again."""
        n, batch = len(self._rows), self._settings.batch
        first = (step // self._settings.every - 1) * batch
        orders = {turn: self._order(turn) for turn in {first // n, (first + batch - 1) // n}}
        shown = [self._rows[orders[place // n][place % n]] for place in range(first, first + batch)]
        return sorted(shown, key=lambda row: len(row[0]) + len(row[1]))

    def _order(self, turn: int) -> np.ndarray:
        return np.random.default_rng(np.random.SeedSequence([self._seed, _DRAWS, turn])).permutation(len(self._rows))

    def term(self, model: Any, step: int, part: int, parts: int, processes: int) -> torch.Tensor | None:
        """What a part of a step's batch adds to the loss of its micro-batch; None if the part is empty.

        ``parts`` counts the micro-batches of all processes together. Unweighted parts sum to the mean cross entropy
        times the number of processes.
        """
        shown = self.rows(step)
        own = [shown[index] for index in np.array_split(np.arange(len(shown)), parts)[part]]
        if not own:
            return None
        inputs = {name: tensor.to(model.device) for name, tensor in collate(own, self._pad).items()}
        loss, _, _ = summed_loss(model, inputs)
        return loss * processes / sum(len(answer) for _, answer in shown)

    @property
    def weight(self) -> float:
        return self._settings.weight


def rehearsal_of(spec: StageSpec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Rehearsal | None:
    """What the stage rehearses; None if it does not.

    Raises:
        TrainingInputError: the file of episodes is not as the spec says, or an episode is longer than the model reads.
    """
    settings = spec.role_rehearsal
    if settings is None:
        return None
    try:
        episodes = read_episodes(settings.data)
    except DatasetError as error:
        raise TrainingInputError(str(error)) from error
    end, arguments = answer_end(model, tokenizer), spec.generation.chat_template_kwargs
    rows = [
        row_of(tokenizer, episode.messages, episode.answer, end=end, template_arguments=arguments)
        for episode in episodes
    ]
    room = getattr(model.config, "max_position_embeddings", None)
    lengths = [len(prompt) + len(answer) for prompt, answer in rows]
    if room is not None and max(lengths) > room:
        raise TrainingInputError(
            f"the file of role episodes {settings.data.path}, line {1 + lengths.index(max(lengths))} has "
            f"{max(lengths)} tokens, expected at most the {room} that the model reads"
        )
    return Rehearsal(spec, settings, rows, tokenizer.pad_token_id)
