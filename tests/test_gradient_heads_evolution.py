"""FedRep with gradient heads: a round's means against clients' samples, its course against runs, and what it refuses.

Every comparison with draws is made a second time with formulas that are nearly right, and has to tell them apart.
"""

import dataclasses

import numpy as np
import pytest
from helpers import assert_one_line, basis, normal, some

import linfed as lf
from linfed.theory.fedrep import gradient_round
from linfed.theory.fedrep.gradient_round import HeadsRound

# --- one round, against samples ------------------------------------------------------------------------------

ROUNDS = {
    "m > k": {"k": 2, "m": 5, "steps": 2, "alpha": 0.3, "noise_std": 0.4},
    "m < k": {"k": 3, "m": 2, "steps": 1, "alpha": 0.2, "noise_std": 0.0},
    "many steps": {"k": 1, "m": 6, "steps": 9, "alpha": 0.3, "noise_std": 0.0},
}
DRAWS = 30_000


@pytest.fixture(scope="module", params=ROUNDS)
def by_samples(request):
    """Return sizes, a client's true head and old head, B, B* and draws of ``X'r w+'/m``, by explicit samples."""
    size = ROUNDS[request.param]
    k, m, d = size["k"], size["m"], 9
    B, B_star = basis(d, k, 2), basis(d, k, 3)
    rng = np.random.default_rng(1)
    true, head = rng.standard_normal(k), rng.standard_normal(k)
    X = rng.standard_normal((DRAWS, m, d))
    y = X @ (B_star @ true) + size["noise_std"] * rng.standard_normal((DRAWS, m))
    w, Z = np.tile(head, (DRAWS, 1)), X @ B
    for _ in range(size["steps"]):
        w -= size["alpha"] / m * np.einsum("rmk,rm->rk", Z, np.einsum("rmk,rk->rm", Z, w) - y)
    sent = np.einsum("rmd,rm->rd", X, np.einsum("rmk,rk->rm", Z, w) - y) / m
    return size, true, head, B, B_star, sent[:, :, None] * w[:, None, :], w


def deviation(by_samples, wrong=""):
    """Return by how many standard errors the means of messages and of B's new parts differ, at most."""
    size, true, head, B, B_star, drawn, w = by_samples
    k, m, d = size["k"], size["m"], len(B)
    N = B_star.T @ B
    rng = np.random.default_rng(2)
    setting = HeadsRound(
        W=np.tile(true, (DRAWS, 1)),
        dim=d,
        n_samples=m,
        participants=DRAWS,
        variance=(0.5 if wrong == "noise" else 1.0) * size["noise_std"] ** 2,
        head_steps=size["steps"] + (wrong == "steps"),
    )
    P, Q = np.eye(k) - N @ N.T, np.eye(k) - N.T @ N
    best = np.tile((N.T @ true)[:, None], DRAWS)
    squares = np.full(DRAWS, true @ P @ true + setting.variance)
    lag = (head[:, None] - best) * (0.0 if wrong == "heads at their best" else 1.0)
    got = setting._messages(best, lag, squares, size["alpha"], rng)
    if wrong:
        change = {"along": got.along * 1.2, "length": got.length * 1.3, "inside": got.inside * 0.7}
        got = dataclasses.replace(got, **({wrong: change[wrong]} if wrong in change else {}))
    if wrong == "lengths and heads apart":
        got = dataclasses.replace(got, length=rng.permutation(got.length))
    outer = got.heads[:, None] * got.heads[None]
    off = got.inside - best * got.along
    dims = d - k - np.trace(Q) - best[:, 0] @ Q @ best[:, 0] / squares[0]
    law = {
        "N": (N @ got.inside + np.outer(P @ true, got.along))[:, None] * got.heads[None],
        "Q": np.einsum("ib,ij,jb->b", off, Q, off) * outer + got.length * dims / m * outer,
        "heads": got.heads[:, None],
    }
    away = drawn - B_star @ (B_star.T @ drawn)
    measured = {"N": B_star.T @ drawn, "Q": np.swapaxes(away, 1, 2) @ away, "heads": w[:, :, None]}
    found = 0.0
    for name, x in measured.items():
        y = np.moveaxis(law[name], -1, 0)
        error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / DRAWS) + 1e-12
        found = max(found, np.max(np.abs(x.mean(axis=0) - y.mean(axis=0)) / error))
    return found


def test_messages_have_the_means_of_samples(by_samples):
    """About B, outside B* and of the new heads; with some 20 entries each, right ones fail at one seed in 7,000."""
    assert deviation(by_samples) < 4.5


WRONG = ["along", "length", "inside", "noise", "steps", "lengths and heads apart", "heads at their best"]


@pytest.mark.parametrize("by_samples", ["m > k"], indirect=True)
@pytest.mark.parametrize("wrong", WRONG)
def test_samples_tell_other_messages_apart(by_samples, wrong):
    assert deviation(by_samples, wrong) > 4.5


# --- the course of runs --------------------------------------------------------------------------------------


def heads_of(n, k, seed=5):
    return lf.SharedRepresentation(n_clients=n, dim=k, rank=k).truth(seed, [0]).W[0]


def run_of(n, d, k, m, eta, alpha, tau, delta, p=None, noise_std=0.0, rounds=20, seed=5):
    """Return a run, as what `simulate` and `predict` are given."""
    heads = lf.GradientHeads(steps=tau, step_size=alpha)
    return {
        "algorithm": lf.FedRep(rank=k, step_size=eta, init=lf.AtDistance(delta), heads=heads),
        "problem": lf.GivenTruth(B=np.eye(d, k), W=heads_of(n, k, seed), noise_std=noise_std),
        "data": lf.FreshSamples(m),
        "rounds": rounds,
        "participation": p or 1.0,
    }


def measured(run, trials=300):
    """Return the distances of runs (trials, rounds + 1)."""
    return lf.simulate(**run, trials=trials, engine="chain", seed=1).metrics["subspace_distance"]


FEW = {
    "k = 4, m = 6": {"n": 60, "d": 40, "k": 4, "m": 6, "eta": 0.5, "alpha": 0.5, "tau": 1, "delta": 0.5, "p": 60},
    "k = 2, m = 4": {"n": 60, "d": 40, "k": 2, "m": 4, "eta": 0.5, "alpha": 0.5, "tau": 1, "delta": 0.5, "p": 60},
    "small steps": {"n": 60, "d": 40, "k": 4, "m": 6, "eta": 0.2, "alpha": 0.2, "tau": 1, "delta": 0.5, "p": 15},
    "three steps": {"n": 60, "d": 40, "k": 3, "m": 30, "eta": 0.8, "alpha": 0.2, "tau": 3, "delta": 0.9, "p": 15},
}


@pytest.mark.parametrize("name", some(FEW, 2))
def test_with_few_samples_the_median_is_within_10_percent(name):
    run = run_of(**FEW[name], rounds=10)
    found, runs = lf.predict(**run), measured(run)
    assert not found.warnings
    np.testing.assert_allclose(found.distance, np.median(runs, axis=0), rtol=0.1)


RISING = {"n": 60, "d": 40, "k": 4, "m": 6, "eta": 0.5, "alpha": 0.5, "tau": 1, "delta": 0.5, "p": 15}


@pytest.mark.long
def test_where_few_participants_rule_the_means_it_warns():
    """Runs rise from 0.5 to 0.75 and fall again; before, the prediction fell from the start, without a warning."""
    run = run_of(**RISING, rounds=10)
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
)
def test_runs_tell_other_predictions_apart(monkeypatch, wrong, setting, allowed):
    messages, covariance = HeadsRound._messages, HeadsRound._covariance

    def other(self, best, lag, squares, alpha, rng):
        found = messages(self, best, 0.0 * lag if wrong == "heads at their best" else lag, squares, alpha, rng)
        return dataclasses.replace(found, length=rng.permutation(found.length)) if "apart" in wrong else found

    monkeypatch.setattr(HeadsRound, "_messages", other)
    if wrong == "no chance":
        monkeypatch.setattr(HeadsRound, "_covariance", lambda *given: 0.0 * covariance(*given))
    run = run_of(**setting, rounds=8)
    assert np.max(np.abs(lf.predict(**run).distance / np.median(measured(run), axis=0) - 1)) > allowed


SPREADS = {
    "noise of samples": {"n": 80, "d": 6, "k": 1, "m": 6, "eta": 0.3, "alpha": 0.5, "tau": 1, "delta": 0.3},
    "noise of labels": {
        **{"n": 80, "d": 6, "k": 1, "m": 6, "eta": 0.3, "alpha": 0.5, "tau": 1, "delta": 0.3},
        "noise_std": 0.6,
    },
    "choice of participants": {
        **{"n": 80, "d": 80, "k": 1, "m": 40, "eta": 0.3, "alpha": 0.5, "tau": 2, "delta": 0.3},
        "p": 20,
    },
    "several directions": {"n": 80, "d": 12, "k": 2, "m": 10, "eta": 0.5, "alpha": 0.5, "tau": 1, "delta": 0.5},
}


@pytest.mark.parametrize("name", some(SPREADS, 2))
def test_runs_spread_as_predicted(name):
    """After a round to the 2 % that 2,000 runs tell; later, what heads remember of their noise is missing."""
    setting = SPREADS[name]
    run = run_of(**setting, rounds=4)
    found = lf.theory.gradient_heads_evolution(
        heads_of(setting["n"], setting["k"]),
        dim=setting["d"],
        n_samples=setting["m"],
        step_size=setting["eta"],
        rounds=4,
        head_steps=setting["tau"],
        head_step_size=setting["alpha"],
        participants=setting.get("p"),
        noise_std=setting.get("noise_std", 0.0),
        delta=setting["delta"],
    )
    spread = np.log(measured(run, 2000)).std(axis=0)
    np.testing.assert_allclose(found.log_std[1], spread[1], rtol=0.05)
    np.testing.assert_allclose(found.log_std[2:], spread[2:], rtol=0.2)


@pytest.mark.long
def test_random_settings_are_within_10_percent_or_warned():
    rng = np.random.default_rng(31)
    off, silent = [], 0
    for number in range(14):
        k, n = int(rng.integers(1, 6)), int(rng.integers(40, 250))
        d, m = int(rng.integers(40, 250)), k + int(rng.integers(0, 12))
        p, eta = int(rng.integers(12, n + 1)), rng.uniform(0.2, 1.6)
        p = n if rng.random() < 0.4 else p
        alpha = float(rng.uniform(0.1, 1.4)) / (1 + (k / m) ** 0.5) ** 2
        run = run_of(
            n, d, k, m, eta / (1 + d * k / (p * m)), alpha, int(rng.choice([1, 1, 2, 3, 5])), rng.uniform(0.3, 0.95), p,
            float(rng.choice([0.0, 0.3])), seed=number,
        )  # fmt: skip
        found = lf.predict(**run)
        assert np.all((found.distance >= 0) & (found.distance <= 1))
        if not found.warnings:
            silent += 1
            off.append(np.abs(np.log(found.distance / np.median(measured(run, 400), axis=0))))
    assert silent >= 7
    assert np.mean(np.array(off) > 0.1) <= 0.01


# --- the recursion -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_many_steps_are_exact_heads():
    W = normal(40, 3, seed=1)
    setting = {"dim": 10_000, "n_samples": 60, "step_size": 0.3, "rounds": 15, "noise_std": 0.1, "delta": 0.7}
    got = lf.theory.gradient_heads_evolution(W, head_steps=100, head_step_size=0.5, **setting)
    np.testing.assert_allclose(got.distance, lf.theory.second_order_evolution(W, **setting).distance, rtol=0.02)


def test_units_of_the_heads_do_not_matter():
    W = normal(9, 2)
    setting = {"dim": 12, "n_samples": 6, "rounds": 4, "delta": 0.6, "head_step_size": 0.3}
    one = lf.theory.gradient_heads_evolution(W, step_size=0.2, noise_std=0.7, **setting)
    other = lf.theory.gradient_heads_evolution(2.0 * W, step_size=0.05, noise_std=1.4, **setting)
    np.testing.assert_allclose(other.distance, one.distance, rtol=1e-12)
    quiet = lf.theory.gradient_heads_evolution(W, step_size=0.2, **setting)
    assert (one.distance[1:] > quiet.distance[1:]).all()


def test_a_distance_falls_as_far_as_floating_point_goes(monkeypatch):
    monkeypatch.setattr(gradient_round, "MESSAGES", 2000)
    W = normal(100, 2, seed=1)
    setting = {"dim": 60, "n_samples": 20, "step_size": 0.8, "rounds": 90, "delta": 0.5, "head_steps": 3}
    predicted = lf.theory.gradient_heads_evolution(W, head_step_size=0.3, **setting)
    assert predicted.distance[-1] < 1e-15
    per_round = (predicted.distance[[50, 70, 90]] / predicted.distance[[30, 50, 70]]) ** (1 / 20)
    np.testing.assert_allclose(per_round, per_round[0], rtol=0.02)
    unit = np.swapaxes(predicted.N, -1, -2) @ predicted.N + predicted.Q
    np.testing.assert_allclose(unit, np.tile(np.eye(2), (91, 1, 1)), rtol=0, atol=1e-12)


def test_trials_schedules_and_starts():
    W = np.stack([normal(9, 2, seed=seed) for seed in (1, 2)])
    setting = {"dim": 12, "n_samples": 6, "rounds": 3, "delta": 0.6}
    both = lf.theory.gradient_heads_evolution(W, step_size=0.2, **setting)
    assert both.distance.shape == both.head_gap.shape == both.log_std.shape == (2, 4)
    assert both.round_log_variance.shape == (2, 3)
    assert both.N.shape == both.Q.shape == (2, 4, 2, 2)
    one = lf.theory.gradient_heads_evolution(W[1], step_size=[0.2, 0.2, 0.2], head_step_size=0.2, **setting)
    np.testing.assert_array_equal(both.distance[1], one.distance)
    B0, B_star = (np.stack([basis(12, 2, seed=seed) for seed in seeds]) for seeds in ((1, 2), (3, 4)))
    given = setting | {"delta": None, "step_size": 0.2}
    from_starts = lf.theory.gradient_heads_evolution(W, B0=B0, B_star=B_star, **given)
    for t in range(2):
        expected = lf.theory.gradient_heads_evolution(W[t], B0=B0[t], B_star=B_star[t], **given)
        np.testing.assert_array_equal(from_starts.distance[t], expected.distance)
    other = lf.theory.gradient_heads_evolution(W[1], step_size=[0.2, 0.1, 0.2], head_step_size=0.2, **setting)
    assert (one.distance == other.distance).tolist() == [True, True, False, False]
    np.testing.assert_allclose(one.head_gap[0], 0.8 * np.sqrt(np.mean(np.sum(W[1] ** 2, axis=1))), rtol=1e-12)


def test_the_population_has_enough_participants(monkeypatch):
    def copies(n, p):
        return HeadsRound(
            W=normal(n, 2, seed=1), dim=9, n_samples=5, participants=p, variance=0.0, head_steps=1
        ).start(np.eye(2), np.zeros((2, 2))).lag.shape[1] / n  # fmt: skip

    assert copies(10, 10) == 800
    assert copies(100, 10) == 800
    assert copies(9000, 9000) == 1
    monkeypatch.setattr(gradient_round, "CLIENTS", 5000)
    assert copies(100, 10) == 50


EXTREME = {
    "m = k": {"n_samples": 2},
    "m < k": {"n_samples": 1},
    "d = 2k": {"dim": 4},
    "n < k": {"W": normal(1, 2, seed=1)},
    "p = 1": {"participants": 1},
    "heads of rank 1": {"W": np.outer(np.arange(6.0), [1.0, 1.0])},
    "heads that are 0": {"W": np.zeros((6, 2))},
    "at the truth": {"delta": 0.0},
    "at the truth, many clients": {"delta": 0.0, "W": normal(60, 3, seed=1), "dim": 40, "n_samples": 8},
    "at a right angle": {"delta": 1.0},
    "nearly at a right angle": {"delta": 1 - 1e-9},
    "much noise": {"noise_std": 1e6},
    "large d": {"dim": 10**9},
    "head steps that diverge": {"head_steps": 3, "head_step_size": 1.5},
    "step that diverges": {"step_size": 3.0},
    "many rounds": {"rounds": 150, "step_size": 0.9, "n_samples": 20},
}


@pytest.mark.long
@pytest.mark.parametrize("name", EXTREME)
def test_extremes_are_finite_and_within_0_and_1(monkeypatch, name):
    monkeypatch.setattr(gradient_round, "MESSAGES", 200)
    found = lf.theory.gradient_heads_evolution(**GOOD | {"rounds": 8} | EXTREME[name])
    assert np.all((found.distance >= 0) & (found.distance <= 1))
    assert np.isfinite(found.head_gap).all()


@pytest.mark.long
@pytest.mark.parametrize("change", [{}, {"participants": 2}, {"noise_std": 0.3}])
def test_1000_rounds_are_finite_and_within_0_and_1(monkeypatch, change):
    monkeypatch.setattr(gradient_round, "MESSAGES", 1000)
    run = GOOD | {"rounds": 1000, "step_size": 0.3, "n_samples": 20} | change
    found = lf.theory.gradient_heads_evolution(**run)
    assert np.all((found.distance >= 0) & (found.distance <= 1))


# --- what is refused -----------------------------------------------------------------------------------------

GOOD = {"W": normal(6, 2, seed=1), "dim": 8, "n_samples": 5, "step_size": 0.2, "rounds": 2, "delta": 0.5}
BAD = {
    "W = 1 axis": ({"W": [1.0, 2.0]}, ["W"]),
    "dim < 2k": ({"dim": 3}, ["dim = 3", "2 rank"]),
    "no samples": ({"n_samples": 0}, ["n_samples = 0"]),
    "no step": ({"step_size": 0.0}, ["step_size = 0"]),
    "schedule too short": ({"step_size": [0.1]}, ["step_size has 1 value", "one for each round"]),
    "schedule with a 0": ({"step_size": [0.1, 0.0]}, ["step_size[1] = 0"]),
    "head_steps = 0": ({"head_steps": 0}, ["head_steps = 0"]),
    "head_step_size < 0": ({"head_step_size": -1.0}, ["head_step_size = -1"]),
    "participants > n": ({"participants": 7}, ["participants = 7", "n_clients = 6"]),
    "no start": ({"delta": None}, ["delta", "B0"]),
    "a start that is no basis": (
        {"W": normal(3, 6, 2, seed=1), "delta": None, "B0": normal(2, 8, 2, seed=1), "B_star": np.eye(8, 2)},
        ["orthonormal"],
    ),
    "overflow": ({"step_size": 1e200, "rounds": 3}, ["step_size = 1e+200", "round 1"]),
    "overflowing heads": ({"head_steps": 500, "head_step_size": 9.0}, ["too large"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_one_line(name):
    change, fragments = BAD[name]
    assert_one_line(lambda: lf.theory.gradient_heads_evolution(**GOOD | change), fragments)


def test_a_rank_whose_maps_do_not_fit_in_memory_is_refused_at_once():
    rank = 500
    law = HeadsRound(W=np.zeros((rank, rank)), dim=1000, n_samples=600, participants=rank, variance=0.0, head_steps=1)
    with pytest.raises(lf.SizeError, match="the maps of a round for rank = 500"):
        law.start(np.eye(rank), np.zeros((rank, rank)))
