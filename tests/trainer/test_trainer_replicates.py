"""Laws of the statistics over repeated runs: tables, invariances, and coverage where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.replicates import (
    Floats,
    crossed_bootstrap,
    detectable,
    expanded_tail,
    macro,
    paired_test,
    sign_flips,
    t_cdf,
    t_quantile,
    worst_decile,
)

differences = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=2, max_size=9)


def arms(
    generator: np.random.Generator, *, seeds: int = 8, n: int = 24, effect: float = 0.08, spread: float = 0.03
) -> list[dict[str, Floats]]:
    """Two arms with a known true effect, whose runs differ by seed and whose instances differ in difficulty."""
    found: list[dict[str, Floats]] = [{}, {}]
    own = [generator.normal(0, spread, seeds) for _ in range(2)]
    for cell, base in {"3x3": 0.6, "5x5": 0.45, "8x8": 0.35}.items():
        hard = generator.uniform(-0.1, 0.1, n)
        for arm, (scores, shift) in enumerate(zip(found, (effect, 0.0), strict=True)):
            chance = np.clip(base + shift + own[arm][:, None] + hard[None, :], 0, 1)
            scores[cell] = (generator.random((seeds, n)) < chance).astype(float)
    return found


@pytest.mark.parametrize(
    ("freedom", "probability", "quantile"),
    [
        (1, 0.975, 12.7062),
        (2, 0.975, 4.3027),
        (7, 0.975, 2.3646),
        (8, 0.95, 1.8595),
        (7, 0.8, 0.8960),
        (30, 0.995, 2.75),
    ],
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, probability: float, quantile: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(quantile, abs=1e-4)
    assert t_quantile(1 - probability, freedom) == pytest.approx(-quantile, abs=1e-4)


@given(st.floats(-30, 30), st.integers(1, 60))
def test_students_distribution_is_one(t: float, freedom: int) -> None:
    assert t_cdf(t, freedom) + t_cdf(-t, freedom) == pytest.approx(1)
    assert t_cdf(t, freedom) <= t_cdf(t + 0.1, freedom) + 1e-12


@given(st.floats(0.001, 0.999), st.integers(1, 40))
def test_quantile_inverts_the_distribution(probability: float, freedom: int) -> None:
    assert t_cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize(("probability", "freedom"), [(0, 3), (1, 3), (0.5, 0)])
def test_no_quantile_outside(probability: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="expected 0 < p < 1"):
        t_quantile(probability, freedom)


def test_a_known_paired_test() -> None:
    # Student's own sleep data: t = 4.0621 on 9 degrees of freedom, p = 0.002833.
    test = paired_test([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert test.p_t == pytest.approx(0.002833, abs=1e-6)
    assert (test.low, test.high) == pytest.approx((0.70011, 2.45989), abs=1e-4)
    assert test.p_signs == pytest.approx(4 / 1024)


def test_all_of_one_sign_is_the_smallest_exact_probability() -> None:
    assert sign_flips([0.1] * 8) == 2 / 256
    assert sign_flips([0.0] * 8) == 1
    with pytest.raises(ValueError, match="too many choices"):
        sign_flips([0.1] * 21)


@given(differences)
def test_tests_do_not_care_for_order_or_side(values: list[float]) -> None:
    test, back, turned = paired_test(values), paired_test([-x for x in values]), paired_test(values[::-1])
    assert (test.mean, test.low) == pytest.approx((-back.mean, -back.high), abs=1e-12)
    assert test.p_t == pytest.approx(back.p_t)
    assert test.p_signs == pytest.approx(back.p_signs) == pytest.approx(turned.p_signs)
    assert 0 <= test.p_t <= 1
    assert 2 / 2 ** len(values) <= test.p_signs <= 1


@pytest.mark.parametrize("values", [[], [0.1]])
def test_one_difference_is_no_test(values: list[float]) -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        paired_test(values)


def test_what_is_called_detectable_is_detected_as_often() -> None:
    generator = np.random.default_rng(5)
    effect = detectable(0.02, 8, power=0.8)
    found = [paired_test(generator.normal(effect, 0.02, 8).tolist()).p_t <= 0.05 for _ in range(3000)]
    # Bloom's formula takes two t quantiles for a non-central one.
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)
    assert detectable(0.02, 32) < effect
    with pytest.raises(ValueError, match="expected at least 2"):
        detectable(0.02, 1)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """At 95 %, over fresh seeds and fresh instances, whether it is the runs that differ or chance alone."""
    for spread in (0.0, 0.03, 0.06):
        generator = np.random.default_rng(11)
        hits = []
        for draw in range(400):
            effect = crossed_bootstrap(*arms(generator, spread=spread), seed=draw, resamples=1000)
            hits.append(effect.low <= 0.08 <= effect.high)
        # Three standard errors of 400 draws.
        assert np.mean(hits) == pytest.approx(0.95, abs=0.033)


def test_under_no_effect_the_tests_err_as_often_as_they_say() -> None:
    generator = np.random.default_rng(3)
    found = []
    for _ in range(1500):
        treatment, control = arms(generator, effect=0.0, n=6)
        by_seed = np.mean([treatment[cell].mean(axis=1) - control[cell].mean(axis=1) for cell in control], axis=0)
        test = paired_test(by_seed.tolist())
        found.append((test.p_t <= 0.05, test.p_signs <= 0.05))
    by_student, by_signs = np.mean(found, axis=0)
    assert by_student == pytest.approx(0.05, abs=0.02)
    # Means that tie count against an effect.
    assert 0.01 <= by_signs <= 0.07


@given(st.integers(0, 2**32), st.integers(2, 6), st.sampled_from([macro, worst_decile]))
def test_the_bootstrap_is_reproducible_and_has_two_sides(seed: int, seeds: int, statistic: object) -> None:
    treatment, control = arms(np.random.default_rng(seed), seeds=seeds, n=5)
    kind = {"statistic": statistic, "resamples": 200}
    effect = crossed_bootstrap(treatment, control, seed=seed, **kind)  # type: ignore[arg-type]
    assert effect == crossed_bootstrap(treatment, control, seed=seed, **kind)  # type: ignore[arg-type]
    back = crossed_bootstrap(control, treatment, seed=seed, **kind)  # type: ignore[arg-type]
    assert (back.delta, back.low, back.high) == pytest.approx((-effect.delta, -effect.high, -effect.low), abs=1e-9)
    assert effect.low <= effect.high
    assert (effect.seeds, effect.instances) == (seeds, 15)


def test_an_arm_beside_itself_has_no_effect() -> None:
    arm = arms(np.random.default_rng(0))[0]
    effect = crossed_bootstrap(arm, arm, seed=0, resamples=100)
    assert effect.delta == effect.low == effect.high == effect.standard_error == 0


def test_the_effect_is_the_macro_mean_however_many_instances_a_cell_has() -> None:
    treatment = {"a": np.ones((2, 100)), "b": np.zeros((2, 3))}
    control = {"a": np.zeros((2, 100)), "b": np.zeros((2, 3))}
    assert crossed_bootstrap(treatment, control, seed=0, resamples=50).delta == 0.5


def test_seeds_that_differ_widen_the_interval() -> None:
    generator = np.random.default_rng(2)
    calm, wild = (arms(generator, spread=spread) for spread in (0.0, 0.12))
    narrow, wide = (crossed_bootstrap(*pair, seed=0, resamples=2000) for pair in (calm, wild))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_the_worst_decile_is_the_mean_of_the_lowest_tenth() -> None:
    shares = np.arange(20, dtype=float).reshape(4, 5) / 20
    assert worst_decile(shares) == pytest.approx((0 + 0.05) / 2)
    assert worst_decile(np.array([[0.3, 0.1]])) == pytest.approx(0.1)
    assert worst_decile(np.stack([shares, shares])).shape == (2,)


def test_tails_grow_to_the_plain_ones() -> None:
    tails = [expanded_tail(n) for n in (2, 4, 8, 30, 1000)]
    assert tails == sorted(tails)
    assert tails[-1] == pytest.approx(0.025, abs=3e-4)
    assert math.isclose(expanded_tail(8), 0.00574, abs_tol=2e-4)


@pytest.mark.parametrize(
    "control",
    [{}, {"a": np.zeros((2, 4))}, {"a": np.zeros((3, 3))}, {"b": np.zeros((2, 3))}],
)
def test_arms_that_do_not_pair_are_refused(control: dict[str, Floats]) -> None:
    with pytest.raises(ValueError, match="do not pair"):
        crossed_bootstrap({"a": np.zeros((2, 3))}, control, seed=0)


def test_one_seed_has_no_interval() -> None:
    arm = {"a": np.zeros((1, 3))}
    with pytest.raises(ValueError, match="expected at least 2"):
        crossed_bootstrap(arm, arm, seed=0)
