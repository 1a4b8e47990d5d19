"""The coordinates Theta of FLUTE's proof: the recursion (13), the region, and the growth of the lemmas."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import linfed as lf
from linfed.theory import flute as theory
from tests.helpers import assert_one_line, normal, rounds_of
from tests.theory.flute.made import EXACT, SHAPES, TRUTHS, balanced, made


def both_sides(B, W, new_B, new_W, A, b, Phi, eta, frames=None):
    """Return the two sides of (13) for one trial, written block by block from the appendix; Phi is (d, n)."""
    (d, n), k = Phi.shape, B.shape[1]
    U, values, Vt = np.linalg.svd(Phi) if frames is None else frames
    V, size = Vt.T, max(d, n)
    Lambda = np.zeros((d, n))
    np.fill_diagonal(Lambda, values)

    def theta(left, right):
        out = np.zeros((2 * size, k))
        out[:d] += U.T @ left
        out[:n] += V.T @ right
        out[size : size + d] += U.T @ left
        out[size : size + n] -= V.T @ right
        return out / math.sqrt(2)

    D = np.stack([A_i @ B @ w - b_i for A_i, b_i, w in zip(A, b, W, strict=True)]) - (W @ B.T - Phi.T)
    # The symmetric matrix [0, Phi; Phi', 0] in the coordinates: +- lambda, zero beyond.
    L = np.zeros(2 * size)
    L[: len(values)], L[size : size + len(values)] = 2 * values, -2 * values
    T = theta(B, W)
    return theta(new_B, new_W), T + eta / 2 * (L[:, None] * T - T @ T.T @ T) + theta(-eta * D.T @ W, -eta * D @ B)


def gap_of_sides(steps, truth, eta, frames=None):
    worst = 0.0
    for step in steps:
        A, b = step.batch.normal_equations()
        for t, Phi in enumerate(truth.dense()):
            left, right = both_sides(
                step.before.B[t],
                step.before.W[t],
                step.after.B[t],
                step.after.W[t],
                A[t],
                b[t],
                Phi.T,
                eta,
                None if frames is None else frames[t],
            )
            worst = max(worst, np.abs(left - right).max() / np.abs(right).max())
    return worst


SAMPLES = {
    "fixed rows": (lf.FixedSamples(20), "explicit"),
    "few fixed rows": (lf.FixedSamples(3), "explicit"),
    "fixed factors": (lf.FixedSamples(20), "compressed"),
    "factors in law": (lf.FixedSamples(20, in_law=True), "compressed"),
    "fresh rows": (lf.FreshSamples(12), "explicit"),
    "fresh factors": (lf.FreshSamples(12), "compressed"),
}


@pytest.mark.parametrize(
    ("shape", "samples"),
    [*(("n < d", samples) for samples in SAMPLES), ("n == d", "fresh factors"), ("n > d", "fixed rows")],
)
def test_the_theta_recursion_is_an_identity(shape, samples):
    data, engine = SAMPLES[samples]
    for rank, truth in zip((1, 2, 4), TRUTHS.values(), strict=True):
        problem = made(shape, noise_std=0.4, **truth)
        algorithm = lf.FLUTE(rank=rank, step_size=0.02, init=lf.SmallRandom(0.5))
        run = {"data": data, "n_rounds": 5, "trials": 2, "seed": rank, "engine": engine}
        known = problem.truth(rank, range(2))
        trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, known)
        assert trace.identity.shape == (2, 6)
        assert np.isnan(trace.identity[:, 0]).all()
        assert trace.identity[:, 1:].max() < 1e-13
        assert gap_of_sides(rounds_of(algorithm, problem, **run), known, 0.02) < 1e-13


WRONG = {
    "factor 2": {"gradient_factor": 2},
    "factor 2, the ratio kept": {"gradient_factor": 2, "server_step_size": 0.04},
    "too much growth": {"gamma1": 0.26},
    "weights of the right ratio but another size": {"gamma1": 0.5, "gamma2": 0.25},
    "a server's own step": {"server_step_size": 0.021},
    "the server does nothing": {"server_step_size": 0.0},
}


def gaps(steps, coordinates):
    """Return the differences between Theta after a round of step size 0.02 and the two sides of (13)."""
    for step in steps:
        messages = step.batch.gradient(step.before.W @ step.before.B.mT)
        moved = coordinates.population_step(coordinates.theta(step.before), 0.02)
        expected = moved + coordinates.remainder(step.before, messages, 0.02)
        yield np.abs(coordinates.theta(step.after) - expected).max()


@pytest.mark.parametrize(
    ("shape", "name"), [*(("n < d", name) for name in WRONG), ("n == d", "factor 2"), ("n > d", "too much growth")]
)
def test_other_weights_and_steps_break_the_recursion_and_are_refused(shape, name):
    problem = made(shape, noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5), **WRONG[name])
    run = {"data": lf.FixedSamples(15), "n_rounds": 3, "seed": 1, "engine": "explicit"}
    truth = problem.truth(1, range(1))
    assert gap_of_sides(rounds_of(algorithm, problem, **run), truth, 0.02) > 1e-6
    assert min(gaps(rounds_of(algorithm, problem, **run), theory.ThetaCoordinates.of(truth))) > 1e-6
    words = ["equal step sizes, gradient_factor = 1 and weights = 'uniform' for the theorems"]
    assert_one_line(lambda: theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, truth), words)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_recursion_needs_the_truths_own_frames_and_its_own_step(shape):
    problem = made(shape, noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    run = {"data": lf.FixedSamples(15), "n_rounds": 3, "seed": 1, "engine": "explicit"}
    truth, other = problem.truth(1, range(1)), problem.truth(2, range(1))
    frames = [np.linalg.svd(Phi.T) for Phi in other.dense()]
    assert gap_of_sides(rounds_of(algorithm, problem, **run), truth, 0.02, frames) > 1e-4
    assert gap_of_sides(rounds_of(algorithm, problem, **run), truth, 0.021) > 1e-4
    # A whole other truth is not noticed: Phi cancels between the step and the remainder.
    trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, other)
    assert trace.identity[:, 1:].max() < 1e-13
    own, theirs = theory.ThetaCoordinates.of(truth), theory.ThetaCoordinates.of(other)
    mixed = theory.ThetaCoordinates(theirs.U, theirs.V, own.spectrum, own.Phi)
    assert max(gaps(rounds_of(algorithm, problem, **run), own)) < 1e-13
    assert min(gaps(rounds_of(algorithm, problem, **run), mixed)) > 1e-4


# --- the region --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_theta_keeps_the_norm_and_is_diagonal_at_the_balanced_truncation(shape, k):
    n, d = SHAPES[shape]
    truth = made(shape).truth(3, range(2))
    coordinates = theory.ThetaCoordinates.of(truth)
    B, W = normal(2, d, k, seed=1), normal(2, n, k, seed=2)
    theta = coordinates.theta(lf.State(B=B, W=W))
    assert theta.shape == (2, 2 * max(n, d), k)
    np.testing.assert_allclose((theta**2).sum((1, 2)), (B**2).sum((1, 2)) + (W**2).sum((1, 2)), **EXACT)
    np.testing.assert_allclose(theta.mT @ theta, B.mT @ B + W.mT @ W, **EXACT)

    B, W = balanced(truth.truncated(k))
    turn = np.linalg.qr(normal(k, k, seed=4))[0]
    theta = coordinates.theta(lf.State(B=B @ turn, W=W @ turn))
    values = np.linalg.svd(truth.dense(), compute_uv=False)
    for t in range(2):
        wanted = np.zeros((len(theta[t]),) * 2)
        wanted[range(k), range(k)] = 2 * values[t, :k]
        np.testing.assert_allclose(theta[t] @ theta[t].T, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(coordinates.population_step(theta, 0.1), theta, rtol=0, atol=1e-13)
    assert np.abs(coordinates.population_step(1.1 * theta, 0.1) - 1.1 * theta).max() > 1e-3
    found = coordinates.region(theta)
    np.testing.assert_allclose(found.largest, 2 * values[:, 0], **EXACT)
    np.testing.assert_allclose(found.smallest, 2 * values[:, k - 1], **EXACT)
    assert found.rest.max() < 1e-25
    assert coordinates.inside(found, k).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_quantities_of_the_region_are_singular_values(shape):
    coordinates = theory.ThetaCoordinates.of(made(shape).truth(3, range(3)))
    theta = normal(3, 2 * max(SHAPES[shape]), 2)
    found = coordinates.region(theta)
    for t, Theta in enumerate(theta):
        wanted = [np.linalg.svd(part)[1] for part in (Theta, Theta[2:], Theta[:2])]
        got = [found.largest[t], found.rest[t], found.smallest[t]]
        np.testing.assert_allclose(got, [wanted[0][0] ** 2, wanted[1][0] ** 2, wanted[2][1] ** 2], **EXACT)


# lambda = (3, 2, 0.5), k = 2: sigma_1^2 <= 12, sigma_1^2(res) <= 2.5, sigma_k^2 >= 0.75.
@pytest.mark.parametrize(
    ("first", "second", "rest", "wanted"),
    [
        (12 * (1 - 1e-9), 1.0, 1.0, True),
        (12 * (1 + 1e-9), 1.0, 1.0, False),
        (3.0, 1.0, 2.5 * (1 - 1e-9), True),
        (3.0, 1.0, 2.5 * (1 + 1e-9), False),
        (3.0, 0.75 * (1 + 1e-9), 1.0, True),
        (3.0, 0.75 * (1 - 1e-9), 1.0, False),
        (12.0, 0.75, 2.5, True),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_the_region_is_bounded_by_three_inequalities(first, second, rest, wanted):
    coordinates = theory.ThetaCoordinates.of(made((5, 4), spectrum=[3.0, 2.0, 0.5]).truth(0, range(1)))
    for row in (2, 9):
        theta = np.zeros((1, 10, 2))
        theta[0, 0, 0], theta[0, 1, 1] = math.sqrt(first), math.sqrt(second)
        theta[0, row, 1] = math.sqrt(rest)
        assert coordinates.inside(coordinates.region(theta), 2).tolist() == [wanted]


def test_the_entry_round_is_equation_16():
    spectrum, eta = [3.0, 2.0, 0.5], 0.01
    coordinates = theory.ThetaCoordinates.of(made((5, 4), spectrum=spectrum).truth(0, range(1)))
    primed = [2 * value for value in spectrum]
    gap = primed[1] - primed[2]
    for smallest in (1e-6, 1e-3, 0.3, 0.7499, 0.7501, 2.0):
        theta = np.zeros((1, 10, 2))
        theta[0, 0, 0], theta[0, 1, 1], theta[0, 5, 0] = 1.7, math.sqrt(smallest), 0.3
        inner = math.log(gap / (4 * smallest)) / (2 * math.log(1 + eta / 2 * (primed[1] - gap / 2)))
        assert coordinates.entry_round(theta, eta)[0] == max(0, math.ceil(inner))
    assert coordinates.entry_round(theta, eta)[0] == 0
    assert coordinates.entry_round(np.zeros((1, 10, 2)), eta)[0] == np.inf


# --- the lemmas on growth ----------------------------------------------------------------------------------------


def random_thetas(rng, count, clients, dim, rank):
    """Return coordinates, Theta and the largest step size that Lemma A.16 allows, for random spectra and sizes."""
    size = max(clients, dim)
    spectrum = np.zeros((count, size))
    values = np.sort(rng.random((count, min(clients, dim))) ** rng.choice([0.1, 1.0, 3.0], (count, 1)))
    spectrum[:, : values.shape[1]] = values[:, ::-1]
    unused = np.zeros((count, 0, 0))
    coordinates = theory.ThetaCoordinates(unused, unused, spectrum, unused)
    theta = rng.normal(size=(count, 2 * size, rank)) * rng.choice([0.03, 1.0], (count, 2 * size, 1))
    theta[:, rank:] *= rng.choice([0.0, 0.1, 1.0], (count, 1, 1))
    left, inner, right = np.linalg.svd(theta[:, :rank])
    inner[:, -1] *= 10 ** rng.uniform(-5, 0, count)  # sigma_k^2 of Theta_k down to 1e-10 of sigma_1^2
    theta[:, :rank] = (left * inner[:, None]) @ right
    length = np.sqrt(4.0 * spectrum[:, 0] * rng.choice([0.1, 0.9, 1.0], count))
    theta *= (length / np.linalg.norm(theta, 2, axis=(1, 2)))[:, None, None]
    gap = 2.0 * (spectrum[:, rank - 1] - (spectrum[:, rank] if rank < size else 0.0))
    return coordinates, theta, gap, gap**2 / (16.0 * (2.0 * spectrum[:, 0]) ** 3)


@pytest.mark.parametrize(("clients", "dim", "rank"), [(1, 1, 1), (2, 2, 2), (4, 3, 2), (3, 5, 3), (4, 4, 4)])
def test_the_growth_bound_holds_for_ten_thousand_random_thetas(clients, dim, rank):
    """Half of them have sigma_k^2 far below Delta/4, where the lemma's own form fails for k > 1."""
    rng = np.random.default_rng([clients, dim, rank])
    coordinates, theta, gap, step = random_thetas(rng, 10_000, clients, dim, rank)
    step = (step * rng.choice([0.1, 1.0], len(step)))[:, None, None]
    remainder = rng.normal(size=theta.shape) * rng.choice([0.0, 1e-6, 1e-3], len(theta))[:, None, None]
    region, top = coordinates.region(theta), 2.0 * coordinates.spectrum[:, 0]
    assert (region.largest <= 2.0 * top * (1 + 1e-12)).all()
    assert (region.smallest < 0.01 * gap).mean() > 0.4
    bound = coordinates.growth_bound(theta, step[:, 0, 0], remainder)
    after = coordinates.population_step(theta, step) + remainder
    smallest = np.linalg.svd(after[:, :rank], compute_uv=False)[:, -1] ** 2
    assert (bound <= smallest + 1e-13 * top).all()
    assert (bound > 0).mean() > 0.1
    additive = step[:, 0, 0] ** 2 * top**3
    lemma = bound + additive - step[:, 0, 0] * gap / 4 * region.smallest
    false = lemma > smallest + 1e-13 * top
    assert false.any() == (rank > 1)
    assert (region.smallest[false] < gap[false] / 4).all()
    assert (bound + 0.75 * additive <= smallest + 1e-13 * top).all()  # a quarter of the term is sufficient


@pytest.mark.long
@pytest.mark.parametrize(("clients", "dim", "rank"), [(1, 1, 1), (4, 3, 2), (3, 5, 3)])
def test_lemma_a15_holds_for_ten_thousand_random_thetas(clients, dim, rank):
    """Theta_res grows in a round at most by its factor; at a step size of 1/lambda_1' it does not always."""
    rng = np.random.default_rng([clients, dim, rank])
    coordinates, theta, *_ = random_thetas(rng, 10_000, clients, dim, rank)
    top, size = 2.0 * coordinates.spectrum[:, 0], max(clients, dim)
    following = 2.0 * coordinates.spectrum[:, rank] if rank < size else -2.0 * coordinates.spectrum[:, -1]
    remainder = rng.normal(size=theta.shape) * rng.choice([0.0, 1e-3, 0.1], len(theta))[:, None, None]
    region = coordinates.region(theta)
    assert (region.largest <= 2.0 * top * (1 + 1e-12)).all()
    for share, holds in ((1 / 6, True), (1.0, False)):
        step = share / top
        after = coordinates.population_step(theta, step[:, None, None]) + remainder
        rest = np.linalg.norm(after[:, rank:], 2, axis=(1, 2))
        factor = 1.0 + step / 2.0 * (following - region.rest - region.smallest)
        bound = factor * np.sqrt(region.rest) + np.linalg.norm(remainder[:, rank:], 2, axis=(1, 2))
        assert (rest <= bound + 1e-13 * np.sqrt(top)).all() == holds
        assert (rest > 0.99 * bound).any()


def test_lemma_a16_with_a_factor_has_a_counterexample():
    """At the lemma's largest step size sigma_k^2(Theta_k) falls to 0.73 of itself, and the factor is above 1."""
    kth, gap, step = 1.4, 1.4, 1.4**2 / 16 / 2**3
    unused = np.zeros((1, 0, 0))
    coordinates = theory.ThetaCoordinates(unused, unused, np.array([[1.0, kth / 2]]), unused)
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
    theta = np.concatenate([turn @ np.diag([math.sqrt(3), 1e-4]) @ turn, [[1.0, 0.0], [0.0, 0.0]]])[None]
    after = coordinates.population_step(theta, step)
    fallen = np.linalg.svd(after[0, :2])[1][1] ** 2 / 1e-8
    region = coordinates.region(theta)
    assert (region.largest[0] <= 4.0, region.rest[0], region.smallest[0]) == (True, 1.0, pytest.approx(1e-8))
    assert fallen == pytest.approx(0.7306, abs=1e-4)
    assert 1 + step * (kth - 1.0 - 1e-8 - gap / 4) == pytest.approx(1.0008, abs=1e-4)
    assert coordinates.growth_bound(theta, step, 0.0 * theta)[0] < 0


# --- Lemma A.18 --------------------------------------------------------------------------------------------------


def sides(B, W, Phi, k):
    """Return both sides of Lemma A.18 for one trial, without coordinates: of B W' and of Theta in blocks."""
    U, values, Vt = np.linalg.svd(Phi)
    size = max(Phi.shape)
    left, right, target = np.zeros((size, k)), np.zeros((size, k)), np.zeros((size, size))
    left[: len(U)], right[: len(Vt)] = U.T @ B, Vt @ W
    target[range(k), range(k)] = values[:k]
    plus, minus = left + right, left - right
    blocks = np.block([[plus @ plus.T, plus @ minus.T], [minus @ plus.T, minus @ minus.T]]) / 2
    blocks[:size, :size] -= 2 * target
    Phi_k = (U[:, :k] * values[:k]) @ Vt[:k]
    return np.linalg.norm(B @ W.T - Phi_k), np.linalg.norm(blocks)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_sides_of_lemma_a18_and_its_best_constant(shape, k):
    n, d = SHAPES[shape]
    truth = made(shape).truth(5, range(40))
    coordinates = theory.ThetaCoordinates.of(truth)
    scale = 10 ** np.random.default_rng(k).uniform(-4, 2, (2, 40, 1, 1))
    exact_B, exact_W = balanced(truth.truncated(k))
    for B0, W0 in ((0.0, 0.0), (exact_B, exact_W), (exact_B, -exact_W)):
        B, W = B0 + scale[0] * normal(40, d, k, seed=1), W0 + scale[1] * normal(40, n, k, seed=2)
        of_product, of_theta = coordinates.distances(coordinates.theta(lf.State(B=B, W=W)))
        for t in range(40):
            wanted = sides(B[t], W[t], truth.dense()[t].T, k)
            np.testing.assert_allclose([of_product[t], of_theta[t]], wanted, rtol=1e-9, atol=1e-12)
        assert (of_product <= of_theta * (1 + 1e-12) / math.sqrt(2)).all()
    opposite = coordinates.distances(coordinates.theta(lf.State(B=exact_B, W=-exact_W)))
    np.testing.assert_allclose(opposite[0] / opposite[1], 1 / math.sqrt(2), **EXACT)
    exact = coordinates.distances(coordinates.theta(lf.State(B=exact_B, W=exact_W)))
    np.testing.assert_allclose(exact, 0.0, atol=1e-12)


@pytest.mark.long
def test_no_descent_finds_a_larger_constant_in_lemma_a18():
    """The ratio of the sides, climbed from random Theta, ends at 1/sqrt(2) or below."""
    coordinates = theory.ThetaCoordinates.of(made((3, 3), spectrum=[2.0, 1.0, 0.5]).truth(0, range(1)))

    def ratio(x):
        of_product, of_theta = coordinates.distances(x.reshape(1, 6, 2))
        return -(of_product[0] / of_theta[0])

    found = [-minimize(ratio, normal(12, seed=seed), method="BFGS").fun for seed in range(6)]
    assert max(found) == pytest.approx(1 / math.sqrt(2), abs=1e-6)


def test_the_last_step_of_the_proof_of_lemma_a18_is_false():
    """``||S + S'|| = 2 ||S||`` holds for symmetric S; an antisymmetric S has the left side 0."""
    coordinates = theory.ThetaCoordinates.of(made((2, 2), spectrum=[2.0, 1.0]).truth(0, range(1)))
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    B, W = np.eye(2), np.diag([2.0, 1.0]) - turn  # in the singular coordinates: B W' - Lambda = turn
    theta = np.concatenate([B + W, B - W])[None] / math.sqrt(2)
    assert coordinates.distances(theta)[0][0] == pytest.approx(math.sqrt(2), abs=1e-14)
    S = B @ W.T - np.diag([2.0, 1.0])
    assert np.linalg.norm(S + S.T) < 1e-14


# --- the initialisation ------------------------------------------------------------------------------------------


# lambda = (3, 2, 0.5), k = 2, eta = 0.01: c_1 sigma^(1 + kappa) bounds sigma_1^2(Theta_res).
@pytest.mark.parametrize(
    ("first", "second", "rest", "wanted"),
    [
        (6 * (1 - 1e-9), 0.5, 1e-3, True),
        (6 * (1 + 1e-9), 0.5, 1e-3, False),
        (1.0, 0.75 * (1 - 1e-9), 1e-3, True),
        (1.0, 0.75 * (1 + 1e-9), 1e-3, False),
        (1.0, 1e-4, 0.99, True),
        (1.0, 1e-4, 1.01, False),
    ],
)
def test_a_small_start_is_claim_a3(first, second, rest, wanted):
    """The last number is Theta_res^2, or its share of the last condition's bound if sigma_k^2 is small."""
    coordinates = theory.ThetaCoordinates.of(made((5, 4), spectrum=[3.0, 2.0, 0.5]).truth(0, range(1)))
    eta, gap = 0.01, 3.0
    kappa = math.log(1 + eta * gap / 8) / math.log(1 + eta / 2 * (4.0 - gap / 2))
    if second < 1e-2:
        rest *= gap ** (1 - kappa / 2) / (2 ** (3 - kappa) * math.sqrt(6.0)) * math.sqrt(second) ** (1 + kappa)
    theta = np.zeros((1, 10, 2))
    theta[0, 0, 0], theta[0, 1, 1], theta[0, 7, 1] = math.sqrt(first), math.sqrt(second), math.sqrt(rest)
    assert coordinates.small_start(theta, eta).tolist() == [wanted]


def test_the_constant_of_claim_a3_is_what_the_proof_of_lemma_a5_uses():
    """``(1 + eta Delta/8)^T_R c_1 sigma^(1 + kappa) = Delta sigma / (8 sqrt(lambda_1'))`` for every sigma_k."""
    top, kth, gap, eta = 6.0, 4.0, 3.0, 0.01
    kappa = math.log(1 + eta * gap / 8) / math.log(1 + eta / 2 * (kth - gap / 2))
    for sigma in (1e-6, 1e-2, 0.3):
        rounds = math.log(gap / (4 * sigma**2)) / (2 * math.log(1 + eta / 2 * (kth - gap / 2)))
        c_1 = gap ** (1 - kappa / 2) / (2 ** (3 - kappa) * math.sqrt(top))
        left = (1 + eta * gap / 8) ** rounds * c_1 * sigma ** (1 + kappa)
        assert left == pytest.approx(gap * sigma / (8 * math.sqrt(top)), rel=1e-12)
