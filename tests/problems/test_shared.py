"""Shared representations: what is promised exactly, heterogeneous heads, and clients that took no part."""

import dataclasses
import math
import pickle

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.streams import Stream, generators
from linfed.problems import shared as module

TRIALS = range(4)
ERRORS = 5.0
"""Standard errors that a mean may be off."""


def assert_mean(values, wanted):
    """Assert that the mean of independent values (samples, ...) is the wanted one, within its error."""
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    off = np.abs(values.mean(axis=0) - wanted)
    assert (off <= ERRORS * error + 1e-12).all(), (values.mean(axis=0), wanted, error)


def shared(**changes):
    return lf.SharedRepresentation(**{"n_clients": 12, "dim": 7, "rank": 3} | changes)


@pytest.mark.parametrize(("n", "d", "k"), [(20, 7, 3), (3, 5, 3), (2, 4, 3), (5, 4, 4), (9, 6, 1), (1, 1, 1)])
def test_shared_representation_has_orthonormal_columns_and_heads_of_one_length(n, d, k):
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=0.5)
    truth = problem.truth(0, TRIALS)
    assert (truth.B.shape, truth.W.shape, truth.S) == ((4, d, k), (4, n, k), None)
    np.testing.assert_allclose(
        np.swapaxes(truth.B, -1, -2) @ truth.B, np.broadcast_to(np.eye(k), (4, k, k)), atol=1e-14
    )
    np.testing.assert_allclose(np.sqrt(np.vecdot(truth.W, truth.W)), math.sqrt(k), rtol=1e-14)
    np.testing.assert_allclose(truth.scale, math.sqrt(k), rtol=1e-14)
    assert (problem.n_clients, problem.dim, problem.rank, problem.subspace_rank) == (n, d, k, k)
    assert (truth.noise_std, truth.design) == (0.5, lf.Gaussian())
    assert problem.floats_per_trial() == truth.B[0].size + truth.W[0].size


@pytest.mark.parametrize(
    ("n", "k", "kappa"),
    [(30, 3, 1.0), (30, 3, 2.5), (100, 5, 10.0), (4, 2, 30.0), (3, 3, 1.0), (7, 1, 1.0), (40, 2, 1e4)],
)
def test_condition_number_is_exact_and_heads_keep_their_length(n, k, kappa):
    problem = lf.SharedRepresentation(n_clients=n, dim=6, rank=k, condition_number=kappa, head_norm=2.0)
    heads = problem.truth(3, TRIALS).W
    for W in heads:
        values = np.linalg.svd(W, compute_uv=False)
        expected = np.geomspace(kappa, 1.0, k)
        expected *= 2.0 * math.sqrt(n) / math.sqrt((expected**2).sum())
        # Heads have their length to 1e-12, and that moves each singular value by as much of the largest.
        np.testing.assert_allclose(values, expected, atol=2e-12 * expected[0])
        np.testing.assert_allclose(np.sqrt(np.vecdot(W, W)), 2.0, rtol=1e-14)


def test_a_condition_number_keeps_the_trials_apart():
    W = lf.SharedRepresentation(n_clients=9, dim=4, rank=2, condition_number=3.0).truth(0, TRIALS).W
    assert len({heads.tobytes() for heads in W}) == 4


@pytest.mark.parametrize(("kappa", "h"), [(None, 1.0), (3.0, 1.0), (None, 0.5)])
def test_a_truth_depends_on_seed_and_trial_alone(kappa, h):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=2, condition_number=kappa, heterogeneity=h)
    truth, alone, other = problem.truth(1, range(8)), problem.truth(1, [7]), problem.truth(2, range(8))
    assert truth.B[7].tobytes() == alone.B[0].tobytes()
    assert truth.W[7].tobytes() == alone.W[0].tobytes()
    assert not np.isclose(truth.B, other.B).any()
    # Noise and law of x are no part of the draw: figures over them compare one truth.
    noisy = dataclasses.replace(problem, noise_std=1.0, design="cube")
    assert np.array_equal(noisy.truth(1, range(8)).W, truth.W)


def test_shared_representation_is_a_value():
    problem = lf.SharedRepresentation(n_clients=np.int64(5), dim=4, rank=2, design="sphere")
    assert problem == lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=lf.UniformSphere())
    assert hash(problem) == hash(pickle.loads(pickle.dumps(problem)))
    assert eval(repr(problem), {name: getattr(lf, name) for name in lf.__all__}) == problem
    with pytest.raises(AttributeError):
        problem.rank = 3


# --- heterogeneity of the heads ------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [None, 2.0])
def test_heterogeneity_of_one_changes_no_bit(kappa):
    truth = shared(condition_number=kappa, head_norm=1.5).truth(4, TRIALS)
    same = shared(condition_number=kappa, head_norm=1.5, heterogeneity=1).truth(4, TRIALS)
    assert (same.B.tobytes(), same.W.tobytes()) == (truth.B.tobytes(), truth.W.tobytes())
    if kappa is None:  # as they were drawn before there was such a field
        for t, rng in enumerate(generators(4, Stream.TRUTH, TRIALS)):
            assert truth.B[t].tobytes() == orthonormalize(rng.standard_normal((7, 3))).tobytes()
            rows = rng.standard_normal((12, 3))
            unit = rows / np.sqrt(np.vecdot(rows, rows))[:, None]
            assert truth.W[t].tobytes() == (1.5 * unit).tobytes()


@pytest.mark.parametrize(("h", "norm"), [(0.0, None), (0.0, 0.5), (1e-3, None), (0.4, 0.5), (0.9, None)])
def test_heads_are_a_common_and_a_personal_part(h, norm):
    length = math.sqrt(3) if norm is None else norm
    own, mixed = (shared(head_norm=norm, heterogeneity=value).truth(1, TRIALS) for value in (1.0, h))
    assert mixed.B.tobytes() == own.B.tobytes()
    common = length * np.eye(3)[0]
    np.testing.assert_allclose(mixed.W, math.sqrt(1 - h**2) * common + h * own.W, rtol=0, atol=1e-15)
    if h == 0:
        new = shared(head_norm=norm, heterogeneity=0).new_clients(mixed, 4, 9, TRIALS)
        for W in (mixed.W, new.W):
            assert np.array_equal(W, np.broadcast_to(common, W.shape))


@pytest.mark.parametrize(("rank", "h"), [(1, 0.2), (2, 1 / math.sqrt(2)), (4, 0.9), (2, 1.0)])
def test_moments_and_lengths_of_heads(rank, h):
    """Of the training clients' heads, and of new clients'."""
    problem = shared(n_clients=20_000, dim=5, rank=rank, head_norm=2.0, heterogeneity=h)
    truth = problem.truth(0, [0])
    near, far = (2.0 * abs(math.sqrt(1 - h**2) + sign * h) for sign in (-1, 1))
    for W in (truth.W[0], problem.new_clients(truth, 20_000, 1, [0]).W[0]):
        common = 2.0 * np.eye(rank)[0]
        assert_mean(W, math.sqrt(1 - h**2) * common)
        moment = (1 - h**2) * np.outer(common, common) + h**2 * 4.0 / rank * np.eye(rank)
        assert_mean(W[:, :, None] * W[:, None], moment)
        lengths = np.linalg.norm(W, axis=-1)
        assert near - 1e-9 < lengths.min() < near + 0.2
        assert far - 0.2 < lengths.max() < far + 1e-9
        values = 4.0 * (1 - h**2 + h**2 / rank), *[h**2 * 4.0 / rank] * (rank - 1)
        np.testing.assert_allclose(np.linalg.eigvalsh(moment)[::-1], values, rtol=1e-12)


@pytest.mark.parametrize("h", [0.0, 0.3, 1.0])
def test_the_risk_of_the_best_single_model(h):
    problem = shared(n_clients=20, heterogeneity=h, head_norm=2.0, noise_std=0.5)
    floors = lf.theory.single_model_floor(problem.truth(0, range(400)))
    assert_mean(floors, 0.5 * h**2 * 4.0 * (1 - 1 / 20) + 0.125)  # the best model of 20 clients is fitted to them


# --- clients that took no part -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kappa", "h"), [(None, 1.0), (1.0, 1.0), (3.0, 1.0), (None, 0.5)])
def test_new_clients_depend_on_seed_and_trial_alone(kappa, h):
    problem = lf.SharedRepresentation(
        n_clients=9, dim=5, rank=2, condition_number=kappa, heterogeneity=h, noise_std=0.2
    )
    truth = problem.truth(1, range(4))
    new = problem.new_clients(truth, 12, 6, range(4))
    alone = problem.new_clients(problem.truth(1, [3]), 12, 6, [3])
    assert alone.W[0].tobytes() == new.W[3].tobytes()
    assert np.array_equal(new.B, truth.B)
    assert (new.S, new.noise_std) == (None, 0.2)
    assert not np.isclose(problem.new_clients(truth, 12, 7, range(4)).W, new.W).any()
    fewer = problem.new_clients(truth, 5 if kappa is None else 12, 6, range(4)).W[:, :5]
    assert np.array_equal(fewer, new.W[:, :5])


def test_new_clients_are_others_at_the_seed_of_the_truth():
    """Their heads are neither the old ones, nor made of the numbers that B* is made of: of rank 1, by their signs."""
    problem = lf.SharedRepresentation(n_clients=60, dim=60, rank=1)
    truth = problem.truth(3, range(4))
    heads = problem.new_clients(truth, 60, 3, range(4)).W
    for given in (truth.B, truth.W):
        same = (np.sign(heads) == np.sign(given)).mean(axis=(1, 2))
        assert (np.abs(same - 0.5) < 0.3).all()


@pytest.mark.parametrize("clients", [1, 8, 9, 60])
@pytest.mark.parametrize(("rank", "kappa"), [(3, 4.0), (1, 1.0), (4, 1e9), (4, 1e12)])
def test_new_heads_have_the_second_moment_of_the_prescribed_ones(rank, kappa, clients):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=rank, condition_number=kappa, head_norm=2.0)
    truth = problem.truth(1, range(2))
    new = problem.new_clients(truth, clients, 6, range(2)).W
    assert new.shape == (2, clients, rank)
    np.testing.assert_allclose(np.sqrt(np.vecdot(new, new)), 2.0, rtol=1e-11)
    for W, heads in zip(truth.W, new, strict=True):
        if clients >= 9:
            np.testing.assert_allclose(heads.T @ heads / clients, W.T @ W / 9, rtol=0, atol=1e-11)
        if rank > 1:
            assert not np.isin(heads, W).any()
    if clients < 9:  # so many of those that would take part
        assert np.array_equal(new, problem.new_clients(truth, 9, 6, range(2)).W[:, :clients])


def test_heads_that_cannot_be_say_so():
    with pytest.raises(ValueError, match=r"condition_number = 2 with heads of equal length.*n_clients = 1, rank = 2"):
        module._with_moment_of(np.eye(2), np.array([[1.0, 0.0]]), 2.0)
