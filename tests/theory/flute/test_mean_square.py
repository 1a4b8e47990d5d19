"""FLUTE on fresh samples: its floor and its mean-square edge against brute force and runs."""

import itertools
import math
import warnings

import numpy as np
import pytest

import linfed as lf
from linfed.theory.flute.mean_square import FreshMoments
from tests.helpers import mostly_long
from tests.theory.flute.made import balanced, made

# --- the floor ---------------------------------------------------------------------------------------------------


def population_step(B, W, Phi, eta):
    gap, lean = B @ W.T - Phi, B.T @ B - W.T @ W
    return B - eta * gap @ W - eta / 2 * B @ lean, W - eta * gap.T @ B + eta / 2 * W @ lean


def linearized(Phi, k, eta):
    """Return the derivatives of a population round, of the noise N and of B W' at the truncation, by differences."""
    d, n = Phi.shape
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    B0, W0 = U[:, :k] * np.sqrt(s[:k]), Vt[:k].T * np.sqrt(s[:k])
    x0, split = np.concatenate([B0.ravel(), W0.ravel()]), d * k

    def parts(x):
        return x[:split].reshape(d, k), x[split:].reshape(n, k)

    def derivative(function, size, step=1e-6):
        ends = [[function(sign * step * row) for sign in (1, -1)] for row in np.eye(size)]
        return np.stack([(up - down) / (2 * step) for up, down in ends], axis=1)

    def after(x):
        return np.concatenate([part.ravel() for part in population_step(*parts(x0 + x), Phi, eta)])

    def product(x):
        B, W = parts(x0 + x)
        return (B @ W.T).ravel()

    def driven(noise):
        N = noise.reshape(d, n)
        return np.concatenate([(eta * N @ W0).ravel(), (eta * N.T @ B0).ravel()])

    return derivative(after, len(x0)), derivative(driven, d * n), derivative(product, len(x0)), B0 @ W0.T


def brute_force(Phi, k, m, eta, sigma):
    """Return n times the squared floor: the sum over past rounds of what their noise has left in B W'."""
    F, G, J, cut = linearized(Phi, k, eta)
    d, n = Phi.shape
    E = cut - Phi
    C = np.zeros((d, n, d, n))
    for i in range(n):
        C[:, i, :, i] = (
            (np.broadcast_to(sigma, n)[i] ** 2 + E[:, i] @ E[:, i]) * np.eye(d) + np.outer(E[:, i], E[:, i])
        ) / m
    root = np.linalg.cholesky(C.reshape(d * n, d * n) + 1e-300 * np.eye(d * n))
    state, total = G @ root, 0.0
    for _ in range(20_000):
        left = ((J @ state) ** 2).sum()
        total += left
        if left < 1e-12 * total:
            break
        state = F @ state
    return total


SETTINGS = {
    "n < d": ((3, 5), [3.0, 2.2, 1.0], 2, 0.05, 0.5),
    "n == d": ((4, 4), [3.0, 2.2, 1.0, 0.5], 2, 0.05, 0.5),
    "n > d": ((6, 3), [3.0, 2.2, 1.0], 1, 0.05, 0.5),
    "little noise": ((6, 3), [3.0, 2.2, 1.0], 2, 0.1, 1e-3),
    "a small gap": ((4, 3), [2.0, 1.9, 1.7], 2, 0.1, 0.3),
    "one client": ((1, 4), [2.0], 1, 0.1, 0.5),
    "all singular values": ((5, 3), [3.0, 2.0, 1.0], 3, 0.1, 0.5),
    "near the edge": ((4, 3), [3.0, 2.2, 1.0], 2, 0.32, 0.5),
    "clients with noise of their own": ((4, 3), [3.0, 2.2, 1.0], 2, 0.1, [0.0, 0.2, 0.5, 1.0]),
    "a rank of k": ((4, 5), [3.0, 2.2], 2, 0.05, 0.5),
}


def floor(name, m=10**9):
    shape, spectrum, k, eta, sigma = SETTINGS[name]
    truth = made(shape, spectrum=spectrum, noise_std=sigma).truth(3, range(1))
    return truth, float(lf.theory.truncation_floor(truth, k, m, step_size=eta)[0])


@pytest.mark.parametrize("name", SETTINGS)
def test_the_floor_on_fresh_samples_is_that_of_the_linear_recursion(name):
    (n, _), _, k, eta, sigma = SETTINGS[name]
    truth, found = floor(name)
    wanted = brute_force(truth.dense()[0].T, k, 10**9, eta, sigma)
    assert n * found**2 == pytest.approx(wanted, rel=1e-5)


def test_a_wrong_floor_is_seen():
    """Rows and columns outside the block are coupled: without the coupling, they contract by 1 - eta lambda_p."""
    shape, spectrum, k, eta, sigma = SETTINGS["a small gap"]
    truth, _ = floor("a small gap")
    Phi = truth.dense()[0].T
    fixed = float(lf.theory.truncation_floor(truth, k, 10**9)[0]) ** 2 * shape[0]
    averaged = fixed * eta * (spectrum[k - 1] - spectrum[k]) / 2
    assert averaged != pytest.approx(brute_force(Phi, k, 10**9, eta, sigma), rel=0.05)


def test_the_floor_on_fresh_samples_has_a_range():
    truth = made((6, 5), spectrum=[2.0, 1.0], noise_std=0.1).truth(0, range(2))
    for step_size in (0.5, 1.0):
        with pytest.raises(ValueError, match=r"below 1 / lambda_1 = 0\.5"):
            lf.theory.truncation_floor(truth, 1, 100, step_size=step_size)
    with pytest.raises(ValueError, match="step_size"):
        lf.theory.truncation_floor(truth, 1, 100, step_size=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lf.theory.truncation_floor(truth, 1, 100, step_size=0.1)
    longest = max((np.linalg.svd(Phi.T)[2][0] ** 2).max() for Phi in truth.dense())
    index = 0.1 * 2.0 * ((5 + 1 + 1) * longest + 1) / (2 * 2) * 4.0 / (4.0 - 1.0)
    with pytest.warns(RuntimeWarning, match=f"feeds back to the noise by a factor of up to {index:.2g}, above 0.1"):
        lf.theory.truncation_floor(truth, 1, 2, step_size=0.1)


NEAR_EDGE = {  # eta lambda_1, noise, singular values, and the measured floor divided by the predicted one
    "far below the edge, large noise": (0.5, 4.0, [2.0, 1.0], (0.97, 1.03), ""),
    "near the edge, little noise": (0.95, 0.2, [2.0, 1.0], (0.95, 1.07), ""),
    "near the edge": (0.95, 1.0, [2.0, 1.0], (0.80, 0.90), "too high"),
    "nearer": (0.98, 0.5, [2.0, 1.0, 0.5], (0.65, 0.85), "too high"),
}


@pytest.mark.parametrize("name", mostly_long(NEAR_EDGE, "far below the edge, large noise", "near the edge"))
def test_the_floor_warns_of_large_noise_near_the_edge_and_only_there(name):
    share, noise_std, spectrum, (low, high), words = NEAR_EDGE[name]
    problem = lf.UnderParameterized(n_clients=5, dim=6, spectrum=spectrum, noise_std=noise_std)
    truth = problem.truth(0, [0])
    U, s, Vt = np.linalg.svd(truth.dense()[0].T, full_matrices=False)
    cut = U[:, :2] * s[:2] @ Vt[:2]
    step = share / s[0]

    def squared(state, truth):
        return np.square(state.predictors() - cut.T).sum(axis=-1).mean(axis=-1)

    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        floor = lf.theory.truncation_floor(truth, 2, 100, step_size=step)[0]
    assert [words in str(one.message) for one in records] == [True] * bool(words)
    given = lf.GivenTruth(B=U[:, :2], W=(s[:2, None] * Vt[:2]).T, S=truth.dense()[0] - cut.T, noise_std=noise_std)
    algorithm = lf.FLUTE(rank=2, step_size=step, init=(U[:, :2] * np.sqrt(s[:2]), Vt[:2].T * np.sqrt(s[:2])))
    run = {"data": lf.FreshSamples(100), "n_rounds": 500, "trials": 12, "metrics": [squared]}
    values = lf.simulate(algorithm, given, **run).metrics["squared"][:, 150:]
    assert low < np.sqrt(values.mean()) / floor < high


def test_the_feedback_of_the_distance_to_the_noise_is_below_its_warning():
    """The index of the warning is at least the largest eigenvalue of the map of feedback, at small step sizes."""
    for name, (_, _, k, eta, _) in SETTINGS.items():
        truth, _ = floor(name)
        Phi = truth.dense()[0].T
        _, s, Vt = np.linalg.svd(Phi, full_matrices=False)
        d, m = len(Phi), 20
        moments = FreshMoments(s, Vt, k, d)
        size, step = len(moments.decay), eta / 10
        feedback, _ = moments.feedback(step, m, np.eye(size))
        kernel = np.outer(moments.weight, moments.weight) * step**2
        kernel /= 1 - np.outer(1 - step * moments.decay, 1 - step * moments.decay)
        matrix = [(kernel * moments.noise(row.reshape(size, size), m)).ravel() for row in np.eye(size**2)]
        assert feedback == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max(), rel=1e-4)
        following = s[k] if k < len(s) else 0.0
        reach = (d + k + 1) * (Vt[:k] ** 2).sum(0).max() + k
        index = eta / 20 * s[0] * reach / m / (1 - (following / s[k - 1]) ** 2)
        assert 0 < feedback < 1.05 * index, name


# --- the mean-square edge ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_the_modes_are_those_of_a_round(name):
    """Each mode is multiplied by its factor, and its noise by its weight, in derivatives by differences."""
    _, _, k, eta, _ = SETTINGS[name]
    truth, _ = floor(name)
    Phi = truth.dense()[0].T
    F, G, J, _ = linearized(Phi, k, eta)
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    frame = np.concatenate([U, np.linalg.svd(Phi)[0][:, len(s) :]], axis=1)
    moments = FreshMoments(s, Vt, k, len(Phi))
    assert len(moments.decay) == k * (sum(Phi.shape) - k)
    modes = np.stack([(frame @ moments.clients[..., a].T).ravel() for a in range(len(moments.decay))], axis=1)
    np.testing.assert_allclose(modes.T @ modes, np.eye(len(moments.decay)), atol=1e-10)
    np.testing.assert_allclose(
        J @ F @ np.linalg.pinv(J, rcond=1e-6) @ modes, modes * (1 - eta * moments.decay), atol=1e-6
    )
    np.testing.assert_allclose(J @ G @ modes, modes * eta * moments.weight, atol=1e-6)


EDGES = {
    "n < d": ((3, 6), [2.0, 1.5], 2, 4),
    "n > d": ((7, 3), [2.0, 1.6], 2, 1),
    "k = 1": ((4, 3), [2.0], 1, 3),
    "one client": ((1, 4), [2.0], 1, 2),
}


def map_of(moments, eta, m):
    """Return the map of second moments as a function."""
    f, h = 1 - eta * moments.decay, eta * moments.weight
    return lambda X: np.outer(f, f) * X + np.outer(h, h) * moments.noise(X, m)


@pytest.mark.long
@pytest.mark.parametrize("name", EDGES)
def test_second_moments_are_those_of_runs(name):
    """Of the algorithm's own rounds, from a point 1e-6 from a ground truth of rank k without noise."""
    shape, spectrum, k, m = EDGES[name]
    problem = made(shape, spectrum=spectrum)
    truth = problem.truth(1, range(1))
    Phi = truth.dense()[0].T
    eta = 0.7 * float(lf.theory.flute_stability_edge(truth, k, m)[0])
    B, W = (part[0] for part in balanced(truth))
    rng = np.random.default_rng(5)
    start = tuple(part + 1e-6 * rng.standard_normal(part.shape) for part in (B, W))
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    U = np.concatenate([U, np.linalg.svd(Phi)[0][:, len(s) :]], axis=1)
    moments = FreshMoments(s, Vt, k, shape[1])
    off = (U.T @ (start[0] @ start[1].T - Phi)).T.ravel()
    modes = np.linalg.lstsq(moments.clients.reshape(len(off), -1), off, rcond=None)[0]
    X, trials = np.outer(modes, modes), 4000
    given = lf.GivenTruth(Phi=Phi.T)
    run = {"data": lf.FreshSamples(m), "n_rounds": 3, "trials": trials, "engine": "explicit"}
    for step in lf.iterate(lf.FLUTE(rank=k, step_size=eta, init=start), given, **run):
        if not step.number:
            continue
        X = map_of(moments, eta, m)(X)
        found = ((step.after.predictors() - Phi.T) ** 2).sum((1, 2)) / np.trace(X)
        error = found.std() / math.sqrt(trials)
        assert abs(found.mean() - 1) < 4.5 * error
        assert error < 0.06


@pytest.mark.parametrize("name", EDGES)
def test_second_moments_neither_grow_nor_fall_at_the_edge(name):
    """The map of second moments, as a dense matrix, has spectral radius 1 there."""
    shape, spectrum, k, m = EDGES[name]
    truth = made(shape, spectrum=spectrum).truth(1, range(1))
    edge = float(lf.theory.flute_stability_edge(truth, k, m)[0])
    _, s, Vt = np.linalg.svd(truth.dense()[0].T, full_matrices=False)
    moments = FreshMoments(s, Vt, k, shape[1])
    size = len(moments.decay)

    def radius(eta):
        step = map_of(moments, eta, m)
        matrix = np.stack([step(row.reshape(size, size)).ravel() for row in np.eye(size**2)], axis=1)
        return np.abs(np.linalg.eigvals(matrix)).max()

    assert edge < 1 / s[0]
    assert radius(edge) == pytest.approx(1, abs=2e-4)
    assert radius(0.97 * edge) < 1 < radius(1.03 * edge)


def test_the_edge_approaches_that_of_the_population():
    truth = made((5, 4), spectrum=[2.0, 1.0]).truth(0, range(2))
    edges = [lf.theory.flute_stability_edge(truth, 2, m) for m in (1, 10, 1000, 10**6)]
    assert all((low < high).all() for low, high in itertools.pairwise(edges))
    np.testing.assert_allclose(edges[-1], 0.5, rtol=1e-4)
    with pytest.raises(ValueError, match="1 / lambda_1 is an upper bound"):
        lf.theory.flute_stability_edge(made((400, 40), spectrum=[2.0, 1.0]).truth(0, range(1)), 2, 10)


@pytest.mark.long
def test_noise_at_the_truncation_adds_to_the_second_moments():
    """Why the edge is refused: half the difference of two rounds on the same samples, from points that are opposite."""
    problem = made((12, 4), spectrum=[1.0, 0.8, 0.8, 0.8], noise_std=1.0)
    truth, k, m, eta, trials = problem.truth(1, range(1)), 1, 10, 0.5, 4000
    Phi = truth.dense()[0].T
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    point = np.sqrt(s[:k]) * U[:, :k], np.sqrt(s[:k]) * Vt[:k].T
    rng, ends = np.random.default_rng(5), []
    change = [1e-5 * rng.standard_normal(part.shape) for part in point]
    given = lf.GivenTruth(Phi=Phi.T, noise_std=1.0)
    for sign in (1.0, -1.0):
        start = tuple(part + sign * off for part, off in zip(point, change, strict=True))
        run = {"data": lf.FreshSamples(m), "n_rounds": 1, "trials": trials, "engine": "explicit"}
        *_, last = lf.iterate(lf.FLUTE(rank=k, step_size=eta, init=start), given, **run)
        ends.append(last.after.predictors())
    moments = FreshMoments(s, Vt, k, len(Phi))
    off = (U.T @ (point[0] @ change[1].T + change[0] @ point[1].T)).T.ravel()
    modes = np.linalg.lstsq(moments.clients.reshape(len(off), -1), off, rcond=None)[0]
    found = np.square((ends[0] - ends[1]) / 2).sum((1, 2)) / np.trace(map_of(moments, eta, m)(np.outer(modes, modes)))
    assert 1.7 < found.mean() < 2.0  # 1.84; without noise and with rank k it is 1


@pytest.mark.parametrize(("spectrum", "noise_std"), [([2.0, 1.0], 0.0), ([2.0], 0.1), ([2.0], [0.0, 0.0, 0.1, 0.0])])
def test_the_edge_with_noise_or_a_larger_rank_is_not_known(spectrum, noise_std):
    """Products of the noise at the truncation with the changes of B and W are left out, and lower the edge."""
    problem = made((4, 3), spectrum=spectrum, noise_std=noise_std)
    with pytest.raises(ValueError, match="only for a ground truth of rank = 1 without label noise"):
        lf.theory.flute_stability_edge(problem.truth(0, range(1)), 1, 10)
