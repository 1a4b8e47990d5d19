"""Gains in rounds that may be censored, judges of two methods, lines of data sets against one common threshold."""

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
from linfed.statistics.thresholds import best_threshold, line_counts, line_findings

INF, NAN = np.inf, np.nan


def test_lower_median_takes_infinities():
    assert lower_median(np.array([[3.0, 1.0, INF], [2.0, INF, INF]])).tolist() == [3.0, INF]
    assert lower_median(np.array([4.0, 1.0])) == 1.0


@pytest.mark.parametrize(
    ("mine", "rival", "low", "high"),
    [
        ([10.0], [40.0], math.log(4), math.log(4)),
        ([40.0], [10.0], -math.log(4), -math.log(4)),
        ([10.0], [INF], math.log(10), INF),  # the rival never arrives: at least the last round, 100, over 10
        ([INF], [10.0], -INF, -math.log(10)),
        ([INF], [INF], -INF, INF),
        ([120.0], [150.0], math.log(100 / 120), math.log(1.5)),  # both arrive after the last round
    ],
)
def test_a_gain_is_bounded_by_what_is_known(mine, rival, low, high):
    found = log_gain(np.array([mine, rival]), 100)
    assert found[0] == pytest.approx(low)
    assert found[1] == pytest.approx(high)
    sizes = log_gain(np.array([mine, rival]), 100, signed=False)
    inside = low <= 0 <= high
    assert sizes[0] == pytest.approx(0.0 if inside and low != high else min(abs(low), abs(high)))
    assert sizes[1] == pytest.approx(max(abs(low), abs(high)))


def test_a_ratio_of_gains_has_the_ratio_of_medians_and_an_interval_around_it():
    rng = np.random.default_rng(0)
    noise = np.exp(0.1 * rng.standard_normal((4, 200)))
    first, second = np.stack([10 * noise[0], 40 * noise[1]]), np.stack([20 * noise[2], 40 * noise[3]])
    (estimate, low, high), reason = gain_ratio(first, second, 1000)
    assert low < estimate < high
    assert low < 2.0 < high
    assert high / low < 1.2
    assert reason == ""
    flipped = gain_ratio(first[::-1], second, 1000)[0]
    assert flipped[0] == pytest.approx(1 / 4 / 2, rel=0.1)
    assert gain_ratio(first[::-1], second, 1000, signed=False)[0][0] == pytest.approx(2.0, rel=0.1)


def test_a_rival_that_never_arrives_leaves_the_ratio_open():
    known = np.array([[10.0] * 9, [40.0] * 9])
    never = np.array([[10.0] * 9, [INF] * 9])
    (estimate, low, high), _ = gain_ratio(never, known, 100)
    assert math.isnan(estimate)
    assert (low, high) == (pytest.approx(2.5), INF)
    (estimate, low, high), _ = gain_ratio(known, never, 100)
    assert (low, high) == (0.0, pytest.approx(0.4))
    at_once = np.zeros((2, 9))
    assert gain_ratio(at_once, known, 100)[0][1:] == (0.0, INF)
    assert (format_gain(known, 100), format_gain(never, 100)) == ("4", "> 10")
    assert format_gain(never[::-1], 100) == "< 0.1"
    assert format_gain(never[[1, 1]], 100) == "?"


def test_a_factor_of_fewer_rounds_against_a_rivals():
    rng = np.random.default_rng(4)
    mine = [100 * np.exp(0.1 * rng.standard_normal(60)), 20 * np.exp(0.1 * rng.standard_normal(60))]
    rival = [100 * np.exp(0.1 * rng.standard_normal(60)), 50 * np.exp(0.1 * rng.standard_normal(60))]
    (estimate, low, high), note = factor_ratio(mine, rival, 1000)
    assert low < 2.5 < high
    assert estimate == pytest.approx(
        (np.sort(mine[0])[29] / np.sort(mine[1])[29]) / (np.sort(rival[0])[29] / np.sort(rival[1])[29])
    )
    assert note == "medians of rounds over bootstrapped trials"
    never = [np.full(60, INF)] * 2
    (estimate, low, high), note = factor_ratio(mine, never, 1000)
    assert math.isnan(estimate)
    assert (low, high) == (0.0, INF)
    assert "a median is not reached in 1000 rounds" in note


def test_the_trials_before_and_after_may_differ_in_number():
    rng = np.random.default_rng(5)
    many, few = np.exp(rng.standard_normal((2, 50))), 5.0 + np.exp(rng.standard_normal((2, 7)))
    (estimate, low, high), _ = factor_ratio([100 * many[0], 10 * few[0]], [100 * many[1], 20 * few[1]], 10**6)
    medians = [100 * np.sort(many)[:, 24], 10 * np.sort(few)[:, 3] * [1.0, 2.0]]
    assert estimate == pytest.approx((medians[0][0] / medians[1][0]) / (medians[0][1] / medians[1][1]))
    assert low < estimate < high


def test_trials_without_a_level_are_left_out():
    rounds = np.array([[10.0, NAN, *[10.0] * 5], [40.0, 1.0, *[40.0] * 5]])
    assert gain_ratio(rounds, rounds, 100)[0] == pytest.approx((1.0, 1.0, 1.0))
    assert format_gain(rounds, 100) == "4"
    (estimate, low, high), reason = gain_ratio(rounds[:, :5], rounds[:, :5], 100)
    assert math.isnan(estimate)
    assert (low, high, reason) == (0.0, INF, "too few trials have a level to reach")
    assert format_gain(np.full((2, 3), NAN), 100) == "-"


# --- judges of two methods -----------------------------------------------------------------------------------

SAID = {"claim": "mine beats the rival", "setting": "here", "statistic": "a share", "source": "test"}


def test_rounds_to_a_share_of_the_way():
    curve = np.array([[10.0, 6.0, 2.0, 1.0], [10.0, 9.0, 9.0, 9.0], [10.0, 5.0, NAN, NAN], [10.0, 2.0, 1.0, 0.0]])
    start, end = np.full(4, 10.0), np.array([0.0, 0.0, 0.0, 10.0])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.5), [2.0, INF, 1.0, NAN])
    np.testing.assert_array_equal(rounds_to_share(curve, start, end, 0.0), [0.0, 0.0, 0.0, NAN])


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
    mine, rival = np.full(12, 1.0), np.array([1.2] * 10 + [0.9995, NAN])
    found = judge_lower_end(np.array([mine, rival]), tie=1e-3, **SAID)
    assert found.verdict is Verdict.SUPPORTED
    assert found.detail.startswith("11 of 11 that differ; 11 of all 12 smaller, 0 larger, 1 tied")
    assert found.detail.endswith("median difference -16.67 %")
    assert judge_lower_end(np.array([mine, rival]), tie=1e-5, **SAID).detail.startswith("11 of 12")
    nearly = judge_lower_end(np.array([np.full(9, 1.0), np.full(9, 1.105)]), tie=0.1, **SAID)
    assert nearly.detail.startswith("9 of 9")  # a tie is relative to the smaller of the two
    diverged = judge_lower_end(np.array([np.full(9, NAN), np.ones(9)]), tie=1e-3, **SAID)
    assert diverged.verdict is Verdict.NOT_SUPPORTED
    assert diverged.detail.endswith("diverges more")


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


# --- lines ---------------------------------------------------------------------------------------------------


def test_the_best_threshold_is_found_by_trying_all():
    rng = np.random.default_rng(1)
    for _ in range(50):
        outcome = rng.random((6, 7)) < np.linspace(0, 1, 7)
        tried = [np.sum(outcome == (np.arange(7) >= start)) for start in range(8)]
        assert np.sum(outcome == best_threshold(outcome)) == max(tried)


def sets(starts):
    """Return outcomes (sets, 1, 10) that begin at a point of each data set."""
    return np.arange(10) >= np.array(starts)[:, None, None]


def test_a_line_that_knows_each_data_set_is_worth_more_than_one_threshold():
    starts = np.random.default_rng(2).integers(1, 10, size=30)
    counts = line_counts(sets(starts), sets(starts))
    assert counts.shape == (30, 2, 3)
    assert counts[:, 0, 0].tolist() == counts[:, 0, 1].tolist() == [10] * 30
    assert counts[:, 1, 0].tolist() == [2] * 30
    said = {"fixed": "a threshold", "claim": "it begins there", "setting": "here"}
    whole, near = line_findings(counts, **said)
    assert (whole.verdict, near.verdict) == (Verdict.SUPPORTED, Verdict.SUPPORTED)
    assert whole.estimate == pytest.approx(1 - counts[:, 0, 2].sum() / 300)
    assert "right at every point in 100 % of the 30 data sets" in whole.detail
    assert "right" not in near.detail


def test_a_line_that_is_wrong_or_the_same_is_not_supported():
    starts = np.random.default_rng(3).integers(1, 10, size=30)
    said = {"fixed": "a threshold", "claim": "it begins there", "setting": "here"}
    wrong = line_findings(line_counts(sets(starts), ~sets(starts)), **said)
    assert wrong[0].verdict is Verdict.NOT_SUPPORTED
    same = line_findings(line_counts(sets([4] * 20), sets([4] * 20)), **said)
    assert [one.verdict for one in same] == [Verdict.VACUOUS] * 2


def test_every_column_has_a_threshold_of_its_own():
    outcome = np.concatenate([sets([2] * 5), sets([8] * 5)], axis=1)
    counts = line_counts(outcome, outcome)
    assert (counts[:, 0, 2] == 20).all()
