"""Batches of drawn samples with padding, and the answers of a loop over trials and clients to every question."""

import numpy as np

from linfed.data.explicit import ExplicitBatch
from linfed.numerics import linalg
from tests import references as ref

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
TRIALS = 3


# name: samples of each client (one row for all trials, or one per trial), d, k
SHAPES = {
    "m > d": ([[12, 12, 12, 12]], 5, 3),
    "m == d": ([[5, 5, 5, 5]], 5, 3),
    "m < d": ([[4, 4, 4, 4]], 6, 3),
    "m == k": ([[3, 3, 3, 3, 3]], 6, 3),
    "m < k": ([[2, 2, 2, 2]], 6, 3),
    "k == 1": ([[4, 4, 4]], 5, 1),
    "k == d": ([[7, 7]], 3, 3),
    "one client": ([[6]], 5, 2),
    "one sample of one client": ([[1]], 4, 2),
    "all sizes equal": ([[3, 3, 3]], 3, 3),
    "unequal": ([[1, 2, 3, 9], [9, 3, 5, 6], [4, 9, 2, 3]], 5, 3),
    "several blocks of clients": ([[40] * 85], 80, 3),
}


# name: values of X in a block, given (p, m, d)
CUTS = {
    "default": lambda p, m, d: linalg.CACHE_VALUES,
    "two trials": lambda p, m, d: 2 * p * m * d,
    "two clients": lambda p, m, d: 2 * m * d,
    "one client": lambda p, m, d: 1,
}


def draw(counts, d, seed=0):
    """Return X (T, p, m, d) and y (T, p, m), zero beyond each client's count, and the counts (T, p)."""
    rng = np.random.default_rng(seed)
    counts = np.broadcast_to(np.array(counts, dtype=float), (TRIALS, len(counts[0]))).copy()
    m = int(counts.max())
    inside = np.arange(m) < counts[..., None]
    X = rng.standard_normal((*counts.shape, m, d)) * inside[..., None]
    return X, rng.standard_normal((*counts.shape, m)) * inside, counts


def rows(X, y, counts):
    """Return nested lists [trial][client] of (X_i, y_i) without padding."""
    return [
        [(X_i[: int(m)], y_i[: int(m)]) for X_i, y_i, m in zip(*trial, strict=True)]
        for trial in zip(X, y, counts, strict=True)
    ]


def everyone(X):
    return np.broadcast_to(np.arange(X.shape[1]), X.shape[:2])


def explicit_batch(X, y, counts):
    return ExplicitBatch(X, y, active=everyone(X), counts=counts)


class Asked:
    """Where the questions are asked: B, per-client theta and heads, one theta for all, weights of clients."""

    def __init__(self, p, d, k, trials=TRIALS, seed=1):
        rng = np.random.default_rng(seed)
        self.B = rng.standard_normal((trials, d, k))
        self.theta, self.common = rng.standard_normal((trials, p, d)), rng.standard_normal((trials, 1, d))
        self.W, self.weights = rng.standard_normal((trials, p, k)), rng.random((trials, p))

    def trial(self, t):
        """Return the questions of one trial."""
        return self._with({name: value[t : t + 1] for name, value in vars(self).items()})

    def at_heads(self, W):
        """Return the questions at other heads."""
        return self._with({"W": W})

    def _with(self, changes):
        other = object.__new__(Asked)
        vars(other).update(vars(self) | changes)
        return other


def answers(batch, asked):
    """Return the batch's answer to every question, by name."""
    features = batch.project(asked.B)
    fit, ridge_fit = features.fit(), features.fit(0.3)
    A, b = batch.normal_equations()
    head_gradient, both = features.head_gradient(asked.W), features.gradients(asked.W)
    return {
        "heads": fit.W,
        "ridge heads": ridge_fit.W,
        "head gradient": head_gradient,
        "head gradient again": features.head_gradient(asked.W[:, ::-1]),  # what the first call keeps is tried too
        "representation gradient": features.representation_gradient(asked.W),
        "representation gradient, sum": features.representation_gradient(asked.W, 1.0),
        "representation gradient, weighted": features.representation_gradient(asked.W, asked.weights),
        "representation gradient at the ridge heads": ridge_fit.representation_gradient(),
        "representation gradient at the heads": fit.representation_gradient(),
        "representation gradient at the heads, sum": fit.representation_gradient(1.0),
        "representation gradient at the heads, weighted": fit.representation_gradient(asked.weights),
        "representation gradient at the heads, as at any": features.representation_gradient(fit.W),
        "gradient beside the fit": fit.shifted().gradient(asked.theta),
        "gradient beside heads": features.shifted(asked.W).gradient(asked.theta),
        "head gradient, of both": both[0],
        "representation gradient, of both": both[1],
        "representation gradient, of both, sum": features.gradients(asked.W, 1.0)[1],
        "representation gradient, of both, weighted": features.gradients(asked.W, asked.weights)[1],
        "gradient": batch.gradient(asked.theta),
        "gradient at one theta": batch.gradient(asked.common),
        "loss": batch.loss(asked.theta),
        "loss at one theta": batch.loss(asked.common),
        "least squares": batch.least_squares(),
        "ridge": batch.least_squares(0.3),
        "pooled least squares": batch.pooled_least_squares(asked.weights),
        "A": A,
        "b": b,
    }


def loop_answers(data, asked):
    """Return the same from a loop; `data` as of `rows`."""
    p = len(data[0])
    B, W = asked.B, asked.W

    def clientwise(question):
        return np.array([[question(X, y, t, i) for i, (X, y) in enumerate(clients)] for t, clients in enumerate(data)])

    def messages(W, weights):
        of_clients = clientwise(lambda X, y, t, i: np.outer(ref.gradient(X, y, B[t] @ W[t, i]), W[t, i]))
        return (np.broadcast_to(weights, (len(data), p))[..., None, None] * of_clients).sum(axis=1)

    def head_gradients(W):
        return clientwise(lambda X, y, t, i: ref.gradient(X @ B[t], y, W[t, i]))

    def beside(W):
        return clientwise(lambda X, y, t, i: ref.gradient(X, y - X @ B[t] @ W[t, i], asked.theta[t, i]))

    heads = clientwise(lambda X, y, t, i: ref.least_squares(X @ B[t], y))
    ridge_heads = clientwise(lambda X, y, t, i: ref.least_squares(X @ B[t], y, 0.3))
    wanted = {
        "heads": heads,
        "ridge heads": ridge_heads,
        "head gradient": head_gradients(W),
        "head gradient again": head_gradients(W[:, ::-1]),
        "head gradient, of both": head_gradients(W),
        "representation gradient at the ridge heads": messages(ridge_heads, 1 / p),
        "representation gradient at the heads, as at any": messages(heads, 1 / p),
        "gradient beside the fit": beside(heads),
        "gradient beside heads": beside(W),
        "gradient": clientwise(lambda X, y, t, i: ref.gradient(X, y, asked.theta[t, i])),
        "gradient at one theta": clientwise(lambda X, y, t, i: ref.gradient(X, y, asked.common[t, 0])),
        "loss": clientwise(lambda X, y, t, i: ref.loss(X, y, asked.theta[t, i])),
        "loss at one theta": clientwise(lambda X, y, t, i: ref.loss(X, y, asked.common[t, 0])),
        "least squares": clientwise(lambda X, y, t, i: ref.least_squares(X, y)),
        "ridge": clientwise(lambda X, y, t, i: ref.least_squares(X, y, 0.3)),
        "pooled least squares": np.array(
            [
                [ref.stacked_least_squares(*zip(*clients, strict=True), asked.weights[t])]
                for t, clients in enumerate(data)
            ]
        ),
        "A": clientwise(lambda X, y, t, i: X.T @ X / max(len(y), 1)),
        "b": clientwise(lambda X, y, t, i: X.T @ y / max(len(y), 1)),
    }
    for where, at in (("", W), (", of both", W), (" at the heads", heads)):
        name = f"representation gradient{where}"
        wanted[name] = messages(at, 1 / p)
        wanted[f"{name}, sum"] = messages(at, 1.0)
        wanted[f"{name}, weighted"] = messages(at, asked.weights)
    return wanted


def assert_answers(batch, data, asked):
    assert np.array_equal(batch.counts, [[len(y) for _, y in clients] for clients in data])
    got, wanted = answers(batch, asked), loop_answers(data, asked)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, **TOLERANCE, err_msg=name)


def assert_same_bits(one, other):
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name
