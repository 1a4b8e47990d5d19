"""Gains in rounds, which may be known between bounds only, and the judges of two methods."""

import math

import numpy as np
import pytest

from linfed.statistics.findings import Verdict
from linfed.statistics.gains import (
    factor_ratio,
    format_gain,
    gain_ratio,
    judge_fewer_rounds,
    judge_lower_end,
    judge_more_reduction,
    judge_more_speed,
    log_gain,
    lower_median,
    rounds_to_share,
)
from linfed.statistics.intervals import bootstrap_interval

INF, NAN = np.inf, np.nan
SAID = {"claim": "mine beats the competitor", "setting": "here", "statistic": "a share", "source": "test"}


def middle(values):
    """Return the lower median along the last axis, from sorted values."""
    return np.sort(values, axis=-1)[..., (values.shape[-1] - 1) // 2]


def quantile(values, level):
    """Return the smallest value with at least this share at or below it."""
    return np.sort(values)[math.ceil(level * len(values) - 1e-9) - 1]


def test_lower_median_takes_infinities():
    assert lower_median(np.array([[3.0, 1.0, INF], [2.0, INF, INF]])).tolist() == [3.0, INF]
    assert lower_median(np.array([4.0, 1.0])) == 1.0


@pytest.mark.parametrize(
    ("mine", "competitor", "low", "high"),
    [
        ([10.0], [40.0], math.log(4), math.log(4)),
        ([40.0], [10.0], -math.log(4), -math.log(4)),
        ([10.0], [INF], math.log(10), INF),  # the competitor never arrives: at least the last round, 100, over 10
        ([INF], [10.0], -INF, -math.log(10)),
        ([INF], [INF], -INF, INF),
        ([120.0], [150.0], math.log(100 / 120), math.log(1.5)),  # both arrive after the last round
    ],
)
def test_a_gain_is_bounded_by_what_is_known(mine, competitor, low, high):
    found = log_gain(np.array([mine, competitor]), 100)
    assert found[0] == pytest.approx(low)
    assert found[1] == pytest.approx(high)
    sizes = log_gain(np.array([mine, competitor]), 100, signed=False)
    inside = low <= 0 <= high
    assert sizes[0] == pytest.approx(0.0 if inside and low != high else min(abs(low), abs(high)))
    assert sizes[1] == pytest.approx(max(abs(low), abs(high)))


@pytest.mark.parametrize("signed", [True, False])
def test_a_ratio_of_gains_is_resampled_in_pairs(signed):
    first, second = 20 * np.random.default_rng(3).lognormal(sigma=0.6, size=(2, 2, 9))
    index = np.random.default_rng(0).integers(9, size=(2000, 9))

    def ratio(index):
        one, other = (np.log(middle(pair[1][index]) / middle(pair[0][index])) for pair in (first, second))
        return np.exp(one - other if signed else np.abs(one) - np.abs(other))

    found, reason = gain_ratio(first, second, 10**6, signed=signed)
    each = ratio(index)
    wanted = (ratio(np.arange(9)), quantile(each, 0.025), quantile(each, 0.975))
    assert found == pytest.approx(wanted, rel=1e-10)
    assert reason == ""
    if signed:
        assert gain_ratio(first, second, 10**6)[0] == found
        sizes = {5: second, 3: np.ones((2, 9)), 2: first}
        judged = judge_more_speed(sizes, 10**6, name="n", **SAID)
        assert (judged.estimate, judged.low, judged.high) == found
        assert (judged.claimed_low, judged.strict, judged.theorem) == (1.0, True, False)


def test_a_competitor_that_never_arrives_leaves_the_ratio_open():
    known = np.array([[10.0] * 9, [40.0] * 9])
    never = np.array([[10.0] * 9, [INF] * 9])
    (estimate, low, high), _ = gain_ratio(never, known, 100)
    assert math.isnan(estimate)
    assert (low, high) == (pytest.approx(2.5), INF)
    assert gain_ratio(known, never, 100)[0][1:] == (0.0, pytest.approx(0.4))
    at_once = np.zeros((2, 9))
    assert gain_ratio(at_once, known, 100)[0][1:] == (0.0, INF)


def test_trials_without_a_level_are_left_out():
    rounds = np.array([[10.0, NAN, *[10.0] * 5], [40.0, 1.0, *[40.0] * 5]])
    assert gain_ratio(rounds, rounds, 100)[0] == pytest.approx((1.0, 1.0, 1.0))
    assert format_gain(rounds, 100) == "4"
    (estimate, low, high), reason = gain_ratio(rounds[:, :5], rounds[:, :5], 100)
    assert math.isnan(estimate)
    assert (low, high) == (0.0, INF)
    assert "too few trials" in reason
    assert format_gain(np.full((2, 3), NAN), 100) == "-"


NEVER, SLOW, FAST, OTHER = np.full(9, INF), np.full(9, 100.0), np.full(9, 20.0), np.full(9, 50.0)


@pytest.mark.parametrize(
    ("mine", "other", "least", "most"),
    [
        ((SLOW, FAST), (SLOW, OTHER), 2.5, 2.5),  # 100/20 divided by 100/50
        ((NEVER, FAST), (SLOW, OTHER), 25.0, INF),  # at least 1000/20 divided by 100/50
        ((SLOW, NEVER), (SLOW, OTHER), 0.0, 0.05),
        ((SLOW, FAST), (NEVER, OTHER), 0.0, 0.25),
        ((SLOW, FAST), (SLOW, NEVER), 50.0, INF),
        ((SLOW, 0 * FAST), (OTHER, 0.5 + 0 * OTHER), 2.0, 2.0),  # no round counts as one
    ],
)
def test_a_ratio_of_factors_is_bounded_by_the_last_round(mine, other, least, most):
    found, note = factor_ratio(mine, other, 1000)
    assert found[1:] == pytest.approx((least, most), rel=1e-12)
    assert found[0] == pytest.approx(least if least == most else NAN, nan_ok=True)
    assert ("known between bounds only" in note) == (least != most)


def test_a_ratio_of_factors_is_resampled_before_and_after():
    rng = np.random.default_rng(6)
    before, after = 50 * rng.lognormal(sigma=0.4, size=(2, 9)), 20 * rng.lognormal(sigma=0.4, size=(2, 6))

    def ratio(i, j, axis=-1):
        (b, b_other), (a, a_other) = (
            middle(part[:, np.moveaxis(k, axis, -1).astype(int)]) for part, k in ((before, i), (after, j))
        )
        return (b / a) / (b_other / a_other)

    places = np.arange(9.0), np.arange(6.0)
    wanted = (ratio(*places), *bootstrap_interval(ratio, places, vectorized=True))
    found, _ = factor_ratio((before[0], after[0]), (before[1], after[1]), 10**6)
    assert found == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize(
    ("mine", "competitor", "text"),
    [
        (120.0, 150.0, "< 1.5"),
        (20.0, 50.0, "2.5"),
        (50.0, 20.0, "0.4"),
        (20.0, INF, "> 5"),
        (INF, 20.0, "< 0.2"),
        (INF, INF, "?"),
    ],
)
def test_a_gain_is_a_number_or_a_bound(mine, competitor, text):
    assert format_gain(np.array([[mine] * 3, [competitor] * 3]), 100) == text


# --- judges of two methods -----------------------------------------------------------------------------------


def test_rounds_to_a_share_of_the_way():
    curve = np.array([[10.0, 6.0, 2.0, 1.0], [10.0, 9.0, 9.0, 9.0], [10.0, 5.0, NAN, NAN], [10.0, 2.0, 1.0, 0.0]])
    start, end = np.full(4, 10.0), np.array([0.0, 0.0, 0.0, 10.0])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.5), [2.0, INF, 1.0, NAN])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.0), [0.0, 0.0, 0.0, NAN])
    curve = np.array([[10.0, 8.1, 7.9, 4.5, 4.0], [12.0, 9.0, 6.0, 3.0, 2.5]])
    start, end = np.array([10.0, 12.0]), np.array([2.0, 4.0])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.25), [2.0, 1.0])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.75), [4.0, 2.0])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 1.0), [INF, 3.0])


def test_fewer_rounds_are_counted_where_there_is_a_level():
    rounds = np.array([[10.0] * 12 + [NAN, 30.0], [20.0] * 10 + [INF, 10.0, 5.0, 30.0]])
    found = judge_fewer_rounds(rounds, **SAID)
    assert found.verdict is Verdict.SUPPORTED
    assert found.detail == "11 of 11 that differ; 11 of all 13 smaller, 0 larger, 2 tied; medians 10 and 20"
    assert judge_fewer_rounds(rounds[::-1], **SAID).verdict is Verdict.NOT_SUPPORTED
    never = judge_fewer_rounds(np.array([[5.0] * 9, [INF] * 9]), **SAID)
    assert never.detail == "9 of 9; medians 5 and never"
    none = judge_fewer_rounds(np.full((2, 9), NAN), **SAID)
    assert (none.verdict, none.detail) == (Verdict.VACUOUS, "no trial has a level to reach")
    assert judge_fewer_rounds(np.ones((2, 9)), **SAID).verdict is Verdict.VACUOUS


def test_ends_within_the_tie_are_equal():
    mine, competitor = np.full(12, 1.0), np.array([1.2] * 10 + [0.9995, NAN])
    found = judge_lower_end(np.array([mine, competitor]), tie=1e-3, **SAID)
    assert found.verdict is Verdict.SUPPORTED
    assert found.detail.startswith("11 of 11 that differ; 11 of all 12 smaller, 0 larger, 1 tied")
    assert found.detail.endswith("median difference -16.67 %")
    assert judge_lower_end(np.array([mine, competitor]), tie=1e-5, **SAID).detail.startswith("11 of 12")
    nearly = judge_lower_end(np.array([np.full(9, 1.0), np.full(9, 1.105)]), tie=0.1, **SAID)
    assert nearly.detail.startswith("9 of 9")  # a tie is relative to the smaller of the two
    diverged = judge_lower_end(np.array([np.full(9, NAN), np.ones(9)]), tie=1e-3, **SAID)
    assert diverged.verdict is Verdict.NOT_SUPPORTED
    assert diverged.detail.endswith("diverges more")


def test_ends_are_described_by_the_median_of_their_ratios():
    mine, competitor = np.array([[1.0, 3.0, 2.0, 8.0, 4.0], [2.0, 2.0, 1.0, 2.0, 3.0]])  # 0.5, 1.5, 2, 4, 1.33 times
    assert judge_lower_end(np.array([mine, competitor]), tie=0.0, **SAID).detail.endswith(
        "; median difference +50.00 %"
    )
    for factor, text in ((101.0, "+10000.00 %"), (101.5, "diverges more")):
        finals = np.array([factor * competitor, competitor])
        assert judge_lower_end(finals, tie=0.0, **SAID).detail.endswith(f"; median difference {text}")
    at_the_tie = judge_lower_end(np.array([np.full(5, 3.0), np.full(5, 2.0)]), tie=0.5, **SAID)
    assert at_the_tie.detail.startswith("0 of 0 that differ")


def test_more_is_gained_at_the_least_size():
    jitter = np.random.default_rng(0).uniform(0.99, 1.01, (2, 40))
    sizes = {k: np.array([[10.0], [10.0 * gain]]) * jitter for k, gain in ((2, 8.0), (4, 4.0), (8, 2.0))}
    found = judge_more_speed(sizes, 1000, name="k", **SAID)
    assert found.verdict is Verdict.SUPPORTED
    assert found.estimate == pytest.approx(4.0, rel=0.05)
    assert found.detail == "gains 8, 4, 2 at k = 2, 4, 8"
    flipped = {k: pair[::-1] for k, pair in sizes.items()}
    assert judge_more_speed(flipped, 1000, name="k", **SAID).verdict is Verdict.NOT_SUPPORTED
    assert judge_more_speed(flipped, 1000, name="k", signed=False, **SAID).verdict is Verdict.SUPPORTED

    found = judge_more_reduction(sizes, name="k", tie=1e-3, **SAID)
    assert found.verdict is Verdict.SUPPORTED
    assert found.estimate == pytest.approx(100 * (1 / 2 - 1 / 8), rel=0.05)
    assert found.detail.endswith("% at k = 2, 4, 8")
    tied = {2: np.ones((2, 9)), 8: np.array([[0.7] * 9, [1.0] * 9])}
    assert judge_more_reduction(tied, name="k", tie=1e-3, **SAID).estimate == pytest.approx(-30.0)
    same = {k: np.ones((2, 9)) * (1 + k) for k in (2, 8)}
    assert judge_more_reduction(same, name="k", tie=1e-3, **SAID).estimate == 0.0
    assert judge_more_reduction(same, name="k", tie=1e-3, **SAID).verdict is Verdict.NOT_SUPPORTED  # not "at least"
    few = {k: pair[:, :4] for k, pair in sizes.items()}
    assert judge_more_reduction(few, name="k", tie=1e-3, **SAID).verdict is Verdict.INCONCLUSIVE


def test_a_larger_reduction_is_resampled_in_pairs():
    finals = {k: np.random.default_rng(k).lognormal(sigma=0.5, size=(2, 7)) for k in (8, 2, 4)}
    finals[2][0, 1] = NAN
    per_cent = {}
    for k, (mine, other) in finals.items():
        each = 100 * (1 - np.where(np.isnan(mine), 1e9, mine) / other)
        per_cent[k] = np.where(np.abs(each) <= 20, 0.0, each)
    index = np.random.default_rng(0).integers(7, size=(2000, 7))
    found = judge_more_reduction(finals, name="k", tie=0.2, **SAID)
    assert found.estimate == pytest.approx(middle(per_cent[2]) - middle(per_cent[8]), rel=1e-10)
    wanted = np.percentile(middle(per_cent[2][index]) - middle(per_cent[8][index]), [2.5, 97.5])
    np.testing.assert_allclose([found.low, found.high], wanted, rtol=1e-10)
    numbers = ", ".join(f"{middle(each):.2g}" for each in per_cent.values())
    assert found.detail == f"{numbers} % at k = 8, 2, 4"
    assert (found.claimed_low, found.strict) == (0.0, True)


def test_two_zeros_are_a_tie():
    finals = np.concatenate([np.zeros((2, 4)), np.array([[1.0] * 4, [2.0] * 4])], axis=1)
    found = judge_more_reduction({1: finals, 2: np.ones((2, 8))}, name="n", tie=0.0, **SAID)
    assert found.verdict is not Verdict.VACUOUS
    assert found.detail == "0, 0 % at n = 1, 2"
    ended = judge_lower_end(finals[:, :7], tie=0.0, **SAID)
    assert ended.detail.endswith("median difference +0.00 %")
