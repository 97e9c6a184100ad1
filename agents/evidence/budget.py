"""Evidence that fits: what a prompt has no room for goes, the least telling first, until its tokens are few enough.

The order in which things go is fixed, so that the same evidence and the same room give the same prompt. What always
stays is the table of cells, the word that nothing is solved, and the tripwire that ended the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agents.schemas import Evidence, FailureCluster, FailureExample

Count = Callable[[Evidence], int]
"""Tokens of the whole prompt that shows this evidence."""
Step = Callable[[Evidence], Evidence]

SHORT = 120
"""Characters of a shortened answer or task."""


class BudgetError(ValueError):
    """Not even the least of the evidence fits."""

    def __init__(self, least: Evidence, tokens: int, budget: int) -> None:
        super().__init__(
            f"the least of the evidence takes {tokens} tokens, and there is room for {budget}; give the role's answer "
            "fewer tokens (limits.max_new_tokens), raise evidence.tokens, or take a model with a longer context"
        )
        self.least = least


def fit(evidence: Evidence, count: Count, budget: int) -> Evidence:
    """The evidence with as much as fits into ``budget`` tokens; the same object if all of it does.

    Raises BudgetError naming the budget and the least that is needed.
    """
    tokens, steps = count(evidence), _steps(evidence)
    while tokens > budget:
        step = next(steps, None)
        if step is None:
            break
        evidence = step(evidence)
        tokens = count(evidence)
    else:
        return evidence
    raise BudgetError(evidence, tokens, budget)


def _steps(evidence: Evidence) -> Iterator[Step]:
    """What goes, in this order."""
    yield lambda one: one.model_copy(update={"clusters": [_without_odd(cluster) for cluster in one.clusters]})
    yield _shortened
    yield lambda one: one.model_copy(update={"clusters": one.clusters[:2]})
    yield lambda one: one.model_copy(update={"statistics": []})
    yield from (_fewer_failures(n) for n in _halves(len(evidence.failures), 2))
    yield lambda one: one.model_copy(update={"anchor": {}})
    yield from (_shorter_history(n) for n in _halves(len(evidence.history), 1))
    yield lambda one: one.model_copy(update={"clusters": []})
    yield lambda one: one.model_copy(update={"training": None})
    yield _fewer_failures(0)
    yield _shorter_history(0)
    yield lambda one: one.model_copy(
        update={"cells": [cell.model_copy(update={"outcomes": {}}) for cell in one.cells], "outcomes": {}}
    )


def _halves(n: int, least: int) -> Iterator[int]:
    while n // 2 >= least:
        n //= 2
        yield n


def _fewer_failures(n: int) -> Step:
    return lambda one: one.model_copy(update={"failures": one.failures[:n]})


def _shorter_history(n: int) -> Step:
    """The latest stages stay."""
    return lambda one: one.model_copy(update={"history": one.history[len(one.history) - n :]})


def _without_odd(cluster: FailureCluster) -> FailureCluster:
    return cluster.model_copy(update={"odd": None})


def _shortened(evidence: Evidence) -> Evidence:
    return evidence.model_copy(
        update={
            "failures": [_short(one) for one in evidence.failures],
            "clusters": [one.model_copy(update={"typical": _short(one.typical)}) for one in evidence.clusters],
        }
    )


def _short(one: FailureExample) -> FailureExample:
    return one.model_copy(update={"answer": one.answer[:SHORT], "instance": one.instance[:SHORT]})
