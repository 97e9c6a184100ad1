"""Is the difference real: paired bootstrap of a macro score, McNemar's exact test, Holm's correction, Wilson's
interval.

All scores are shares in [0, 1]; all tests are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from pydantic import Field

from trainer.spec import Frozen


class PairedChange(Frozen):
    """Change of a macro score, after minus before, with its bootstrap standard error and percentile interval."""

    delta: float
    standard_error: float = Field(ge=0)
    low: float
    high: float
    n: int


class McNemar(Frozen):
    """Pairs that rose and that fell (wrong -> right and back), exact probability of a split at least as uneven."""

    gained: int
    lost: int
    p_value: float


def paired_bootstrap(
    before: Sequence[float],
    after: Sequence[float],
    cells: Sequence[str],
    *,
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> PairedChange:
    """Change of the mean over cells, resampling tasks with replacement inside each cell.

    Args:
        before: score of each task before, in [0, 1].
        after: score of the same tasks after, in the same order.
        cells: cell of each task.
        seed: the same seed gives the same numbers.
        resamples: bootstrap samples.
        confidence: mass of the interval.

    Raises:
        ValueError: the sequences are empty or of different lengths.

    References:
        Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 6 and 13.
    """
    if not before or not len(before) == len(after) == len(cells):
        raise ValueError(
            f"pairs needed: got {len(before)} scores before, {len(after)} after and {len(cells)} cells; expected equal "
            "and positive lengths"
        )
    difference = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    labels = np.asarray(cells)
    generator = np.random.default_rng(seed)
    groups = [difference[labels == cell] for cell in sorted(set(cells))]
    delta = float(np.mean([group.mean() for group in groups]))
    totals = np.zeros(resamples)
    for group in groups:
        # How often each distinct difference is drawn is multinomial, so no (resamples, n) index matrix is needed.
        values, counts = np.unique(group, return_counts=True)
        drawn = generator.multinomial(len(group), counts / len(group), size=resamples)
        totals += drawn @ values / len(group)
    totals /= len(groups)
    tail = (1 - confidence) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    return PairedChange(
        delta=delta, standard_error=float(totals.std(ddof=1)), low=float(low), high=float(high), n=len(before)
    )


def mcnemar(before: Sequence[float], after: Sequence[float]) -> McNemar:
    """McNemar's exact test: under no change each discordant pair is a fair coin. Of scores that are more than right and
    wrong it is the sign test.

    Raises:
        ValueError: the sequences differ in length.

    References:
        McNemar 1947; the exact form is the two-sided binomial test with p = 1/2. The sign test: Dixon and Mood 1946.
    """
    if len(before) != len(after):
        raise ValueError(f"pairs needed: got {len(before)} outcomes before and {len(after)} after")
    gained = sum(x < y for x, y in zip(before, after, strict=True))
    lost = sum(x > y for x, y in zip(before, after, strict=True))
    n, k = gained + lost, min(gained, lost)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    # Integers throughout: the quotient is exact where floats would underflow.
    return McNemar(gained=gained, lost=lost, p_value=min(1.0, 2 * tail / 2**n))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P values adjusted for having looked at all of them; they control the family-wise error rate.

    References:
        Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) for no trials.

    Raises:
        ValueError: not 0 <= successes <= n.

    References:
        Wilson 1927.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials; expected 0 <= successes <= n")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # The ends at 0 and n successes are exact in theory and off by a rounding here.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))
