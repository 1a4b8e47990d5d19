"""Shortcuts of clients, drawn beside equal heads."""

import numpy as np

import linfed as lf

TRIALS = range(3)


def test_uncorrelated_shortcuts_of_equal_heads():
    """All heads are equal: the shortcuts lose their mean, and no client loses its own."""
    options = {"n_clients": 40, "dim": 9, "rank": 3, "shortcut_norm": 0.7, "heterogeneity": 0.0}
    truth = lf.SharedWithShortcuts(**options, uncorrelated=True).truth(2, TRIALS)
    drawn = lf.SharedWithShortcuts(**options).truth(2, TRIALS).S
    np.testing.assert_allclose(truth.S.mT @ truth.W, 0, atol=1e-13)
    centred = drawn - drawn.mean(axis=1, keepdims=True)
    factors = np.linalg.norm(drawn, axis=(1, 2)) / np.linalg.norm(centred, axis=(1, 2))
    np.testing.assert_allclose(truth.S, centred * factors[:, None, None], atol=1e-14)
