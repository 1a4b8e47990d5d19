"""FedRep on truths of rank r > k: its noise against explicit rounds, its course and its floor against runs.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.rounds.state_evolution import RoundSizes
from linfed.theory.fedrep.rounds.truth_rows import MedianDraws, Start, TruthRows
from tests.helpers import assert_one_line, basis, normal

# --- one round -----------------------------------------------------------------------------------------------

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
    how = {"rounds": 1, "trials": 6_000, "participation": participants, "engine": "explicit", "metrics": []}
    drawn = lf.simulate(algorithm, problem, data=lf.FreshSamples(M), **how).final.B
    return noise_std, participants, turned().T @ (drawn - BASES[0]), drawn[:, 4:] - BASES[0][4:]


def noise_by_loop(noise_std, p, wrong=""):
    """Return the means (4, k) and covariances (4, k, k) of the rows' changes, one client at a time."""
    n, U = len(POINTS), turned()
    N, V = U.T @ BASES[0], POINTS @ (U.T @ BASES[1]).T
    c, eye = 1 - K / M, np.eye(K)
    means, drawn = [], []
    for v in V:
        a, u = N.T @ v, v - N @ N.T @ v
        left = v @ u + noise_std**2
        spare = np.inf if wrong == "heads without noise" else M - K - 1
        squares = u**2 if wrong != "no u along e" else 0 * u
        lengths = (M - K) * ((M - K + 1) * squares + left * (1 - np.sum(N**2, axis=1))) / M**2
        second = np.outer(a, a) + left / spare * eye
        means.append(c * np.outer(u, a))
        drawn.append(lengths[:, None, None] * second)
    means = np.array(means)
    fourth = np.mean(means[:, :, :, None] * means[:, :, None, :], axis=0)
    mean = means.mean(axis=0)
    share = 0.0 if wrong == "everybody takes part" else (n - p) / (p * (n - 1))
    return mean, (np.mean(drawn, axis=0) - fourth) / p + share * (fourth - mean[:, :, None] * mean[:, None, :])


def distance_of(drawn, mean, covariance):
    """Return by how many standard errors means and covariances of draws (draws, 4, k) are off, at most."""
    apart = drawn - mean
    products = apart[..., :, None] * apart[..., None, :]
    return max(
        np.max(np.abs(x.mean(0) - law) / (x.std(0) / len(x) ** 0.5))
        for x, law in ((apart, 0.0), (products, covariance))
    )


@pytest.mark.long
def test_explicit_rounds_have_this_noise(explicit_round):
    """With 20 entries, a right law fails at one seed in 10,000."""
    noise_std, participants, inside, _ = explicit_round
    assert distance_of(inside, *noise_by_loop(noise_std, participants)) < 4.6


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["heads without noise", "no u along e", "everybody takes part"])
def test_explicit_rounds_tell_other_noise_apart(explicit_round, wrong):
    noise_std, participants, inside, _ = explicit_round
    if participants == 6 and wrong == "everybody takes part":
        wrong, noise_std = "", 0.4
    assert distance_of(inside, *noise_by_loop(noise_std, participants, wrong)) > 6


@pytest.mark.long
def test_the_noise_is_that_of_the_loop_and_of_what_lies_outside(explicit_round):
    noise_std, participants, _, outside = explicit_round
    rows = TruthRows.of(POINTS, K, DIM)
    assert rows.pooled
    mean = np.concatenate([turned().T @ BASES[0], np.zeros((1, K))])
    gram = BASES[0][4:].T @ BASES[0][4:] / 5
    spread = np.concatenate([np.zeros((4, K, K)), gram[None]])
    setting = RoundSizes.checked(POINTS[:, :K], DIM, M, 1.0, noise_std, participants)
    noise, _ = rows.noise(mean, spread, setting)
    np.testing.assert_allclose(noise[:4], noise_by_loop(noise_std, participants)[1], rtol=1e-9)
    K_mean = mean.T @ (rows.values[:, None] * mean)
    moved = outside + (1 - K / M) * BASES[0][4:] @ K_mean
    products = (moved.swapaxes(1, 2) @ moved).reshape(-1, K * K)
    errors = products.std(0) / len(products) ** 0.5
    assert np.max(np.abs(products.mean(0) - 5 * noise[4].reshape(-1)) / errors) < 4.2


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


def noise_of_rows(rows, mean, spread, setting):
    """Return what `TruthRows.noise` returns, one client and one row at a time."""
    n, k, m, p = len(rows.points), mean.shape[1], setting.n_samples, setting.participants
    c, spare, eye, R = 1 - k / m, m - k - 1, np.eye(k), len(mean)
    covariance, met, shared, pull = np.zeros((R, k, k)), np.zeros((R, k)), np.zeros((k,) * 4), np.zeros((k, k))
    for v in rows.points:
        a = v @ mean
        A = np.outer(a, a) + np.einsum("q,qij->ij", v**2, spread)
        u = np.array([v[q] - mean[q] @ a - v[q] * np.trace(spread[q]) for q in range(R)])
        tau2 = v @ u + setting.noise_std**2
        for q in range(R):
            square = u[q] ** 2 + np.sum(A * spread[q])
            free = 1 - np.trace(spread[q]) - mean[q] @ mean[q]
            sampled = ((m - k + 1) * square + free * tau2) * (A + tau2 / spare * eye)
            chosen = c**2 * setting.share * square * A
            covariance[q] += ((c / m * sampled - c**2 * square * A) / p + chosen) / n
            met[q] += u[q] * a / n
        quartic = np.einsum("ab,cd->abcd", A, A)
        message = quartic + np.einsum("ac,bd->abcd", A, tau2 / spare * eye)
        shared += ((c / m * (m - k + 2) * message - c**2 * quartic) / p + c**2 * setting.share * quartic) / n
        pull += A / n
    for q in range(R):
        covariance[q] -= c**2 * setting.share * (np.outer(met[q], met[q]) + pull @ spread[q] @ pull)
    return covariance, shared - c**2 * setting.share * np.einsum("ab,cd->abcd", pull, pull)


@pytest.mark.parametrize("participants", [6, 2])
def test_the_noise_of_uncertain_rows_is_that_of_a_loop(participants):
    rows, A = TruthRows.of(POINTS, K, DIM), 0.2 * normal(5, K, K, seed=3)
    spread = A @ A.mT
    spread[:K] = 0.0
    mean = np.concatenate([turned().T @ BASES[0], np.zeros((1, K))])
    setting = RoundSizes.checked(POINTS[:, :K], DIM, M, 1.0, 0.3, participants)
    for found, wanted in zip(
        rows.noise(mean, spread, setting), noise_of_rows(rows, mean, spread, setting), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-13)


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
    found = lf.theory.under_parameterized_evolution(POINTS, step_size=steps, rounds=3, **run, **begun)
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


# --- the course of runs, and where they stop -----------------------------------------------------------------

ROUNDS = [5, 10, 20, 40]
LINE = {"n": 200, "spectrum": np.r_[[2, 1.5, 1], np.linspace(0.5, 0.1, 7)]}
FULL = {"n": 100, "spectrum": np.r_[[1, 1], np.full(28, 0.05)]}
SLOW = {"n": 300, "spectrum": 1 / np.arange(1, 21)}

# Medians over 1000 trials of lf.simulate(lf.FedRep(rank=k, step_size=eta, init=lf.AtDistance(delta)),
# lf.GivenTruth(B=np.eye(d, r), W=points(n, spectrum), noise_std=noise_std), data=lf.FreshSamples(m), rounds=40,
# trials=1000, seed=0, participation=p, engine="chain", or "projected" for r = d) in rounds 5, 10, 20 and 40.
MEDIANS = {
    "r = k + 2": (
        {"n": 100, "spectrum": [1, 1, 0.3, 0.2], "dim": 50, "k": 2, "m": 10, "eta": 0.3, "delta": 0.8},
        [0.4049, 0.1481, 0.07726, 0.07648],
    ),
    "r = 10": (LINE | {"dim": 200, "k": 3, "m": 20, "eta": 0.2, "delta": 0.9}, [0.6845, 0.387, 0.1441, 0.1295]),
    "r = d, noise": (
        FULL | {"dim": 30, "k": 2, "m": 10, "eta": 0.3, "noise_std": 0.3, "delta": 0.7},
        [0.3239, 0.1438, 0.1077, 0.1081],
    ),
    "small gap": (SLOW | {"dim": 100, "k": 2, "m": 12, "eta": 0.1, "delta": 0.9}, [0.8618, 0.8135, 0.6895, 0.4095]),
    "large step": (
        {"n": 200, "spectrum": [1, 1, 1, 0.05, 0.05], "dim": 200, "k": 3, "m": 20, "eta": 0.6, "delta": 0.9},
        [0.1946, 0.05367, 0.05258, 0.05265],
    ),
    "p < n, noise": (
        {"n": 200, "spectrum": [1.5, 1, 1, 0.2, 0.2, 0.1], "dim": 100, "k": 3, "m": 15, "eta": 0.3, "delta": 0.8}
        | {"noise_std": 0.3, "participants": 40},
        [0.4767, 0.2303, 0.1741, 0.1741],
    ),
}


def points(n, spectrum):
    """Return clients (n, r) whose second moment has these eigenvalues."""
    V = np.linalg.qr(np.random.default_rng(3).standard_normal((n, len(spectrum))))[0]
    return V * np.sqrt(n * np.asarray(spectrum, dtype=float))


def arguments(n, spectrum, k, m, eta, **others):
    return {"V": points(n, spectrum), "rank": k, "n_samples": m, "step_size": eta, **others}


def off(name, **changes):
    """Return how far the law is from the medians at most, as a share of them."""
    setting, medians = MEDIANS[name]
    predicted = lf.theory.under_parameterized_evolution(rounds=40, **arguments(**setting) | changes)
    return np.abs(predicted.distance[ROUNDS] / medians - 1).max()


@pytest.mark.long
@pytest.mark.parametrize("name", MEDIANS)
def test_runs_follow_it(name):
    assert off(name) < 0.03


@pytest.mark.long
def test_runs_tell_other_settings_apart():
    assert off("p < n, noise", participants=None) > 0.3
    assert off("r = d, noise", n_samples=8) > 0.08
    assert off("r = k + 2", n_samples=12) > 0.08


def test_a_truth_of_rank_k_is_nearly_that_of_the_state_evolution():
    W = normal(300, 2, seed=1)
    V = np.concatenate([W, 1e-9 * normal(300, 1, seed=2)], axis=1)
    setting = {"dim": 1000, "n_samples": 30, "step_size": 0.3, "rounds": 30, "noise_std": 0.2, "delta": 0.7}
    got = lf.theory.under_parameterized_evolution(V, rank=2, **setting)
    expected = lf.theory.state_evolution(W, **setting)
    total = np.sqrt(np.trace(expected.Q, axis1=1, axis2=2))
    np.testing.assert_allclose(np.hypot(got.inside, got.outside), total, rtol=0.01)
    assert np.all(np.abs(got.distance / expected.distance - 1) < 0.05)


@pytest.mark.long
def test_a_given_start_is_the_law_of_uniform_ones_on_average():
    setting = arguments(**MEDIANS["r = 10"][0]) | {"rounds": 20}
    uniform = lf.theory.under_parameterized_evolution(**setting)
    delta, dim, rank = setting.pop("delta"), setting["dim"], setting["rank"]
    frame = np.stack([basis(dim - rank, rank, seed) for seed in (1, 2)])
    top = np.tile(np.sqrt(1 - delta**2) * np.eye(rank), (2, 1, 1))
    U = np.eye(dim, len(LINE["spectrum"]))
    given = lf.theory.under_parameterized_evolution(B0=np.concatenate([top, delta * frame], axis=1), U=U, **setting)
    assert given.distance.shape == given.inside.shape == (2, 21)
    np.testing.assert_allclose(given.distance[:, 0], delta, rtol=1e-12)
    np.testing.assert_allclose(given.distance.mean(axis=0), uniform.distance, rtol=0.06)
    assert np.any(given.distance[0] != given.distance[1])


def test_few_directions_outside_are_as_many_pooled_ones():
    """One more direction than twice the rank makes them one row."""
    setting = {"rank": 2, "n_samples": 10, "step_size": 0.2, "rounds": 15, "delta": 0.6}
    V = points(50, [1, 1, 0.1])
    few, many = (lf.theory.under_parameterized_evolution(V, dim=dim, **setting).distance for dim in (7, 8))
    assert np.all(np.abs(many / few - 1.0)[1:] < 0.1)


# Root mean squares of ||U_perp'B||_F over 500 trials after 30/eta rounds from AtDistance(0.1), known to 0.5 %.
FLOORS = {
    "r = k + 2": (0.0375, 0.03244),
    "r = d, noise": (0.0375, 0.04577),
    "p < n, noise": (0.0375, 0.08206),
    "small gap": (0.0125, 0.03366),
}


def floor_by_loop(V, rank, dim, n_samples, step_size, noise_std=0.0, participants=None, wrong=""):
    """Return the root of ``E ||U_perp'B||_F^2``, entry by entry."""
    n, k, m, eta = len(V), rank, n_samples, step_size
    p, c = participants or n, 1 - rank / n_samples
    values, vectors = np.linalg.eigh(V.T @ V / n)
    values, phi = np.zeros(dim), np.pad(V @ vectors[:, ::-1], [(0, 0), (0, dim - V.shape[1])])
    values[:] = np.mean(phi**2, axis=0)
    a, e = phi[:, :k], phi[:, k:]
    left = np.sum(e**2, axis=1) + noise_std**2 if wrong != "label noise only" else np.full(n, noise_std**2)
    total = 0.0
    for q in range(dim - k):
        for j in range(k):
            sampled = (m - k) / m**2 * ((m - k + 1) * e[:, q] ** 2 + left) * (a[:, j] ** 2 + left / (m - k - 1))
            squares = (c * e[:, q] * a[:, j]) ** 2
            share = 0.0 if wrong == "everybody takes part" else (n - p) / (p * max(n - 1, 1))
            noise = np.mean(sampled - squares) / p + share * np.mean(squares)
            factor = 1 - eta * c * (values[j] - (0.0 if wrong == "no gap" else values[k + q]))
            total += eta**2 * noise / (1 - factor**2)
    return np.sqrt(total)


@pytest.mark.parametrize("name", FLOORS)
def test_runs_stop_at_the_floor(name):
    eta, measured = FLOORS[name]
    setting = arguments(**MEDIANS[name][0] | {"eta": eta})
    setting.pop("delta")
    floor = lf.theory.under_parameterized_floor(**setting)
    assert floor.total == pytest.approx(floor_by_loop(**setting), rel=1e-9)
    assert floor.total == pytest.approx(measured, rel=0.015)
    wrong = {"small gap": "no gap", "p < n, noise": "everybody takes part"}.get(name, "label noise only")
    assert abs(floor_by_loop(**setting, wrong=wrong) / measured - 1) > 0.025


@pytest.mark.long
def test_the_course_ends_on_the_floor():
    setting = arguments(**MEDIANS["r = k + 2"][0] | {"eta": 0.03, "delta": 0.05})
    end = lf.theory.under_parameterized_evolution(rounds=130, **setting)
    setting.pop("delta")
    floor = lf.theory.under_parameterized_floor(**setting)
    assert end.distance[-1] == pytest.approx(floor.distance, rel=0.03)
    assert end.inside[-1] == pytest.approx(floor.inside, rel=0.03)
    assert end.outside[-1] == pytest.approx(floor.outside, rel=0.03)


# --- what is refused -----------------------------------------------------------------------------------------

GOOD = {"V": points(6, [3, 2, 1, 0.5]), "rank": 2, "dim": 8, "n_samples": 5, "step_size": 0.2}
COURSE = {"rounds": 2, "delta": 0.5}
BAD = {
    "V = 1 axis": ({"V": [1.0, 2.0]}, ["V"]),
    "r = k": ({"rank": 4}, ["r = 4", "rank = 4", "state_evolution"]),
    "no gap": ({"V": points(6, [3, 2, 2, 0.5])}, ["no gap after rank = 2"]),
    "dim < 2k": ({"dim": 3}, ["dim = 3", "2 rank"]),
    "dim < r": ({"V": points(6, [3, 2, 1, 0.5, 0.4]), "dim": 4}, ["dim = 4", "at least 5", "columns of V"]),
    "m = k + 1": ({"n_samples": 3}, ["n_samples = 3", "rank + 2 = 4"]),
    "no step": ({"step_size": 0.0}, ["step_size = 0"]),
    "participants > n": ({"participants": 7}, ["participants = 7", "n_clients = 6"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_one_line(name):
    change, fragments = BAD[name]
    assert_one_line(lambda: lf.theory.under_parameterized_evolution(**GOOD | COURSE | change), fragments)
    assert_one_line(lambda: lf.theory.under_parameterized_floor(**GOOD | change), fragments)


def test_a_step_without_a_floor_or_a_start_without_a_basis_raises_one_line():
    assert_one_line(
        lambda: lf.theory.under_parameterized_floor(**GOOD | {"step_size": 1.2}), ["step_size = 1.2", "1.11"]
    )
    course = lf.theory.under_parameterized_evolution
    assert_one_line(lambda: course(**GOOD, rounds=2, B0=np.eye(8, 2)), ["B0 and U"])
    assert_one_line(lambda: course(**GOOD, rounds=2, B0=np.ones((8, 2)), U=np.eye(8, 4)), ["B0", "orthonormal"])
    assert_one_line(lambda: course(**GOOD, rounds=2, B0=np.eye(8, 2), U=np.eye(8, 3)), ["U", "(d, r)"])
    assert_one_line(lambda: course(**GOOD, rounds=2, B0=np.eye(8, 3), U=np.eye(8, 4)), ["B0", "(d, k)"])
    assert_one_line(lambda: course(**GOOD | COURSE | {"step_size": 1e200}), ["step_size = 1e+200", "round 1"])


CHANCE = {"rank": 2, "dim": 20, "n_samples": 8, "noise_std": 0.5, "rounds": 60, "U": np.eye(20)}


@pytest.mark.long
@pytest.mark.parametrize("step_size", [0.6, 1.6])
def test_a_start_that_chance_takes_over_raises_one_line(step_size):
    """A random start at n < d, whose part in U_k noise outgrows."""
    start = np.linalg.qr(normal(20, 2, seed=1))[0]
    course = lf.theory.under_parameterized_evolution
    wanted = [f"step_size = {step_size}", "no correct digits are left in round", "a smaller step size"]
    assert_one_line(lambda: course(normal(8, 20), B0=start, step_size=step_size, **CHANCE), wanted)
    assert np.isfinite(course(normal(8, 20), B0=start, step_size=0.02, **CHANCE).distance).all()


def test_a_start_without_a_part_in_the_top_subspace_raises_one_line():
    course = lf.theory.under_parameterized_evolution
    assert_one_line(lambda: course(**GOOD, rounds=1, delta=1.0), ["right angle to U_k", "delta must be below 1"])
    assert course(**GOOD, rounds=0, delta=1.0).distance.tolist() == [1.0]


def test_chance_is_what_first_order_follows():
    """Nothing at the start; in proportion to the step, and the more the less of the start lies in U_k."""
    setting = GOOD | {"n_samples": 50, "rounds": 1}
    small, twice, far = (
        lf.theory.under_parameterized_evolution(**setting | changes).chance
        for changes in (
            {"delta": 0.5, "step_size": 0.001},
            {"delta": 0.5, "step_size": 0.002},
            {"delta": 0.9, "step_size": 0.001},
        )
    )
    assert small[0] == 0.0
    assert twice[1] == pytest.approx(2 * small[1], rel=0.02)
    assert far[1] > 1.5 * small[1]


def test_a_prediction_says_where_chance_is_large():
    problem = lf.UnderParameterized(n_clients=40, dim=20, spectrum=[20.0, 18.0, 4.0, 3.0])
    setting = {"data": lf.FreshSamples(n_samples=12), "rounds": 30}
    near, far = (
        lf.predict(lf.FedRep(rank=2, step_size=0.02, init=lf.AtDistance(delta)), problem, **setting)
        for delta in (0.8, 0.999)
    )
    assert not any("chance changes" in text for text in near.warnings)
    assert any("chance changes the part of B outside U_k by" in text for text in far.warnings)


# --- long horizons ---------------------------------------------------------------------------------------------

# Of 40 clients on r directions: some directions outside that are rows of their own, one row for many, and none.
LONG = {"rows outside": (5, 7), "one row outside": (4, 30), "none outside": (6, 6)}


@pytest.mark.long
@pytest.mark.parametrize("start", ["delta", "B0"])
@pytest.mark.parametrize("name", LONG)
def test_it_comes_to_rest_and_stays_there(name, start, monkeypatch):
    """It ends where a start near U_k ends soon: after 120 rounds products of a start's rows have lost all digits.

    A start that is given determines rows below U_k as well.
    """
    monkeypatch.setattr("linfed.theory.fedrep.rounds.truth_rows.VALUES", 10_000)
    r, dim = LONG[name]
    V = points(40, np.r_[3.0, np.geomspace(0.8, 0.02, r - 1)])
    setting = {"V": V, "rank": 2, "dim": dim, "n_samples": 12, "step_size": 0.25}
    begun = {"delta": 0.5} if start == "delta" else {"B0": basis(dim, 2, 4), "U": np.eye(dim, r)}
    long = lf.theory.under_parameterized_evolution(**setting, **begun, rounds=180)
    short = lf.theory.under_parameterized_evolution(**setting, delta=0.1, rounds=60)
    for name in ("inside", "outside"):
        np.testing.assert_allclose(getattr(long, name)[120:], getattr(short, name)[-1], rtol=0.01)
    assert np.all(np.abs(long.distance[120:] / short.distance[-1] - 1.0) < 0.05)


def test_a_truth_of_rank_k_without_noise_raises_one_line():
    V = np.concatenate([normal(30, 2, seed=1), np.zeros((30, 2))], axis=1)
    wanted = ["lambda_k+1", "zero up to rounding", "rank = 2", "state_evolution"]
    change = GOOD | {"V": V}
    assert_one_line(lambda: lf.theory.under_parameterized_evolution(**change | COURSE), wanted)
    assert_one_line(lambda: lf.theory.under_parameterized_floor(**change), wanted)
    noisy = lf.theory.under_parameterized_evolution(**change | COURSE, noise_std=0.1)
    assert np.isfinite(noisy.distance).all()


def test_chance_of_the_first_round_is_its_formula_for_one_column():
    """With k = 1 all of xi's matrices are numbers; A is that of the rows below U_k, on average."""
    V, delta, eta, m = points(30, [3.0, 1.5, 1.2, 0.9, 0.6]), 0.6, 0.3, 6
    found = lf.theory.under_parameterized_evolution(V, rank=1, dim=5, n_samples=m, step_size=eta, rounds=1, delta=delta)
    rows, c, N = TruthRows.of(V, 1, 5), 1.0 - 1.0 / m, np.sqrt(1.0 - delta**2)
    mean, spread = N * np.eye(5, 1), np.full((5, 1, 1), delta**2 / 4)
    spread[0] = 0.0
    variance = rows.noise(mean, spread, RoundSizes.checked(V[:, :1], 5, m, 1.0, 0.0, None))[1].item()
    below = rows.values[1:].mean()
    K = rows.values[0] * N**2 + below * delta**2
    after = found.inside[1] ** 2 + found.outside[1] ** 2
    length = (N * (1.0 + eta * c * (rows.values[0] - K))) ** 2 / (1.0 - after)
    A = 1.0 + eta * c * (below - K)
    expected = eta * np.sqrt(variance) * (A * delta**2 / (length * after) + 1.0 / N**2 - 1.0)
    assert found.chance[1] == pytest.approx(expected, rel=1e-9)


def test_the_step_at_which_a_factor_is_minus_one_has_no_floor():
    V = np.diag([2.0, 1.0, 0.5, 0.25])
    sizes = {"rank": 2, "dim": 8, "n_samples": 4}
    assert_one_line(
        lambda: lf.theory.under_parameterized_floor(V, step_size=4.0, **sizes), ["step_size = 4", "no floor"]
    )
    assert np.isfinite(lf.theory.under_parameterized_floor(V, step_size=3.99, **sizes).total)
