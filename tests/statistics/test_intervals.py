"""Confidence intervals: equal to their formulas, and as wide as the independent units are few."""

import itertools

import numpy as np
import pytest
from scipy import stats

from linfed.statistics import intervals
from linfed.statistics.findings import Verdict, findings_table, judge, judge_failures, judge_share
from linfed.statistics.fits import fit_exponent, fit_power_law
from linfed.statistics.gains import factor_ratio, gain_ratio
from linfed.statistics.intervals import (
    as_factor,
    binomial_share,
    bootstrap_interval,
    clustered_share,
    fewest_trials,
    first_round_below,
    largest_factor,
    largest_of,
    least_passing,
    mean_factor,
    mean_interval,
    mean_ratio,
    median_interval,
    median_ratio,
    nan_as_worst,
    probability_smaller,
    quantile_interval,
    share_smaller,
    smallest_constant,
)
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant
from linfed.statistics.thresholds import line_findings
from tests.helpers import assert_one_line

SAID = {"claim": "c", "setting": "s", "statistic": "t", "source": "p"}
ERROR_RATE = 1e-4
"""Probability with which each comparison of a measured coverage fails although the interval covers as stated."""


def assert_covers(covered, tables, *, least=0.95):
    """Compare how many tables' intervals cover with the least probability that is stated."""
    assert stats.binomtest(covered, tables, least, "less").pvalue > ERROR_RATE, f"{covered} of {tables}"


def beta_binomial(rng, clusters, share, correlation, unequal, points=10):
    """Return hits (points,) and each one's cluster: shares of clusters are Beta, or the same, or 0 and 1."""
    sizes = np.maximum(1, np.rint(rng.gamma(1.0, points, clusters))).astype(int) if unequal else [points] * clusters
    if correlation in (0.0, 1.0):
        own = np.full(clusters, share) if correlation == 0.0 else rng.random(clusters) < share
    else:
        own = rng.beta(share * (1 / correlation - 1), (1 - share) * (1 / correlation - 1), clusters)
    index = np.repeat(np.arange(clusters), sizes)
    return rng.random(len(index)) < np.asarray(own)[index], index


def lower_middle(values, axis):
    """Return the lower median along an axis, from sorted values."""
    return np.take(np.sort(values, axis=axis), (values.shape[axis] - 1) // 2, axis=axis)


BAD_INPUT = {
    "recorded rounds": (lambda: first_round_below(lambda: 1, np.ones((2, 3)), 0.1), ["rounds must be an array"]),
    "curves without trials": (lambda: first_round_below([0, 1], [1.0, 2.0], 0.1), ["values has shape (2,)"]),
    "curves of other rounds": (lambda: first_round_below([0, 1], np.ones((4, 3)), 0.1), ["(4, 3)", "(trials, R)"]),
    "no threshold": (lambda: first_round_below([0], [[1.0]], None), ["threshold = None must be a finite number"]),
    "more hits than points": (lambda: binomial_share(3, 2), ["count = 3", "from 0 to 2"]),
    "a total that is no count": (lambda: binomial_share(0, -1), ["total = -1", "at least 0"]),
    "a level above 1": (lambda: binomial_share(1, 2, confidence=95), ["confidence = 95", "from 0 to 1"]),
    "pairs of one": (lambda: share_smaller([1.0, 2.0], [1.0]), ["second has shape (1,)", "the shape of first = (2,)"]),
    "words": (lambda: probability_smaller(["a"], [1.0]), ["first = ['a'] must be an array of numbers"]),
    "a number": (lambda: median_ratio(1.0, [1.0]), ["first has shape (), expected (trials,), at least one"]),
    "no trials": (lambda: median_interval([]), ["values has shape (0,), expected (trials,), at least one"]),
    "two axes": (lambda: mean_interval([[1.0]]), ["values has shape (1, 1), expected (trials,)"]),
    "points without clusters": (lambda: clustered_share([True]), ["hits has shape (1,), expected (clusters, points)"]),
    "points of clusters": (lambda: clustered_share([[True]], [1]), ["hits has shape (1, 1)", "as clusters is given"]),
    "too few clusters": (lambda: clustered_share([True, False], [1]), ["clusters has shape (1,)"]),
    "clusters of a judged share": (
        lambda: judge_share([True, False], 0.5, clusters=[1]),
        ["clusters has shape (1,), expected one for each of the 2 hits"],
    ),
    "masked hits": (lambda: clustered_share(np.ma.masked_array([[1, 0]], [[1, 0]])), ["hits", "masked"]),
    "hits of unequal clusters": (lambda: clustered_share([[1, 0], [1]]), ["hits = [[1, 0], [1]]", "different sizes"]),
    "one hit": (lambda: judge_share(True, 0.5), ["hits = True must be an array (points,)"]),
    "no function": (lambda: bootstrap_interval(1.0, [[1.0]]), ["statistic = 1.0 must be a function"]),
    "no samples": (lambda: bootstrap_interval(np.mean, 1.0), ["samples = 1.0 must be a sequence of arrays"]),
    "a sample": (lambda: bootstrap_interval(np.mean, [1.0, 2.0]), ["samples[0] has shape ()"]),
    "a quantile below 0": (lambda: quantile_interval([1.0], -0.5), ["level = -0.5", "from 0 to 1"]),
    "no resamples": (lambda: bootstrap_interval(np.mean, [[1.0, 2.0]], resamples=0), ["resamples = 0"]),
    "pairing": (lambda: bootstrap_interval(np.mean, [[1.0, 2.0]], paired=""), ["paired = '' must be True or False"]),
    "an end": (
        lambda: judge((1.0, 0.5, None), claim="c", setting="s", statistic="t", source="p", claimed_low=0.1),
        ["high = None must be a number"],
    ),
}


RATIOS = {
    "first": lambda bad: median_ratio(bad, np.ones(8)),
    "second": lambda bad: median_ratio(np.ones(8), bad),
    "measured": lambda bad: largest_factor(bad[:, None], np.ones((8, 1))),
    "predicted": lambda bad: largest_factor(np.ones((8, 1)), bad[:, None]),
    "ratios": smallest_constant,
}


@pytest.mark.parametrize("name", RATIOS)
def test_ratios_have_no_sign(name):
    for bad in (-np.ones(8), np.append(-0.5, np.ones(7)), np.append(np.nan, -np.ones(7))):
        assert_one_line(lambda bad=bad: RATIOS[name](bad), [f"{name} contains -", "must not be negative"])


HITS = {
    "judge_share": (lambda hits: judge_share(hits, 0.5, **SAID), "hits = "),
    "judge_failures": (lambda hits: judge_failures(hits, allowed=0.5, **SAID), "failed = "),
    "premise": (lambda hits: judge_failures([True, False], premise=hits, allowed=0.5, **SAID), "premise = "),
    "clustered_share": (lambda hits: clustered_share([hits]), "hits = "),
}


@pytest.mark.parametrize("name", HITS)
def test_other_numbers_than_0_and_1_are_no_hits(name):
    call, fragment = HITS[name]
    for hits in ([1.0, np.nan], [0.5, 1.0], [2, 0]):
        assert_one_line(lambda hits=hits: call(hits), [fragment, "True and False"])
    assert judge_share([0, 1, 1.0], 0.5, **SAID).detail == "2 of 3"


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line(name):
    assert_one_line(*BAD_INPUT[name], (ValueError, TypeError))


# --- shares --------------------------------------------------------------------------------------------------


def test_first_round_below():
    rounds = np.array([0, 2, 4, 5])
    values = np.array(
        [[1.0, 0.5, 0.1, 0.3], [1.0, 1.0, 1.0, 1.0], [0.05, 1.0, 1.0, 1.0], [1.0, np.nan, np.nan, np.nan]]
    )
    np.testing.assert_array_equal(first_round_below(rounds, values, 0.1), [4, np.inf, 0, np.inf])


@pytest.mark.parametrize(("count", "total"), [(0, 1), (1, 1), (3, 4), (0, 50), (49, 50), (50, 50), (6, 3000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_of_a_share_is_that_of_scipys_test(count, total, confidence):
    exact = stats.binomtest(count, total).proportion_ci(confidence, method="exact")  # finds roots of the tails
    estimate, low, high = binomial_share(count, total, confidence=confidence)
    assert estimate == count / total
    assert abs(low - exact.low) < 1e-11
    assert abs(high - exact.high) < 1e-11


def test_a_share_of_nothing_is_not_known():
    for found in (binomial_share(0, 0), clustered_share(np.ones((3, 0))), clustered_share([], [])):
        assert np.isnan(found[0])
        assert found[1:] == (0.0, 1.0)


def test_a_share_of_smaller_trials_leaves_ties_out():
    first = np.array([1.0, 2.0, 3.0, np.inf, 5.0])
    second = np.array([2.0, 3.0, 4.0, np.inf, 4.0])
    found, detail = share_smaller(first, second)
    assert detail == "3 of 4 that differ; 3 of all 5 smaller, 1 larger, 1 tied"
    assert found == binomial_share(3, 4)
    assert share_smaller(first, second, confidence=0.5)[0] == binomial_share(3, 4, confidence=0.5)
    assert share_smaller(first, first)[0][1:] == (0.0, 1.0)
    assert share_smaller(first[:3], first[:3] + 1)[1] == "3 of 3"
    first, second = np.array([1.0, 1.0, np.nan, np.nan]), np.array([2.0, np.nan, 1.0, np.nan])
    assert share_smaller(first, second)[1] == "2 of 3 that differ; 2 of all 4 smaller, 1 larger, 1 tied"


# --- shares of points in clusters ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, False])
def test_clusters_that_all_agree_leave_something_open(value):
    estimate, low, high = clustered_share(np.full((10, 7), value))
    assert estimate == value
    reach = low if value else 1 - high
    assert reach == pytest.approx(1 - binomial_share(0, 10)[2], abs=0.05)  # ten trials, not seventy
    assert (high if value else low) == value
    assert clustered_share(np.full(70, value), np.repeat(np.arange(10), 7)) == (estimate, low, high)
    estimate, low, high = clustered_share(np.tile([True, False], (10, 3)))
    assert (estimate, low) == (0.5, pytest.approx(1 - high))
    assert 0.1 < high - low < 0.3


@pytest.mark.parametrize("sizes", [[50], [50] * 2, [50] * 3, [100, *[1] * 9]])
def test_up_to_three_clusters_say_nothing_of_a_share(sizes):
    """With a hundred points in one cluster and one in each of nine others there are hardly two clusters."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    assert clustered_share(np.ones(len(clusters), dtype=bool), clusters) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("confidence", [0.3, 0.5])
@pytest.mark.parametrize("sizes", [[3, 5, 4, 8, 2, 6, 5, 4, 7], [6, 6]])
def test_a_share_has_students_interval_with_two_pseudo_clusters(sizes, confidence):
    index = np.repeat(np.arange(len(sizes)), sizes)
    hits = np.random.default_rng(0).random(len(index)) < 0.6
    mean = sum(size**2 for size in sizes) / len(index)  # of a point's cluster
    totals = np.array([*(hits[index == cluster].sum() for cluster in range(len(sizes))), mean, 0.0])
    points = np.array([*sizes, mean, mean])
    centre = totals.sum() / points.sum()
    gaps = (totals - centre * points) / points.sum()
    variance = len(gaps) / (len(gaps) - 1) * np.sum(gaps**2)
    reach = stats.t.ppf((1 + confidence) / 2, len(index) / mean - 1) * variance**0.5
    found = clustered_share(hits, index, confidence=confidence)
    assert found[0] == pytest.approx(hits.mean(), rel=1e-12)
    assert found[1:] == pytest.approx((min(found[0], centre - reach), max(found[0], centre + reach)), rel=1e-10)
    assert 0 < found[1] < found[2] < 1


@pytest.mark.long
@pytest.mark.parametrize("clusters", [5, 20])
def test_the_coverage_of_clustered_shares(clusters):
    """At least 0.94 wherever measured; of 40 settings with 400 tables one errs with probability below 1 %."""
    shares, correlations = (0.5, 0.8, 0.9, 0.95, 0.99), (0.0, 0.3, 0.7, 1.0)
    for share, correlation, unequal in itertools.product(shares, correlations, (False, True)):
        rng, covered = np.random.default_rng(1), 0
        for _ in range(400):
            low, high = clustered_share(*beta_binomial(rng, clusters, share, correlation, unequal))[1:]
            covered += low <= share <= high
        assert_covers(covered, 400, least=0.94)


# --- quantiles and means -------------------------------------------------------------------------------------


def test_a_quantile_lies_between_order_statistics():
    """As a loop over the binomial distribution has them."""
    levels, confidences = (0.0, 0.05, 0.5, 0.9, 0.95, 1.0), (0.6, 0.95)
    for trials, level, confidence in itertools.product((1, 5, 6, 20, 72), levels, confidences):
        values, tail = np.random.default_rng(0).permutation(np.arange(1.0, trials + 1)), (1 - confidence) / 2
        estimate, low, high = quantile_interval(values, level, confidence=confidence)
        short = [i for i in range(1, trials + 1) if stats.binom.cdf(i - 1, trials, level) <= tail]
        beyond = [i for i in range(1, trials + 1) if stats.binom.sf(i - 1, trials, level) <= tail]
        assert (low, high) == (max(short, default=-np.inf), min(beyond, default=np.inf))
        assert low <= estimate <= high
        assert (values <= estimate).mean() >= level
    assert quantile_interval(values, 0.9) == quantile_interval(values, 0.9, confidence=0.95)
    assert median_interval(np.array([1.0, 2.0, 3.0, np.nan, np.nan, 0.5, 2.5])) == (2.5, 0.5, np.inf)


@pytest.mark.long
@pytest.mark.parametrize(("trials", "level"), [(5, 0.95), (80, 0.95), (100, 0.95), (20, 0.5)])
def test_quantiles_are_covered(trials, level):
    """The percentile bootstrap covered 0.39, 0.88, 0.85 and 0.90 of these."""
    tables = np.random.default_rng(0).random((1000, trials))
    ends = np.array([quantile_interval(table, level)[1:] for table in tables])
    assert_covers(int(np.sum((ends[:, 0] <= level) & (level <= ends[:, 1]))), 1000)
    for missed in (ends[:, 0] > level, ends[:, 1] < level):
        assert_covers(int(np.sum(~missed)), 1000, least=0.975)


@pytest.mark.parametrize(
    ("confidence", "fewest"), [(0.5, 6), (0.95, 6), (1 - 0.05 / 6, 8), (1 - 0.05 / 10, 9), (1.0, np.inf)]
)
def test_few_trials_bound_no_median(confidence, fewest):
    assert fewest_trials(confidence) == fewest
    if fewest > 6:
        high = median_ratio(np.arange(1.0, 9.0), np.ones(8), confidence=confidence)[2]
        assert np.isfinite(high) == (fewest == 8)


def test_a_mean_has_students_interval():
    values = np.random.default_rng(0).normal(2.0, 3.0, size=7)
    for some, options, level in ((values, {}, 0.95), (values, {"confidence": 0.6}, 0.6), (values[:2], {}, 0.95)):
        wanted = stats.t.interval(level, len(some) - 1, loc=some.mean(), scale=stats.sem(some))
        assert mean_interval(some, **options) == pytest.approx((some.mean(), *wanted), rel=1e-10)
    assert mean_interval([3.0]) == (3.0, -np.inf, np.inf)
    for bad in (np.nan, np.inf, -np.inf):
        assert mean_interval([1.0, bad, 2.0]) == (np.inf, -np.inf, np.inf)


def test_a_ratio_becomes_a_factor_of_at_least_1():
    assert as_factor((4.0, 2.0, 5.0)) == (4.0, 2.0, 5.0)
    assert as_factor((0.25, 0.2, 0.5)) == (4.0, 2.0, 5.0)
    assert as_factor((2.0, 1.0, 4.0)) == (2.0, 1.0, 4.0)
    assert as_factor((0.5, 0.0, 0.8)) == (2.0, 1.25, np.inf)
    assert as_factor((-1.0, -2.0, 3.0)) == (np.inf, 1.0, np.inf)
    values = np.random.default_rng(0).lognormal(size=9)
    assert mean_factor(values, 2.0, confidence=0.5) == as_factor(mean_interval(values / 2.0, confidence=0.5))


def test_what_is_no_number_counts_as_the_largest_error():
    assert nan_as_worst([np.nan, np.inf, 0.5, -1.0]).tolist() == [1e9, 1e9, 0.5, -1.0]


# --- bootstrap intervals -------------------------------------------------------------------------------------


def test_a_bootstrap_interval_is_scipys_percentiles():
    one, other = np.random.default_rng(0).lognormal(size=(2, 9))

    def scipys(samples, statistic, confidence=0.95, resamples=2000, seed=0, **options):
        rng = np.random.default_rng(seed)
        options = {"confidence_level": confidence, "n_resamples": resamples, "method": "percentile"} | options
        return tuple(stats.bootstrap(samples, statistic, rng=rng, **options).confidence_interval)

    def ratio(a, b, axis=0):
        return np.mean(a, axis=axis) / np.mean(b, axis=axis)

    assert bootstrap_interval(np.mean, [one], vectorized=True) == scipys([one], np.mean, vectorized=True)
    for paired in (False, True):
        wanted = scipys([one, other], ratio, vectorized=True, paired=paired)
        assert bootstrap_interval(ratio, [one, other], vectorized=True, paired=paired) == wanted
    assert bootstrap_interval(ratio, [one, other], vectorized=True)[0] != wanted[0]
    given = {"confidence": 0.7, "seed": 3, "resamples": 50}
    assert bootstrap_interval(np.mean, [one], vectorized=True, **given) == scipys(
        [one], np.mean, vectorized=True, **given
    )
    plain = bootstrap_interval(lambda a: sum(a) / 9, [one], resamples=50)  # a function of one sample at a time
    assert plain == pytest.approx(bootstrap_interval(np.mean, [one], vectorized=True, resamples=50), rel=1e-12)


def test_an_infinite_statistic_has_an_infinite_end_and_no_number_none():
    low, high = bootstrap_interval(lambda a: float(np.max(a)), (np.array([1.0, 2.0, 2.0, 2.0, 2.0, np.inf]),))
    assert low < 3
    assert high == np.inf
    with np.errstate(all="ignore"):
        assert np.isnan(bootstrap_interval(lambda a: np.nan, (np.arange(6.0),))).all()


def test_a_widened_interval_of_a_mean_is_as_long_as_students():
    values = np.random.default_rng(0).standard_normal(9)
    for confidence in (0.8, 0.95):
        low, high = bootstrap_interval(
            np.mean, [values], vectorized=True, confidence=confidence, widened=True, resamples=20_000
        )
        assert high - low == pytest.approx(2 * stats.t.ppf((1 + confidence) / 2, 8) * stats.sem(values), rel=0.05)


def test_more_resamples_are_drawn_for_ends_far_out():
    seen = []

    def mean(values, axis):
        seen.append(values.shape[0])
        return values.mean(axis=axis)

    values = np.random.default_rng(0).standard_normal(20)
    for confidence in (0.95, 0.999):
        bootstrap_interval(mean, [values], vectorized=True, confidence=confidence, resamples=300)
    assert seen[0] < 10_000 <= max(seen)


def test_few_trials_have_no_bootstrap_interval():
    values = np.array([[1.0, 0.5, 0.25], [1.2, 0.6, 0.3], [1.1, 0.55, 0.28], [0.9, 0.5, 0.22], [1.0, 0.5, 0.26]] * 2)
    curves = values + 1.0
    values = values[:6]
    bounded = {
        "mean": (lambda some: bootstrap_interval(np.mean, [some[:, 0]]), (-np.inf, np.inf)),
        "exponent": (lambda some: fit_exponent([1, 2, 4], some)[1:], (-np.inf, np.inf)),
        "ratio": (lambda some: median_ratio(some[:, 0], some[:, 1])[1:], (0.0, np.inf)),
        "largest factor": (lambda some: largest_factor(some + 1.0, curves[: len(some)])[1:], (1.0, np.inf)),
        "ratio of factors": (lambda some: factor_ratio(some.T[:2], some.T[:2], 99)[0][1:], (0.0, np.inf)),
    }
    for interval, unbounded in bounded.values():
        assert interval(values[:5]) == unbounded
        assert np.isfinite(interval(values)).all()
    x, y = [1.0, 2.0, 3.0, 4.0], np.arange(1.0, 5.0)[:, None] * values[:, 0]
    overs = [fit_power_law("y ~ x^a", {"x": x, "y": some}).over for some in (y[:, :5], y)]
    assert overs == ["residuals", "trials"]


def test_probability_smaller_counts_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 30).astype(float), rng.integers(2, 9, 40).astype(float)
    a[0] = b[0] = np.inf
    pairs = [(x < y) + 0.5 * (x == y) for x in a for y in b]
    estimate, low, high = probability_smaller(a, b)
    assert estimate == pytest.approx(np.mean(pairs), abs=1e-12)
    assert low < estimate < high
    ranked = np.where(np.isinf(a), 100.0, a), np.where(np.isinf(b), 100.0, b)
    diverged = np.where(ranked[0] > 50, np.nan, ranked[0]), np.where(ranked[1] > 50, np.nan, ranked[1])
    assert probability_smaller(*diverged) == probability_smaller(*ranked)  # NaN is the largest
    assert probability_smaller(np.zeros(10), np.ones(20))[0] == 1.0
    edge = stats.binomtest(0, 10).proportion_ci(method="exact").high
    assert probability_smaller(np.zeros(10), np.ones(20))[1] == pytest.approx(1 - edge)
    assert probability_smaller(np.ones(10), np.zeros(20)) == (0.0, 0.0, pytest.approx(edge))
    assert probability_smaller(np.ones(10), np.ones(20)) == pytest.approx((0.5, 0.5 - edge / 2, 0.5 + edge / 2))
    assert probability_smaller([1.0, 3.0, 5.0], [2.0, 4.0, 6.0]) == (pytest.approx(2 / 3), 0.0, 1.0)  # few trials


def test_the_probability_that_one_is_smaller_is_resampled_pair_by_pair():
    rng = np.random.default_rng(2)
    first, second = rng.integers(0, 9, 7).astype(float), rng.integers(2, 9, 6).astype(float)
    wins = np.array([[(x < y) + 0.5 * (x == y) for y in second] for x in first])

    def share(i, j, axis=0):
        i, j = (np.moveaxis(one, axis, -1).astype(int) for one in (i, j))
        return wins[i[..., :, None], j[..., None, :]].mean(axis=(-2, -1))

    for options in ({}, {"confidence": 0.6, "seed": 4}):
        wanted = bootstrap_interval(share, (np.arange(7.0), np.arange(6.0)), vectorized=True, **options)
        assert probability_smaller(first, second, **options) == pytest.approx((wins.mean(), *wanted), rel=1e-12)
    assert probability_smaller(first, second) == probability_smaller(first, second, seed=0)
    edge = binomial_share(0, 6, confidence=0.6)[2]
    assert probability_smaller(first, second - 20, confidence=0.6) == (0.0, 0.0, edge)
    assert probability_smaller(first, second + 20, confidence=0.6) == (1.0, 1.0 - edge, 1.0)


# --- ratios --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [6, 8, 41])
def test_a_ratio_of_medians_has_the_interval_of_its_paired_resamples(trials):
    first, second = np.random.default_rng(trials).lognormal(size=(2, trials))

    def ratio(a, b, axis=0):
        return lower_middle(a, axis) / lower_middle(b, axis)

    wanted = bootstrap_interval(ratio, (first, second), paired=True, vectorized=True)
    assert median_ratio(first, second) == pytest.approx((ratio(first, second), *wanted), rel=1e-12)
    assert median_ratio(3 * first, first) == pytest.approx((3.0, 3.0, 3.0), rel=1e-12)
    first[: trials // 2 + 1] = np.nan
    assert median_ratio(first, second)[0] == np.inf


def test_a_ratio_of_means_has_the_interval_of_its_paired_resamples():
    first, second = np.random.default_rng(0).lognormal(size=(2, 12))

    def ratio(a, b, axis=0):
        return a.mean(axis=axis) / b.mean(axis=axis)

    wanted = bootstrap_interval(ratio, (first, second), paired=True, vectorized=True)
    assert mean_ratio(first, second) == (ratio(first, second), *wanted)
    of_mean = bootstrap_interval(lambda a, axis: a.mean(axis=axis), (first,), vectorized=True)
    assert mean_ratio(first, 0.5) == pytest.approx((2 * first.mean(), *np.multiply(2, of_mean)), rel=1e-12)
    assert mean_ratio(3 * first, first, confidence=0.5) == pytest.approx((3.0, 3.0, 3.0), rel=1e-12)
    first[0] = np.nan
    for pair in ((first, second), (second, first), (first, 2.0)):
        assert mean_ratio(*pair) == pytest.approx((np.nan, -np.inf, np.inf), nan_ok=True)


def test_the_largest_factor_is_that_of_the_worst_round_whichever_is_larger():
    predicted = np.random.default_rng(0).lognormal(sigma=0.1, size=(21, 4))
    for factors, largest in (([1.0] * 4, 1.0), ([1.0, 1.1, 0.5, 1.5], 2.0), ([1.0, 1.1, 2.0, 1.5], 2.0)):
        assert largest_factor(predicted * factors, predicted) == pytest.approx((largest,) * 3, rel=1e-12)


@pytest.mark.parametrize("trials", [6, 7, 20])
def test_an_exact_prediction_of_each_trial_has_no_factor(trials):
    curves = np.random.default_rng(0).lognormal(sigma=0.3, size=(trials, 3))
    assert largest_factor(curves, curves) == pytest.approx((1.0, 1.0, 1.0), rel=1e-12)


@pytest.mark.parametrize("power", [1.0, -1.0])
def test_the_largest_factor_has_the_interval_of_its_resamples(power, monkeypatch):
    measured, predicted = np.random.default_rng(0).lognormal(sigma=0.3, size=(2, 24, 3)) ** power
    measured[:, 1] *= 20.0**power

    def ratios(i, axis=-1):
        i = np.moveaxis(i, axis, -1).astype(int)
        return np.median(measured[i], axis=-2) / np.median(predicted[i], axis=-2)

    def largest(i, axis=-1):
        return np.exp(np.abs(np.log(ratios(i, axis))).max(axis=-1))

    trials = np.arange(24.0)
    worst = int(np.abs(np.log(ratios(trials))).argmax())
    sign = np.sign(np.log(ratios(trials)[worst]))
    options = {"vectorized": True, "confidence": 1 - 0.05 / 6, "widened": True}
    low = bootstrap_interval(lambda i, axis: ratios(i, axis)[..., worst] ** sign, (trials,), **options)[0]
    assert low > 1
    high = bootstrap_interval(largest, (trials,), vectorized=True)[1]
    for together in (1000, 2**20):  # some resamples at a time, or all
        monkeypatch.setattr(intervals, "TOGETHER", together)
        found = largest_factor(measured, predicted)
        assert found == pytest.approx((float(largest(trials)), low, high), rel=1e-12)


@pytest.mark.long
def test_the_interval_of_the_largest_factor_contains_it():
    """The largest factor of a resample is biased upwards, so its percentiles alone may lie above the estimate."""
    for seed in range(20):
        noise = np.random.default_rng(seed).lognormal(sigma=0.3, size=(20, 30))
        estimate, low, high = largest_factor(noise, np.ones((20, 30)))
        assert 1.0 <= low <= estimate <= high


def test_zeros_have_ratios_without_warnings():
    """Warnings are errors here."""
    zeros, ones = np.zeros(8), np.ones(8)
    assert median_ratio(zeros, ones) == (0.0, 0.0, 0.0)
    assert median_ratio(ones, zeros) == (np.inf, np.inf, np.inf)
    some = np.append(zeros[:4], ones[:4])
    for first, second in ((zeros, zeros), (some, some), (np.full(8, np.inf), np.full(8, np.inf))):
        ratio, *ends = median_ratio(first, second)
        assert np.isnan(ratio) or ends[0] <= ratio <= ends[1]
        assert ends == [0.0, np.inf]
    curves = np.stack([ones, zeros], axis=1)
    assert largest_factor(curves, curves)[1:] == (1.0, np.inf)
    assert np.isnan(largest_factor(curves, curves)[0])
    assert largest_factor(curves, np.ones((8, 2)))[::2] == (np.inf, np.inf)
    assert largest_factor(np.ones((8, 2)), curves)[::2] == (np.inf, np.inf)
    assert smallest_constant(zeros, allowed=0.5) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"predicted has shape \(8, 2\), expected the shape of measured = \(8, 1\)"):
        largest_factor(curves[:, :1], curves)


def test_a_ratio_of_infinite_medians_may_be_anything():
    first = np.array([1.0] * 12 + [np.inf] * 8)
    ratio, low, high = median_ratio(2 * first, first)
    assert (ratio, low, high) == (2.0, 0.0, np.inf)


def test_the_largest_of_some_estimates_may_be_anothers():
    """Each end may belong to another sample; lower ends hold together."""

    def interval(estimate, spread, *, confidence=0.95):
        reach = spread * float(stats.norm.ppf((1 + confidence) / 2))
        return estimate, estimate - reach, estimate + reach

    samples = [(1.0, 0.01), (1.1, 0.1), (0.5, 0.9)]
    for confidence in (0.95, 0.8):
        one, together = (stats.norm.ppf(1 - (1 - confidence) / 2 / number) for number in (1, 3))
        found = largest_of(interval, samples, confidence=confidence)
        assert found == pytest.approx((1.1, 1.0 - 0.01 * together, 0.5 + 0.9 * one), rel=1e-12)
    assert largest_of(interval, samples[:1]) == interval(*samples[0])
    open_ = largest_of(median_ratio, [(np.arange(1.0, 9.0), np.ones(8))] * 10)
    assert open_[1] == 0.0  # 8 trials are too few for ten lower ends
    with pytest.raises(ValueError, match="samples is empty"):
        largest_of(interval, [])


# --- smallest constants and sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [10, 20, 40, 101])
def test_the_smallest_constant_passes_and_nothing_much_smaller_does(trials):
    ratios = np.random.default_rng(0).permutation(np.arange(1.0, trials + 1))
    for allowed in (0.0, 0.1, 0.5):
        constant, low, high = smallest_constant(ratios, allowed=allowed)
        assert (ratios > constant).mean() <= allowed
        assert (ratios > constant - 1).mean() > allowed
        assert low <= constant <= high
    assert smallest_constant(ratios) == smallest_constant(ratios, allowed=0.1) == quantile_interval(ratios, 0.9)


def test_the_smallest_constant_of_few_or_diverged_trials():
    assert smallest_constant([2.0] * 40, allowed=0.1) == (2.0, 2.0, 2.0)
    assert smallest_constant([2.0] * 5, allowed=0.1) == (2.0, 2.0, np.inf)
    constant, low, high = smallest_constant([*[1.0] * 18, *[np.inf] * 4], allowed=0.1)
    assert (constant, high) == (np.inf, np.inf)
    assert not np.isnan(low)


@pytest.mark.parametrize(
    ("tried", "failed", "expected"),
    [
        ([5, 3, 12, 4, 8, 6], [2, 100, 0, 40, 0, 3], (5.0, 4.0, 8.0)),
        ([5, 3, 12, 4, 8, 6], [2, 100, 0, 40, 0, 7], (8.0, 4.0, 8.0)),
        ([3, 4], [100, 50], (np.inf, 4.0, np.inf)),
        ([3, 4], [0, 0], (3.0, 0.0, 3.0)),
        ([3, 4], [5, 0], (3.0, 0.0, 4.0)),  # as many as are allowed
        ([3, 4, 5], [40, 7, 0], (5.0, 3.0, 5.0)),  # 7 may be by chance
    ],
)
def test_the_smallest_size_whose_failures_are_allowed(tried, failed, expected):
    assert least_passing(tried, failed, 100, allowed=0.05) == expected


def test_an_interval_of_the_smallest_size_has_a_confidence():
    assert least_passing([3, 4], [12, 0], 100, allowed=0.05) == (4.0, 3.0, 4.0)
    assert least_passing([3, 4], [12, 0], 100, allowed=0.05, confidence=0.999) == (4.0, 0.0, np.inf)


# --- coverage ------------------------------------------------------------------------------------------------


def lognormal(rng, *shape):
    return rng.lognormal(sigma=0.5, size=shape)


def of_largest_factor(rng, trials):
    """Return the interval of curves that rise to 1.5 times what is predicted."""
    common = np.exp(0.3 * rng.standard_normal((trials, 1)) + 0.1 * rng.standard_normal((trials, 4)))
    return largest_factor(common * np.linspace(1, 1.5, 4), np.ones((trials, 4)))[1:]


def of_fit_exponent(rng, trials):
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    return fit_exponent(sizes, sizes**-0.5 * lognormal(rng, trials, 4))[1:]


def of_farthest_off(rng, trials):
    roots = np.sqrt(rng.chisquare(5, (trials, 3)) / 5) * [1.0, 1.0, 1.2]
    found = judge_farthest_off(roots, np.ones((trials, 3)), claimed_low=0.9, claimed_high=1.1, claim="t", setting="w")
    return found.low, found.high


def of_one_constant(rng, trials):
    found = judge_one_constant(lognormal(rng, trials, 3) * [1.0, 1.5, 2.0], claimed_high=2.0, source="s", claim="t")
    return found.low, found.high


def of_gain_ratio(rng, trials):
    noise = lognormal(rng, 4, trials)
    first, second = np.stack([10 * noise[0], 40 * noise[1]]), np.stack([20 * noise[2], 40 * noise[3]])
    return gain_ratio(first, second, 10**6)[0][1:]


def of_factor_ratio(rng, trials):
    noise = lognormal(rng, 4, trials)
    return factor_ratio((100 * noise[0], 20 * noise[1]), (100 * noise[2], 50 * noise[3]), 10**6)[0][1:]


def of_lines(rng, trials):
    right = [(rng.random((trials, 10)) < rng.beta(a, 10 - a, (trials, 1))).sum(axis=1) for a in (8, 7)]
    counts = np.repeat(np.stack([np.full(trials, 10), *right], axis=-1)[:, None], 2, axis=1)
    found = line_findings(counts, fixed="f", claim="t", setting="w")[0]
    return found.low, found.high


BOOTSTRAPPED = {
    "median_ratio": (lambda rng, n: median_ratio(lognormal(rng, n), lognormal(rng, n))[1:], 1.0, 0.95),
    "probability_smaller": (
        lambda rng, n: probability_smaller(rng.standard_normal(n), stats.norm.ppf(0.8) * 2**0.5 + rng.normal(size=n))[
            1:
        ],
        0.8,
        0.93,
    ),
    "largest_factor": (of_largest_factor, 1.5, 0.93),
    "fit_exponent": (of_fit_exponent, -0.5, 0.93),
    "judge_farthest_off": (of_farthest_off, 1.2, 0.93),
    "judge_one_constant": (of_one_constant, 2.0, 0.95),
    "gain_ratio": (of_gain_ratio, 2.0, 0.95),
    "factor_ratio": (of_factor_ratio, 2.5, 0.95),
    "line_findings": (of_lines, 0.1, 0.91),
}
"""Of each a table's interval, what is true, and the least coverage that its docstring states."""


@pytest.mark.long
@pytest.mark.parametrize("name", BOOTSTRAPPED)
@pytest.mark.parametrize("trials", [10, 50])
def test_the_coverage_of_bootstrap_intervals(name, trials):
    """As their docstrings state it; each errs with probability 1e-4."""
    interval, truth, least = BOOTSTRAPPED[name]
    tables = 200
    ends = [interval(np.random.default_rng((seed, trials)), trials) for seed in range(tables)]
    assert_covers(sum(low <= truth <= high for low, high in ends), tables, least=least)


def test_infinite_ends_are_judged_and_printed():
    """An infinite end leaves open what needs it, and nothing else."""
    ratios = np.arange(1.0, 11.0)
    for most, verdict in ((1e6, Verdict.INCONCLUSIVE), (1.0, Verdict.VIOLATED)):
        found = judge(smallest_constant(ratios, allowed=0.05), claimed_high=most, theorem=True, **SAID)
        assert (found.verdict, found.high) == (verdict, np.inf)
        assert "10  [8, inf]" in findings_table([found])


REFUSED = {
    "a prediction of zero": (lambda: intervals.mean_factor([1.0, 2.0], 0.0), ["predicted = 0.0", "positive"]),
    "a negative prediction": (lambda: intervals.mean_factor([1.0, 2.0], -1.0), ["predicted = -1.0", "positive"]),
    "more failures than samples": (
        lambda: intervals.least_passing([5, 10], [3, 1, 0], 20, allowed=0.1),
        ["failures has shape (3,)", "(2,)"],
    ),
    "more failures than trials": (
        lambda: intervals.least_passing([5, 10], [21, 1], 20, allowed=0.1),
        ["failures holds 21.0", "trials = 20"],
    ),
    "half a failure": (lambda: intervals.least_passing([5, 10], [1.5, 1], 20, allowed=0.1), ["failures holds 1.5"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_of_factors_and_counts_are_checked(name):
    assert_one_line(*REFUSED[name])


def test_a_list_is_as_good_as_an_array_in_a_ratio_of_means():
    first, second = [2.0, 2.2, 1.8, 2.1, 1.9, 2.0], [1.0, 1.1, 0.9, 1.2, 1.0, 0.8]
    assert intervals.mean_ratio(first, second) == intervals.mean_ratio(np.array(first), np.array(second))


def test_a_widened_level_that_rounds_to_one_has_the_whole_line():
    values = np.random.default_rng(0).normal(size=60)
    options = {"vectorized": True, "widened": True, "confidence": 1 - 2e-16}
    assert intervals.bootstrap_interval(np.mean, [values], **options) == (-np.inf, np.inf)
