"""Softmax and cross-entropy of stacks of logits: against single samples, and without overflow."""

import numpy as np

from linfed.numerics.softmax import cross_entropy, softmax_residual
from tests.helpers import normal


def test_large_logits_lose_nothing():
    logits = np.array([[1e4, 0.0, -1e4], [0.0, 1e4, 1e4], [-1e4, 0.0, 1e4]])  # (c, m)
    labels = np.array([0, 0, 1])
    assert cross_entropy(logits, labels).tolist() == [0.0, 1e4, np.log(2)]
    expected = [[0.0, -1.0, 0.0], [0.0, 1.0, -0.5], [0.0, 0.0, 0.5]]
    assert softmax_residual(logits.copy(), labels).tolist() == expected


def test_stacks_of_logits_are_their_samples_one_by_one():
    """A sample alone has the bits that it has among others."""
    logits, labels = 3 * normal(2, 3, 40, 5), np.random.default_rng(1).integers(0, 40, (2, 3, 5))
    residual, losses = softmax_residual(logits.copy(), labels), cross_entropy(logits, labels)
    for t, i, j in np.ndindex(2, 3, 5):
        one, label = logits[t, i, :, j], labels[t, i, j]
        total = np.log(np.exp(one).sum())
        np.testing.assert_allclose(losses[t, i, j], total - one[label], rtol=1e-10)
        wanted = np.exp(one - total) - (np.arange(40) == label)
        np.testing.assert_allclose(residual[t, i, :, j], wanted, rtol=1e-10, atol=1e-10)
        alone = softmax_residual(np.ascontiguousarray(one[:, None]), labels[t, i, j : j + 1])
        assert alone.tobytes() == np.ascontiguousarray(residual[t, i, :, j]).tobytes()
