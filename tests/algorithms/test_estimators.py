"""Spectral estimators of one round: their matrix as loops over samples, and their heads."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis
from tests.worlds import ESTIMATORS, SHAPES, draw_participants, draw_world, of_classes, one_sample


def matrix(name, X, y, weights="uniform"):
    """Return the matrix of an estimator over clients, by loops over clients and samples."""
    return sum(share * of_client(name, *own) for share, *own in zip(ref.shares(y, weights), X, y, strict=True))


def of_client(name, X_i, y_i):
    """Return the matrix of one client."""
    total = 0.0
    if len(y_i):
        m, half = len(y_i), len(y_i) // 2
        h = sum(a * x for x, a in zip(X_i, y_i, strict=True)) / m
        if name == "moments":
            total = total + sum(a**2 * np.outer(x, x) for x, a in zip(X_i, y_i, strict=True)) / m
        elif name == "U-statistic":
            pairs = [y_i[j] * y_i[r] * np.outer(X_i[j], X_i[r]) for j in range(m) for r in range(m) if j != r]
            total = total + sum(pairs) / (m * (m - 1))
        elif name == "local averages":
            total = total + np.outer(h, h)
        else:
            parts = slice(0, half), slice(half, 2 * half)
            first, second = (X_i[part].T @ y_i[part] / half for part in parts)
            total = total + np.outer(first, second)
    return total


def leading(name, M, rank):
    if name == "two replicas, one-sided":
        return np.linalg.svd(M)[0][:, :rank]
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    order = np.argsort(-np.abs(values) if name == "two replicas" else -values)
    return vectors[:, order[:rank]]


def same_subspace(one, other):
    assert one.shape == other.shape
    np.testing.assert_allclose(one.T @ one, np.eye(one.shape[1]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(one @ one.T, other @ other.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("shape", "weights"), [*((shape, "uniform") for shape in SHAPES), ("unequal", "samples")])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_round_is_the_loop(name, shape, weights):
    counts, d, k, p = SHAPES[shape]
    counts = [max(m, 2) for m in counts]
    world = draw_world(counts, d, k, noise=0.3, seed=1)
    active = np.sort(draw_participants(world.n, p, 1)[0])
    X, y = [world.X[i] for i in active], [world.y[i] for i in active]
    algorithm = dataclasses.replace(ESTIMATORS[name](rank=k), weights=weights)
    *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=1, participation=active[None])
    M = matrix(name, X, y, weights)
    B = step.after.B[0]
    values = np.linalg.svd(M if "sided" in name else (M + M.T) / 2, compute_uv=False)
    if k < d and values[k - 1] > 1e-6 and values[k - 1] / max(values[k], 1e-300) > 1.001:
        same_subspace(B, leading(name, M, k))
    for i, X_i, y_i in zip(active, X, y, strict=True):
        np.testing.assert_allclose(step.after.W[0, i], ref.least_squares(X_i @ B, y_i), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("shape", "clip_quantile"), [*((shape, None) for shape in SHAPES), *(("unequal", one) for one in (0.0, 0.5, 1.0))]
)
def test_local_fits_have_the_singular_vectors_of_the_loop(shape, clip_quantile):
    counts, d, k, p = SHAPES[shape]
    world = draw_world(counts, d, k, noise=0.3, seed=1)
    active = np.sort(draw_participants(world.n, p, 1)[0])
    X, y = [world.X[i] for i in active], [world.y[i] for i in active]
    algorithm = lf.LocalSpectral(rank=k, clip_quantile=clip_quantile)
    *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=1, participation=active[None])
    B = step.after.B[0]
    if k <= p:
        same_subspace(B, ref.local_spectral(X, y, k, clip_quantile))
    for i, X_i, y_i in zip(active, X, y, strict=True):
        np.testing.assert_allclose(step.after.W[0, i], ref.least_squares(X_i @ B, y_i), rtol=1e-8, atol=1e-8)


def test_local_fits_are_weighted_by_samples():
    world = draw_world([3, 20, 9, 6], 5, 2, noise=0.3, seed=1)
    *_, step = lf.iterate(lf.LocalSpectral(rank=2, weights="samples"), data=world.data(), n_rounds=1)
    fits = [len(y) * np.outer(*[ref.least_squares(X, y)] * 2) for X, y in zip(world.X, world.y, strict=True)]
    same_subspace(step.after.B[0], np.linalg.eigh(sum(fits))[1][:, -2:])


def test_a_quantile_protects_local_fits_from_one_that_is_far_away():
    rng = np.random.default_rng(0)
    B, far = np.eye(6)[:, :2], np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 100.0]])
    Phi = np.concatenate([rng.standard_normal((40, 2)) @ B.T, far])
    problem = lf.GivenTruth(B=B, Phi=Phi)
    data = lf.GivenSamples.population(problem)
    free, clipped = (
        lf.simulate(lf.LocalSpectral(rank=2, clip_quantile=q), problem, data=data, n_rounds=1) for q in (None, 0.5)
    )
    assert free.metrics["subspace_distance"][0, -1] > 0.99
    assert clipped.metrics["subspace_distance"][0, -1] < 0.01
    np.testing.assert_allclose(free.final.B[0, 5, 0] ** 2, 1.0, atol=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_many_clients_lead_to_the_representation(name):
    problem = lf.SharedRepresentation(n_clients=4000, dim=8, rank=2, noise_std=0.5)
    data = lf.FixedSamples(2)  # m = k: FedRep does not move
    distance = lf.simulate(ESTIMATORS[name](rank=2), problem, data=data, n_rounds=1).metrics["subspace_distance"][0]
    assert distance[-1] < 0.35 < distance[0]
    frozen = lf.simulate(lf.FedRep(rank=2, step_size=0.5, init="random"), problem, data=data, n_rounds=5)
    curve = frozen.metrics["subspace_distance"][0]
    assert curve[-1] == pytest.approx(curve[0], abs=1e-12)


def test_the_moments_are_those_of_the_initialisation():
    problem = lf.SharedRepresentation(n_clients=30, dim=8, rank=2, noise_std=0.5)
    run = {"data": lf.FixedSamples(9)}
    start = lf.simulate(lf.FedRep(rank=2, step_size=0.1, init="moments"), problem, n_rounds=0, **run).final.B[0]
    same_subspace(lf.simulate(lf.MethodOfMoments(rank=2), problem, n_rounds=1, **run).final.B[0], start)


def test_noiseless_clients_of_full_rank_have_the_subspace_of_their_averages():
    B = basis(6, 2)
    problem = lf.GivenTruth(B=B, W=np.random.default_rng(0).standard_normal((5, 2)))
    data = lf.GivenSamples.population(problem)
    found = lf.simulate(lf.LocalGram(rank=2), problem, data=data, n_rounds=1)
    assert found.metrics["subspace_distance"][0, -1] < 1e-12
    assert found.metrics["parameter_error"][0, -1] < 1e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: one_sample(lf.UStatistic(rank=1)), ["n_samples = 1 must be at least 2"]),
        (lambda: one_sample(lf.TwoReplica(rank=1)), ["n_samples = 1 must be at least 2"]),
        (lambda: lf.LocalSpectral(rank=2, clip_quantile=1.5), ["clip_quantile = 1.5", "from 0 to 1"]),
        (lambda: one_sample(lf.LocalGram(rank=4)), ["rank = 4 must be at most dim = 3"]),
        (
            lambda: of_classes(lf.LocalGram(rank=2)),
            ["LocalGram supports only regression", "2 classes"],
        ),
    ],
)  # fmt: skip
def test_an_invalid_option_is_named(call, words):
    assert_one_line(call, words)
