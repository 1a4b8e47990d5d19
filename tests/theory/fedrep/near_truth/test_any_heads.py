"""FedRep near B* for any heads: the map of a round against a loop, closed forms, exact means and simulated rounds."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, RoundSizes
from tests.helpers import assert_one_line, normal
from tests.theory.fedrep.runs import isotropic, run_of, squared_tangents

SIZES = {"dim": 20, "n_samples": 8}


def skewed(n, k, seed=0):
    return normal(n, k, seed=seed) * np.geomspace(1.6, 0.6, k)


def packed(X):
    rows, columns = np.triu_indices(len(X))
    return X[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))


@pytest.mark.parametrize("participants", [None, 7])
@pytest.mark.parametrize("k", [1, 3])
def test_isotropic_heads_have_the_closed_forms(k, participants):
    W = isotropic(30, k)
    some = SIZES | {"participants": participants}
    told = {"rank": k, "n_clients": len(W), **some}
    best = lf.theory.best_step_size(**told)
    assert lf.theory.near_truth_best_step(W, **some) == pytest.approx(best, rel=1e-6)
    assert lf.theory.stability_edge(W, **some) == pytest.approx(2 * best, rel=1e-12)
    for step in (0.2, 0.9, 2.5):
        assert lf.theory.near_truth_factor(W, step_size=step, **some) == pytest.approx(
            lf.theory.one_round_factor(step, **told), rel=1e-12
        )
    X = lf.theory.near_truth_floor(W, step_size=0.4, noise_std=0.3, **some)
    floor = lf.theory.noise_floor(0.4, noise_std=0.3, **told)
    assert pytest.approx(floor**2 * np.eye(k), rel=1e-9, abs=1e-15) == X


def local_map(W, participants=None, noise_std=0.0, **sizes):
    clients = Clients.checked(*W.shape, noise_std=noise_std, participants=participants, **SIZES | sizes)
    return LocalMap.of(RoundMoments.of(W, clients))


COUNTS, LEVELS, WEIGHTS = (7, 30, 6, 12, 9, 18), (0.1, 0.2, 0.4, 0.8, 1.0, 0.3), (1.0, 3.0, 0.5, 2.0, 0.3, 1.0)
EQUAL = {"noise_std": 0.1}
DIFFERING = {"n_samples": COUNTS, "noise_std": np.array(LEVELS), "weights": WEIGHTS}


@pytest.mark.parametrize("participants", [6, 2])
@pytest.mark.parametrize("clients", [EQUAL, DIFFERING], ids=["equal", "differing"])
def test_the_map_is_the_limit_of_the_exact_means(clients, participants):
    """Of `one_round_means`, entry by entry, without and with noise, at a symmetric N."""
    W, A, step, small = skewed(6, 3), normal(3, 3, seed=1), 0.3, 1e-6
    X = A @ A.T
    values, vectors = np.linalg.eigh(np.eye(3) - small**2 * X)
    N = (vectors * np.sqrt(values)) @ vectors.T
    for scale in (0.0, small):
        given = SIZES | clients | {"noise_std": scale * clients["noise_std"], "participants": participants}
        _, after = lf.theory.one_round_means(N, small**2 * X, W, step_size=step, **given)
        here = local_map(W, **given)
        moved = packed(X) - step * here.linear @ packed(X) + step**2 * here.quadratic @ packed(X)
        assert packed(after) == pytest.approx(small**2 * moved + step**2 * packed(here.drive), rel=1e-6)


def test_the_edge_the_best_step_and_the_floor_are_where_the_map_says():
    W, some = skewed(12, 3), SIZES | {"participants": 5}
    best, edge = lf.theory.near_truth_best_step(W, **some), lf.theory.stability_edge(W, **some)
    least = lf.theory.near_truth_factor(W, step_size=best, **some)
    assert best < edge < 2 * best
    assert lf.theory.near_truth_factor(W, step_size=edge, **some) == pytest.approx(1.0, rel=1e-12)
    assert all(lf.theory.near_truth_factor(W, step_size=share * best, **some) > least for share in (0.99, 1.01))
    X = lf.theory.near_truth_floor(W, step_size=best, noise_std=0.1, **some)
    here = local_map(W, 5, 0.1)
    moved = packed(X) - best * here.linear @ packed(X) + best**2 * here.quadratic @ packed(X)
    assert moved + best**2 * packed(here.drive) == pytest.approx(packed(X), rel=1e-10)
    stacked = np.stack([W, skewed(12, 3, seed=1)])
    found = lf.theory.near_truth_factor(stacked, step_size=0.2, **some)
    assert found.shape == (2,)
    assert found[0] == lf.theory.near_truth_factor(W, step_size=0.2, **some)
    assert lf.theory.near_truth_floor(stacked, step_size=0.2, noise_std=0.1, **some).shape == (2, 3, 3)


def round_by_clients(X, W, counts, levels, weights, *, dim, participants, kappa, shared, message_noise_std):
    """Return Gamma and the linear part, the quadratic part and the drive of a round near B* at X, client by client."""
    (n, k), p, eye = W.shape, participants, np.eye(W.shape[1])
    gamma, sampled, alone, chosen, labels = (np.zeros((k, k)) for _ in range(5))
    for w, m, level, omega in zip(W, counts, levels, np.array(weights) / np.mean(weights), strict=True):
        c, one = 1 - k / m, np.outer(w, w) / n
        gamma += omega * c * one
        sampled += omega**2 * c * (dim - k + 1) / (p * m) * (w @ X @ w) * one
        alone += (omega * c) ** 2 / p * (w @ X @ w) * one
        chosen += (omega * c) ** 2 * (w @ X @ w) * one
        labels += omega**2 * c * level**2 / (p * m) * (dim - k) * (one + level**2 / (m - k - 1) * eye / n)
    quadratic = gamma @ X @ gamma + sampled + (n - p) / (p * (n - 1)) * (chosen - gamma @ X @ gamma)

    def error(M):
        return kappa * (dim - k + 2) / (dim + 2) * (2 * M + np.trace(M) * eye) / (k + 2)

    drive = labels + error(labels) + (dim - k) * message_noise_std**2 * eye
    return gamma, gamma @ X + X @ gamma, quadratic + error(quadratic if shared else sampled + alone), drive


@pytest.mark.parametrize("participants", [6, 4])
@pytest.mark.parametrize(("kappa", "shared"), [(0.0, False), (3.0, False), (3.0, True)])
def test_the_map_is_that_of_a_loop_over_clients(kappa, shared, participants):
    W, A = skewed(6, 3), normal(3, 3, seed=1)
    clients = Clients.checked(6, 3, 11, COUNTS, LEVELS, participants, WEIGHTS, 0.3, kappa, shared)
    here, X = LocalMap.of(RoundMoments.of(W, clients)), A @ A.T
    own = {"dim": 11, "participants": participants, "kappa": kappa, "shared": shared, "message_noise_std": 0.3}
    found = here.pull, here.linear @ packed(X), here.quadratic @ packed(X), here.drive
    gamma, linear, quadratic, drive = round_by_clients(X, W, COUNTS, LEVELS, WEIGHTS, **own)
    for one, other in zip(found, (gamma, packed(linear), packed(quadratic), drive), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    assert here.compressed == (kappa > 0)


@pytest.mark.parametrize("shared", [False, True])
def test_compressed_messages_of_any_heads_have_an_edge_and_a_best_step(shared):
    W, some = skewed(12, 3), SIZES | {"participants": 5, "compression": 2.0, "shared_mask": shared}
    best, edge = (law(W, **some) for law in (lf.theory.near_truth_best_step, lf.theory.stability_edge))
    factors = [
        lf.theory.near_truth_factor(W, step_size=step, **some) for step in (edge, best, 0.99 * best, 1.01 * best)
    ]
    assert factors[0] == pytest.approx(1.0, rel=1e-11)
    assert factors[1] < min(factors[2:])


LAWS = {
    "factor": lambda **some: lf.theory.near_truth_factor(skewed(12, 3), step_size=0.2, **some),
    "edge": lambda **some: lf.theory.stability_edge(skewed(12, 3), **some),
    "best step": lambda **some: lf.theory.near_truth_best_step(skewed(12, 3), **some),
    "floor": lambda **some: lf.theory.near_truth_floor(skewed(12, 3), step_size=0.05, noise_std=0.1, **some),
}


@pytest.mark.parametrize("law", LAWS)
def test_masks_are_shared_only_if_asked(law):
    some = SIZES | {"participants": 5, "compression": 2.0}
    own, apart, shared = (LAWS[law](**some, **mask) for mask in ({}, {"shared_mask": False}, {"shared_mask": True}))
    np.testing.assert_array_equal(own, apart)
    assert np.abs(shared - own).max() > 1e-3 * np.abs(own).max()


def test_clients_are_equal_and_without_noise_and_compression_by_default():
    same = {"dim": 9, "n_clients": 5, "participants": 5}
    numbers = {"counts": np.array(8.0), "variances": np.array(0.0), "weights": np.array(1.0)}
    assert Clients.checked(5, 2, 9, 8) == Clients(rank=2, **same, **numbers)
    sizes = RoundSizes(n_samples=8, step_size=0.5, noise_std=0.1, **same)
    assert RoundSizes.checked(np.ones((5, 2)), 9, 8, 0.5, 0.1, None) == sizes
    found = local_map(skewed(5, 2), None)
    assert not LocalMap(pull=found.pull, linear=found.linear, quadratic=found.quadratic, drive=found.drive).compressed


def along(x, dim, length):
    """Return an initial B whose tangents of two columns have a Gram matrix in a packed direction."""
    X = np.array([[x[0], x[1] / np.sqrt(2)], [x[1] / np.sqrt(2), x[2]]])
    values, vectors = np.linalg.eigh(X * np.sign(np.trace(X)))
    D = np.zeros((dim - 2, 2))
    D[:2] = length * (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.linalg.qr(np.vstack([np.eye(2), D]))[0]


def growth(run, trials):
    """Return the factors by which the squared tangents grow in a round."""
    start, after = np.asarray(run["algorithm"].init.B), lf.simulate(**run, trials=trials, metrics=[]).final.B
    return squared_tangents(after) / squared_tangents(start[None])


@pytest.mark.long
def test_the_factor_is_that_of_explicit_rounds():
    """Within 4 standard errors, along the direction of the largest factor; neighbours of the formula are not."""
    W, some = skewed(12, 2), {"dim": 10, "n_samples": 6, "participants": 5, "step_size": 0.5}
    here = local_map(W, 5, dim=10, n_samples=6)
    start = along(np.linalg.eigh(-0.5 * here.linear + 0.5**2 * here.quadratic)[1][:, -1], 10, 1e-5)
    ratios = growth(run_of(W, start=start, n_rounds=1, **some), trials=10_000)
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.02 * ratios.mean()
    assert abs(ratios.mean() - lf.theory.near_truth_factor(W, **some)) < 4 * error
    for change in ({"participants": None}, {"dim": 9}, {"n_samples": 8}, {"step_size": 0.45}):
        assert abs(ratios.mean() - lf.theory.near_truth_factor(W, **some | change)) > 4 * error, change


@pytest.mark.long
def test_at_the_edge_a_round_of_clients_that_differ_keeps_the_mean_square():
    """Along the direction that balances there, within 4 standard errors; at 0.7 and 1.3 of the edge it does not."""
    W = skewed(6, 2)
    sizes = {"dim": 9, "n_samples": (8, 30, 9, 12, 8, 18), "participants": 3, "weights": WEIGHTS}
    here = local_map(W, **sizes)
    edge = here.edge()
    assert edge == pytest.approx(lf.theory.stability_edge(W, **sizes), rel=1e-12)
    start = along(np.linalg.eigh(edge * here.quadratic - here.linear)[1][:, -1], 9, 1e-6)
    for share in (0.7, 1.0, 1.3):
        run = run_of(W, start=start, n_rounds=1, step_size=share * edge, **sizes)
        ratios = growth(run, trials=4000)
        error = ratios.std() / np.sqrt(len(ratios))
        assert error < 0.06
        assert (abs(ratios.mean() - 1.0) < 4 * error) == (share == 1.0), share


ONE_OF_FEW = [(5, 5), (4, 3), (40, 10), (5, 3), (9, 4), (3, 3), (2, 1), (1, 1)]


@pytest.mark.parametrize(("n", "k"), ONE_OF_FEW, ids=str)
def test_one_participant_has_an_edge_a_best_step_and_a_floor(n, k):
    """Where fewer clients than k (k + 1)/2 take part one by one, the quadratic part of the map is singular."""
    W, some = skewed(n, k), {"dim": 4 * k, "n_samples": k + 6, "participants": 1}
    edge, best = lf.theory.stability_edge(W, **some), lf.theory.near_truth_best_step(W, **some)
    factors = [lf.theory.near_truth_factor(W, step_size=share * edge, **some) for share in (0.99, 1.0, 1.01)]
    assert factors[0] < 1.0 < factors[2]
    assert factors[1] == pytest.approx(1.0, abs=1e-9)
    assert 0.0 < best < edge
    least = lf.theory.near_truth_factor(W, step_size=best, **some)
    assert least <= min(
        lf.theory.near_truth_factor(W, step_size=share * edge, **some) for share in np.arange(1, 20) / 20
    )
    X = lf.theory.near_truth_floor(W, step_size=best, noise_std=0.1, **some)
    assert np.linalg.eigvalsh(X)[0] > 0.0


def test_heads_that_leave_a_direction_out_have_no_step():
    W = np.sqrt(3.0) * np.eye(2, 3)
    assert lf.theory.stability_edge(W, **SIZES) == lf.theory.near_truth_best_step(W, **SIZES) == 0.0
    assert lf.theory.near_truth_factor(W, step_size=0.1, **SIZES) >= 1.0


def factor(W=None, **changes):
    return lf.theory.near_truth_factor(skewed(5, 2) if W is None else W, **{"step_size": 0.1} | SIZES | changes)


def edge(**changes):
    return lf.theory.stability_edge(skewed(5, 2), **SIZES | changes)


def best_step(**changes):
    return lf.theory.near_truth_best_step(skewed(5, 2), **SIZES | changes)


def floor(**changes):
    return lf.theory.near_truth_floor(skewed(5, 2), **{"step_size": 0.1, "noise_std": 0.1} | SIZES | changes)


@pytest.mark.parametrize(
    ("call", "changes", "fragments"),
    [
        (factor, {"W": np.ones(3)}, ["W has shape (3,)", "(n, k)"]),
        (factor, {"step_size": 0.0}, ["step_size = 0.0", "positive"]),
        (edge, {"n_samples": 3}, ["n_samples = 3", "rank + 2"]),
        (edge, {"compression": -0.1}, ["compression = -0.1", "at least 0"]),
        (edge, {"n_samples": [9, 9]}, ["n_samples has 2 numbers", "5"]),
        (edge, {"n_samples": [9, 9, 3, 9, 9]}, ["n_samples[2] = 3", "rank + 2 = 4"]),
        (edge, {"weights": [1.0, 2.0]}, ["weights has 2 numbers", "n_clients = 5"]),
        (best_step, {"dim": 2}, ["dim = 2", "above rank = 2"]),
        (floor, {"step_size": 9.0}, ["step_size = 9", "stability_edge", "no floor"]),
        (floor, {"step_size": edge()}, ["below stability_edge", "no floor"]),
    ],
)
def test_invalid_arguments_are_one_line(call, changes, fragments):
    call()
    assert_one_line(lambda: call(**changes), fragments)
