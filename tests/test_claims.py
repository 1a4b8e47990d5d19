"""Verdicts and the intervals they rest on."""

import numpy as np
import pytest
from scipy import stats

from linfed.claims import (
    Claim,
    Verdict,
    bootstrap_interval,
    claims_table,
    first_round_below,
    probability_smaller,
    share_smaller,
)


def claim(low, high, **changes):
    fields = {"text": "t", "where": "w", "statistic": "s", "estimate": (low + high) / 2, "reference": 0.5}
    return Claim(**{**fields, **changes}, low=low, high=high)


def test_verdicts():
    assert claim(0.6, 0.9).verdict is Verdict.SUPPORTED
    assert claim(0.1, 0.4).verdict is Verdict.NOT_SUPPORTED
    assert claim(0.4, 0.6).verdict is Verdict.INCONCLUSIVE
    assert claim(0.5, 0.6).verdict is Verdict.INCONCLUSIVE
    assert claim(np.nan, np.nan).verdict is Verdict.INCONCLUSIVE


def test_first_round_below():
    rounds = np.array([0, 2, 4, 5])
    values = np.array(
        [[1.0, 0.5, 0.1, 0.3], [1.0, 1.0, 1.0, 1.0], [0.05, 1.0, 1.0, 1.0], [1.0, np.nan, np.nan, np.nan]]
    )
    np.testing.assert_array_equal(first_round_below(rounds, values, 0.1), [4, np.inf, 0, np.inf])


def test_share_smaller_leaves_ties_out():
    first = np.array([1.0, 2.0, 3.0, np.inf, 5.0])
    second = np.array([2.0, 3.0, 4.0, np.inf, 4.0])
    (share, low, high), detail = share_smaller(first, second)
    assert detail == "3 of 4, 1 ties"
    exact = stats.binomtest(3, 4).proportion_ci(method="exact")
    assert (share, low, high) == (0.75, exact.low, exact.high)
    assert share_smaller(first, first)[0][1:] == (0.0, 1.0)


def test_probability_smaller_counts_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 30).astype(float), rng.integers(2, 9, 40).astype(float)
    a[0] = b[0] = np.inf
    pairs = [(x < y) + 0.5 * (x == y) for x in a for y in b]
    estimate, low, high = probability_smaller(a, b)
    assert estimate == pytest.approx(np.mean(pairs), abs=1e-12)
    assert low < estimate < high
    assert probability_smaller(np.zeros(10), np.ones(20))[0] == 1.0
    edge = stats.binomtest(0, 10).proportion_ci(method="exact").high
    assert probability_smaller(np.zeros(10), np.ones(20))[1] == pytest.approx(1 - edge)
    assert probability_smaller(np.ones(10), np.zeros(20)) == (0.0, 0.0, pytest.approx(edge))


def test_bootstrap_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(100):
        low, high = bootstrap_interval(np.mean, (rng.standard_normal(40),), seed=seed, resamples=300)
        covered += low <= 0.0 <= high
    assert stats.binomtest(covered, 100, 0.93).pvalue > 1e-4


def test_table_says_each_sentence_once():
    text = claims_table([claim(0.6, 0.9, note="mind"), claim(0.1, 0.4, where="v", note="mind"), claim(0, 1, text="u")])
    assert text.count("\n  s; the claim says above 0.5") == 2
    assert text.count("(1)") == 3
    assert text.splitlines()[-1] == "(1) mind"
    assert "  -  [" in claims_table([claim(0.0, 1.0, estimate=np.nan)])
