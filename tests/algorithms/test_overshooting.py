"""The stability edge on fresh samples: where the curvature of the mean step exceeds twice the edge."""

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.overshooting import overshoots_on_representation
from linfed.algorithms.representation.altgdmin import AltGDminState
from linfed.data.explicit import ExplicitBatch
from tests.helpers import basis, normal

N, D, K = 6, 7, 2
COUNTS = {"participants decide": [1.0, 8.0, 3.0, 16.0], "all clients decide": [1e6, 1e6, 1e6, 1e6]}
ACTIVE = np.array([[0, 1, 3, 4]])


def curvature(W, weights, counts):
    """Return the smaller largest eigenvalue of the last participants and of all clients, for a variance of 1."""
    some, every = np.zeros((K, K)), np.zeros((K, K))
    for i, weight, m in zip(ACTIVE[0], weights, counts, strict=True):
        some += weight / 4 * max(0.0, 1.0 - K / m) * np.outer(W[i], W[i])
    for w in W:
        every += np.mean(weights) / N * np.outer(w, w)
    return min(np.linalg.eigvalsh(some)[-1], np.linalg.eigvalsh(every)[-1])


@pytest.fixture(params=COUNTS)
def world(request):
    """Return heads, one of them of a client with fewer samples than columns, a state and a batch."""
    W = normal(N, K, seed=1) * ([[2.0], [1], [1], [1], [1], [1]] if "part" in request.param else [[1.0]])
    W[2] *= 0.1
    counts = np.array([COUNTS[request.param]])
    batch = ExplicitBatch(np.zeros((1, 4, 1, D)), np.zeros((1, 4, 1)), active=ACTIVE, counts=counts, n_clients=N)
    return W, lf.State(B=basis(D, K)[None], W=W[None]), batch


def test_a_step_is_too_large_from_a_curvature_of_4_on(world):
    W, state, batch = world
    weights = np.array([[0.5, 1.0, 2.0, 0.7]])
    edge = 4.0 / curvature(W, weights[0], batch.counts[0])
    for factor in (0.99, 1.01):
        found = overshoots_on_representation(state, batch, factor * edge * weights / 3.0, 3.0)
        assert found.tolist() == [factor > 1]
    diverged = state.update(W=np.where(np.arange(N)[:, None] == 1, np.nan, state.W))
    assert overshoots_on_representation(diverged, batch, 1e9 * weights, 3.0).tolist() == [False]


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_the_step_of_fedrep_counts_with_weights_and_as_a_sum(world, aggregate):
    W, state, batch = world
    own = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
    edge = 4.0 / curvature(W, (own / own.mean())[ACTIVE[0]], batch.counts[0])
    step = edge / (0.5 * N) if aggregate == "sum" else edge
    for factor in (0.99, 1.01):
        algorithm = lf.FedRep(rank=K, step_size=factor * step, weights=own, aggregate=aggregate)
        assert algorithm.overshoots(state, batch, 0.5, 1.0).tolist() == [factor > 1]


@pytest.mark.parametrize("disjoint_samples", [False, True])
@pytest.mark.parametrize("given", [True, False])
def test_the_step_of_altgdmin_counts_on_the_samples_of_its_gradient(given, disjoint_samples):
    """On disjoint samples these are the second half, with the odd sample, and heads of the first explain none of it."""
    W, counts = normal(N, K, seed=1), np.array([[3.0, 8.0, 5.0, 16.0]])
    state = lf.State(B=basis(D, K)[None], W=W[None])
    batch = ExplicitBatch(np.zeros((1, 4, 16, D)), np.zeros((1, 4, 16)), active=ACTIVE, counts=counts, n_clients=N)
    parts = np.ceil(counts[0] / 2) if disjoint_samples else counts[0]
    edge = 4.0 / curvature(W, parts, np.full(4, np.inf) if disjoint_samples else counts[0]) / (0.5 * N)
    for factor in (0.99, 1.01):
        if given:
            algorithm, at = lf.AltGDmin(rank=K, step_size=factor * edge, disjoint_samples=disjoint_samples), state
        else:
            algorithm = lf.AltGDmin(rank=K, disjoint_samples=disjoint_samples)
            norm = np.sqrt(0.5 / (parts.mean() * factor * edge)).reshape(1, 1, 1)
            at = AltGDminState(B=state.B, W=state.W, norm=norm)
        assert algorithm.overshoots(at, batch, 0.5, 1.0).tolist() == [factor > 1]
