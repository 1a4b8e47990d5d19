"""Judges of scaling laws: exponents, levels and one constant for all settings."""

import numpy as np
import pytest
from scipy import stats

from linfed.statistics.findings import Verdict
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import bootstrap_interval
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant, judge_predicted_exponent
from tests.statistics import verdict_rates

SIZES = np.array([1.0, 3.0, 10.0])
SAID = {"claim": "a law", "setting": "here"}


def measured_with(exponent, level=1.0):
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((40, 3)))
    return level * SIZES**exponent * noise


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


def test_a_predicted_exponent_has_the_interval_of_differences_that_are_resampled_together():
    measured, predicted = np.random.default_rng(0).lognormal(sigma=0.2, size=(2, 7, 3)) * [1.0, 1.5, 3.0]

    def difference(trials, axis=0):
        chosen = np.moveaxis(trials, axis, -1).astype(int)
        slopes = [
            np.polyfit(np.log(SIZES), np.log(np.median(one[chosen], axis=-2)).reshape(-1, 3).T, 1)[0]
            for one in (measured, predicted)
        ]
        return (slopes[0] - slopes[1]).reshape(chosen.shape[:-1])

    found = judge_predicted_exponent(SIZES, measured, predicted, tolerance=0.25, **SAID)
    own, theirs = fit_exponent(SIZES, measured)[0], fit_exponent(SIZES, predicted)[0]
    wanted = bootstrap_interval(difference, [np.arange(7.0)], vectorized=True, widened=True)
    assert (found.estimate, found.low, found.high) == pytest.approx((own - theirs, *wanted), abs=1e-12)
    assert (found.claimed_low, found.claimed_high, found.theorem) == (-0.25, 0.25, True)
    assert found.detail == f"measured {own:.3f}, predicted {theirs:.3f}"
    common = np.random.default_rng(1).lognormal(sigma=0.5, size=(9, 3))  # a prediction that follows the trial
    same = judge_predicted_exponent(SIZES, 2 * common, common, tolerance=0.25, **SAID)
    assert (same.estimate, same.low, same.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def of_points(ratios, number):
    """Return each point's own interval (number 1), or those of so many points together."""
    squares, trials = ratios**2, len(ratios)
    reach = stats.t.ppf(1 - 2 / 3 * 0.025 / number, (trials - 1) / 3) * stats.sem(squares) / squares.mean(axis=0)
    return np.sqrt(squares.mean(axis=0) * np.exp([[-1.0], [1.0]] * reach))


def test_a_level_is_judged_by_each_point_for_the_claim_and_by_all_together_against_it():
    ratios = np.exp(0.1 * np.random.default_rng(0).standard_normal((20, 3))) * [1.0, 1.3, 0.8]
    roots = np.sqrt((ratios**2).mean(axis=0))
    (low, high), (least, most) = of_points(ratios, 1), of_points(ratios, 3)
    assert (least < low).all()
    for claimed, wanted in (
        ((0.5, 2.0), (low.min(), high.max())),  # all points lie inside
        ((0.5, 1.3), (low.min(), high.max())),  # one may lie outside
        ((0.5, 1.1), (least.max(), high.max())),
        ((0.9, 2.0), (low.min(), most.min())),
    ):
        options = dict(zip(("claimed_low", "claimed_high"), claimed, strict=True))
        found = judge_farthest_off(2 * ratios, np.full(3, 2.0), **options, **SAID)
        assert (found.estimate, found.low, found.high) == pytest.approx((roots[1], *wanted), rel=1e-10)
        assert (found.claimed_low, found.claimed_high, found.theorem, found.note) == (*claimed, True, "")
    between = judge_farthest_off(
        ratios, np.ones(3), claimed_low=0.5, claimed_high=(low.max() + least.max()) / 2, **SAID
    )
    assert between.verdict is Verdict.INCONCLUSIVE  # one point alone would refute the claim


def test_one_constant_has_simultaneous_ends_against_the_claim_and_pairs_for_it():
    table = np.sort(np.random.default_rng(0).lognormal(sigma=0.2, size=(20, 3)) * [1.0, 1.5, 3.0], axis=0)
    found = judge_one_constant(table, claimed_high=4.0, claim="one constant", source="our prediction")
    medians = table[9]  # the lower ones, to which the ends belong

    def ends(tail):  # order statistics
        below = stats.binom.cdf(np.arange(20), 20, 0.5)
        return table[below <= tail][-1], table[below >= 1 - tail][0]

    (lows, highs), (least, most) = ends(0.025), ends(0.025 / 6)
    apart = [
        medians[i] / medians[j] * np.exp(np.hypot(np.log(highs[i] / medians[i]), np.log(medians[j] / lows[j])))
        for i in range(3)
        for j in range(3)
        if i != j
    ]
    wanted = (medians.max() / medians.min(), least.max() / most.min(), max(apart))
    assert (found.estimate, found.low, found.high) == pytest.approx(wanted, rel=1e-12)
    assert found.detail == f"constants from {medians.min():.3g} to {medians.max():.3g}"
    assert (found.claimed_high, found.theorem, found.setting, found.note) == (4.0, True, "3 settings", "")
    one = judge_one_constant(table[:, :1], claimed_high=4.0, claim="one constant", source="our prediction")
    assert (one.estimate, one.low, one.high) == (1.0, 1.0, 1.0)


def few(trials, points):
    """Return the findings of the three judges for ratios that are far from what is claimed."""
    ratios = np.exp(0.01 * np.random.default_rng(0).standard_normal((trials, points)))
    ratios[:, 0] *= 100.0
    x, said = np.arange(1.0, points + 1), SAID | {"note": "so it was"}
    return [
        judge_one_constant(ratios, claimed_high=2.0, source="our prediction", **said),
        judge_farthest_off(ratios, np.ones(points), claimed_low=0.5, claimed_high=2.0, **said),
        judge_predicted_exponent(x, ratios, np.ones((trials, points)), tolerance=0.1, **said),
    ]


def test_too_few_trials_decide_nothing_and_the_judge_says_so():
    for one in few(5, 3):
        assert one.verdict is Verdict.INCONCLUSIVE
        assert np.isinf(one.high)
        assert one.note == "so it was; 5 trials are too few for an interval, which needs 6"
    constant, farthest, exponent = few(8, 10)
    for one, points, wanted in ((constant, "10 settings", 10), (farthest, "10 points", 9)):
        assert one.verdict is Verdict.INCONCLUSIVE
        assert np.isfinite(one.high)
        assert one.note.startswith("so it was; 8 trials are too few to refute")
        assert one.note.endswith(f"{points}, which needs {wanted}")
    assert (exponent.verdict, exponent.note) == (Verdict.VIOLATED, "so it was")
    assert {one.verdict for one in few(10, 10)} == {Verdict.VIOLATED}


def test_judges_of_ratios_take_zeros_and_infinities_and_no_negative_values():
    ones = np.ones((8, 2))
    ranges, constant = {"claimed_low": 0.5, "claimed_high": 2.0}, {"claimed_high": 2.0, "source": "s", "claim": "c"}
    for bad in (-ones, ones - 2 * np.eye(8, 2)):
        for judged in (
            lambda bad=bad: judge_one_constant(bad, **constant),
            lambda bad=bad: judge_farthest_off(bad, ones, **ranges, **SAID),
            lambda bad=bad: judge_farthest_off(ones, bad, **ranges, **SAID),
        ):
            with pytest.raises(ValueError, match="contains -1, but must not be negative"):
                judged()
    for values in ([0.0, 1.0], [1.0, np.inf], [1.0, np.nan], [0.0, 0.0], [np.inf, np.inf]):
        table = ones * values
        found = [judge_one_constant(table, **constant), judge_farthest_off(table, ones, **ranges, **SAID)]
        for one in found:
            assert np.isnan(one.estimate) or one.low <= one.estimate <= one.high
            assert not np.isnan([one.low, one.high]).any()
            assert one.verdict not in (Verdict.HOLDS, Verdict.VACUOUS)
        assert np.isnan(found[0].estimate) or found[0].estimate == np.inf


@pytest.mark.long
@pytest.mark.parametrize(("name", "samples"), [
    ("judge_one_constant", 120),
    ("judge_farthest_off", 300),
    ("judge_predicted_exponent", 30),
    ("largest_factor", 20),
    ("line_findings", 300),
])  # fmt: skip
def test_verdicts_are_rarely_false_at_the_claimed_limit(name, samples):
    """`tests.statistics.verdict_rates` has more samples, trials and points; this errs with probability 1e-4."""
    for trials in (8, 20, 50):
        for points in (3, 10):
            for text, judged in verdict_rates.JUDGES[name]():
                for count in verdict_rates.rates(judged, trials, points, samples):
                    assert stats.binom.sf(count - 1, samples, verdict_rates.BAR) > 1e-5, (trials, points, text)


@pytest.mark.long
@pytest.mark.parametrize("trials", list(verdict_rates.POWER))
def test_judges_of_many_points_keep_their_power(trials):
    for count in verdict_rates.supported(trials, 30, 100):
        assert stats.binom.cdf(count, 100, 0.8) > 1e-3
