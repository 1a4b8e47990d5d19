"""Fitted exponents: exact laws, the coverage of the interval, and what is wrong is named."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from linfed.figures.laws import draw_law
from linfed.statistics.findings import Verdict
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import bootstrap_interval
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant, judge_predicted_exponent


@pytest.mark.parametrize("exponent", [-0.5, 2.0])
def test_an_exact_power_law_is_recovered(exponent):
    sizes = np.array([3.0, 10.0, 21.0, 100.0])
    found = fit_exponent(sizes, np.tile(7.0 * sizes**exponent, (5, 1)))
    np.testing.assert_allclose(found, exponent, rtol=0, atol=1e-12)


def test_sizes_come_in_any_order():
    assert fit_exponent([4, 2, 3], [[1, 2, 4 / 3]] * 5) == pytest.approx((-1.0, -1.0, -1.0))


def test_the_median_of_trials_is_fitted():
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    table = np.tile(sizes**-0.5, (9, 1))
    table[0], table[1] = 1e6, 1e-6  # two outliers in a row do not move the median
    table[2, 3] = 1e9
    assert fit_exponent(sizes, table)[0] == pytest.approx(-0.5, abs=1e-12)
    table[:5, 3] = 8.0
    assert fit_exponent(sizes, table)[0] > 0


def test_the_interval_covers_the_exponent_about_as_often_as_it_says():
    """Of 16 seeded tables 95 % should; 11 or fewer happen with probability below 1e-3."""
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    covered, widths = 0, []
    for seed in range(16):
        noise = np.exp(0.3 * np.random.default_rng(seed).standard_normal((25, 4)))
        _, low, high = fit_exponent(sizes, sizes**-0.5 * noise)
        covered += low <= -0.5 <= high
        widths.append(high - low)
    assert covered >= 12
    # Asymptotic width: 2 x 1.96 x sqrt(pi/2) 0.3 / sqrt(25) / sqrt(sum (log x - mean)^2).
    logs = np.log(sizes)
    wanted = 3.92 * np.sqrt(np.pi / 2) * 0.3 / 5 / np.sqrt(((logs - logs.mean()) ** 2).sum())
    assert np.mean(widths) == pytest.approx(wanted, rel=0.2)


def test_trials_at_several_sizes_are_resampled_together():
    """What a trial has in common at all sizes does not move the exponent, and must not widen its interval."""
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    common = np.exp(np.random.default_rng(0).standard_normal((25, 1)))
    paired = fit_exponent(sizes, sizes**-0.5 * common)
    assert paired == pytest.approx((-0.5, -0.5, -0.5), abs=1e-12)
    _, low, high = fit_exponent(sizes, sizes**-0.5 * common, paired=False)
    assert high - low > 0.3


def test_the_fit_is_a_function_of_its_input():
    table = np.exp(np.random.default_rng(0).standard_normal((8, 3)))
    kept = table.copy()
    assert fit_exponent([1, 2, 4], table) == fit_exponent([1, 2, 4], table)
    np.testing.assert_array_equal(table, kept)


@pytest.mark.parametrize(
    ("x", "values", "message"),
    [
        ([1, 2, 4], [[1.0, 2.0]] * 3, r"values has shape \(3, 2\)"),
        ([1, 2], [1.0, 2.0], r"values has shape \(2,\)"),
        ([[1, 2]], [[1.0, 2.0]] * 3, r"x has shape \(1, 2\)"),
        ([0, 2], [[1.0, 2.0]] * 3, r"x contains 0, but must be positive"),
        ([1, 2], [[1.0, 2.0], [1.0, -2.0]], r"values contains -2, but must be positive"),
        ([1, 2], [[1.0, np.nan]] * 3, r"values"),
        ([1, np.inf], [[1.0, 2.0]] * 3, r"x "),
        ([2, 2], [[1.0, 2.0]] * 3, r"x = \[2\.0, 2\.0\] must contain at least two different sizes"),
    ],
)
def test_what_is_wrong_is_named(x, values, message):
    with pytest.raises(ValueError, match=message):
        fit_exponent(x, values)


SIZES = np.array([1.0, 3.0, 10.0])
SAID = {"claim": "a law", "setting": "here"}


def measured_with(exponent, level=1.0):
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((40, 3)))
    return level * SIZES**exponent * noise


def test_a_predicted_exponent_is_judged_whatever_its_level():
    predicted = np.tile(SIZES**-0.5, (40, 1))
    for exponent, verdict in ((-0.5, Verdict.HOLDS), (-0.4, Verdict.VIOLATED), (-0.6, Verdict.VIOLATED)):
        found = judge_predicted_exponent(SIZES, measured_with(exponent, 7.0), predicted, margin=0.03, **SAID)
        assert found.verdict is verdict
        assert found.estimate == pytest.approx(exponent + 0.5, abs=0.01)


def test_a_predicted_level_is_judged_where_it_is_farthest_off():
    predicted = np.tile(SIZES**-0.5, (40, 1))
    for factors, ratio, verdict in (
        ((1.0, 1.0, 1.05), 1.05, Verdict.HOLDS),
        ((1.3, 1.0, 1.0), 1.3, Verdict.VIOLATED),
        ((1.3, 1.0, 0.5), 0.5, Verdict.VIOLATED),  # by its logarithm
    ):
        found = judge_farthest_off(measured_with(-0.5) * factors, predicted, claimed_low=0.9, claimed_high=1.1, **SAID)
        assert found.verdict is verdict
        assert found.estimate == pytest.approx(ratio, rel=0.01)


def test_one_constant_is_judged_by_the_spread_of_many():
    for factors, spread, verdict in (
        ((2.0, 2.2, 2.0), 1.1, Verdict.HOLDS),
        ((2.0, 6.0, 3.0), 3.0, Verdict.VIOLATED),
    ):
        ratios = measured_with(0.0) * factors
        found = judge_one_constant(ratios, claimed_high=1.5, source="our prediction", claim="one constant serves")
        assert (found.verdict, found.setting) == (verdict, "3 settings")
        assert found.estimate == pytest.approx(spread, rel=0.01)


def test_a_law_is_drawn_with_both_exponents():
    figure, ax = plt.subplots()
    draw_law(ax, SIZES, measured_with(-0.5), np.tile(2.0 * SIZES**-0.25, (40, 1)), method="FLUTE")
    assert [text.get_text() for text in ax.texts] == ["-0.50 (-0.25)"]
    assert ax.get_legend_handles_labels()[1] == ["predicted", "FLUTE, measured"]
    predicted, measured = ax.lines[1], ax.containers[0].lines[0]
    np.testing.assert_allclose(predicted.get_ydata(), 2.0 * SIZES**-0.25)
    np.testing.assert_allclose(measured.get_ydata(), SIZES**-0.5, rtol=0.01)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "3", "10"]
    plt.close(figure)


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


def test_two_trials_have_an_exponent_and_one_has_none():
    assert fit_exponent([1, 4], [[1.0, 2.0]] * 2) == (pytest.approx(0.5), -np.inf, np.inf)
    with pytest.raises(ValueError, match=r"values has shape \(1, 2\), but must have at least two trials"):
        fit_exponent([1, 4], [[1.0, 2.0]])


def test_judges_of_laws_take_their_intervals_from_paired_resamples():
    measured, predicted = np.random.default_rng(0).lognormal(sigma=0.2, size=(2, 7, 3)) * [1.0, 1.5, 3.0]
    options = {"paired": True, "vectorized": True, "resamples": 500}

    def farthest(*squares, axis=0):
        logs = np.log([np.mean(one, axis=axis) for one in squares]) / 2
        return np.exp(np.take_along_axis(logs, np.abs(logs).argmax(axis=0)[None], axis=0)[0])

    squares = list(((measured / predicted) ** 2).T)
    found = judge_farthest_off(measured, predicted, claimed_low=0.5, claimed_high=2.0, **SAID)
    wanted = (float(farthest(*squares)), *bootstrap_interval(farthest, squares, **options))
    assert (found.estimate, found.low, found.high) == pytest.approx(wanted, rel=1e-10)
    assert (found.claimed_low, found.claimed_high, found.theorem) == (0.5, 2.0, True)

    def spread(*columns, axis=0):
        medians = [np.median(one, axis=axis) for one in columns]
        return np.max(medians, axis=0) / np.min(medians, axis=0)

    said = {"claim": "one constant", "source": "our prediction"}
    found = judge_one_constant(measured, claimed_high=4.0, **said)
    wanted = (spread(*measured.T), *bootstrap_interval(spread, list(measured.T), **options))
    assert (found.estimate, found.low, found.high) == pytest.approx(wanted, rel=1e-10)
    least, most = np.sort(np.median(measured, axis=0))[[0, -1]]
    assert found.detail == f"constants from {least:.3g} to {most:.3g}"
    assert (found.claimed_high, found.theorem, found.setting) == (4.0, True, "3 settings")

    (estimate, low, high), own = fit_exponent(SIZES, measured), fit_exponent(SIZES, predicted)[0]
    found = judge_predicted_exponent(SIZES, measured, predicted, margin=0.25, **SAID)
    wanted = (estimate - own, low - own, high - own)
    assert (found.estimate, found.low, found.high) == pytest.approx(wanted, abs=1e-12)
    assert (found.claimed_low, found.claimed_high, found.theorem) == (-0.25, 0.25, True)
    assert found.detail == f"measured {estimate:.3f}, predicted {own:.3f}"
