"""The best step schedule: against an optimiser, the exact means of a round, simulation, and its closed forms."""

import numpy as np
import pytest
import scipy.optimize

import linfed as lf
from linfed.theory import (
    best_step_schedule,
    known_heads_bound,
    largest_sine,
    mean_squared_sine,
    refitted_heads_limit,
    schedule_asymptote,
)
from tests.helpers import each, some

SETTINGS = {
    "all clients": {"dim": 200, "rank": 5, "n_clients": 100, "n_samples": 20, "noise_std": 1.0},
    "some clients": {"dim": 100, "rank": 3, "n_clients": 60, "n_samples": 9, "noise_std": 2.0, "participants": 10},
    "little noise": {"dim": 50, "rank": 2, "n_clients": 30, "n_samples": 6, "noise_std": 0.1},
    "rank 1": {"dim": 40, "rank": 1, "n_clients": 20, "n_samples": 5, "noise_std": 0.5},
}
DELTAS = (0.2, 0.5, 0.9)
cases = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
some_cases = pytest.mark.parametrize("setting", some(SETTINGS.values(), 2), ids=SETTINGS)


def limit(setting, rounds):
    samples = setting.get("participants", setting["n_clients"]) * setting["n_samples"] * rounds
    return refitted_heads_limit(samples, **{name: setting[name] for name in ("dim", "rank", "n_samples", "noise_std")})


@pytest.mark.long
@each("setting", SETTINGS.values(), ids=SETTINGS)
@each("delta", DELTAS)
def test_no_other_schedule_is_better_at_the_end(setting, delta):
    """A quasi-Newton search over all 20 steps, from a disturbed start, finds nothing below."""
    run = {**setting, "rounds": 20, "delta": delta}
    steps = best_step_schedule(**run)
    end = mean_squared_sine(steps, **run)[-1]
    disturbed = np.log(steps) + np.random.default_rng(0).normal(scale=0.4, size=20)
    found = scipy.optimize.minimize(lambda x: np.log(mean_squared_sine(np.exp(x), **run)[-1]), disturbed)
    assert np.log(end) - 1e-10 < found.fun < np.log(end) + 0.02
    assert mean_squared_sine(np.exp(disturbed), **run)[-1] > 1.001 * end


@cases
@each("delta", [*DELTAS, 0.99])
def test_a_round_is_the_exact_mean_at_equal_angles(setting, delta):
    """Against `one_round_means`, for heads of equal length and an isotropic second moment."""
    size = {name: setting[name] for name in ("dim", "rank", "n_clients")}
    W = lf.SharedRepresentation(**size, condition_number=1.0).truth(0, [0]).W[0]
    N, Q = np.sqrt(1 - delta**2) * np.eye(size["rank"]), delta**2 * np.eye(size["rank"])
    own = {name: setting[name] for name in setting if name in ("dim", "n_samples", "noise_std", "participants")}
    for eta in (0.05, 0.7, 3.0):
        inside, outside = lf.theory.one_round_means(N, Q, W, step_size=eta, **own)
        wanted = outside[0, 0] / (outside[0, 0] + inside[0, 0] ** 2)
        found = mean_squared_sine(eta, **setting, rounds=1, delta=delta)
        np.testing.assert_allclose(found, [delta**2, wanted], rtol=1e-9)


def test_without_noise_it_is_the_best_constant_step_near_the_truth():
    sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20, "participants": 50}
    run = {**sizes, "noise_std": 0.0, "rounds": 2000, "delta": 0.9}
    steps = best_step_schedule(**run)
    np.testing.assert_allclose(steps[100:], lf.theory.best_step_size(**sizes), rtol=1e-7)
    path = mean_squared_sine(steps, **run)
    np.testing.assert_allclose(path[51] / path[50], lf.theory.one_round_factor(steps[-1], **sizes), rtol=1e-7)
    assert path[-1] < 1e-300
    assert np.isfinite(steps).all()


@some_cases
def test_the_closed_form_near_the_truth(setting):
    run = {**setting, "rounds": 3000, "delta": 0.1}
    path, said = mean_squared_sine(best_step_schedule(**run), **run), schedule_asymptote(**run)
    np.testing.assert_allclose(said[100:], (path / (1 - path))[100:], rtol=0.02)
    far = {**run, "delta": 0.6}
    path, said = mean_squared_sine(best_step_schedule(**far), **far), schedule_asymptote(**far)
    assert abs(said[-1] / path[-1] - 1) < 0.04


@cases
def test_the_logarithm_of_the_closed_form_is_what_a_round_loses(setting):
    """A round near B* adds 1 - L/(u + L) to u = v/(c^2 r): L from the exact recursion, to first order in r."""
    k, m, variance = setting["rank"], setting["n_samples"], setting["noise_std"] ** 2
    p = setting.get("participants", setting["n_clients"])
    unit = (setting["dim"] - k) * variance * (1.0 + variance / (m - k - 1)) / ((1.0 - k / m) * m * p)
    run = {**setting, "rounds": 1, "delta": 1e-3 * unit**0.5}
    path, said = mean_squared_sine(best_step_schedule(**run), **run), schedule_asymptote(**run)
    lost = [1.0 - unit * np.diff(1.0 / r)[0] for r in (path / (1.0 - path), said)]
    assert lost[1] == pytest.approx(lost[0], rel=1e-3)


@pytest.mark.long
@cases
def test_the_limit_is_reached_from_any_start(setting):
    for delta in (DELTAS[0], DELTAS[-1]):
        run = {**setting, "rounds": 6000, "delta": delta}
        found = mean_squared_sine(best_step_schedule(**run), **run)[-1]
        assert abs(found / limit(setting, 6000)[0] - 1) < 0.07


@pytest.mark.long
def test_refitted_heads_cost_the_share_that_they_absorb_and_their_own_noise():
    sizes = {"dim": 100, "rank": 3, "noise_std": 2.0}
    bound = known_heads_bound(1e5, **sizes)
    np.testing.assert_allclose(bound, np.full(3, 97 * 4.0 / 1e5))
    np.testing.assert_allclose(refitted_heads_limit(1e5, **sizes, n_samples=12) / bound, (1 + 4.0 / 8) / 0.75)
    lam = np.array([0.4, 0.8, 1.8])
    own = refitted_heads_limit(1e5, **sizes, n_samples=12, eigenvalues=lam)
    np.testing.assert_allclose(own / bound, (lam + 0.5) / (0.75 * lam**2))
    for a in (0.8, 1.0, 2.0, 5.0):
        scalar = refitted_heads_limit(1e5, **sizes, n_samples=12, eigenvalues=lam, scale=a)
        slow = a * lam <= 0.5
        assert np.isinf(scalar[slow]).all()
        assert (scalar >= own * (1 - 1e-12)).all()
        # Its recursion, direction by direction.
        v, rounds = 97 * 0.75 * 4.0 * (lam + 0.5) / 1200, 20_000
        q = np.ones(3)
        for t in range(10, rounds):
            q = (1 - a * lam / t) ** 2 * q + (a / (0.75 * t)) ** 2 * v
        wanted = refitted_heads_limit(1200.0 * rounds, **sizes, n_samples=12, eigenvalues=lam, scale=a)
        fast = a * lam > 1.0
        np.testing.assert_allclose(q[fast], wanted[fast], rtol=0.01)
    assert refitted_heads_limit(1e5, **sizes, n_samples=12, scale=1.0) == pytest.approx(bound * 2.0)


def test_the_limit_of_differing_clients_is_that_of_a_loop():
    d, k, samples = 9, 2, 500.0
    lam, counts = np.array([0.4, 1.7]), np.array([5, 9, 30, 4])
    levels, weights = np.array([0.5, 1.0, 0.2, 0.8]), np.array([1.0, 3.0, 0.5, 2.0])
    noise, pull = np.zeros(2), 0.0
    for m, level, weight in zip(counts, levels, weights / weights.mean(), strict=True):
        noise += weight**2 * (1 - k / m) / m * level**2 * (lam + level**2 / (m - k - 1)) / 4
        pull += weight * (1 - k / m) / 4
    wanted = (d - k) / samples * counts.mean() * noise / (pull * lam) ** 2
    told = {"rank": k, "n_samples": counts, "noise_std": levels, "eigenvalues": lam, "weights": weights}
    np.testing.assert_allclose(refitted_heads_limit(samples, dim=d, **told), wanted, rtol=1e-12)
    np.testing.assert_allclose(7 * refitted_heads_limit(samples, dim=3, **told), wanted, rtol=1e-12)
    for a in (2.0, 1.3, 0.8):
        scaled = np.where(a * lam > 0.5, wanted * (a * lam) ** 2 / np.abs(2 * a * lam - 1), np.inf)
        np.testing.assert_allclose(refitted_heads_limit(samples, dim=d, scale=a, **told), scaled, rtol=1e-12)
    one = {"dim": d, "rank": k, "n_samples": 9, "noise_std": 0.5}
    equal = refitted_heads_limit(samples, **one)
    for change in ({"n_samples": [9] * 4}, {"noise_std": [0.5] * 4}, {"weights": [3.0] * 4}, {"eigenvalues": [1, 1]}):
        np.testing.assert_allclose(refitted_heads_limit(samples, **one | change), equal, rtol=1e-12)
    known = known_heads_bound(samples, dim=d, rank=k, noise_std=0.3, eigenvalues=lam)
    np.testing.assert_allclose(known, 7 * 0.09 / (samples * lam), rtol=1e-12)


def mean_square(state, truth):
    """Return the mean squared sine of the principal angles."""
    outside = state.B - truth.B @ (truth.B.mT @ state.B)
    return np.square(outside).mean(axis=-1).sum(axis=-1)


@pytest.mark.long
def test_simulated_runs_follow_it():
    """120 runs: the standard error of a mean square is about 1.2 %."""
    setting = {"dim": 60, "rank": 2, "n_clients": 30, "n_samples": 6, "noise_std": 1.0, "participants": 20}
    run = {**setting, "rounds": 150, "delta": 0.6}
    size = {name: setting[name] for name in ("dim", "rank", "n_clients", "noise_std")}
    problem = lf.SharedRepresentation(**size, condition_number=1.0)
    for steps in (best_step_schedule(**run), 0.05):
        result = lf.simulate(
            lf.FedRep(rank=2, step_size=steps, init=lf.AtDistance(0.6)),
            problem,
            data=lf.FreshSamples(6),
            rounds=150,
            participation=20,
            trials=120,
            metrics=[mean_square, "subspace_distance"],
            record_every=15,
            engine="chain",
        )
        predicted = mean_squared_sine(steps, **run)[result.rounds]
        ratio = result.metrics["mean_square"].mean(axis=0)[1:] / predicted[1:]
        assert np.abs(ratio - 1).max() < 0.06
        assert 0.94 < ratio.mean() < 1.04
        distance = result.metrics["subspace_distance"].mean(axis=0)[5:] / largest_sine(predicted[5:], dim=60, rank=2)
        assert np.abs(distance - 1).max() < 0.04


def test_largest_sine_is_that_of_gaussian_tangents():
    rng = np.random.default_rng(0)
    for d, k, margin in ((40, 1, 0.01), (103, 3, 0.008), (210, 10, 0.006)):
        tangents = np.linalg.norm(0.3 / np.sqrt(d - k) * rng.standard_normal((1000, d - k, k)), ord=2, axis=(-2, -1))
        found = largest_sine(0.09 / 1.09, dim=d, rank=k)
        assert abs(found / np.mean(tangents / np.hypot(1, tangents)) - 1) < margin


@pytest.mark.parametrize(("d", "k", "margin"), [(9, 1, 0.005), (20, 2, 0.02), (20, 4, 0.015)])
def test_largest_sine_of_few_directions_is_that_of_gaussian_tangents(d, k, margin):
    tangents = np.random.default_rng(1).standard_normal((20_000, d - k, k)) * np.sqrt(0.25 / (d - k))
    largest = np.linalg.eigvalsh(tangents.mT @ tangents)[:, -1] ** 0.5
    found = largest_sine([0.0, 0.2], dim=d, rank=k)
    assert found[0] == 0.0
    assert abs(found[1] / np.sqrt(1 - found[1] ** 2) / largest.mean() - 1) < margin


@each(
    ("call", "message"),
    [
        (lambda run: best_step_schedule(**run | {"delta": 1.0}), r"delta = 1.0 must lie inside \(0, 1\)"),
        (lambda run: best_step_schedule(**run | {"delta": 0.0}), r"delta = 0.0 must lie inside \(0, 1\)"),
        (lambda run: best_step_schedule(**run | {"n_samples": 6}), "n_samples = 6 must be at least rank"),
        (lambda run: best_step_schedule(**run | {"n_clients": 4}), "n_clients = 4 must be an integer of at least 5"),
        (lambda run: best_step_schedule(**run | {"noise_std": -1}), "noise_std = -1 must be"),
        (lambda run: best_step_schedule(**run | {"rounds": 0}), "rounds = 0 must be"),
        (lambda run: mean_squared_sine([0.1], **run), "step_size has 1 value, expected one for each round: rounds = 5"),
        (lambda run: mean_squared_sine(-0.1, **run), "step_size = -0.1 must be a positive finite number"),
        (lambda run: schedule_asymptote(**run | {"noise_std": 0.0}), "noise_std = 0.0 must be a positive"),
        (lambda run: schedule_asymptote(**run | {"rounds": 0}), "rounds = 0 must be"),
        (lambda run: largest_sine([-0.1], dim=20, rank=2), "squared_sine must contain only values"),
        (lambda run: largest_sine(0.1, dim=5, rank=3), "dim = 5 must be an integer of at least 6"),
        (
            lambda run: known_heads_bound(9, dim=9, rank=2, noise_std=1.0, eigenvalues=[1, 0]),
            r"eigenvalues = \[1, 0\] must be 2 positive numbers",
        ),
        (
            lambda run: refitted_heads_limit(0, dim=9, rank=2, n_samples=5, noise_std=1.0),
            "samples = 0 must be a positive",
        ),
        (
            lambda run: refitted_heads_limit(9, dim=2, rank=2, n_samples=5, noise_std=1.0),
            "dim = 2 must be an integer of at least 3",
        ),
        (lambda run: largest_sine([0.1, 1.0], dim=20, rank=2), "squared_sine must contain only values"),
        (lambda run: largest_sine(0.1, dim=3, rank=2), "dim = 3 must be an integer of at least 4"),
        (lambda run: known_heads_bound(0, dim=9, rank=2, noise_std=1.0), "samples = 0 must be a positive"),
        (
            lambda run: known_heads_bound(9, dim=9, rank=2, noise_std=1.0, eigenvalues=[1, -1]),
            r"eigenvalues = \[1, -1\] must be 2 positive numbers",
        ),
        (
            lambda run: known_heads_bound(9, dim=9, rank=2, noise_std=1.0, eigenvalues=[1, 1, 1]),
            r"eigenvalues = \[1, 1, 1\] must be 2 positive numbers",
        ),
        (
            lambda run: refitted_heads_limit(9, dim=9, rank=2, n_samples=3, noise_std=1.0),
            r"n_samples = 3 must be at least rank \+ 2 = 4",
        ),
        (
            lambda run: refitted_heads_limit(9, dim=9, rank=2, n_samples=5, noise_std=1.0, scale=0),
            "scale = 0 must be a positive finite number",
        ),
    ],
)
def test_what_is_out_of_range_is_said_in_a_line(call, message):
    with pytest.raises(ValueError, match=message):
        call({**SETTINGS["all clients"], "rounds": 5, "delta": 0.5})
