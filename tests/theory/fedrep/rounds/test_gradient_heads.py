"""FedRep with gradient heads: its course against runs, which must tell courses that are nearly right apart."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.rounds import gradient_round
from linfed.theory.fedrep.rounds.gradient_round import HeadsRound
from tests.helpers import mostly_long, normal
from tests.theory.fedrep.runs import distances, run_of


def setting_of(n, k, eta, alpha, tau, start, *, seed=5, **sizes):
    """Return heads, and the arguments of their runs."""
    W = lf.SharedRepresentation(n_clients=n, dim=k, rank=k).truth(seed, [0]).W[0]
    return W, {"step_size": eta, "heads": lf.GradientHeads(steps=tau, step_size=alpha), "start": start, **sizes}


def measured(run, trials=300):
    return distances(run, trials, engine="chain", seed=1)


FEW = {  # clients, rank, step sizes of B and of heads, head steps, initial distance
    "k = 4, m = 6": setting_of(60, 4, 0.5, 0.5, 1, 0.5, dim=40, n_samples=6),
    "three steps": setting_of(60, 3, 0.8, 0.2, 3, 0.9, dim=40, n_samples=30, participants=15),
    "k = 2, m = 4": setting_of(60, 2, 0.5, 0.5, 1, 0.5, dim=40, n_samples=4),
    "small steps": setting_of(60, 4, 0.2, 0.2, 1, 0.5, dim=40, n_samples=6, participants=15),
}
RISING = setting_of(60, 4, 0.5, 0.5, 1, 0.5, dim=40, n_samples=6, participants=15)
"""Runs rise from 0.5 to 0.75 and fall again."""


@pytest.mark.parametrize("name", mostly_long(FEW, "k = 4, m = 6"))
def test_with_few_samples_the_median_is_within_10_percent(name):
    W, setting = FEW[name]
    run = run_of(W, n_rounds=10, **setting)
    found, runs = lf.predict(**run), measured(run)
    assert not found.warnings
    np.testing.assert_allclose(found.distance, np.median(runs, axis=0), rtol=0.1)


@pytest.mark.long
def test_where_few_participants_rule_the_means_it_warns():
    W, setting = RISING
    run = run_of(W, n_rounds=10, **setting)
    found, median = lf.predict(**run), np.median(measured(run), axis=0)
    assert any("participants add" in text and "lf.simulate" in text for text in found.warnings)
    assert max(found.distance) > 0.6
    np.testing.assert_allclose(found.distance, median, rtol=0.25)


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "setting", "allowed"),
    [
        ("lengths and heads apart", RISING, 0.25),
        ("heads at their best", FEW["k = 4, m = 6"], 0.1),
        ("no chance", FEW["three steps"], 0.1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_runs_tell_other_predictions_apart(monkeypatch, wrong, setting, allowed):
    messages, covariance = HeadsRound._messages, HeadsRound._covariance

    def other(self, best, lag, squares, alpha, rng):
        found = messages(self, best, 0.0 * lag if wrong == "heads at their best" else lag, squares, alpha, rng)
        return dataclasses.replace(found, length=rng.permutation(found.length)) if "apart" in wrong else found

    monkeypatch.setattr(HeadsRound, "_messages", other)
    if wrong == "no chance":
        monkeypatch.setattr(HeadsRound, "_covariance", lambda *given: 0.0 * covariance(*given))
    W, given = setting
    run = run_of(W, n_rounds=8, **given)
    assert np.max(np.abs(lf.predict(**run).distance / np.median(measured(run), axis=0) - 1)) > allowed


SPREADS = {
    "noise of samples": setting_of(80, 1, 0.3, 0.5, 1, 0.3, dim=6, n_samples=6),
    "choice of participants": setting_of(80, 1, 0.3, 0.5, 2, 0.3, dim=80, n_samples=40, participants=20),
    "noise of labels": setting_of(80, 1, 0.3, 0.5, 1, 0.3, dim=6, n_samples=6, noise_std=0.6),
    "several directions": setting_of(80, 2, 0.5, 0.5, 1, 0.5, dim=12, n_samples=10),
}


@pytest.mark.parametrize("name", mostly_long(SPREADS, "noise of samples"))
def test_runs_spread_as_predicted(name):
    """After a round to the 2 % that 2,000 runs tell; later, what heads remember of their noise is missing."""
    W, given = SPREADS[name]
    spread = np.log(measured(run_of(W, n_rounds=4, **given), 2000)).std(axis=0)
    heads, start = given["heads"], given["start"]
    sizes = {key: value for key, value in given.items() if key not in ("heads", "start")}
    found = lf.theory.gradient_heads_evolution(
        W, n_rounds=4, delta=start, head_steps=heads.steps, head_step_size=heads.step_size, **sizes
    )
    np.testing.assert_allclose(found.log_std[1], spread[1], rtol=0.05)
    np.testing.assert_allclose(found.log_std[2:], spread[2:], rtol=0.2)


# --- the recursion -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_many_steps_are_exact_heads():
    W = normal(40, 3, seed=1)
    setting = {"dim": 10_000, "n_samples": 60, "step_size": 0.3, "n_rounds": 15, "noise_std": 0.1, "delta": 0.7}
    got = lf.theory.gradient_heads_evolution(W, head_steps=100, head_step_size=0.5, **setting)
    np.testing.assert_allclose(got.distance, lf.theory.second_order_evolution(W, **setting).distance, rtol=0.02)


def test_units_of_the_heads_do_not_matter():
    W = normal(9, 2)
    setting = {"dim": 12, "n_samples": 6, "n_rounds": 4, "delta": 0.6, "head_step_size": 0.3}
    one = lf.theory.gradient_heads_evolution(W, step_size=0.2, noise_std=0.7, **setting)
    other = lf.theory.gradient_heads_evolution(2.0 * W, step_size=0.05, noise_std=1.4, **setting)
    np.testing.assert_allclose(other.distance, one.distance, rtol=1e-12)
    quiet = lf.theory.gradient_heads_evolution(W, step_size=0.2, **setting)
    assert (one.distance[1:] > quiet.distance[1:]).all()


def test_a_distance_falls_as_far_as_floating_point_goes(monkeypatch):
    monkeypatch.setattr(gradient_round, "MESSAGES", 2000)
    W = normal(100, 2, seed=1)
    setting = {"dim": 60, "n_samples": 20, "step_size": 0.8, "n_rounds": 90, "delta": 0.5, "head_steps": 3}
    predicted = lf.theory.gradient_heads_evolution(W, head_step_size=0.3, **setting)
    assert predicted.distance[-1] < 1e-15
    per_round = (predicted.distance[[50, 70, 90]] / predicted.distance[[30, 50, 70]]) ** (1 / 20)
    np.testing.assert_allclose(per_round, per_round[0], rtol=0.02)
    unit = np.swapaxes(predicted.N, -1, -2) @ predicted.N + predicted.Q
    np.testing.assert_allclose(unit, np.tile(np.eye(2), (91, 1, 1)), rtol=0, atol=1e-12)


def test_the_distance_of_heads_from_their_best_begins_with_that_of_0():
    W = normal(9, 2, seed=2)
    found = lf.theory.gradient_heads_evolution(W, dim=12, n_samples=6, step_size=0.2, n_rounds=1, delta=0.6)
    np.testing.assert_allclose(found.head_gap[0], 0.8 * np.sqrt(np.mean(np.sum(W**2, axis=1))), rtol=1e-12)


def test_heads_of_0_leave_the_truth_later():
    still = lf.theory.gradient_heads_evolution(**GOOD | {"delta": 0.0})
    assert still.round_log_variance[0] == still.log_std[1] == still.distance[0] == 0.0
    assert (still.distance[1:] > 0.0).all()


GOOD = {"W": normal(6, 2, seed=1), "dim": 8, "n_samples": 5, "step_size": 0.2, "n_rounds": 2, "delta": 0.5}
EXTREME = {
    "m = k": {"n_samples": 2},
    "m < k": {"n_samples": 1},
    "d = 2k": {"dim": 4},
    "n < k": {"W": normal(1, 2, seed=1)},
    "p = 1": {"participants": 1},
    "heads of rank 1": {"W": np.outer(np.arange(6.0), [1.0, 1.0])},
    "heads that are 0": {"W": np.zeros((6, 2))},
    "at the truth, many clients": {"delta": 0.0, "W": normal(60, 3, seed=1), "dim": 40, "n_samples": 8},
    "at a right angle": {"delta": 1.0},
    "nearly at a right angle": {"delta": 1 - 1e-9},
    "much noise": {"noise_std": 1e6},
    "large d": {"dim": 10**9},
    "head steps that diverge": {"head_steps": 3, "head_step_size": 1.5},
    "step that diverges": {"step_size": 3.0},
    "1000 rounds": {"n_rounds": 1000, "step_size": 0.3, "n_samples": 20},
    "1000 rounds with noise": {"n_rounds": 1000, "step_size": 0.3, "n_samples": 20, "noise_std": 0.3},
    "1000 rounds of two": {"n_rounds": 1000, "step_size": 0.3, "n_samples": 20, "participants": 2},
}


@pytest.mark.parametrize("name", mostly_long(EXTREME, "m = k", "m < k"))
def test_extremes_are_finite_and_within_0_and_1(monkeypatch, name):
    monkeypatch.setattr(gradient_round, "MESSAGES", 1000 if "1000" in name else 200)
    found = lf.theory.gradient_heads_evolution(**GOOD | {"n_rounds": 8} | EXTREME[name])
    assert np.all((found.distance >= 0) & (found.distance <= 1))
    assert np.isfinite(found.head_gap).all()
