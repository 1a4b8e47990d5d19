"""The weights of FedRep's clients with the smallest limit: against searches, closed forms and runs at their floor."""

import itertools

import numpy as np
import pytest
import scipy.optimize

import linfed as lf
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments
from tests.helpers import assert_one_line, normal
from tests.theory.fedrep.runs import run_of, squared_tangents


def circle(copies, k=2):
    """Heads of length sqrt(k) on a circle, isotropic in each of six-client groups."""
    angles = np.concatenate([np.arange(6) * np.pi / 6 + 0.1 * j for j in range(copies)])
    return np.sqrt(k) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def mixed(copies=4):
    """Counts from 6 to 60 and noise over a factor of 10, one combination in each group of six heads."""
    counts, levels = np.array([6, 60, 6, 20]), np.array([0.03, 0.3, 0.3, 0.1])
    return circle(copies), np.repeat(counts[:copies], 6), np.repeat(levels[:copies], 6)


def spread(W, weights, **setting):
    """Return ``tr(G^{-1} V G^{-1})`` from the map near the truth, at q = 0."""
    here = LocalMap.of(RoundMoments.of(W, Clients.checked(*W.shape, weights=weights, **setting)))
    inverse = np.linalg.inv(here.pull)
    return float(np.trace(inverse @ here.drive @ inverse))


def test_no_other_weights_have_a_smaller_limit():
    """A search over all weights, for heads far from isotropic and related to noise and samples, finds nothing below."""
    W = normal(8, 3) * np.geomspace(2.0, 0.5, 3)
    levels = 0.3 * np.exp(normal(8, seed=10)) * np.linalg.norm(W, axis=1)
    setting = {"dim": 12, "n_samples": (5, 6, 9, 12, 20, 6, 40, 7), "noise_std": levels}
    found = lf.theory.optimal_weights(W, **setting)
    assert found.mean() == pytest.approx(1.0)
    least = spread(W, found, **setting)
    search = scipy.optimize.minimize(lambda x: np.log(spread(W, np.exp(x), **setting)), np.zeros(8))
    assert np.log(least) < search.fun + 1e-9
    assert search.fun > np.log(least) - 1e-7
    for wrong in (found[::-1], np.array(setting["n_samples"]) / levels**2, np.ones(8)):
        assert spread(W, wrong, **setting) > 1.0005 * least


def test_a_client_that_adds_more_error_than_information_has_no_weight():
    """Any other weight of this client makes the limit larger."""
    rng = np.random.default_rng(17)
    W, levels = rng.standard_normal((6, 2)) * [3.0, 0.3], np.exp(rng.standard_normal(6))
    setting = {"dim": 12, "n_samples": rng.integers(4, 30, 6), "noise_std": levels}
    found = lf.theory.optimal_weights(W, **setting)
    assert (found < 1e-9).tolist() == [False] * 4 + [True, False]
    assert found[4] == pytest.approx(1e-12, rel=0.1)
    least, unit = spread(W, found, **setting), 1e-4 * np.eye(6)[4]
    once, twice = (spread(W, found + size * unit, **setting) - least for size in (1, 2))
    assert 0 < once < twice


def test_the_best_weights_of_simple_cases():
    W, counts, levels = mixed()
    small = lf.theory.optimal_weights(normal(24, 3), dim=20, n_samples=counts, noise_std=1e-3 * levels)
    np.testing.assert_allclose(small * np.mean(counts / levels**2), counts / levels**2, rtol=1e-4)
    loud = 5 * levels
    for length in (1.0, 0.5):
        found = lf.theory.optimal_weights(length * W, dim=20, n_samples=counts, noise_std=loud)
        wanted = counts / (loud**2 * (1 + loud**2 / (counts - 3) / length**2))
        np.testing.assert_allclose(found, wanted / wanted.mean(), rtol=1e-9)
    stacked = lf.theory.optimal_weights(np.stack([W, 0.5 * W]), dim=20, n_samples=counts, noise_std=loud)
    np.testing.assert_array_equal(stacked[1], found)
    n, k, d, s = 24, 2, 20, loud**2 / (counts - 3)
    for p, q in itertools.product((24, 5), (0.0, 0.01, 100.0)):  # c/v(q), for heads of length sqrt(k)
        chosen = (n - p) / (n - 1) * (counts - k)
        v = (d - k) * loud**2 * (1 + s) + q * k * (d - k + 1 + chosen + s * (counts - k + 1 + 2 * (d - k)))
        found = lf.theory.optimal_weights(W, dim=d, n_samples=counts, noise_std=loud, participants=p, error=q)
        np.testing.assert_allclose(found * np.mean(counts / v), counts / v, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("participants", [None, 5])
def test_at_a_finite_error_no_other_weights_are_better_after_the_best_step(participants):
    """Against a search over all weights of the recursion of equal angles, four groups of clients."""
    W, counts, levels = mixed()
    sizes = {"dim": 60, "n_samples": counts, "noise_std": levels, "participants": participants}
    for q in (1e-4, 1e-3):
        found = lf.theory.optimal_weights(W, error=q, **sizes)
        run = {"rank": 2, "n_clients": 24, "n_rounds": 1, "delta": float(np.sqrt(q / (1 + q))), **sizes}

        def end(weights, run=run):
            steps = lf.theory.best_step_schedule(weights=weights, **run)
            return lf.theory.mean_squared_sine(steps, weights=weights, **run)[-1]

        start = np.log(found[::6]) + 0.4 * normal(4, seed=3)
        search = scipy.optimize.minimize(lambda x, end=end: np.log(end(np.repeat(np.exp(x), 6))), start)
        assert search.fun == pytest.approx(np.log(end(found)), abs=2e-4)
        for wrong in (np.ones(24), counts, lf.theory.optimal_weights(W, error=100 * q, **sizes)):
            assert end(wrong) > 1.002 * end(found)


@pytest.mark.long
def test_information_adds_over_clients_and_rounds():
    """``1/q+ = 1/q + mean c_i^2/v_i(q)`` for the best weights, and the limit of the schedule with constant ones."""
    W, counts, levels = mixed()
    d, k, n = 60, 2, 24
    sizes = {"dim": d, "n_samples": counts, "noise_std": levels}
    run = {"rank": k, "n_clients": n, **sizes}
    q, c, s = 1e-4, 1 - k / counts, levels**2 / (counts - k - 1)
    v = (d - k) * levels**2 * (1 + s) + q * k * ((d - k + 1) + s * (counts - k + 1 + 2 * (d - k)))
    information = np.mean(c**2 / (c / (n * counts) * v))
    weights, delta = lf.theory.optimal_weights(W, error=q, **sizes), float(np.sqrt(q / (1 + q)))
    steps = lf.theory.best_step_schedule(weights=weights, n_rounds=1, delta=delta, **run)
    sine = lf.theory.mean_squared_sine(steps, weights=weights, n_rounds=1, delta=delta, **run)[-1]
    assert (1 - sine) / sine == pytest.approx(1 / q + information, rel=2e-3)
    constant, rounds = lf.theory.optimal_weights(W, **sizes), 1200
    for chosen in (constant, None, counts):
        steps = lf.theory.best_step_schedule(weights=chosen, n_rounds=rounds, delta=0.1, **run)
        last = lf.theory.mean_squared_sine(steps, weights=chosen, n_rounds=rounds, delta=0.1, **run)[-1]
        limit = lf.theory.refitted_heads_limit(rounds * counts.sum(), rank=k, weights=chosen, **sizes)
        assert last == pytest.approx(limit[0], rel=0.03)
    closed = (d - k) / (rounds * np.sum((counts - k) / (levels**2 * (1 + s))))
    best = lf.theory.refitted_heads_limit(rounds * counts.sum(), rank=k, weights=constant, **sizes)
    assert best == pytest.approx([closed] * 2, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("weights", "participants"), [("optimal", 24), ("samples", 24), ("equal", 12), ("equal", 24)])
def test_runs_settle_at_the_predicted_floor(weights, participants):
    """Within 4 standard errors and 2 %, over trials; the law of equal clients at the means is not."""
    W, counts, levels = mixed()
    sizes = {"dim": 20, "n_samples": counts, "participants": participants}
    chosen = {"equal": None, "samples": counts}.get(weights, 0)
    if weights == "optimal":
        chosen = lf.theory.optimal_weights(W, noise_std=levels, **sizes)
    step = 0.15 * lf.theory.stability_edge(W, weights=chosen, **sizes)
    X = lf.theory.near_truth_floor(W, step_size=step, noise_std=levels, weights=chosen, **sizes)
    predicted = np.trace(X)
    start = float(np.sqrt(predicted / 2))
    run = run_of(W, start=start, n_rounds=90, step_size=step, noise_std=levels, weights=chosen, **sizes)

    def tangents(state, truth):
        return squared_tangents(state.B)

    result = lf.simulate(**run, trials=60, engine="chain", metrics=[tangents])
    means = result.metrics["tangents"][:, 20:].mean(axis=1) / predicted
    error = means.std() / np.sqrt(len(means))
    assert error < 0.02
    assert abs(means.mean() - 1.0) < 4 * error + 0.02
    homogeneous = lf.theory.near_truth_floor(
        W,
        step_size=step,
        noise_std=float(np.sqrt(np.mean(levels**2))),
        **sizes | {"n_samples": round(np.mean(counts))},
    )
    assert abs(means.mean() * predicted / np.trace(homogeneous) - 1.0) > 8 * error + 0.02


def test_differing_clients_at_equal_angles_have_the_exact_means_of_a_round():
    W, counts, levels = mixed()
    weights, delta, k = np.repeat([1.0, 3.0, 0.5, 2.0], 6), 0.6, 2
    N, Q = np.sqrt(1 - delta**2) * np.eye(k), delta**2 * np.eye(k)
    own = {"dim": 20, "n_samples": counts, "noise_std": levels, "weights": weights, "participants": 7}
    for eta in (0.05, 0.7, 3.0):
        inside, outside = lf.theory.one_round_means(N, Q, W, step_size=eta, **own)
        wanted = outside[0, 0] / (outside[0, 0] + inside[0, 0] ** 2)
        found = lf.theory.mean_squared_sine(eta, rank=k, n_clients=24, n_rounds=1, delta=delta, **own)
        np.testing.assert_allclose(found, [delta**2, wanted], rtol=1e-9)


HEADS = normal(6, 2)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"noise_std": [0.0, 0.2, 0.4, 0.8, 1.0, 0.3]}, ["noise_std must be positive", "error"]),
        ({"W": np.ones((6, 2))}, ["W must span R^k, k = 2"]),
        ({"error": -1.0}, ["error = -1.0"]),
    ],
)
def test_invalid_arguments_are_one_line(changes, fragments):
    given = {"W": HEADS, "dim": 8, "n_samples": 9, "noise_std": 0.3} | changes
    assert_one_line(lambda: lf.theory.optimal_weights(**given), fragments)
