"""Exponents of medians over trials, with bootstrap intervals."""

import numpy as np
import pytest

from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import bootstrap_interval
from tests.helpers import assert_one_line


@pytest.mark.parametrize("exponent", [-0.5, 2.0])
def test_an_exact_power_law_is_recovered(exponent):
    """At sizes in any order."""
    sizes = np.array([10.0, 3.0, 100.0, 21.0])
    found = fit_exponent(sizes, np.tile(7.0 * sizes**exponent, (6, 1)))
    np.testing.assert_allclose(found, exponent, rtol=0, atol=1e-12)


def test_trials_at_several_sizes_are_resampled_together():
    """What a trial has in common at all sizes does not move the exponent, and must not widen its interval."""
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    common = np.exp(np.random.default_rng(0).standard_normal((25, 1)))
    paired = fit_exponent(sizes, sizes**-0.5 * common)
    assert paired == pytest.approx((-0.5, -0.5, -0.5), abs=1e-12)
    _, low, high = fit_exponent(sizes, sizes**-0.5 * common, paired=False)
    assert high - low > 0.3


def test_an_exponent_is_the_slope_of_the_medians_and_their_resamples():
    sizes, table = np.array([2.0, 3.0, 7.0, 20.0]), np.random.default_rng(0).lognormal(size=(6, 4))

    def slope(*columns, axis=0):
        medians = [np.log(np.median(column, axis=axis)) for column in columns]
        logs = np.log(sizes)
        return sum((x - logs.mean()) * y for x, y in zip(logs, medians, strict=True)) / (4 * logs.var())

    assert slope(*table.T) == pytest.approx(np.polyfit(np.log(sizes), np.log(np.median(table, axis=0)), 1)[0])
    for options in ({}, {"paired": True}, {"paired": False}):
        pairs = options or {"paired": True}
        wanted = bootstrap_interval(slope, list(table.T), vectorized=True, resamples=500, **pairs)
        assert fit_exponent(sizes, table, **options) == pytest.approx((slope(*table.T), *wanted), rel=1e-10)


def test_two_trials_have_an_exponent_without_an_interval():
    assert fit_exponent([1, 4], [[1.0, 2.0]] * 2) == (pytest.approx(0.5), -np.inf, np.inf)


@pytest.mark.parametrize(
    ("x", "values", "fragment"),
    [
        ([1, 2, 4], [[1.0, 2.0]] * 3, "values has shape (3, 2)"),
        ([1, 2], [1.0, 2.0], "values has shape (2,)"),
        ([1, 4], [[1.0, 2.0]], "values has shape (1, 2)"),
        ([[1, 2]], [[1.0, 2.0]] * 3, "x has shape (1, 2)"),
        ([0, 2], [[1.0, 2.0]] * 3, "x contains 0"),
        ([1, 2], [[1.0, 2.0], [1.0, -2.0]], "values contains -2"),
        ([1, 2], [[1.0, np.nan]] * 3, "values"),
        ([1, np.inf], [[1.0, 2.0]] * 3, "x "),
        ([2, 2], [[1.0, 2.0]] * 3, "x = [2.0, 2.0]"),
    ],
)
def test_invalid_arguments_are_named(x, values, fragment):
    assert_one_line(lambda: fit_exponent(x, values), [fragment])
