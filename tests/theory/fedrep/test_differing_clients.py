"""FedRep's laws for clients with different numbers of samples, noise and weights: rounds, near B*, best weights."""

import itertools

import numpy as np
import pytest
import scipy.optimize

import linfed as lf
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, packed
from tests.helpers import assert_one_line, basis, normal

COUNTS, LEVELS, WEIGHTS = (7, 30, 6, 12, 9, 18), (0.1, 0.2, 0.4, 0.8, 1.0, 0.3), (1.0, 3.0, 0.5, 2.0, 0.3, 1.0)


def problem(noise_std=LEVELS, d=8, k=2, **more):
    return lf.GivenTruth(B=basis(d, k, seed=20), W=normal(6, k, seed=21), noise_std=noise_std, **more)


def fedrep(d=8, k=2, **more):
    return lf.FedRep(**{"rank": k, "step_size": 0.3, "init": basis(d, k, seed=23)} | more)


# --- the means of a round ------------------------------------------------------------------------------------

DESIGNS = {
    "everybody": {},
    "some": {"participants": 3},
    "one": {"participants": 1, "step_size": 0.1},
    "no noise, no weights": {"noise_std": 0.0, "weights": None, "step_size": 1.0},
    "loud": {"noise_std": tuple(3 * level for level in LEVELS), "step_size": 0.2},
    "few samples": {"n_samples": (7, 7, 8, 9, 40, 7), "participants": 5},
    "d = 2k": {"dim": 4, "participants": 4},
}


def moments_of_a_round(design, trials):
    """Return N and Q before a round, and those of B before QR in every trial."""
    setting = {"dim": 8, "n_samples": COUNTS, "noise_std": LEVELS, "weights": WEIGHTS, "step_size": 0.5} | design
    here = problem(setting["noise_std"], setting["dim"])
    algorithm = fedrep(setting["dim"], step_size=setting["step_size"], weights=setting["weights"], orthonormalize=False)
    B = lf.simulate(
        algorithm,
        here,
        data=lf.FreshSamples(setting["n_samples"]),
        rounds=1,
        participation=setting.get("participants", 6),
        trials=trials,
        seed=5,
        engine="explicit",
        metrics=["risk"],
    ).final.B

    def state(B):
        N = here.B.T @ B
        outside = B - here.B @ N
        return N, np.swapaxes(outside, -1, -2) @ outside

    return setting, state(np.asarray(algorithm.init.B)), state(B)


def scores(setting, before, after):
    """Return the z-scores of the predicted means, entry by entry."""
    predicted = lf.theory.one_round_means(*before, normal(6, 2, seed=21), **setting)
    found = []
    for mean, values in zip(predicted, after, strict=True):
        found.append((values.mean(axis=0) - mean) / (values.std(axis=0) / np.sqrt(len(values))))
    return np.abs(found)


@pytest.mark.long
@pytest.mark.parametrize("name", DESIGNS)
def test_the_means_of_a_round_are_exact(name):
    """Of eight entries each; |z| > 4.5 occurs in one of 20,000 right designs."""
    assert scores(*moments_of_a_round(DESIGNS[name], 3000)).max() < 4.5


def test_wrong_means_of_a_round_are_seen():
    """Clients as their mean, noise or weights of other clients, and everybody in place of some."""
    loud = tuple(3 * level for level in LEVELS)
    setting, before, after = moments_of_a_round({"participants": 4, "noise_std": loud, "step_size": 0.4}, 3000)
    assert scores(setting, before, after).max() < 4.5
    for wrong in (
        {"n_samples": round(np.mean(COUNTS))},
        {"noise_std": float(np.sqrt(np.mean(np.square(loud))))},
        {"noise_std": loud[::-1]},
        {"weights": None},
        {"weights": np.sqrt(WEIGHTS)},
        {"participants": 6},
        {"n_samples": COUNTS[::-1]},
    ):
        assert scores(setting | wrong, before, after).max() > 6.0, wrong


def test_few_samples_have_the_predicted_mean_of_heads():
    """At m = k + 2 squares have no variance: the mean of N alone, whose variance exists."""
    setting, before, after = moments_of_a_round({"n_samples": (4, 4, 5, 4, 40, 4)}, 3000)
    assert scores(setting, before, after)[0].max() < 4.5


def test_equal_clients_are_one_value():
    W, N = normal(6, 2, seed=1), 0.8 * np.eye(2)
    run = {"dim": 9, "step_size": 0.4, "participants": 3}
    one = lf.theory.one_round_means(N, 0.36 * np.eye(2), W, n_samples=9, noise_std=0.5, **run)
    other = lf.theory.one_round_means(
        N, 0.36 * np.eye(2), W, n_samples=[9] * 6, noise_std=[0.5] * 6, weights=[3.0] * 6, **run
    )
    np.testing.assert_allclose(one, other, rtol=1e-12)


# --- near the truth ------------------------------------------------------------------------------------------

NEAR = {"dim": 20, "n_samples": COUNTS, "weights": WEIGHTS}


def local_map(W, noise_std=0.0, participants=None, **sizes):
    clients = Clients.checked(*W.shape, noise_std=noise_std, participants=participants, **(NEAR | sizes))
    return LocalMap.of(RoundMoments.of(W, clients))


@pytest.mark.parametrize("participants", [None, 2])
def test_the_map_near_the_truth_is_the_limit_of_the_exact_means(participants):
    W, A, step, small = normal(6, 3, seed=1), normal(3, 3, seed=2), 0.3, 1e-6
    X, levels = A @ A.T, small * np.array(LEVELS)
    values, vectors = np.linalg.eigh(np.eye(3) - small**2 * X)
    N = (vectors * np.sqrt(values)) @ vectors.T
    run = {"participants": participants, "noise_std": levels}
    _, after = lf.theory.one_round_means(N, small**2 * X, W, step_size=step, **NEAR, **run)
    here = local_map(W, **run)
    moved = packed(X) - step * here.linear @ packed(X) + step**2 * here.quadratic @ packed(X)
    assert packed(after) == pytest.approx(small**2 * moved + step**2 * packed(here.drive), rel=1e-6)


def tangents(state, truth):
    """Return ``||D||_F^2`` of each trial, in any frame."""
    base = np.linalg.qr(truth.B)[0]
    N = base.mT @ state.B
    D = (state.B - base @ N) @ np.linalg.inv(N)
    return np.square(D).sum(axis=(-2, -1))


def circle(copies, k=2):
    """Heads of length sqrt(k) on a circle, isotropic in each of six-client groups."""
    angles = np.concatenate([np.arange(6) * np.pi / 6 + 0.1 * j for j in range(copies)])
    return np.sqrt(k) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def mixed(copies=4):
    """Counts from 6 to 60 and noise over a factor of 10, one combination in each group of six heads."""
    counts, levels = np.array([6, 60, 6, 20]), np.array([0.03, 0.3, 0.3, 0.1])
    return circle(copies), np.repeat(counts[:copies], 6), np.repeat(levels[:copies], 6)


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
    result = lf.simulate(
        lf.FedRep(rank=2, step_size=step, weights=chosen, init=lf.AtDistance(np.sqrt(predicted / 2))),
        lf.GivenTruth(B=np.eye(20, 2), W=W, noise_std=levels),
        data=lf.FreshSamples(counts),
        rounds=90,
        participation=participants,
        trials=60,
        engine="chain",
        metrics=[tangents],
    )
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


@pytest.mark.long
def test_at_the_edge_a_round_keeps_the_mean_square():
    """Along the direction that balances there, within 4 standard errors; at 0.7 and 1.3 of the edge it does not."""
    W, d = normal(6, 2, seed=1), 9
    sizes = {"dim": d, "n_samples": (8, 30, 9, 12, 8, 18), "participants": 3}
    here = local_map(W, **sizes)
    edge = here.edge()
    assert edge == pytest.approx(lf.theory.stability_edge(W, weights=WEIGHTS, **sizes), rel=1e-12)
    x = np.linalg.eigh(edge * here.quadratic - here.linear)[1][:, -1]
    X = np.array([[x[0], x[1] / np.sqrt(2)], [x[1] / np.sqrt(2), x[2]]])
    values, vectors = np.linalg.eigh(X * np.sign(np.trace(X)))
    D = np.zeros((d - 2, 2))
    D[:2] = 1e-6 * (vectors * np.sqrt(np.maximum(values, 0.0))).T
    for share in (0.7, 1.0, 1.3):
        result = lf.simulate(
            lf.FedRep(rank=2, step_size=share * edge, weights=WEIGHTS, init=np.linalg.qr(np.vstack([np.eye(2), D]))[0]),
            lf.GivenTruth(B=np.eye(d, 2), W=W),
            data=lf.FreshSamples(sizes["n_samples"]),
            rounds=1,
            participation=3,
            trials=4000,
            metrics=[tangents],
        )
        ratios = result.metrics["tangents"][:, 1] / result.metrics["tangents"][:, 0]
        error = ratios.std() / np.sqrt(len(ratios))
        assert error < 0.06
        assert (abs(ratios.mean() - 1.0) < 4 * error) == (share == 1.0), share


# --- the best weights ----------------------------------------------------------------------------------------


def spread(W, weights, **setting):
    """Return ``tr(G^{-1} V G^{-1})`` from the map near the truth, at q = 0."""
    here = local_map(W, weights=weights, **setting)
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
        run = {"rank": 2, "n_clients": 24, "rounds": 1, "delta": float(np.sqrt(q / (1 + q))), **sizes}

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
    steps = lf.theory.best_step_schedule(weights=weights, rounds=1, delta=delta, **run)
    sine = lf.theory.mean_squared_sine(steps, weights=weights, rounds=1, delta=delta, **run)[-1]
    assert (1 - sine) / sine == pytest.approx(1 / q + information, rel=2e-3)
    constant, rounds = lf.theory.optimal_weights(W, **sizes), 1200
    for chosen in (constant, None, counts):
        steps = lf.theory.best_step_schedule(weights=chosen, rounds=rounds, delta=0.1, **run)
        last = lf.theory.mean_squared_sine(steps, weights=chosen, rounds=rounds, delta=0.1, **run)[-1]
        limit = lf.theory.refitted_heads_limit(rounds * counts.sum(), rank=k, weights=chosen, **sizes)
        assert last == pytest.approx(limit[0], rel=0.03)
    closed = (d - k) / (rounds * np.sum((counts - k) / (levels**2 * (1 + s))))
    best = lf.theory.refitted_heads_limit(rounds * counts.sum(), rank=k, weights=constant, **sizes)
    assert best == pytest.approx([closed] * 2, rel=1e-9)


def test_differing_clients_at_equal_angles_have_the_exact_means_of_a_round():
    W, counts, levels = mixed()
    weights, delta, k = np.repeat([1.0, 3.0, 0.5, 2.0], 6), 0.6, 2
    N, Q = np.sqrt(1 - delta**2) * np.eye(k), delta**2 * np.eye(k)
    own = {"dim": 20, "n_samples": counts, "noise_std": levels, "weights": weights, "participants": 7}
    for eta in (0.05, 0.7, 3.0):
        inside, outside = lf.theory.one_round_means(N, Q, W, step_size=eta, **own)
        wanted = outside[0, 0] / (outside[0, 0] + inside[0, 0] ** 2)
        found = lf.theory.mean_squared_sine(eta, rank=k, n_clients=24, rounds=1, delta=delta, **own)
        np.testing.assert_allclose(found, [delta**2, wanted], rtol=1e-9)


# --- predictions, bad calls ----------------------------------------------------------------------------------


def test_predictions_of_differing_clients():
    heads = normal(6, 2, seed=21)
    run = {"data": lf.FreshSamples(COUNTS), "rounds": 5, "participation": 4}
    found = lf.predict(fedrep(weights=WEIGHTS, step_size=0.05, init=lf.AtDistance(0.5)), problem(), **run)
    sizes = {"dim": 8, "n_samples": COUNTS, "participants": 4, "weights": WEIGHTS}
    course = {"step_size": 0.05, "rounds": 5, "noise_std": LEVELS, "delta": 0.5}
    evolved = lf.theory.second_order_evolution(heads, **course, **sizes)
    np.testing.assert_allclose(found.distance, evolved.distance, rtol=1e-12)
    np.testing.assert_allclose(found.high, evolved.high, rtol=1e-12)
    assert found.law == "second order"
    assert float(found.stability_edge) == pytest.approx(lf.theory.stability_edge(heads, **sizes), rel=1e-12)
    assert float(found.best_step) == pytest.approx(lf.theory.local_best_step(heads, **sizes), rel=1e-9)
    floor = lf.theory.second_order_floor(heads, step_size=0.05, noise_std=LEVELS, **sizes)
    assert float(found.floor) == pytest.approx(floor.distance, rel=1e-12)
    few = {"data": lf.FreshSamples([5, *COUNTS[1:]]), "rounds": 5}
    plain = lf.predict(fedrep(step_size=0.05, init=lf.AtDistance(0.5)), problem(), **few)
    assert plain.law == "means"
    assert plain.low is None
    means = lf.theory.state_evolution(heads, dim=8, n_samples=[5, *COUNTS[1:]], **course)
    np.testing.assert_allclose(plain.distance, means.distance, rtol=1e-12)
    rate = lf.theory.near_truth_factor(heads, step_size=0.05, **sizes)
    assert float(found.rate) == pytest.approx(np.sqrt(rate), rel=1e-12)
    fixed = lf.predict(fedrep(), problem(), data=lf.FixedSamples(20), rounds=2)
    assert_one_line(lambda: fixed.floor, ["floor", "clients with different noise_std"], lf.NoPredictionError)
    average = {"data": lf.FixedSamples(20), "rounds": 2}
    assert lf.predict(lf.FedAvg(step_size=0.05), problem(), **average).floor is not None


HEADS = normal(6, 2)
SETTING = {"dim": 8, "n_samples": COUNTS, "noise_std": LEVELS}
CALLS = {
    "counts": (lambda: lf.theory.stability_edge(HEADS, dim=8, n_samples=[9, 9]), ["n_samples has 2 numbers", "6"]),
    "a count": (
        lambda: lf.theory.stability_edge(HEADS, dim=8, n_samples=[9, 9, 3, 9, 9, 9]),
        ["n_samples[2] = 3", "rank + 2 = 4"],
    ),
    "weights of the law": (
        lambda: lf.theory.near_truth_factor(HEADS, dim=8, n_samples=9, step_size=0.1, weights=[1.0, 2.0]),
        ["weights has 2 numbers", "n_clients = 6"],
    ),
    "no noise": (
        lambda: lf.theory.optimal_weights(HEADS, **SETTING | {"noise_std": [0.0, *LEVELS[1:]]}),
        ["noise_std must be positive", "error"],
    ),
    "no span": (
        lambda: lf.theory.optimal_weights(np.ones((6, 2)), **SETTING),
        ["W must span R^k, k = 2"],
    ),
    "error": (lambda: lf.theory.optimal_weights(HEADS, error=-1.0, **SETTING), ["error = -1.0"]),
    "gradient heads": (
        lambda: lf.predict(fedrep(heads=lf.GradientHeads()), problem(), data=lf.FreshSamples(9), rounds=1),
        ["gradient heads", "clients with different noise_std"],
    ),
    "other algorithms": (
        lambda: lf.predict(lf.LocalGram(rank=2), problem(), data=lf.FixedSamples(9), rounds=1),
        ["LocalGram", "clients with different noise_std"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_is_one_line(name):
    assert_one_line(*CALLS[name])
