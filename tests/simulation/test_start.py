"""Initial states: their distance from the truth, random subspaces, and the method of moments."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, generators
from tests.helpers import normal
from tests.simulation.watched import Watched

EPS = np.finfo(float).eps
PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.1)


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.0, 1e-12, 0.3, 1.0])
@pytest.mark.parametrize(("d", "truth_rank", "rank"), [(7, 3, 3), (6, 3, 3), (9, 4, 2), (2, 1, 1)])
def test_at_distance_has_all_angles_equal(delta, d, truth_rank, rank):
    """Over many trials: with d = 2k the random directions are now and then nearly dependent.

    They must not leave the orthogonal complement of the truth by more than rounding.
    """
    problem = lf.SharedRepresentation(n_clients=6, dim=d, rank=truth_rank)
    algorithm = lf.FedRep(rank=rank, step_size=0.1, init=lf.AtDistance(delta))
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(3), rounds=0, trials=300, seed=2)
    B, Q = result.final.B, problem.truth(2, range(300)).reference(rank)
    sines = np.linalg.svd(B - Q @ (np.swapaxes(Q, -1, -2) @ B), compute_uv=False)
    np.testing.assert_allclose(sines, delta, atol=20 * EPS)
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ B, np.broadcast_to(np.eye(rank), (300, rank, rank)), atol=1e-14)
    np.testing.assert_allclose(result.metrics["subspace_distance"][:, 0], delta, atol=20 * EPS)
    assert len({basis.tobytes() for basis in B}) == 300


def test_a_random_subspace_is_orthonormal_and_of_its_trial():
    algorithm = lf.FedRep(rank=3, step_size=0.1, init="random")
    B = lf.simulate(algorithm, PROBLEM, data=lf.FreshSamples(3), rounds=0, trials=4).final.B
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ B, np.broadcast_to(np.eye(3), (4, 3, 3)), atol=1e-14)
    assert len({basis.tobytes() for basis in B}) == 4


def moments(X, y):
    """Return ``(1/n) sum_i (1/m_i) sum_j y_ij^2 x_ij x_ij'`` sample by sample, from lists of clients."""
    return sum(
        sum(label**2 * np.outer(x, x) for x, label in zip(rows, labels, strict=True)) / len(labels)
        for rows, labels in zip(X, y, strict=True)
    ) / len(X)


def assert_top_subspace(B, M):
    top = np.linalg.eigh(M)[1][:, ::-1][:, : B.shape[1]]
    np.testing.assert_allclose(np.abs(np.vecdot(B.T, top.T)), 1.0, atol=1e-10)  # the eigenvectors, largest first


def initial(init, problem, data, **arguments):
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=init)
    return lf.simulate(algorithm, problem, data=data, rounds=0, **arguments).final.B


CLIENTS = [("moments", 8), (lf.Moments(clients=3), 3), (lf.Moments(clients=8), 8), (lf.Moments(clients=1), 1)]


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_given_data(init, clients):
    """Also if the clients' numbers of samples differ."""
    X, y = normal(3, 8, 5, 6), normal(3, 8, 5, seed=1)
    for trial, B in enumerate(initial(init, None, lf.GivenSamples(X, y))):
        assert_top_subspace(B, moments(X[trial, :clients], y[trial, :clients]))
    X = [normal(2 + i % 4, 6, seed=i) for i in range(8)]
    y = [normal(2 + i % 4, seed=10 + i) for i in range(8)]
    (B,) = initial(init, None, lf.GivenSamples(X, y))
    assert_top_subspace(B, moments(X[:clients], y[:clients]))


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_fixed_data_use_the_data_themselves(init, clients):
    """With one sample per client ``b_i = x_i y_i``, and ``b_i b_i'`` is its term."""
    watched = Watched(inner=lf.LocalOnly())
    lf.simulate(watched, PROBLEM, data=lf.FixedSamples(1), rounds=1, trials=3, metrics=["risk"])
    _, b = watched.seen[0]
    for B, terms in zip(initial(init, PROBLEM, lf.FixedSamples(1), trials=3), b, strict=True):
        if clients > 1:
            assert_top_subspace(B, np.einsum("nd,ne->de", terms[:clients], terms[:clients]))
        else:
            assert np.abs(B[:, 0] @ terms[0]) == pytest.approx(np.linalg.norm(terms[0]), rel=1e-12)


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_fresh_data_have_samples_of_their_own(init, clients):
    truth = PROBLEM.truth(7, range(3))
    bases = initial(init, PROBLEM, lf.FreshSamples(5), trials=3, seed=7)
    for trial, B in enumerate(bases):
        (x_rng,), (noise_rng,) = (generators(7, stream, [trial]) for stream in (Stream.INIT_X, Stream.INIT_NOISE))
        X, noise = x_rng.standard_normal((clients, 5, 6)), 0.1 * noise_rng.standard_normal((clients, 5))
        phi = truth.dense()[trial, :clients]
        assert_top_subspace(B, moments(X, np.einsum("nmd,nd->nm", X, phi) + noise))


def test_moments_over_many_blocks_of_clients():
    """2500 clients of 40 values pass through the cache in two blocks, as in one."""
    X, y = normal(2500, 4, 10), normal(2500, 4, seed=1)
    (B,) = initial("moments", None, lf.GivenSamples(X, y))
    assert_top_subspace(B, np.einsum("nm,nmd,nme->de", y**2, X, X, optimize=True))
