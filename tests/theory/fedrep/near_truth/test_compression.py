"""FedRep with compressed messages near B*: the map of a round, its closed form, and the floor of runs."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, packed, unpacked


def map_of(W, d, m, p, share, shared, noise_std=0.0, weights=None):
    n, k = W.shape
    clients = Clients.checked(n, k, d, m, noise_std, p, weights, 0.0, 1.0 / share - 1.0, shared)
    return LocalMap.of(RoundMoments.of(W, clients))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("participants", [12, 5])
def test_isotropic_heads_have_the_closed_form(shared, participants):
    """Independent: ``c g (1 + kappa) + c^2 kappa k/p``, shared: all of the square times kappa; both times the share."""
    k, d, m, n, step, kappa = 3, 20, 8, 12, 0.15, 3.0
    W = np.tile(np.sqrt(k) * np.eye(k), (n // k, 1))
    c, g, rho = 1 - k / m, (d - k + 1) * k / (participants * m), (d - k + 2) / (d + 2)
    f = (k - 1) * (n - participants) / (participants * (n - 1))
    square = c * g + c * c * (k / participants) if not shared else c * c * (1 + f) + c * g
    factor = (1 - step * c) ** 2 + step**2 * (c * c * f + c * g + rho * kappa * square)
    sizes = {"dim": d, "n_samples": m, "participants": participants, "compression": kappa, "shared_mask": shared}
    assert lf.theory.near_truth_factor(W, step_size=step, **sizes) == pytest.approx(factor)
    noise = 0.1
    drive = (d - k) * c * noise**2 / (participants * m) * (1 + noise**2 / (m - k - 1)) * (1 + rho * kappa)
    X = lf.theory.near_truth_floor(W, step_size=step, noise_std=noise, **sizes)
    np.testing.assert_allclose(X, step**2 * drive / (1 - factor) * np.eye(k), rtol=1e-9, atol=1e-15)
    edge = lf.theory.stability_edge(W, **sizes)
    assert edge == pytest.approx(2 * step * c / (2 * c + (factor - 1) / step), rel=1e-9)
    assert lf.theory.near_truth_best_step(W, **sizes) == pytest.approx(edge / 2, rel=1e-5)


def orthonormal(rng, trials, rows, columns):
    Q, R = np.linalg.qr(rng.standard_normal((trials, rows, columns)))
    return Q * np.sign(np.diagonal(R, axis1=-2, axis2=-1))[:, None, :]


def one_round(W, X, d, m, p, share, shared, step, trials, noise_std, weights, seed=0):
    """Return ``D'D`` after a round from tangents with ``E D'D = X``, in the limit of small tangents, (trials, k, k)."""
    rng, (n, k), size = np.random.default_rng(seed), W.shape, 1e-7
    frame = orthonormal(rng, trials, d, d)
    truth, outside = frame[..., :k], frame[..., k:]
    tangents = rng.standard_normal((trials, d - k, k)) @ np.linalg.cholesky(X).T / np.sqrt(d - k) * size
    turn = orthonormal(rng, trials, k, k)
    B = (truth + outside @ tangents) @ turn  # orthonormal up to size^2
    B = np.linalg.qr(B)[0]
    active = np.argsort(rng.random((trials, n)), axis=1)[:, :p]
    x = rng.standard_normal((trials, p, m, d))
    w = W[active]
    y = (x @ truth[:, None] @ w[..., None])[..., 0] + size * noise_std * rng.standard_normal((trials, p, m))
    Z = x @ B[:, None]
    heads = np.linalg.solve(Z.mT @ Z, Z.mT @ y[..., None])
    messages = x.mT @ (Z @ heads - y[..., None]) / m @ heads.mT
    keep = rng.random((trials, 1 if shared else p, d, k)) < share
    mean = ((weights / weights.mean())[active][..., None, None] * messages * keep / share).mean(axis=1)
    B = B - step * mean
    after = (outside.mT @ B) @ np.linalg.inv(truth.mT @ B) / size
    return after.mT @ after


ROUNDS = {
    "some participate, shared": {"p": 2, "shared": True},
    "independent": {},
    "one participant": {"p": 1, "noise_std": 0.0},
    "shared": {"shared": True},
    "smallest dimension": {"d": 4},
    "noise alone": {"noise_std": 30.0},
    "weights": {"weights": np.array([1.0, 3.0, 0.5, 2.0])},
    "some participate": {"p": 2},
}


@pytest.mark.long
@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_near_the_truth_has_the_predicted_second_moment(name):
    """Each entry within 4 standard errors; with the share (d-k)/d, 1, or without the turn of columns, it is not."""
    given = {"d": 6, "m": 8, "p": 4, "share": 0.1, "shared": False, "step": 0.4, "noise_std": 1.0} | ROUNDS[name]
    weights, step, d, k = given.pop("weights", np.ones(4)), given["step"], given["d"], 2
    W = np.array([[1.5, 0.2], [-1.0, 0.9], [0.3, 0.8], [1.2, 0.1]])
    X = np.array([[1.0, 0.3], [0.3, 0.4]])
    here = map_of(W, d, given["m"], given["p"], given["share"], given["shared"], given["noise_std"] * 1e-7, weights)
    found = one_round(W, X, trials=20_000, weights=weights, **given)

    def added(map_):
        return unpacked(map_._at(step) @ packed(X) + step**2 * 1e14 * packed(map_.drive), k)

    def worst(expected):
        z = (found.mean(axis=0) - expected) / (found.std(axis=0) / len(found) ** 0.5)
        return np.abs(z).max()

    expected = added(here)
    plain = added(map_of(W, d, given["m"], given["p"], 1.0, False, given["noise_std"] * 1e-7, weights))
    error, rho = expected - plain, (d - k + 2) / (d + 2)
    assert worst(expected) < 4
    assert worst(plain) > 8
    assert worst(plain + error / rho) > 4.5  # all of the error across span(B*)
    assert given["p"] < 3 or worst(plain + error / rho * (d - k) / d) > 4.5  # few participants: heavy tails
    aligned = 0.5 * ((k + 2) * error - np.trace(error) * np.eye(k))  # M itself instead of its mean over turns
    assert worst(plain + aligned) > 4.5


def tangents(state, truth):
    """Return the sum of the squared tangents of B at B*."""
    inside = truth.B.mT @ state.B
    return np.square((state.B - truth.B @ inside) @ np.linalg.inv(inside)).sum(axis=(-2, -1))


@pytest.mark.long
@pytest.mark.parametrize("shared", [False, True])
def test_runs_have_the_predicted_floor(shared):
    problem = lf.SharedRepresentation(n_clients=16, dim=16, rank=2, noise_std=0.02, condition_number=2.0)
    algorithm = lf.CompressedFedRep(rank=2, step_size=0.2, kept_share=0.3, shared_mask=shared, init=lf.AtDistance(0.02))
    world = {"data": lf.FreshSamples(8), "n_rounds": 80, "trials": 60, "participation": 12}
    result = lf.simulate(algorithm, problem, metrics=[tangents], seed=2, record_every=4, **world)
    settled = result.metrics["tangents"][:, result.rounds > 40].mean(axis=1)
    W = problem.truth(2, range(60)).W
    sizes = {"dim": 16, "n_samples": 8, "step_size": 0.2, "participants": 12, "noise_std": 0.02}

    def ratios(**options):
        return settled / np.trace(lf.theory.near_truth_floor(W, **sizes, **options), axis1=-2, axis2=-1)

    found = ratios(compression=1 / 0.3 - 1, shared_mask=shared)
    assert abs(found.mean() - 1.0) < min(0.07, 0.02 + 4 * found.std() / 60**0.5)
    for wrong in (
        {},
        {"compression": 1 / 0.3 - 1, "shared_mask": not shared},
        {"compression": 1.3 / 0.3, "shared_mask": shared},
    ):
        other = ratios(**wrong)
        assert abs(other.mean() - 1.0) > 0.02 + 4 * other.std() / 60**0.5, wrong
