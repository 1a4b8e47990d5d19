"""FedRep with clipped messages and noise on their mean: loops, engines, the noise's size, and the floor."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.theory import gaussian_mechanism_noise, near_truth_floor, noise_floor, one_round_means
from tests import references as ref
from tests.helpers import assert_one_line, basis, each, normal

D, K = 7, 2


# --- the algorithm ---------------------------------------------------------------------------------------------


@each(
    "options",
    [
        {"message_noise_std": 0.3},
        {"clip": 0.2},
        {"clip": 0.2, "message_noise_std": 0.1, "representation_steps": 3},
        {"clip": 0.05, "message_noise_std": 0.1, "aggregate": "sum", "orthonormalize": False},
        {"clip": 0.3, "heads": lf.GradientHeads(steps=2), "rotate_heads": True},
    ],
)
def test_rounds_are_those_of_a_loop(options):
    """At 1e-10, given the noise; some messages are clipped, and some are not."""
    X, y, B = normal(2, 6, 5, D, seed=1), normal(2, 6, 5, seed=2), basis(D, K)
    participants = np.array([[0, 2, 3, 5], [1, 2, 4, 5], [0, 1, 2, 3]])
    algorithm = lf.PrivateFedRep(rank=K, step_size=0.4, init=B, **options)
    found = lf.simulate(algorithm, data=lf.GivenSamples(X, y), rounds=3, participation=participants, seed=4).final
    loop = {name: value for name, value in options.items() if name != "message_noise_std"}
    for trial, rng in enumerate(generators(4, Stream.ALGORITHM, [0, 1])):
        state = B, np.zeros((6, K))
        for active in participants:
            noise = options.get("message_noise_std", 0.0) * rng.standard_normal((D, K))
            samples = X[trial, active], y[trial, active]
            state = ref.fedrep_round(*state, *samples, active, step_size=0.4, noise=noise, **loop)
        np.testing.assert_allclose(found.B[trial], state[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.W[trial], state[1], rtol=1e-10, atol=1e-10)


def lengths_of_messages(B, X, y):
    """Return the Frobenius norms of the clients' messages at exact heads."""
    out = []
    for X_i, y_i in zip(X, y, strict=True):
        w = np.linalg.lstsq(X_i @ B, y_i, rcond=None)[0]
        out.append(np.linalg.norm(np.outer(X_i.T @ (X_i @ B @ w - y_i) / len(y_i), w)))
    return np.array(out)


def test_without_noise_and_clipping_it_is_fedrep():
    X, y, B = normal(1, 6, 5, D, seed=1), normal(1, 6, 5, seed=2), basis(D, K)
    lengths = lengths_of_messages(B, X[0], y[0])
    assert lengths.min() < 0.3 < lengths.max()  # the loops above clip some messages
    run = {"data": lf.GivenSamples(X, y), "rounds": 3}
    plain = lf.simulate(lf.FedRep(rank=K, step_size=0.4, init=B), **run).final.B
    same = lf.simulate(lf.PrivateFedRep(rank=K, step_size=0.4, init=B), **run).final.B
    assert np.array_equal(plain, same)
    loose = lf.simulate(lf.PrivateFedRep(rank=K, step_size=0.4, init=B, clip=100.0), **run).final.B
    np.testing.assert_allclose(loose, plain, rtol=1e-12, atol=1e-12)


PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


@pytest.mark.long
def test_noise_keeps_the_projected_engine_exact():
    """Two engines have one distribution of the distance after three rounds; twice the noise has another one."""

    def distances(engine, noise, seed):
        algorithm = lf.PrivateFedRep(rank=2, step_size=0.6, message_noise_std=noise, init=lf.AtDistance(0.5))
        setting = {"data": lf.FreshSamples(6), "rounds": 3, "record_every": 3, "trials": 200}
        result = lf.simulate(algorithm, PROBLEM, engine=engine, seed=seed, **setting)
        return result.metrics["subspace_distance"][:, -1]

    explicit, projected = distances("explicit", 0.05, 0), distances("projected", 0.05, 1)
    assert scipy.stats.ks_2samp(explicit, projected).pvalue > 1e-3
    assert scipy.stats.ks_2samp(explicit, distances("projected", 0.1, 1)).pvalue < 1e-6


def test_engines_that_cannot_run_it_say_why():
    run = {"data": lf.FreshSamples(6), "rounds": 2}
    noisy = lf.PrivateFedRep(rank=2, step_size=0.5, message_noise_std=0.1, init=lf.AtDistance(0.5))
    clipped = replace(noisy, message_noise_std=0.0, clip=1.0)
    refused = ["engine = 'chain'", "the entries of B"]
    assert_one_line(lambda: lf.simulate(noisy, PROBLEM, engine="chain", **run), refused, lf.EngineError)
    refused = ["engine = 'projected'", "more than the features"]
    assert_one_line(lambda: lf.simulate(clipped, PROBLEM, engine="projected", **run), refused, lf.EngineError)
    assert lf.simulate(clipped, PROBLEM, **run).engine == "explicit"
    refused = ["engine = 'compressed'", "single samples"]
    halves = replace(clipped, split=True)
    assert_one_line(lambda: lf.simulate(halves, PROBLEM, engine="compressed", **run), refused, lf.EngineError)


@each(
    "call, words",
    [
        (lambda: lf.PrivateFedRep(rank=2, step_size=0.1, message_noise_std=-1), ["message_noise_std = -1"]),
        (lambda: lf.PrivateFedRep(rank=2, step_size=0.1, clip=0), ["clip = 0", "positive"]),
        (lambda: gaussian_mechanism_noise(-1.0, 0.1, sensitivity=1.0), ["epsilon = -1.0"]),
        (lambda: gaussian_mechanism_noise(1.0, 1.0, sensitivity=1.0), ["delta = 1", "below 1"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.0, sensitivity=1.0), ["delta = 0.0"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.1, sensitivity=0.0), ["sensitivity = 0.0"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.1, sensitivity=1.0, rounds=0), ["rounds = 0"]),
    ],
)
def test_bad_values_are_named(call, words):
    assert_one_line(call, words)


def test_it_supports_only_regression():
    problem = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
    algorithm = lf.PrivateFedRep(rank=2, step_size=0.1, heads=lf.GradientHeads(), clip=1.0)
    call = lambda: lf.simulate(algorithm, problem, data=lf.FreshSamples(5), rounds=1)  # noqa: E731
    assert_one_line(call, ["PrivateFedRep supports only regression"])


# --- the size of the noise -------------------------------------------------------------------------------------

LEVELS = [(1.0, 1e-6), (0.0, 0.01), (1e-3, 1e-10), (0.5, 0.3), (8.0, 1e-5), (100.0, 1e-8), (2.0, 0.99), (1e-4, 1e-3)]


@each("level", LEVELS)
def test_the_noise_is_that_of_the_definition(level):
    """The largest ``P(S) - e^eps Q(S)`` of two Gaussians at distance 1 is delta: an integral of their densities."""
    epsilon, delta = level
    s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0)
    edge = 0.5 - epsilon * s * s  # the densities at 0 and 1: P exceeds e^eps Q below it, P around 0

    def excess(x):
        first, second = -0.5 * (x / s) ** 2, epsilon - 0.5 * ((x - 1.0) / s) ** 2
        return (np.exp(first) - np.exp(second)) / (s * np.sqrt(2 * np.pi))

    low = min(edge, 0.0) - 14.0 * s
    points = np.linspace(low, edge, 40)
    total = sum(scipy.integrate.quad(excess, a, b, epsabs=0.0, epsrel=1e-10)[0] for a, b in itertools.pairwise(points))
    assert total == pytest.approx(delta, rel=1e-5)


def test_rounds_and_sensitivity_scale_the_noise():
    one = gaussian_mechanism_noise(1.5, 1e-5, sensitivity=1.0)
    assert gaussian_mechanism_noise(1.5, 1e-5, sensitivity=0.02, rounds=1000) == pytest.approx(0.02 * 1000**0.5 * one)
    classical = np.sqrt(2 * np.log(1.25 / 1e-5)) / 0.8
    assert 0.7 * classical < gaussian_mechanism_noise(0.8, 1e-5, sensitivity=1.0) < classical
    assert gaussian_mechanism_noise(4.0, 1e-5, sensitivity=1.0) < gaussian_mechanism_noise(3.9, 1e-5, sensitivity=1.0)


@each("rounds", [1, 5, 200])
def test_the_losses_of_adaptive_rounds_add_up_to_delta(rounds):
    """Each round releases a noisy value whose difference between two neighbours has a sign that the past decides."""
    epsilon, delta, trials, rng = 1.0, 0.05, 20_000, np.random.default_rng(0)
    for wrong in (1.0, 1.4):
        s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0, rounds=rounds) / wrong
        loss, last = np.zeros(trials), np.zeros(trials)
        for _ in range(rounds):
            difference = np.where(last > 0.3, -1.0, 1.0)
            last = s * rng.standard_normal(trials)  # the release, minus the value of the first neighbour
            loss += ((last - difference) ** 2 - last**2) / (2 * s * s)
        excess = np.maximum(0.0, -np.expm1(epsilon - loss))  # its mean is the smallest delta
        z = (excess.mean() - delta) / (excess.std() / trials**0.5)
        assert (abs(z) < 4) == (wrong == 1.0), (rounds, z)


@each("epsilon, delta, rounds", [(1.0, 1e-6, 1), (0.1, 1e-5, 5), (8.0, 1e-6, 40)])
def test_an_accountant_agrees(epsilon, delta, rounds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("dp_accounting", reason="pip install 'linfed[privacy]'")
        s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0, rounds=rounds)
        for factor in (1.0, 0.97):
            accountant = accountants.pld.PLDAccountant()
            accountant.compose(accountants.GaussianDpEvent(factor * s), rounds)
            agrees = accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=2e-3)
            assert agrees == (factor == 1.0), accountant.get_epsilon(delta)


# --- the mean of a round, and the floor -------------------------------------------------------------------------

ROUNDS = {
    "all clients": {},
    "one participant": {"participation": 1, "message_noise_std": 1.0},
    "no label noise": {"noise_std": 0.0},
    "few samples": {"n_samples": 5},
    "large noise": {"message_noise_std": 1.0},
    "half the dimension": {"dim": 4},
}


@pytest.mark.long
@each("name", ROUNDS)
def test_a_round_has_the_predicted_mean(name):
    """Before QR, within 4 standard errors; without the noise, or with d in place of d - k, it is not."""
    given = {"participation": 12, "noise_std": 0.2, "n_samples": 8, "message_noise_std": 0.3, "dim": 10} | ROUNDS[name]
    d, m, added, p = (given[key] for key in ("dim", "n_samples", "message_noise_std", "participation"))
    W, step = normal(12, 2) * [1.5, 0.7], 0.4
    problem = lf.GivenTruth(B=np.eye(d, 2), W=W, noise_std=given["noise_std"])
    B0 = basis(d, 2, seed=3)
    algorithm = lf.PrivateFedRep(rank=2, step_size=step, init=B0, message_noise_std=added, orthonormalize=False)
    B = lf.simulate(
        algorithm, problem, data=lf.FreshSamples(m), rounds=1, participation=p, trials=3000, engine="projected"
    ).final.B
    squares = np.square(B[:, 2:]).sum(axis=(-2, -1))
    N, outside = B0[:2], B0[2:].T @ B0[2:]
    sizes = {"dim": d, "n_samples": m, "step_size": step, "noise_std": given["noise_std"], "participants": p}

    def z(noise):
        mean = np.trace(one_round_means(N, outside, W, message_noise_std=noise, **sizes)[1])
        return (squares.mean() - mean) / (squares.std() / len(squares) ** 0.5)

    assert abs(z(added)) < 4
    assert abs(z(0.0)) > 4
    assert abs(z(added * np.sqrt(d / (d - 2)))) > 4
    inside = (B[:, :2] - one_round_means(N, outside, W, message_noise_std=added, **sizes)[0]).mean(axis=0)
    assert (np.abs(inside) < 4.5 * B[:, :2].std(axis=0) / len(B) ** 0.5).all()


def test_isotropic_heads_have_the_closed_form():
    W = np.tile(np.sqrt(3) * np.eye(3), (6, 1))
    some = {"dim": 20, "n_samples": 8, "participants": 7, "noise_std": 0.2, "message_noise_std": 0.01}
    X = near_truth_floor(W, step_size=0.4, **some)
    floor = noise_floor(0.4, rank=3, n_clients=18, **some)
    np.testing.assert_allclose(X, floor**2 * np.eye(3), rtol=1e-9, atol=1e-15)
    alone = noise_floor(0.4, rank=3, n_clients=18, **some | {"noise_std": 0.0})
    label = noise_floor(0.4, rank=3, n_clients=18, **some | {"message_noise_std": 0.0})
    assert alone**2 + label**2 == pytest.approx(floor**2)
    path = lf.theory.mean_squared_sine(0.4, rank=3, n_clients=18, rounds=1000, delta=0.3, **some)
    assert path[-1] == pytest.approx(floor**2, rel=0.02)


SCHEDULED = {"dim": 50, "rank": 2, "n_clients": 40, "n_samples": 6, "noise_std": 0.3, "participants": 30}


def test_the_best_schedule_takes_the_noise_into_account():
    run = {**SCHEDULED, "message_noise_std": 0.05, "rounds": 30, "delta": 0.8}
    steps = lf.theory.best_step_schedule(**run)
    end = lf.theory.mean_squared_sine(steps, **run)[-1]
    without = lf.theory.best_step_schedule(**run | {"message_noise_std": 0.0})
    assert end < 0.98 * lf.theory.mean_squared_sine(without, **run)[-1]
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = lf.theory.mean_squared_sine(steps * np.exp(rng.normal(scale=0.05, size=30)), **run)[-1]
        assert other > end
    W = lf.SharedRepresentation(n_clients=40, dim=50, rank=2, condition_number=1.0).truth(0, [0]).W[0]
    own = {name: run[name] for name in ("dim", "n_samples", "noise_std", "participants", "message_noise_std")}
    path = lf.theory.state_evolution(W, step_size=steps, rounds=30, delta=0.8, **own).distance ** 2
    np.testing.assert_allclose(lf.theory.mean_squared_sine(steps, **run), path, rtol=1e-8)


def tangents(state, truth):
    """Return the mean square of the tangents of B at B*."""
    inside = truth.B.mT @ state.B
    outside = state.B - truth.B @ inside
    return np.square(outside @ np.linalg.inv(inside)).sum(axis=(-2, -1))


FLOORS = {
    "isotropic": ({"condition_number": 1.0}, {}),
    "general heads": ({"condition_number": 3.0}, {}),
    "one participant": ({"condition_number": 1.5}, {"participation": 1, "step_size": 0.1, "rounds": 160}),
    "no label noise": ({"condition_number": 2.0, "noise_std": 0.0}, {}),
    "m = k + 2": ({"condition_number": 1.0, "noise_std": 0.0}, {"n_samples": 4}),
}


@pytest.mark.long
@each("name", FLOORS)
def test_runs_have_the_predicted_floor(name):
    """Within 6 % and 4 standard errors; without the noise, or with (d-k) (k+1)/k in place of d - k, it is not."""
    changes, own = FLOORS[name]
    problem = lf.SharedRepresentation(**{"n_clients": 24, "dim": 30, "rank": 2, "noise_std": 0.02} | changes)
    given = {"step_size": 0.3, "n_samples": 8, "participation": 24, "rounds": 80} | own
    step, m, p, rounds = (given[key] for key in ("step_size", "n_samples", "participation", "rounds"))
    algorithm = lf.PrivateFedRep(rank=2, step_size=step, message_noise_std=0.005, init=lf.AtDistance(0.01))
    world = {"data": lf.FreshSamples(m), "rounds": rounds, "participation": p, "trials": 40, "engine": "projected"}
    result = lf.simulate(algorithm, problem, metrics=[tangents], seed=2, record_every=4, **world)
    settled = result.metrics["tangents"][:, result.rounds > rounds / 2]
    W = problem.truth(2, range(40)).W
    sizes = {"dim": 30, "n_samples": m, "step_size": step, "participants": p, "noise_std": problem.noise_std}

    def ratios(noise):
        X = near_truth_floor(W, message_noise_std=noise, **sizes)
        return settled.mean(axis=1) / np.trace(X, axis1=-2, axis2=-1)

    def apart(noise):
        found = ratios(noise)
        return abs(found.mean() - 1.0) > 0.02 + 4 * found.std() / 40**0.5

    assert abs(ratios(0.005).mean() - 1.0) < 0.06
    assert not apart(0.005)
    assert problem.noise_std == 0 or apart(0.0)
    assert apart(0.005 * np.sqrt(1.5))


@pytest.mark.long
def test_many_rounds_of_the_best_schedule_cost_nothing():
    """The noise for 1,000 rounds leaves (d-k) (s_1/c)^2, s_1 the noise for one round; without c, it does not."""
    d, m, n = 12, 6, 40
    first = 0.0015
    sizes = {"dim": d, "n_samples": m, "noise_std": 0.0, "message_noise_std": first * 1000**0.5, "rounds": 1000}
    steps = lf.theory.best_step_schedule(rank=1, n_clients=n, delta=0.5, **sizes)
    problem = lf.GivenTruth(B=np.eye(d, 1), W=np.tile([[1.0], [-1.0]], (n // 2, 1)))
    algorithm = private(rank=1, step_size=steps, message_noise_std=sizes["message_noise_std"])
    world = {"data": lf.FreshSamples(m), "rounds": 1000, "record_every": 1000, "trials": 80, "engine": "projected"}
    squares = lf.simulate(algorithm, problem, metrics=[tangents], **world).metrics["tangents"][:, -1]
    error = squares.std() / 80**0.5
    limit = (d - 1) * (first / (1.0 - 1.0 / m)) ** 2
    assert abs(squares.mean() - limit) < 4 * error
    assert abs(squares.mean() - limit * (1.0 - 1.0 / m) ** 2) > 4 * error


# --- lf.predict --------------------------------------------------------------------------------------------------


def private(**changes):
    return lf.PrivateFedRep(**{"rank": 2, "step_size": 0.5, "init": lf.AtDistance(0.6)} | changes)


def predict(algorithm, problem=PROBLEM, data=None):
    return lf.predict(algorithm, problem, data=data or lf.FreshSamples(8), rounds=4)


def test_predictions_of_the_noisy_run():
    found, plain = predict(private(message_noise_std=0.02)), predict(private())
    W = PROBLEM.truth(0, [0]).W[0]
    sizes = {"dim": 12, "n_samples": 8, "noise_std": 0.3, "step_size": 0.5, "message_noise_std": 0.02}
    path = lf.theory.state_evolution(W, rounds=4, delta=0.6, **sizes).distance
    np.testing.assert_allclose(found.distance, path)
    assert found.law == "means"
    X = near_truth_floor(W, **sizes)
    assert found.floor == pytest.approx(lf.theory.median_distance(X, dim=12))
    assert found.floor > 1.1 * plain.floor
    assert (found.stability_edge, found.best_step) == (plain.stability_edge, plain.best_step)
    assert np.array_equal(plain.distance, predict(lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.6))).distance)
    summed = predict(private(message_noise_std=0.02 * 30, step_size=0.5 / 30, aggregate="sum"))
    assert summed.floor == pytest.approx(found.floor)
    np.testing.assert_allclose(summed.distance, found.distance)


LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=2)


@each(
    "algorithm, problem, data, words",
    [
        (private(clip=3.0), PROBLEM, None, "for clip = 3"),
        (private(clip=3.0), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (private(message_noise_std=0.1), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (private(message_noise_std=0.1), PROBLEM, lf.FreshSamples(3), "n_samples = rank + 1 = 3"),
        (private(message_noise_std=0.1), LARGER, None, "ground truth of rank k"),
        (private(message_noise_std=0.1, heads=lf.GradientHeads()), PROBLEM, None, "exact heads"),
    ],
)
def test_what_cannot_be_predicted_is_named(algorithm, problem, data, words):
    assert_one_line(lambda: predict(algorithm, problem, data).distance, [words], lf.NoPredictionError)
