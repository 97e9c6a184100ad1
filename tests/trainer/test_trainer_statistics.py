"""Laws of the statistics, and values known from elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.statistics import holm, mcnemar, paired_bootstrap, wilson

shares = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from(["3x3", "4x4", "5x5"])), min_size=1, max_size=60
)


@given(shares, st.integers(0, 2**32))
def test_bootstrap_is_centred_and_reproducible(rows: list[tuple[bool, bool, str]], seed: int) -> None:
    before, after, cells = (list(column) for column in zip(*rows, strict=True))
    change = paired_bootstrap(before, after, cells, seed=seed, resamples=500)
    assert change == paired_bootstrap(before, after, cells, seed=seed, resamples=500)
    assert change.low <= change.high
    by_cell = {cell: [y - x for x, y, c in rows if c == cell] for cell in set(cells)}
    assert change.delta == pytest.approx(sum(sum(d) / len(d) for d in by_cell.values()) / len(by_cell))
    back = paired_bootstrap(after, before, cells, seed=seed, resamples=500)
    assert back.delta == pytest.approx(-change.delta)


@given(shares)
def test_no_change_has_no_error(rows: list[tuple[bool, bool, str]]) -> None:
    before, _, cells = (list(column) for column in zip(*rows, strict=True))
    change = paired_bootstrap(before, before, cells, seed=0, resamples=50)
    assert change.delta == change.standard_error == change.low == change.high == 0


def test_standard_error_is_that_of_a_stratified_mean() -> None:
    generator = np.random.default_rng(0)
    cells = ["a"] * 100 + ["b"] * 400
    before = generator.random(500) < 0.5
    after = generator.random(500) < 0.6
    change = paired_bootstrap(before.tolist(), after.tolist(), cells, seed=1, resamples=20_000)
    difference = after.astype(float) - before
    expected = 0.5 * math.sqrt(difference[:100].var() / 100 + difference[100:].var() / 400)
    assert change.standard_error == pytest.approx(expected, rel=0.03)
    assert change.high - change.low == pytest.approx(2 * 1.96 * expected, rel=0.05)


def test_pairs_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs needed"):
        paired_bootstrap([1.0], [1.0, 0.0], ["a"], seed=0)
    with pytest.raises(ValueError, match="pairs needed"):
        mcnemar([True], [])


def test_mcnemar_counts_and_known_value() -> None:
    # 10 gained and 2 lost: 2 * (1 + 12 + 66) / 2**12.
    test = mcnemar([False] * 10 + [True] * 7, [True] * 10 + [False] * 2 + [True] * 5)
    assert (test.gained, test.lost) == (10, 2)
    assert test.p_value == pytest.approx(158 / 4096)


@given(st.integers(0, 500), st.integers(0, 500))
def test_mcnemar_is_symmetric_and_a_probability(gained: int, lost: int) -> None:
    before = [False] * gained + [True] * lost
    after = [not value for value in before]
    test = mcnemar(before, after)
    assert 0 < test.p_value <= 1
    assert test.p_value == mcnemar(after, before).p_value
    if abs(gained - lost) <= 1:
        assert test.p_value == 1


def test_holm_known_values() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_keeps_order_and_never_helps(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    for name, value in p_values.items():
        assert value <= adjusted[name] <= min(1.0, len(p_values) * value) + 1e-12 or adjusted[name] >= value
        assert all(adjusted[name] <= adjusted[other] for other in p_values if value < p_values[other])


def test_wilson_known_value() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="expected 0 <= successes"):
        wilson(3, 2)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share(trial: tuple[int, int]) -> None:
    successes, n = trial
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert (1 - high, 1 - low) == pytest.approx(wilson(n - successes, n))
