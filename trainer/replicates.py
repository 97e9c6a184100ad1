"""Is the difference between two arms real: what repeated runs say, paired by seed and by instance.

An arm is a matrix a cell, of shape (seeds, instances in the cell): the scores of one run a row. All runs answer the
same instances, so seeds and instances are crossed, and the two arms of a contrast share both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainer.spec import Frozen

Floats = NDArray[np.float64]
Arm = Mapping[str, Floats]
"""Cell -> scores of shape (seeds, instances); the seeds in the same order in every cell."""
Statistic = Callable[[Floats], Floats]
"""From shares of shape (..., seeds, cells) to one number for each of the leading places."""
MOST_FLIPS = 20
"""Differences for which all signs are tried: a million of them."""


class Effect(Frozen):
    """Treatment minus control with its bootstrap standard error and interval."""

    delta: float
    standard_error: float = Field(ge=0)
    low: float
    high: float
    seeds: int
    instances: int


class PairedTest(Frozen):
    """Of paired differences: their mean, standard deviation, t interval, and two probabilities under no effect."""

    mean: float
    sd: float = Field(ge=0)
    low: float
    high: float
    n: int
    p_t: float
    """Student's paired t test, two-sided."""
    p_signs: float
    """Exact randomisation test: the share of all choices of signs with a mean at least as far from 0."""


def macro(shares: Floats) -> Floats:
    """Mean over seeds and cells."""
    return np.asarray(shares.mean(axis=(-2, -1)))


def worst_decile(shares: Floats) -> Floats:
    """Mean of the lowest tenth of all pairs of seed and cell, at least one: the conditional value at risk at 10 %.

    References:
        Rutherford et al., No Regrets, 2024 (arXiv 2408.15099), which reports it over levels.
    """
    flat = np.sort(shares.reshape(*shares.shape[:-2], -1), axis=-1)
    worst = max(1, math.ceil(flat.shape[-1] / 10))
    return np.asarray(flat[..., :worst].mean(axis=-1))


def crossed_bootstrap(
    treatment: Arm,
    control: Arm,
    *,
    seed: int,
    statistic: Statistic = macro,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Effect:
    """Effect of an arm beside another on a statistic of their shares by seed and cell.

    Seeds are drawn with replacement, the same for both arms; then instances inside each cell, the same for both arms
    and all seeds, because the runs have them in common. What varies from run to run and instance to instance alike is
    in the draw of the seeds already; by it the differences between instances are shrunk, or it would count twice. The
    percentiles are those that give a mean of so few seeds the width of Student's interval.

    Args:
        treatment: scores in [0, 1].
        control: of the same seeds and instances in the same order.
        seed: the same seed gives the same numbers.
        statistic: what is compared, ``macro`` or ``worst_decile``.
        resamples: bootstrap samples.
        confidence: mass of the interval.

    Raises:
        ValueError: the arms do not pair, or there are fewer than two seeds.

    References:
        Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8, for nested resampling and its
        shrinkage; Owen, The pigeonhole bootstrap, 2007, for what crossed data do to it; Hesterberg, What teachers
        should know about the bootstrap, 2015, section 5.3, for the expanded percentiles.
    """
    seeds, sizes = _paired_shape(treatment, control)
    if seeds < 2:
        raise ValueError("1 seed says nothing of the spread over seeds; expected at least 2")
    cells = sorted(treatment)
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, seeds, size=(resamples, seeds))
    seen = [np.stack([arm[cell].mean(axis=1) for cell in cells], axis=-1) for arm in (treatment, control)]
    moved = np.stack([_instance_moves(treatment[c] - control[c], generator, resamples) for c in cells], axis=-1)
    # Half each, so that the arms can change places.
    half = moved[:, None, :] / 2
    differences = statistic(seen[0][drawn] + half) - statistic(seen[1][drawn] - half)
    tail = expanded_tail(seeds, confidence)
    low, high = np.quantile(differences, [tail, 1 - tail])
    return Effect(
        delta=float(statistic(seen[0]) - statistic(seen[1])),
        standard_error=float(differences.std(ddof=1)),
        low=float(low),
        high=float(high),
        seeds=seeds,
        instances=sum(sizes.values()),
    )


def _instance_moves(difference: Floats, generator: np.random.Generator, resamples: int) -> Floats:
    """What drawing the instances of a cell again moves its mean difference by, shape (resamples,).

    ``difference`` is of shape (seeds, instances). The means of instances are shrunk to the variance that they have
    beyond what chance from run to run gives the mean of so many runs.
    """
    seeds, n = difference.shape
    if n < 2:
        return np.zeros(resamples)
    by_instance = difference.mean(axis=0)
    own = by_instance - by_instance.mean()
    rest = difference - by_instance - difference.mean(axis=1, keepdims=True) + difference.mean()
    chance = float((rest**2).sum()) / ((seeds - 1) * (n - 1)) / seeds
    variance = float(own.var(ddof=1))
    shrunk = own * math.sqrt(max(0.0, 1 - chance / variance)) if variance > 0 else own
    return np.asarray(generator.multinomial(n, np.full(n, 1 / n), size=resamples) @ shrunk / n)


def _paired_shape(treatment: Arm, control: Arm) -> tuple[int, dict[str, int]]:
    shapes = [{cell: scores.shape for cell, scores in arm.items()} for arm in (treatment, control)]
    if not shapes[0] or shapes[0] != shapes[1] or len({shape[0] for shape in shapes[0].values()}) != 1:
        raise ValueError(f"the arms do not pair: (seeds, instances) by cell are {shapes[0]} and {shapes[1]}")
    return next(iter(shapes[0].values()))[0], {cell: shape[1] for cell, shape in shapes[0].items()}


def expanded_tail(n: int, confidence: float = 0.95) -> float:
    """The tail mass at which a bootstrap of n values is cut, so that its interval is as wide as Student's.

    References:
        Hesterberg 2015, section 5.3: Phi(-sqrt(n / (n - 1)) t).
    """
    return NormalDist().cdf(-math.sqrt(n / (n - 1)) * t_quantile((1 + confidence) / 2, n - 1))


def paired_test(differences: Sequence[float], confidence: float = 0.95) -> PairedTest:
    """Whether differences of pairs, one a seed, have mean 0.

    Raises:
        ValueError: fewer than two differences.

    References:
        Student 1908; Fisher, The Design of Experiments, 1935, section 21, for the randomisation test.
    """
    n = len(differences)
    if n < 2:
        raise ValueError(f"{n} difference says nothing of the spread; expected at least 2")
    values = np.asarray(differences, dtype=float)
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    error = sd / math.sqrt(n)
    half = t_quantile((1 + confidence) / 2, n - 1) * error
    p_t = (1.0 if mean == 0 else 0.0) if error == 0 else 2 * t_cdf(-abs(mean / error), n - 1)
    return PairedTest(
        mean=mean, sd=sd, low=mean - half, high=mean + half, n=n, p_t=min(1.0, p_t), p_signs=sign_flips(differences)
    )


def sign_flips(differences: Sequence[float]) -> float:
    """The exact two-sided probability of a mean so far from 0 if each difference is as likely to be its opposite.

    Raises:
        ValueError: more differences than ``MOST_FLIPS``.
    """
    if len(differences) > MOST_FLIPS:
        raise ValueError(f"{len(differences)} differences have too many choices of signs; expected <= {MOST_FLIPS}")
    values = np.asarray(differences, dtype=float)
    signs = np.array(list(product((1.0, -1.0), repeat=len(values))))
    totals = np.abs(signs @ values)
    # Sums of the same numbers in another order differ by a rounding.
    return float(np.mean(totals >= totals[0] - 1e-12 * max(1.0, float(np.abs(values).sum()))))


def detectable(sd: float, n: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest true mean of n paired differences that a two-sided t test finds with the given power.

    Args:
        sd: standard deviation of the differences.
        n: pairs.
        alpha: level of the test.
        power: probability of finding it.

    Raises:
        ValueError: n < 2.

    References:
        Bloom, Minimum detectable effects, Evaluation Review 19, 1995: (t_(1 - alpha/2) + t_power) sd / sqrt(n).
    """
    if n < 2:
        raise ValueError(f"{n} pair has no t test; expected at least 2")
    return (t_quantile(1 - alpha / 2, n - 1) + t_quantile(power, n - 1)) * sd / math.sqrt(n)


def t_cdf(t: float, freedom: int) -> float:
    """Student's distribution function for whole degrees of freedom, in closed form.

    References:
        Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine**2 * 2 * k / (2 * k + 1)
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k - 1) / (2 * k)
        inside = math.sin(angle) * total
    return min(1.0, max(0.0, (1 + inside) / 2))


def t_quantile(probability: float, freedom: int) -> float:
    """The inverse of ``t_cdf``, by bisection.

    Raises:
        ValueError: the probability is not strictly between 0 and 1, or there is no degree of freedom.
    """
    if not 0 < probability < 1 or freedom < 1:
        raise ValueError(f"quantile {probability} of {freedom} degrees of freedom; expected 0 < p < 1 and >= 1")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2
