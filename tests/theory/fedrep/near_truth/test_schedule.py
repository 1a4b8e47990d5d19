"""The best step schedule: against an optimiser, the exact means of a round, simulation, and its closed forms."""

import numpy as np
import pytest
import scipy.optimize

import linfed as lf
from linfed.theory import (
    best_step_schedule,
    largest_sine,
    mean_squared_sine,
    refitted_heads_limit,
    schedule_asymptote,
)
from tests.helpers import assert_one_line, mostly_long
from tests.theory.fedrep.runs import isotropic, run_of

SETTINGS = {
    "all clients": {"dim": 200, "rank": 5, "n_clients": 100, "n_samples": 20, "noise_std": 1.0},
    "some clients": {"dim": 100, "rank": 3, "n_clients": 60, "n_samples": 9, "noise_std": 2.0, "participants": 10},
    "little noise": {"dim": 50, "rank": 2, "n_clients": 30, "n_samples": 6, "noise_std": 0.1},
    "rank 1": {"dim": 40, "rank": 1, "n_clients": 20, "n_samples": 5, "noise_std": 0.5},
}

cases = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def limit(setting, n_rounds):
    samples = setting.get("participants", setting["n_clients"]) * setting["n_samples"] * n_rounds
    return refitted_heads_limit(samples, **{name: setting[name] for name in ("dim", "rank", "n_samples", "noise_std")})


@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("delta", [0.2, 0.9])
def test_no_other_schedule_is_better_at_the_end(setting, delta):
    """A quasi-Newton search over all 20 steps, from a disturbed start, finds nothing below."""
    run = {**setting, "n_rounds": 20, "delta": delta}
    steps = best_step_schedule(**run)
    end = mean_squared_sine(steps, **run)[-1]
    disturbed = np.log(steps) + np.random.default_rng(0).normal(scale=0.4, size=20)
    found = scipy.optimize.minimize(lambda x: np.log(mean_squared_sine(np.exp(x), **run)[-1]), disturbed)
    assert np.log(end) - 1e-10 < found.fun < np.log(end) + 0.02
    assert mean_squared_sine(np.exp(disturbed), **run)[-1] > 1.001 * end


@cases
@pytest.mark.parametrize("delta", [0.2, 0.99])
def test_a_round_is_the_exact_mean_at_equal_angles(setting, delta):
    """Against `one_round_means`, for heads of equal length and an isotropic second moment."""
    size = {name: setting[name] for name in ("dim", "rank", "n_clients")}
    W = isotropic(size["n_clients"], size["rank"])
    N, Q = np.sqrt(1 - delta**2) * np.eye(size["rank"]), delta**2 * np.eye(size["rank"])
    own = {name: setting[name] for name in setting if name in ("dim", "n_samples", "noise_std", "participants")}
    for eta in (0.05, 0.7, 3.0):
        inside, outside = lf.theory.one_round_means(N, Q, W, step_size=eta, **own)
        wanted = outside[0, 0] / (outside[0, 0] + inside[0, 0] ** 2)
        found = mean_squared_sine(eta, **setting, n_rounds=1, delta=delta)
        np.testing.assert_allclose(found, [delta**2, wanted], rtol=1e-9)


def test_without_noise_it_is_the_best_constant_step_near_the_truth():
    sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20, "participants": 50}
    run = {**sizes, "noise_std": 0.0, "n_rounds": 2000, "delta": 0.9}
    steps = best_step_schedule(**run)
    np.testing.assert_allclose(steps[100:], lf.theory.best_step_size(**sizes), rtol=1e-7)
    path = mean_squared_sine(steps, **run)
    np.testing.assert_allclose(path[51] / path[50], lf.theory.one_round_factor(steps[-1], **sizes), rtol=1e-7)
    assert path[-1] < 1e-300
    assert np.isfinite(steps).all()


@pytest.mark.parametrize("name", mostly_long(SETTINGS, *list(SETTINGS)[:2]))
def test_the_closed_form_near_the_truth(name):
    run = {**SETTINGS[name], "n_rounds": 3000, "delta": 0.1}
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
    run = {**setting, "n_rounds": 1, "delta": 1e-3 * unit**0.5}
    path, said = mean_squared_sine(best_step_schedule(**run), **run), schedule_asymptote(**run)
    lost = [1.0 - unit * np.diff(1.0 / r)[0] for r in (path / (1.0 - path), said)]
    assert lost[1] == pytest.approx(lost[0], rel=1e-3)


@pytest.mark.long
@cases
def test_the_limit_is_reached_from_any_start(setting):
    for delta in (0.2, 0.9):
        run = {**setting, "n_rounds": 6000, "delta": delta}
        found = mean_squared_sine(best_step_schedule(**run), **run)[-1]
        assert abs(found / limit(setting, 6000)[0] - 1) < 0.07


def mean_square(state, truth):
    """Return the mean squared sine of the principal angles."""
    outside = state.B - truth.B @ (truth.B.mT @ state.B)
    return np.square(outside).mean(axis=-1).sum(axis=-1)


@pytest.mark.long
def test_simulated_runs_follow_it():
    """120 runs: the standard error of a mean square is about 1.2 %."""
    sizes = {"dim": 60, "n_samples": 6, "noise_std": 1.0, "participants": 20}
    run = {**sizes, "rank": 2, "n_clients": 30, "n_rounds": 150, "delta": 0.6}
    how = {"trials": 120, "metrics": [mean_square, "subspace_distance"], "record_every": 15, "engine": "chain"}
    for steps in (best_step_schedule(**run), 0.05):
        result = lf.simulate(**run_of(isotropic(30, 2), step_size=steps, start=0.6, n_rounds=150, **sizes), **how)
        predicted = mean_squared_sine(steps, **run)[result.rounds]
        ratio = result.metrics["mean_square"].mean(axis=0)[1:] / predicted[1:]
        assert np.abs(ratio - 1).max() < 0.06
        assert 0.94 < ratio.mean() < 1.04
        distance = result.metrics["subspace_distance"].mean(axis=0)[5:] / largest_sine(predicted[5:], dim=60, rank=2)
        assert np.abs(distance - 1).max() < 0.04


RUN = {**SETTINGS["all clients"], "n_rounds": 5, "delta": 0.5}


@pytest.mark.parametrize(
    ("call", "changes", "fragments"),
    [
        (best_step_schedule, {"delta": 1.0}, ["delta = 1.0", "inside (0, 1)"]),
        (best_step_schedule, {"delta": 0.0}, ["delta = 0.0", "inside (0, 1)"]),
        (best_step_schedule, {"n_samples": 6}, ["n_samples = 6", "at least rank"]),
        (best_step_schedule, {"n_clients": 4}, ["n_clients = 4", "at least 5"]),
        (mean_squared_sine, {"step_size": [0.1]}, ["step_size has 1 value", "n_rounds = 5"]),
        (mean_squared_sine, {"step_size": -0.1}, ["step_size = -0.1", "positive finite number"]),
        (schedule_asymptote, {"noise_std": 0.0}, ["noise_std = 0.0", "positive"]),
        (schedule_asymptote, {"n_rounds": 0}, ["n_rounds = 0"]),
    ],
)
def test_invalid_arguments_are_one_line(call, changes, fragments):
    assert_one_line(lambda: call(**RUN | changes), fragments)
