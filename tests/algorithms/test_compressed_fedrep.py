"""FedRep with compressed messages: loops, the variance of compression, and the map of a round near B*."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, packed, unpacked
from tests import references as ref
from tests.helpers import assert_one_line, basis, each, normal

D, K = 7, 2


def compressed(**changes):
    return lf.CompressedFedRep(**{"rank": K, "step_size": 0.4, "kept_share": 0.5} | changes)


# --- the algorithm ---------------------------------------------------------------------------------------------


def sent(message, u, kept_share=None, levels=None):
    """Return a client's compressed message, entry by entry."""
    out, norm = np.zeros_like(message), np.sqrt((message**2).sum())
    for place in np.ndindex(message.shape):
        g = message[place]
        if kept_share is not None:
            out[place] = g / kept_share if u[place] < kept_share else 0.0
        elif norm > 0:
            low = int(levels * abs(g) / norm)
            up = u[place] >= 1.0 - (levels * abs(g) / norm - low)
            out[place] = np.sign(g) * norm * (low + up) / levels
    return out


@each(
    "options",
    [
        {"kept_share": 0.4},
        {"kept_share": 0.4, "shared_mask": True, "weights": [1.0, 2.0, 0.5, 1.0, 3.0, 1.0]},
        {"levels": 3},
        {"levels": 2, "representation_steps": 3, "aggregate": "sum", "orthonormalize": False, "step_size": 0.1},
        {"kept_share": 0.7, "heads": lf.GradientHeads(steps=2), "rotate_heads": True},
        {"kept_share": 0.7, "split": True},
    ],
)
def test_rounds_are_those_of_a_loop(options):
    """At 1e-10, given the random numbers."""
    X, y, B = normal(2, 6, 6, D, seed=1), normal(2, 6, 6, seed=2), basis(D, K)
    participants = np.array([[0, 2, 3, 5], [1, 2, 4, 5], [0, 1, 2, 3]])
    own = {name: options[name] for name in ("kept_share", "levels") if name in options}
    algorithm = lf.CompressedFedRep(**{"rank": K, "step_size": 0.4, "init": B} | options)
    found = lf.simulate(algorithm, data=lf.GivenSamples(X, y), rounds=3, participation=participants, seed=4).final
    loop = {name: value for name, value in options.items() if name not in (*own, "shared_mask", "weights", "aggregate")}
    step, weights = loop.pop("step_size", 0.4), np.array(options.get("weights", np.ones(6)))
    for trial, rng in enumerate(generators(4, Stream.ALGORITHM, [0, 1])):
        state = B, np.zeros((6, K))
        for active in participants:
            u = rng.random((1 if options.get("shared_mask") else 4, D, K))
            whole, error, W = X[trial], np.zeros((D, K)), state[1]
            for place, i in enumerate(active):  # a round with one participant gives its message
                one = np.array([i])
                plain = {**loop, "orthonormalize": False, "rotate_heads": False, "step_size": step}
                moved, heads = ref.fedrep_round(*state, whole[one], y[trial, one], one, **plain)
                message = (state[0] - moved) / step
                W = np.where(np.arange(6)[:, None] == i, heads, W)
                share = 1.0 if options.get("aggregate") == "sum" else 0.25
                error += share * weights[i] / weights.mean() * (sent(message, u[place % len(u)], **own) - message)
            options_of = {**loop, "aggregate": options.get("aggregate", "mean"), "weights": options.get("weights")}
            samples = whole[active], y[trial, active]
            state = ref.fedrep_round(*state, *samples, active, step_size=step, noise=error, **options_of)
        np.testing.assert_allclose(found.B[trial], state[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.W[trial], state[1], rtol=1e-10, atol=1e-10)


def test_keeping_all_entries_is_fedrep():
    X, y, B = normal(1, 6, 5, D, seed=1), normal(1, 6, 5, seed=2), basis(D, K)
    run = {"data": lf.GivenSamples(X, y), "rounds": 3}
    plain = lf.simulate(lf.FedRep(rank=K, step_size=0.4, init=B), **run).final.B
    for same in ({"kept_share": 1.0}, {"kept_share": None, "levels": 10**12}):
        np.testing.assert_allclose(lf.simulate(compressed(init=B, **same), **run).final.B, plain, atol=1e-11)


class Repeated:
    """Uniform numbers of many trials from one generator."""

    def uniform(self, shape):
        return np.random.default_rng(0).random((20_000, *shape))


@each("levels", [1, 2, 5, 40])
def test_compression_has_no_bias_and_its_relative_variance(levels):
    """That of sparsification is ``1/q - 1``. That of quantisation is below its bound, by at most a factor of 12."""
    message = np.outer(normal(D, seed=3), [1.0, -0.4])
    many = np.broadcast_to(message, (20_000, 1, D, K))
    square = (message**2).sum()
    for algorithm in (compressed(kept_share=1.0 / (1.0 + levels)), compressed(kept_share=None, levels=levels)):
        found = algorithm._compressed(many, Repeated())[:, 0]
        spread = found.std(axis=0) / len(found) ** 0.5
        assert (np.abs(found.mean(axis=0) - message) < 4.5 * spread + 1e-12).all()
        errors = ((found - message) ** 2).sum(axis=(-2, -1)) / square
        if algorithm.levels is None:
            assert abs(errors.mean() - levels) < 4 * errors.std() / len(errors) ** 0.5 + 1e-12
        else:
            bound = min(D * K / levels**2, (D * K) ** 0.5 / levels)
            assert bound / 12 < errors.mean() < bound


def test_a_vanishing_message_stays_zero():
    assert not compressed(kept_share=None, levels=2)._compressed(np.zeros((20_000, 1, D, K)), Repeated()).any()


PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


@each(
    "changes, words",
    [
        ({"kept_share": 0.0}, ["kept_share = 0.0", "positive"]),
        ({"kept_share": 1.2}, ["kept_share = 1.2", "at most 1"]),
        ({"kept_share": None}, ["exactly one of kept_share and levels"]),
        ({"levels": 3}, ["exactly one of kept_share and levels", "levels = 3"]),
        ({"kept_share": None, "levels": 0}, ["levels = 0"]),
        ({"kept_share": None, "levels": 3, "shared_mask": True}, ["shared_mask = True requires kept_share"]),
        ({"whiten": "own"}, ["whiten"]),
    ],
)
def test_bad_values_are_named(changes, words):
    assert_one_line(lambda: compressed(**changes), words)


def test_it_supports_only_regression_and_rows_of_each_client():
    problem = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
    algorithm = compressed(heads=lf.GradientHeads())
    call = lambda: lf.simulate(algorithm, problem, data=lf.FreshSamples(5), rounds=1)  # noqa: E731
    assert_one_line(call, ["CompressedFedRep supports only regression"])
    run = {"data": lf.FreshSamples(6), "rounds": 2}
    refused = ["engine = 'projected'", "more than the features"]
    assert_one_line(lambda: lf.simulate(compressed(), PROBLEM, engine="projected", **run), refused, lf.EngineError)


# --- a round near B* -------------------------------------------------------------------------------------------


def map_of(W, d, m, p, share, shared, noise_std=0.0, weights=None):
    n, k = W.shape
    clients = Clients.checked(n, k, d, m, noise_std, p, weights, 0.0, 1.0 / share - 1.0, shared)
    return LocalMap.of(RoundMoments.of(W, clients))


@each("shared", [False, True])
@each("participants", [12, 5])
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
    assert lf.theory.local_best_step(W, **sizes) == pytest.approx(edge / 2, rel=1e-5)


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


# --- floors of runs and lf.predict -----------------------------------------------------------------------------


def tangents(state, truth):
    """Return the sum of the squared tangents of B at B*."""
    inside = truth.B.mT @ state.B
    return np.square((state.B - truth.B @ inside) @ np.linalg.inv(inside)).sum(axis=(-2, -1))


@pytest.mark.long
@each("shared", [False, True])
def test_runs_have_the_predicted_floor(shared):
    problem = lf.SharedRepresentation(n_clients=16, dim=16, rank=2, noise_std=0.02, condition_number=2.0)
    algorithm = compressed(step_size=0.2, kept_share=0.3, shared_mask=shared, init=lf.AtDistance(0.02))
    world = {"data": lf.FreshSamples(8), "rounds": 80, "trials": 60, "participation": 12}
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


def predict(algorithm, problem=PROBLEM, data=None):
    return lf.predict(algorithm, problem, data=data or lf.FreshSamples(8), rounds=4)


def test_predictions_are_those_of_the_map():
    sizes = {"dim": 12, "n_samples": 8, "compression": 3.0, "shared_mask": True}
    found = predict(compressed(kept_share=0.25, shared_mask=True, step_size=0.2))
    W = PROBLEM.truth(0, [0]).W[0]
    assert found.rate == pytest.approx(lf.theory.near_truth_factor(W, step_size=0.2, **sizes) ** 0.5)
    assert found.stability_edge == pytest.approx(lf.theory.stability_edge(W, **sizes))
    assert found.best_step == pytest.approx(lf.theory.local_best_step(W, **sizes))
    X = lf.theory.near_truth_floor(W, step_size=0.2, noise_std=0.3, **sizes)
    assert found.floor == pytest.approx(lf.theory.median_distance(X, dim=12))
    assert "stability_edge" in predict(compressed(kept_share=0.05, step_size=1.0)).warnings[0]
    same, plain = predict(compressed(kept_share=1.0)), predict(lf.FedRep(rank=2, step_size=0.4))
    assert (same.floor, same.rate) == (pytest.approx(float(plain.floor)), pytest.approx(float(plain.rate)))
    still = predict(compressed(), data=lf.FreshSamples(2)).distance
    assert (still == still[0]).all()


LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=2)


@each(
    "algorithm, problem, data, words",
    [
        (compressed(), PROBLEM, None, "no prediction of the distance"),
        (compressed(kept_share=None, levels=3), PROBLEM, None, "for levels = 3"),
        (compressed(), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (compressed(), LARGER, None, "for a ground truth of rank 30 and rank = 2"),
        (compressed(heads=lf.GradientHeads()), PROBLEM, None, "for heads = GradientHeads("),
    ],
)
def test_what_cannot_be_predicted_is_named(algorithm, problem, data, words):
    assert_one_line(lambda: predict(algorithm, problem, data).distance, [words], lf.NoPredictionError)
