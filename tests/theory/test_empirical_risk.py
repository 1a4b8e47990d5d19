"""The empirical risk at exact heads: heads, risk and gradient, against least squares client by client."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref


def ragged(trials=2, k=2):
    """Return samples of clients with different counts, and a representation for each trial."""
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((m, 5)) for m in (4, 7, 9)]
    y = [rng.standard_normal(len(rows)) for rows in X]
    return X, y, rng.standard_normal((trials, 5, k))


def test_exact_heads_are_those_of_least_squares():
    X, y, B = ragged()
    found = lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    for trial in range(2):
        risks = []
        for client, (rows, labels) in enumerate(zip(X, y, strict=True)):
            theta = B[trial] @ np.linalg.lstsq(rows @ B[trial], labels, rcond=None)[0]
            np.testing.assert_allclose(found.predictors[trial, client], theta, rtol=1e-10)
            risks.append(np.mean((labels - rows @ theta) ** 2) / 2)
        assert found.risk[trial] == pytest.approx(np.mean(risks))


@pytest.mark.parametrize("k", [2, 4])
def test_the_gradient_at_exact_heads_by_loops(k):
    """At k = 4 of as many columns as a client has samples."""
    X, y, B = ragged(k=k)
    found = lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    for trial in range(2):
        Q, G, size = np.linalg.qr(B[trial])[0], np.zeros((5, k)), 0.0
        for rows, labels in zip(X, y, strict=True):
            w = np.linalg.lstsq(rows @ Q, labels, rcond=None)[0]
            G += np.outer(ref.gradient(rows, labels, Q @ w), w)
            size += np.linalg.norm(rows.T @ labels / len(labels)) * np.linalg.norm(w)
        assert found.gradient[trial] == pytest.approx(np.linalg.norm(G) / size, rel=1e-9)


def test_a_diverged_trial_is_nan_and_leaves_the_others():
    X, y, B = ragged()
    data, spoiled = lf.GivenSamples(X, y), B.copy()
    spoiled[0, 0, 0] = np.nan
    for one, found in zip(lf.theory.at_exact_heads(data, B), lf.theory.at_exact_heads(data, spoiled), strict=True):
        assert np.isnan(found[0]).all()
        np.testing.assert_array_equal(found[1], one[1])
    assert np.isnan(lf.theory.at_exact_heads(data, spoiled[:1]).risk).all()


def test_heads_that_are_not_unique_are_refused():
    X, y, B = ragged(trials=1, k=5)
    with pytest.raises(ValueError, match="B has 5 columns, but a client has only 4 samples"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    with pytest.raises(ValueError, match=r"B has shape \(1, 4, 2\)"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B[:, :4, :2])
