"""Training and held-out samples of six clients, and the loss of a client by its formula."""

import numpy as np

import linfed as lf
from tests.helpers import normal

N, D = 6, 7
PHI = normal(N, D, seed=9)
COUNTS, TEST_COUNTS = [1, 2, 3, 9, 20, 12], [4, 0, 1, 7, 0, 30]


def drawn(*shape, noise=0.3, seed=0):
    """Return samples (..., n, m, d) and noisy labels."""
    X = normal(*shape, D, seed=seed)
    return X, np.einsum("...nmd,nd->...nm", X, PHI[: shape[-2]]) + noise * normal(*shape, seed=seed + 1)


def ragged(counts, seed=0):
    """Return lists of samples and labels, of another number for each client."""
    X, y = drawn(N, max(counts), seed=seed)
    return [rows[:m] for rows, m in zip(X, counts, strict=True)], [row[:m] for row, m in zip(y, counts, strict=True)]


DATA = {
    "arrays": (drawn(N, 15), drawn(N, 4, seed=5)),
    "arrays of trials": (drawn(3, N, 15), drawn(3, N, 4, seed=5)),
    "held out by trial": (drawn(N, 15), drawn(3, N, 4, seed=5)),
    "lists": (ragged(COUNTS), ragged(TEST_COUNTS, seed=5)),
    "lists, held-out arrays": (ragged(COUNTS), drawn(N, 4, seed=5)),
    "trials, held-out lists": (drawn(3, N, 15), ragged(TEST_COUNTS, seed=5)),
}
"""The samples that the clients of each trial have, and those held out."""


def of_trial(samples, trial):
    """Return the samples of one trial, (n, m, d) or lists."""
    X, y = samples
    return (X[trial], y[trial]) if np.ndim(X[0]) == 3 else (X, y)


def given(name):
    return lf.GivenSamples(*DATA[name][0], test=DATA[name][1])


def client_losses(theta, samples):
    """Return ``(1/2m_i)||X_i theta_i - y_i||^2``, NaN for a client without samples; theta (n, d) or (1, d)."""
    pairs = zip(*samples, np.broadcast_to(theta, (len(samples[0]), D)), strict=True)
    return np.array([np.sum((X @ one - y) ** 2) / (2 * len(y)) if len(y) else np.nan for X, y, one in pairs])


def run(algorithm, problem=None, *, data=None, **changes):
    arguments = {"data": given("arrays") if data is None else data, "n_rounds": 5, "trials": 3, "seed": 4} | changes
    return lf.simulate(algorithm, problem, **arguments)
