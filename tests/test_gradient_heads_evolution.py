"""FedRep with gradient heads: its scalars against samples, its recursion against clients one by one and against runs.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import dataclasses

import numpy as np
import pytest
from helpers import assert_one_line, basis, normal

import linfed as lf
from linfed.theory.fedrep.wishart import GradientScalars, typical_tail

# --- the scalars ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m"), [(1, 1), (1, 3), (2, 6), (5, 3), (7, 7), (4, 100_000), (30, 45)])
def test_one_step_has_its_closed_forms(k, m):
    alpha = 0.4
    square = 1 + (k + 1) / m
    expected = {
        "f1": 1 - alpha,
        "g0": 1 - alpha * k / m,
        "g1": (1 - alpha) - alpha / m * (1 + k - alpha * (1 + k + (k + 3) / m)),
        "k1": 1 - alpha * square,
        "k2": alpha / m * (1 - alpha * square),
        "r2": 1 - (2 * alpha * k - alpha**2 * k * square) / m,
        "b": alpha**2 / m,
    }
    got = GradientScalars.of(k, m, 1, alpha)
    for name, value in expected.items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-8), name
    both = got.A1 + got.A2
    assert both == pytest.approx((1 - alpha) ** 2 + 2 * alpha**2 / m, rel=1e-8)
    apart = got.A2
    assert k == 1 or apart == pytest.approx(alpha**2 / m, rel=1e-7)


SETTINGS = {"m > k": (3, 8, 4, 0.3), "m < k": (4, 2, 3, 0.12), "many steps": (2, 30, 12, 0.3)}


@pytest.fixture(scope="module", params=SETTINGS)
def messages(request):
    """Return the scalars, the head before the steps, and what follows it by the law, drawn: five stacks."""
    k, m, steps, alpha = SETTINGS[request.param]
    draws, tau = 20_000, 1.2
    rng = np.random.default_rng(1)
    a, delta = rng.standard_normal(k), 1.5 * rng.standard_normal(k)
    Z, v = rng.standard_normal((draws, m, k)), rng.standard_normal((draws, m))
    w = np.tile(a + delta, (draws, 1))
    for _ in range(steps):
        w -= alpha / m * np.einsum("rmk,rm->rk", Z, np.einsum("rmk,rk->rm", Z, w - a) - tau * v)
    r = np.einsum("rmk,rk->rm", Z, w - a) - tau * v
    inside = np.einsum("rmk,rm->rk", Z, r) / m
    drawn = {
        "mean": w - a,
        "second": np.einsum("ri,rj->rij", w - a, w - a),
        "residual": np.vecdot(r, r)[:, None] / m,
        "outside": (np.vecdot(v, r) / (m * tau))[:, None] * w,
        "inside": np.einsum("ri,rj->rij", inside, w),
    }
    return GradientScalars.of(k, m, steps, alpha), a, delta, tau, drawn


def farthest(s, a, delta, tau, drawn):
    """Return by how many standard errors the draws' means are off, at most."""
    eye, square, outer = np.eye(len(a)), delta @ delta, np.outer(delta, delta)
    law = {
        "mean": s.f1 * delta,
        "second": s.A1 * outer + (s.A2 * square + tau**2 * s.b) * eye,
        "residual": np.array([s.k3 * square + tau**2 * s.r2]),
        "outside": -(s.g0 * a + s.g1 * delta),
        "inside": s.k1 * np.outer(delta, a) + s.p1 * outer + (s.p2 * square - tau**2 * s.k2) * eye,
    }
    return max(np.max(np.abs(x.mean(0) - law[name]) / (x.std(0) / len(x) ** 0.5)) for name, x in drawn.items())


def test_samples_have_these_means(messages):
    """With some 30 entries each, a right law fails at one seed in 4,000."""
    assert farthest(*messages) < 4.5


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(GradientScalars)])
def test_samples_tell_other_scalars_apart(messages, name):
    scalars, *rest = messages
    wrong = dataclasses.replace(scalars, **{name: 1.5 * getattr(scalars, name) + 0.1})
    assert farthest(wrong, *rest) > 4.5


# --- the recursion, one client at a time ---------------------------------------------------------------------


def by_loop(W, N, Q, *, dim, m, eta, rounds, tau, alpha, noise_std=0.0, participants=None, wrong=""):
    """Return mean distances and head gaps; for each client, moments of its head by when it last took part."""
    (n, k), eye = W.shape, np.eye(W.shape[1])
    p = participants or n
    share, absent = 0.0 if p == n else (n - p) / (p * (n - 1)), 1 - p / n
    oldest = 0 if p == n else int(np.ceil(np.log(n) / -np.log(absent)))
    s = GradientScalars.of(k, m, tau, alpha, typical_tail(p))
    heads = [[(1.0, np.zeros(k), np.zeros((k, k)))] for _ in W]
    ages = [(1.0, np.array([[1.0, 1.0]]))]  # values of the lag's share of the best head, and their probabilities
    out = []
    for _ in range(rounds + 1):
        P, length = eye - N @ N.T, np.mean([w @ N @ N.T @ w for w in W])
        squares, ins, pulls, drawn, moved, new = [], [], [], [], [], []
        for w, classes in zip(W, heads, strict=True):
            a, left = N.T @ w, w @ P @ w + noise_std**2
            lag = sum(weight * mu for weight, mu, _ in classes) - a
            D = (
                sum(weight * S for weight, _, S in classes)
                + np.outer(a, a)
                - np.outer(lag + a, a)
                - np.outer(a, lag + a)
            )
            squares.append(np.trace(D))
            if wrong == "heads at their best":
                lag, D = 0.0 * lag, 0.0 * D
            inside = s.k1 * np.outer(lag, a) + s.p1 * D + (s.p2 * np.trace(D) - s.k2 * left) * eye
            towards = s.g0 * a + s.g1 * lag
            ins.append(inside)
            moved.append(np.outer(w, towards))
            pulls.append((np.outer(a, towards) + s.k1 * np.outer(lag, a), inside + np.outer(a, towards)))
            first, second, added = np.zeros(k), np.zeros((k, k)), np.zeros((k, k))
            for weight, mu, S in classes:
                lag = mu - a
                D = S - np.outer(mu, a) - np.outer(a, mu) + np.outer(a, a)
                if wrong == "heads at their best":
                    lag, D = 0.0 * lag, 0.0 * D
                if wrong == "heads without spread":
                    D = np.outer(lag, lag)
                after = s.A1 * D + (s.A2 * np.trace(D) + s.b * left) * eye
                after = np.outer(a, a) + s.f1 * (np.outer(a, lag) + np.outer(lag, a)) + after
                first, second = first + weight * (a + s.f1 * lag), second + weight * after
                added = added + weight * (s.k3 * np.trace(D) + s.r2 * left) * after
            for weight, lags in ages:
                chances, values = lags.T
                together = chances @ (values**2 * (1 - s.f1 * values) ** 2)
                apart = (chances @ values**2) * (chances @ (1 - s.f1 * values) ** 2)
                added = added + weight * s.k3 * (together - apart) * (a @ a) * np.outer(a, a)
            drawn.append((dim - k - np.trace(Q)) / (p * m) * added)
            kept = classes[:oldest] if wrong != "everybody takes part" else []
            new.append([(1 - absent, first, second), *((absent * weight, mu, S) for weight, mu, S in kept)])
        out.append((np.sqrt(np.linalg.eigvalsh(Q)[-1]), np.sqrt(np.mean(squares))))
        pull = np.mean([L for _, L in pulls], axis=0)
        chosen = share * (np.mean([L.T @ Q @ L for L, _ in pulls], axis=0) - pull.T @ Q @ pull)
        N_bar = N @ (eye - eta * np.mean(ins, axis=0)) + eta * P @ np.mean(moved, axis=0)
        Q = (eye - eta * pull).T @ Q @ (eye - eta * pull) + eta**2 * (np.mean(drawn, axis=0) + chosen)
        R = np.linalg.cholesky(N_bar.T @ N_bar + Q).T
        N, Q = N_bar @ np.linalg.inv(R), np.linalg.inv(R).T @ Q @ np.linalg.inv(R)
        total = sum(weight for weight, *_ in new[0])
        heads = [[(weight / total, mu, S) for weight, mu, S in classes] for classes in new]
        ratio = np.sqrt(length / np.mean([w @ N @ N.T @ w for w in W]))
        taken = np.concatenate([lags * [weight, s.f1] for weight, lags in ages])
        old = [] if wrong == "everybody takes part" else ages[:oldest]
        ages = [(1 - absent, taken), *((absent * weight, lags) for weight, lags in old)]
        ages = [(weight / total, np.stack([lags[:, 0], 1 - ratio * (1 - lags[:, 1])], axis=1)) for weight, lags in ages]
    return np.array(out).T


@pytest.mark.parametrize("participants", [None, 3])
@pytest.mark.parametrize(("k", "m", "tau", "noise_std"), [(1, 3, 1, 0.0), (2, 2, 3, 0.3), (3, 9, 2, 0.2)])
def test_the_recursion_is_that_of_a_loop_over_clients(k, m, tau, noise_std, participants):
    W, B0, B_star = normal(7, k, seed=1), basis(4 * k, k, 2), basis(4 * k, k, 3)
    N = B_star.T @ B0
    setting = {"noise_std": noise_std, "participants": participants, "rounds": 12, "dim": 4 * k}
    got = lf.theory.gradient_heads_evolution(
        W, n_samples=m, step_size=0.2, head_steps=tau, head_step_size=0.15, B0=B0, B_star=B_star, **setting
    )
    mean = np.sqrt(np.linalg.eigvalsh(got.Q)[:, -1])
    looped = by_loop(W, N, np.eye(k) - N.T @ N, m=m, eta=0.2, tau=tau, alpha=0.15, **setting)
    np.testing.assert_allclose(mean, looped[0], rtol=1e-9)
    np.testing.assert_allclose(got.head_gap, looped[1], rtol=1e-9)
    unit = np.swapaxes(got.N, -1, -2) @ got.N + got.Q
    np.testing.assert_allclose(unit, np.tile(np.eye(k), (13, 1, 1)), rtol=0, atol=1e-12)


def test_many_steps_are_exact_heads():
    W = normal(40, 3, seed=1)
    setting = {"dim": 10_000, "n_samples": 60, "step_size": 0.3, "rounds": 25, "noise_std": 0.1, "delta": 0.7}
    got = lf.theory.gradient_heads_evolution(W, head_steps=200, head_step_size=0.5, **setting)
    exact = np.sqrt(np.linalg.eigvalsh(lf.theory.state_evolution(W, **setting).Q)[:, -1])
    np.testing.assert_allclose(np.sqrt(np.linalg.eigvalsh(got.Q)[:, -1]), exact, rtol=2e-3)


def test_a_distance_falls_as_far_as_floating_point_goes():
    W = normal(200, 2, seed=1)
    setting = {"dim": 100, "n_samples": 20, "step_size": 0.8, "rounds": 200, "delta": 0.5, "head_steps": 3}
    predicted = lf.theory.gradient_heads_evolution(W, head_step_size=0.3, **setting)
    mean = np.sqrt(np.linalg.eigvalsh(predicted.Q)[:, -1])
    ratios = mean[61:] / mean[60:-1]
    assert predicted.distance[-1] < mean[-1] < 1e-40
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_trials_schedules_and_starts():
    W = np.stack([normal(9, 2, seed=seed) for seed in (1, 2)])
    setting = {"dim": 12, "n_samples": 6, "rounds": 3, "delta": 0.6}
    both = lf.theory.gradient_heads_evolution(W, step_size=0.2, **setting)
    assert both.distance.shape == both.head_gap.shape == (2, 4)
    assert both.N.shape == both.Q.shape == (2, 4, 2, 2)
    one = lf.theory.gradient_heads_evolution(W[1], step_size=[0.2, 0.2, 0.2], head_step_size=0.2, **setting)
    np.testing.assert_array_equal(both.distance[1], one.distance)
    other = lf.theory.gradient_heads_evolution(W[1], step_size=[0.2, 0.1, 0.2], head_step_size=0.2, **setting)
    assert (one.distance == other.distance).tolist() == [True, True, False, False]
    np.testing.assert_allclose(one.head_gap[0], 0.8 * np.sqrt(np.mean(np.sum(W[1] ** 2, axis=1))), rtol=1e-12)


# --- the course of runs --------------------------------------------------------------------------------------

# Medians over 1000 trials of lf.simulate(lf.FedRep(rank=k, step_size=eta, init=lf.AtDistance(delta),
# heads=lf.GradientHeads(steps=tau, step_size=alpha)), lf.GivenTruth(B=np.eye(d, k), W=heads_of(n, k),
# noise_std=noise_std), data=lf.FreshSamples(m), rounds=40, trials=1000, seed=0, participation=p, engine="chain")
# in rounds 5, 10, 20 and 40; they are known to 1 %.
ROUNDS = [5, 10, 20, 40]
MEDIANS = {
    "one step": (
        {"n": 60, "dim": 150, "k": 3, "m": 12, "eta": 0.6, "tau": 1, "alpha": 0.5, "delta": 0.8},
        [0.2832, 0.041, 0.0007334, 2.324e-07],
    ),
    "noise": (
        {"n": 60, "dim": 150, "k": 3, "m": 12, "eta": 0.6, "tau": 6, "alpha": 0.4, "noise_std": 0.3, "delta": 0.8},
        [0.2545, 0.1086, 0.1035, 0.1037],
    ),
    "p < n": (
        {"n": 100, "dim": 100, "k": 2, "m": 10, "eta": 0.5, "tau": 3, "alpha": 0.3, "noise_std": 0.1, "delta": 0.7}
        | {"participants": 30},
        [0.2762, 0.08135, 0.04059, 0.038],
    ),
}  # fmt: skip


SPREADS = {
    "one step": [0.08, 0.11, 0.13, 0.17],
    "noise": [0.07, 0.04, 0.04, 0.04],
    "p < n": [0.09, 0.09, 0.07, 0.06],
}


def heads_of(n, k):
    return lf.SharedRepresentation(n_clients=n, dim=k, rank=k).truth(5, [0]).W[0]


@pytest.mark.parametrize("name", MEDIANS)
def test_runs_follow_it(name):
    """The spread is that of the logarithm, as measured."""
    setting, medians = MEDIANS[name]
    names = {"m": "n_samples", "eta": "step_size", "tau": "head_steps", "alpha": "head_step_size", "k": "", "n": ""}
    passed = {names.get(name, name): value for name, value in setting.items() if names.get(name, name)}
    predicted = lf.theory.gradient_heads_evolution(heads_of(setting["n"], setting["k"]), rounds=40, **passed)
    np.testing.assert_allclose(predicted.distance[ROUNDS], medians, rtol=0.05)
    np.testing.assert_allclose(predicted.spread[ROUNDS], SPREADS[name], rtol=0.4)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("one step", "heads without spread"), ("one step", "heads at their best"), ("p < n", "everybody takes part")],
)
def test_runs_tell_other_laws_apart(name, wrong):
    setting, medians = MEDIANS[name]
    n, k, delta = (setting[key] for key in ("n", "k", "delta"))
    passed = {key: value for key, value in setting.items() if key not in ("n", "k", "delta")}
    N, Q = np.sqrt(1 - delta**2) * np.eye(k), delta**2 * np.eye(k)
    distance = by_loop(heads_of(n, k), N, Q, rounds=20, wrong=wrong, **passed)[0]
    assert np.abs(distance[ROUNDS[:3]] / medians[:3] - 1).max() > 0.15


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
