"""Spend the backward pass only where there is a gradient: rows of a group that all earned the same weigh nothing.

Under the ``dapo`` loss with no KL term a row with advantage 0 adds exactly 0 to the loss, whose divisor counts all
tokens of the batch and stays as it is. Dropping such rows, sorting the rest by length and cutting the padding leaves
the gradient as it was, up to the order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Batch = dict[str, torch.Tensor]
_PROMPT = ("prompt_ids", "prompt_mask")
_COMPLETION = ("completion_ids", "completion_mask")
KEYS = frozenset((*_PROMPT, *_COMPLETION, "advantages", "num_items_in_batch"))
"""What a batch may hold; one with more, such as another sampler's log-probabilities, is not for compaction."""


def compact(batches: Sequence[Batch], *, at_least: int = 0) -> list[Batch]:
    """The same number of micro-batches with the same gradient and less in them.

    Args:
        batches: micro-batches of one optimizer step: prompts (rows, P) padded on the left, completions (rows, C) padded
            on the right, advantages (rows,), and the number of completion tokens in all of them.
        at_least: rows to keep; where fewer carry a gradient, weightless ones fill up.

    Raises:
        ValueError: a batch holds other keys than `KEYS`.
    """
    if any(set(batch) != KEYS for batch in batches):
        raise ValueError(f"cannot compact batches of {[sorted(batch) for batch in batches]}; expected {sorted(KEYS)}")
    whole = {key: torch.cat([batch[key] for batch in batches]) for key in (*_PROMPT, *_COMPLETION, "advantages")}
    weighs = whole["advantages"] != 0
    lengths = whole["completion_mask"].sum(dim=1)
    # Rows of weight first; weightless ones fill up micro-batches that would be empty.
    rows = torch.argsort(torch.where(weighs, lengths, lengths.max() + 1), stable=True)
    rows = rows[: max(int(weighs.sum()), len(batches), at_least)]
    return [
        _cut({key: tensor[chunk] for key, tensor in whole.items()}, batches[0])
        for chunk in rows.tensor_split(len(batches))
    ]


def _cut(rows: Batch, first: Batch) -> Batch:
    prompt = int(rows["prompt_mask"].sum(dim=1).max())
    completion = int(rows["completion_mask"].sum(dim=1).max())
    return {
        "advantages": rows["advantages"],
        "num_items_in_batch": first["num_items_in_batch"],
        **{key: rows[key][:, rows[key].shape[1] - prompt :] for key in _PROMPT},
        **{key: rows[key][:, :completion] for key in _COMPLETION},
    }
