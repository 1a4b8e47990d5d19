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


@pytest.mark.long
def test_the_gradient_at_exact_heads_is_the_risks_and_vanishes_where_fedrep_ends():
    X, y, B = ragged()
    data, Q = lf.GivenSamples(X, y), np.linalg.qr(B)[0]
    b = data.normal_equations()[1]

    def risk(Q):
        return lf.theory.at_exact_heads(data, Q).risk

    numeric = np.zeros_like(Q)
    for i, j in np.ndindex(5, 2):
        shift = np.zeros((5, 2))
        shift[i, j] = 1e-6
        numeric[:, i, j] = (risk(Q + shift) - risk(Q - shift)) / 2e-6
    found = lf.theory.at_exact_heads(data, Q)
    W = found.predictors @ Q
    size = (np.linalg.norm(b, axis=-1) * np.linalg.norm(W, axis=-1)).sum(axis=-1)
    np.testing.assert_allclose(found.gradient, 3 * np.linalg.norm(numeric, axis=(1, 2)) / size, rtol=1e-6)
    run = {"data": data, "rounds": 3000, "record_every": 3000}
    end = lf.simulate(lf.FedRep(rank=2, step_size=0.2, init=Q[0]), **run).final
    assert lf.theory.at_exact_heads(data, end.B).gradient < 1e-6 < found.gradient[0]


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


def test_heads_that_are_not_unique_are_refused():
    X, y, B = ragged(trials=1, k=5)
    with pytest.raises(ValueError, match="B has 5 columns, but a client has only 4 samples"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    with pytest.raises(ValueError, match=r"B has shape \(1, 4, 2\)"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B[:, :4, :2])
