"""A round of FedRep on truths of rank r > k: the noise of rows, against explicit rounds and loops over clients.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.rounds.state_evolution import RoundSizes
from linfed.theory.fedrep.rounds.truth_rows import MedianDraws, Start, TruthRows
from tests.helpers import basis, normal

DIM, M, K = 9, 8, 2


POINTS = normal(6, 4, seed=1) * [1.4, 1.0, 0.7, 0.5]

BASES = basis(DIM, K, 2), np.eye(DIM, 4)


def turned():
    """Return U in the eigenbasis of the points."""
    vectors = np.linalg.eigh(POINTS.T @ POINTS)[1][:, ::-1]
    return BASES[1] @ vectors


@pytest.fixture(scope="module", params=[(0.0, 6), (0.0, 2), (0.5, 2)], ids=str)
def explicit_round(request):
    """Return the setting and the changes of B's rows in the eigenbasis, drawn for a step of 1: (draws, 4, k)."""
    noise_std, participants = request.param
    algorithm = lf.FedRep(rank=K, step_size=1.0, init=BASES[0], orthonormalize=False)
    problem = lf.GivenTruth(B=BASES[1], W=POINTS, noise_std=noise_std)
    how = {"n_rounds": 1, "trials": 6_000, "participation": participants, "engine": "explicit", "metrics": []}
    drawn = lf.simulate(algorithm, problem, data=lf.FreshSamples(M), **how).final.B
    return noise_std, participants, turned().T @ (drawn - BASES[0]), drawn[:, 4:] - BASES[0][4:]


def distance_of(drawn, mean, covariance):
    """Return by how many standard errors means and covariances of draws (draws, 4, k) are off, at most."""
    apart = drawn - mean
    products = apart[..., :, None] * apart[..., None, :]
    return max(
        np.max(np.abs(x.mean(0) - law) / (x.std(0) / len(x) ** 0.5))
        for x, law in ((apart, 0.0), (products, covariance))
    )


@pytest.mark.parametrize(("participants", "wrong"), [(6, 0.0), (6, 0.15), (2, 0.0), (2, 0.15)])
def test_what_rows_share_is_that_of_drawn_heads_and_residuals(participants, wrong):
    """Residuals are chi-squared with m - k degrees of freedom, heads have multivariate t noise."""
    rng, draws, mean = np.random.default_rng(4), 30_000, turned().T @ BASES[0]
    points = POINTS @ (turned().T @ BASES[1]).T
    a = points @ mean
    left = np.sum(points**2, axis=1) - np.sum(a**2, axis=1) + 0.3**2
    z = rng.standard_normal((draws, 6, K)) / np.sqrt(rng.chisquare(M - K + 1, (draws, 6, 1)))
    x = rng.chisquare(M - K, (draws, 6, 1, 1)) / M
    each = x * a[:, :, None] * (a + np.sqrt(left)[:, None] * z)[:, :, None]
    who = rng.permuted(np.tile(np.arange(6) < participants, (draws, 1)), axis=1)
    X = np.sum(each * who[:, :, None, None], axis=1).reshape(draws, K * K) / participants
    X -= X.mean(axis=0)
    products = X[:, :, None] * X[:, None, :]
    setting = RoundSizes.checked(POINTS[:, :K], DIM, M, 1.0, 0.3, participants)
    spread = np.zeros((5, K, K))
    shared = TruthRows.of(POINTS, K, DIM).noise(np.concatenate([mean, np.zeros((1, K))]), spread, setting)[1]
    law = shared.reshape(K * K, K * K) * (1.0 + wrong)
    worst = np.max(np.abs(products.mean(axis=0) - law) / (products.std(axis=0) / draws**0.5))
    assert worst > 6 if wrong else worst < 4.2


# --- rows and rounds, one by one ---------------------------------------------------------------------------------


def points(n, spectrum):
    """Return clients (n, r) whose second moment has these eigenvalues."""
    V = np.linalg.qr(np.random.default_rng(3).standard_normal((n, len(spectrum))))[0]
    return V * np.sqrt(n * np.asarray(spectrum, dtype=float))


def noise_of_rows(rows, mean, spread, setting, wrong=""):
    """Return the mean pull of each row, and what `TruthRows.noise` returns, one client and one row at a time."""
    n, k, m, p = len(rows.points), mean.shape[1], setting.n_samples, setting.participants
    c, eye, R = 1 - k / m, np.eye(k), len(mean)
    spare = np.inf if wrong == "heads without noise" else m - k - 1
    share = 0.0 if wrong == "everybody takes part" else setting.share
    covariance, met, shared, pull = np.zeros((R, k, k)), np.zeros((R, k)), np.zeros((k,) * 4), np.zeros((k, k))
    for v in rows.points:
        a = v @ mean
        A = np.outer(a, a) + np.einsum("q,qij->ij", v**2, spread)
        u = np.array([v[q] - mean[q] @ a - v[q] * np.trace(spread[q]) for q in range(R)])
        tau2 = v @ u + setting.noise_std**2
        for q in range(R):
            square = u[q] ** 2 + np.sum(A * spread[q])
            along = 0.0 if wrong == "no u along e" else (m - k + 1) * square
            free = 1 - np.trace(spread[q]) - mean[q] @ mean[q]
            sampled = (along + free * tau2) * (A + tau2 / spare * eye)
            covariance[q] += ((c / m * sampled - c**2 * square * A) / p + c**2 * share * square * A) / n
            met[q] += u[q] * a / n
        quartic = np.einsum("ab,cd->abcd", A, A)
        message = quartic + np.einsum("ac,bd->abcd", A, tau2 / spare * eye)
        shared += ((c / m * (m - k + 2) * message - c**2 * quartic) / p + c**2 * share * quartic) / n
        pull += A / n
    for q in range(R):
        covariance[q] -= c**2 * share * (np.outer(met[q], met[q]) + pull @ spread[q] @ pull)
    return c * met, covariance, shared - c**2 * share * np.einsum("ab,cd->abcd", pull, pull)


def at_start(noise_std, participants):
    """Return the rows, the mean of the start of explicit rounds in them, and the setting."""
    mean = np.concatenate([turned().T @ BASES[0], np.zeros((1, K))])
    return TruthRows.of(POINTS, K, DIM), mean, RoundSizes.checked(POINTS[:, :K], DIM, M, 1.0, noise_std, participants)


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["", "heads without noise", "no u along e", "everybody takes part"])
def test_explicit_rounds_have_this_noise_and_no_other(explicit_round, wrong):
    """With 20 entries, a right law fails at one seed in 10,000."""
    noise_std, participants, inside, _ = explicit_round
    if participants == 6 and wrong == "everybody takes part":
        noise_std = 0.4
    rows, mean, setting = at_start(noise_std, participants)
    moved, covariance, _ = noise_of_rows(rows, mean, np.zeros((5, K, K)), setting, wrong)
    found = distance_of(inside, moved[:4], covariance[:4])
    assert found > 6 if wrong else found < 4.6


@pytest.mark.long
def test_explicit_rounds_have_this_noise_outside(explicit_round):
    noise_std, participants, _, outside = explicit_round
    rows, mean, setting = at_start(noise_std, participants)
    assert rows.pooled
    spread = np.concatenate([np.zeros((4, K, K)), [BASES[0][4:].T @ BASES[0][4:] / 5]])
    noise, _ = rows.noise(mean, spread, setting)
    moved = outside + (1 - K / M) * BASES[0][4:] @ mean.T @ (rows.values[:, None] * mean)
    products = (moved.swapaxes(1, 2) @ moved).reshape(-1, K * K)
    errors = products.std(0) / len(products) ** 0.5
    assert np.max(np.abs(products.mean(0) - 5 * noise[4].reshape(-1)) / errors) < 4.2


@pytest.mark.parametrize("participants", [6, 2])
def test_the_noise_of_uncertain_rows_is_that_of_a_loop(participants):
    (rows, mean, setting), A = at_start(0.3, participants), 0.2 * normal(5, K, K, seed=3)
    spread = A @ A.mT
    spread[:K] = 0.0
    wanted = noise_of_rows(rows, mean, spread, setting)[1:]
    for found, expected in zip(rows.noise(mean, spread, setting), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def covariance_of_product(left, covariance, right):
    """Return the covariance of ``left X right``."""
    return np.einsum("ai,jb,ijkl,ck,ld->abcd", left, right, covariance, left, right)


def course_by_rows(rows, start, setting, steps):
    """Return the lengths inside, outside and of xi in every round, (3, rounds + 1), one row at a time."""
    k, c, R = start.mean.shape[1], 1 - start.mean.shape[1] / setting.n_samples, len(rows.values)
    eye, r = np.eye(k), len(rows.basis)
    mean, spread, told = start.mean.copy(), start.second.copy(), []  # those of uniform rows move like noise
    xi = np.zeros((k,) * 4)

    def second():
        return np.array([spread[q] + np.outer(mean[q], mean[q]) for q in range(R)])

    for eta in [*steps, 0.0]:  # what follows the last round is not told
        traces = [rows.counts[q] * np.trace(second()[q]) for q in range(R)]
        told.append([sum(traces[k:r]) ** 0.5, sum(traces[r:]) ** 0.5, np.einsum("abab", xi) ** 0.5])
        (noise, shared), before, top = rows.noise(mean, spread, setting), second(), mean[:k].copy()
        pull = sum(rows.values[q] * before[q] for q in range(R))
        for q in range(R):
            step = eye + eta * c * (rows.values[q] * eye - pull)
            mean[q], spread[q] = mean[q] @ step, step.T @ spread[q] @ step + (q >= k) * eta**2 * noise[q]
        after = second()
        factor = np.linalg.cholesky(sum(rows.counts[q] * after[q] for q in range(R))).T
        inverse = np.linalg.inv(factor)
        G, G_after = (sum(rows.counts[q] * part[q] for q in range(k, R)) for part in (before, after))
        level = sum(traces[q] * rows.values[q] for q in range(k, R)) / sum(traces[k:])
        A = eye + eta * c * (level * eye - pull)
        share = np.linalg.inv(G_after) @ A.T @ G
        pushed = eta * (share + np.linalg.inv(top.T @ top) - eye)
        xi = covariance_of_product(factor @ share, xi, A @ inverse)
        xi += covariance_of_product(factor @ pushed, shared, inverse)
        mean, spread = mean @ inverse, inverse.T @ spread @ inverse
    return np.array(told).T


@pytest.mark.parametrize("start", ["delta", "B0"])
@pytest.mark.parametrize("dim", [4, 6, 9])
def test_a_course_is_that_of_single_rows(start, dim):
    """None, two and five directions outside; the last are one row."""
    steps, p = [0.3, 0.2, 0.1], 4
    run = {"rank": K, "dim": dim, "n_samples": M, "noise_std": 0.3, "participants": p}
    begun = {"delta": 0.7} if start == "delta" else {"B0": basis(dim, K, 2), "U": basis(dim, 4, 5)}
    found = lf.theory.under_parameterized_evolution(POINTS, step_size=steps, n_rounds=3, **run, **begun)
    rows, setting = TruthRows.of(POINTS, K, dim), RoundSizes.checked(POINTS[:, :K], dim, M, 1.0, 0.3, p)
    assert rows.pooled == (dim == 9)
    if start == "delta":
        state, sine = Start.at_distance(rows, 0.7, K), 0.7
    else:
        N = begun["U"].T @ begun["B0"]
        outside = begun["B0"] - begun["U"] @ N
        state = Start.given(rows, N, outside.T @ outside)
        top = begun["U"] @ np.linalg.eigh(POINTS.T @ POINTS)[1][:, :-3:-1]
        sine = lf.subspace_distance(begun["B0"], top)
    whole = sum(n * (two + np.outer(a, a)) for n, two, a in zip(rows.counts, state.second, state.mean, strict=True))
    np.testing.assert_allclose(whole, np.eye(K), atol=1e-12)
    wanted = course_by_rows(rows, state, setting, steps)
    for path, name in zip(wanted, ("inside", "outside", "chance"), strict=True):
        np.testing.assert_allclose(getattr(found, name), path, rtol=1e-9, atol=1e-12)
    assert found.distance[0] == pytest.approx(float(sine), rel=1e-9)


@pytest.mark.parametrize(("dim", "extra"), [(4, 0), (10, 6), (11, 1)])
def test_up_to_twice_the_rank_directions_outside_have_rows_of_their_own(dim, extra):
    V = points(20, [4, 3, 2, 1])
    rows = TruthRows.of(V, 3, dim)
    assert rows.counts.tolist() == [1] * 4 + ([1] * extra if extra != 1 else [7])
    np.testing.assert_allclose(rows.values, [4, 3, 2, 1, *[0] * extra], atol=1e-12)
    np.testing.assert_allclose(rows.points[:, :4] @ rows.basis.T, V, atol=1e-12)
    assert (rows.points[:, 4:] == 0).all()


@pytest.mark.parametrize("dim", [5, 30])
def test_the_median_of_the_floor_is_that_of_drawn_rows(dim):
    """For one column the rows are independent, and their variances are those of the loop."""
    V = points(40, [3.0, 1.0, 0.5])
    given = {"rank": 1, "dim": dim, "n_samples": 6, "step_size": 0.1, "noise_std": 0.2, "participants": 10}
    floor = lf.theory.under_parameterized_floor(V, **given)
    rows, setting = TruthRows.of(V, 1, dim), RoundSizes.checked(V[:, :1], dim, 6, 1.0, 0.2, 10)
    noise = rows.noise(np.eye(len(rows.values), 1), np.zeros((len(rows.values), 1, 1)), setting)[0][1:, 0, 0]
    factors = 1 - 0.1 * (1 - 1 / 6) * (rows.values[0] - rows.values[1:])
    variances = np.repeat(0.01 * noise / (1 - factors**2), rows.counts[1:].astype(int))
    assert floor.total == pytest.approx(variances.sum() ** 0.5, rel=1e-12)
    assert floor.inside == pytest.approx(variances[:2].sum() ** 0.5, rel=1e-12)
    squares = normal(20_000, dim - 1, seed=1) ** 2 @ variances
    assert floor.distance == pytest.approx(np.median(np.sqrt(squares / (1 + squares))), rel=0.04)


def test_a_common_factor_keeps_the_mean_square_of_the_rows():
    """For one column, a start outside a span of three, and a factor whose standard deviation is 0.4."""
    V = points(40, [3.0, 1.0, 0.5])
    rows = TruthRows.of(V, 1, 4)
    draws = MedianDraws.of(rows, Start.none(rows, 1))
    mean, moved, S = np.array([[0.8], [0.0], [0.3], [0.0]]), np.zeros((4, 1, 1)), np.zeros((4, 1, 1))
    S[1:, 0, 0] = 0.2, 0.1, 0.05
    z, factor = normal(100_000, 3, seed=2), 1 + 0.4 * normal(100_000, seed=3)
    for turn, scale in ((None, 1.0), (np.full((1, 1, 1, 1), 0.16), factor)):
        squares = scale**2 * np.sum((z * np.sqrt([0.2, 0.1, 0.05]) + [0.0, 0.3, 0.0]) ** 2, axis=1)
        squares *= 0.44 / squares.mean()
        wanted = np.median(np.sqrt(squares / (squares + 0.64)))
        assert draws.median(mean, moved, S, turn) == pytest.approx(wanted, rel=0.04)
