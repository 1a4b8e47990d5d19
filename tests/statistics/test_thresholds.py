"""Lines that predict where each data set changes, against one common threshold."""

import numpy as np
import pytest
from scipy import stats

from linfed.statistics.findings import Verdict
from linfed.statistics.thresholds import best_threshold, line_counts, line_findings

SAID = {"fixed": "a threshold", "claim": "it begins there", "setting": "here"}


def sets(starts):
    """Return outcomes (sets, 1, 10) that begin at a point of each data set."""
    return np.arange(10) >= np.array(starts)[:, None, None]


def test_the_best_threshold_is_found_by_trying_all():
    rng = np.random.default_rng(1)
    for _ in range(50):
        outcome = rng.random((6, 7)) < np.linspace(0, 1, 7)
        tried = [np.sum(outcome == (np.arange(7) >= start)) for start in range(8)]
        assert np.sum(outcome == best_threshold(outcome)) == max(tried)


def test_a_line_for_each_data_set_is_worth_more_than_one_threshold():
    starts = np.random.default_rng(2).integers(1, 10, size=30)
    counts = line_counts(sets(starts), sets(starts))
    assert counts.shape == (30, 2, 3)
    assert counts[:, 0, 0].tolist() == counts[:, 0, 1].tolist() == [10] * 30
    assert counts[:, 1, 0].tolist() == [2] * 30
    whole, near = line_findings(counts, **SAID)
    assert (whole.verdict, near.verdict) == (Verdict.SUPPORTED, Verdict.SUPPORTED)
    assert whole.estimate == pytest.approx(1 - counts[:, 0, 2].sum() / 300)


def test_a_line_that_is_wrong_or_the_same_is_not_supported():
    starts = np.random.default_rng(3).integers(1, 10, size=30)
    wrong = line_findings(line_counts(sets(starts), ~sets(starts)), **SAID)
    assert wrong[0].verdict is Verdict.NOT_SUPPORTED
    same = line_findings(line_counts(sets([4] * 20), sets([4] * 20)), **SAID)
    assert [one.verdict for one in same] == [Verdict.VACUOUS] * 2


def test_every_column_has_a_threshold_of_its_own():
    outcome = np.concatenate([sets([2] * 5), sets([8] * 5)], axis=1)
    counts = line_counts(outcome, outcome)
    assert (counts[:, 0, 2] == 20).all()


def test_points_of_a_line_are_counted_one_by_one():
    rng = np.random.default_rng(4)
    outcome, predicted = rng.random((2, 8, 3, 7)) < np.linspace(0.1, 0.9, 7)
    counts = line_counts(outcome, predicted)
    for number, (mine, told) in enumerate(zip(outcome, predicted, strict=True)):
        wanted = np.zeros((2, 3))
        for column in range(3):
            fixed = best_threshold(outcome[:, column])
            for point in range(7):
                line = told[column]
                sides = [line[one] != line[point] for one in (point - 1, point + 1) if 0 <= one < 7]
                for kind in (0, 1) if any(sides) else (0,):
                    hit = mine[column, point]
                    wanted[kind] += [1, hit == line[point], hit == fixed[point]]
        np.testing.assert_array_equal(counts[number], wanted)


def test_a_line_is_judged_by_its_share_of_points_with_students_interval_over_data_sets():
    rng = np.random.default_rng(5)
    points = np.stack([np.full(9, 10), rng.integers(1, 4, 9)])
    counts = np.stack([points, rng.binomial(points, 0.8), rng.binomial(points, 0.5)], axis=-1).transpose(1, 0, 2)
    counts[:3, 0, 1] = 10

    found = line_findings(counts.reshape(3, 3, 2, 3), fixed="a threshold", claim="it begins there", setting="here")
    for place, one in enumerate(found):
        columns = list(counts[:, place].T.astype(float))
        gained = columns[1] - columns[2]
        share = gained.sum() / columns[0].sum()
        error = 3 * (gained - share * columns[0]).std(ddof=1) / columns[0].sum()  # the rests add up to 0
        low, high = stats.t.interval(0.95, 8, share, error)
        assert (one.estimate, one.low, one.high) == pytest.approx((share, low, high), rel=1e-10)
        total, line, other = (int(column.sum()) for column in columns)
        text = f"{100 * line / total:.1f} % against {100 * other / total:.1f} % of {total}"
        whole = (counts[:, 0, 1] == 10).mean()
        text += "" if place else f"; right at every point in {100 * whole:.0f} % of the 9 data sets"
        assert (one.detail, one.claimed_low, one.strict, one.vacuous) == (text, 0.0, True, "")
    assert [one.statistic for one in found] == [
        f"share of {which} that the line predicts, minus that of a threshold"
        for which in ("all points", "the two points on both sides of the line")
    ]


def test_a_line_of_one_data_set_is_not_judged():
    (found, _) = line_findings(np.array([[[5, 5, 4], [2, 2, 1]]]), fixed="f", claim="c", setting="s")
    assert (found.verdict, found.low, found.high) == (Verdict.INCONCLUSIVE, -np.inf, np.inf)


def test_a_line_without_points_near_it_says_nothing():
    near = line_findings(np.array([[[5, 5, 4], [0, 0, 0]]] * 6), fixed="f", claim="c", setting="s")[1]
    assert (near.verdict, near.estimate, near.low, near.high) == (Verdict.VACUOUS, 0.0, 0.0, 0.0)
    assert near.detail == "0.0 % against 0.0 % of 0"
