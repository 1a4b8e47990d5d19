"""FedRep's minimum on fixed samples: the equations by a loop, their solution against runs, and whom federation pays."""

import dataclasses
import functools

import numpy as np
import pytest
from scipy import linalg, optimize, stats

import linfed as lf
from linfed.theory.fedrep.fixed_samples import break_even, cavity
from linfed.theory.fedrep.wishart import fixed_factors
from tests.helpers import assert_one_line, cleared, normal

SIZES = {"dim": 40, "n_samples": 20, "noise_std": 0.3}


def isotropic(n, k, trials=None):
    """Return heads of length sqrt(k) with second moment I."""
    W = lf.SharedRepresentation(n_clients=n, dim=k, rank=k, condition_number=1.0).truth(0, range(trials or 1)).W
    return W if trials else W[0]


def floor(W, **changes):
    return lf.theory.fixed_sample_floor(W, **SIZES | changes)


# --- the equations -------------------------------------------------------------------------------------------


def orthonormal(found):
    """Return V and C in the coordinates of an orthonormal B, whose overlap with B* is the symmetric N."""
    values, vectors = np.linalg.eigh(np.linalg.inv(np.eye(len(found.covariance)) + found.covariance))
    N = (vectors * np.sqrt(values)) @ vectors.T
    return N @ found.leverage @ N, N @ found.covariance @ N, N


@pytest.mark.long
@pytest.mark.parametrize(("m", "noise_std"), [(8, 0.7), (12, 1.0)])
def test_the_floor_solves_the_equations_for_other_samples(m, noise_std):
    """J is the trace of the Hessian, which the package does not use, with rows of samples; planted: without gaps."""
    n, d, k, draws = 150, 60, 2, 45_000
    W = normal(n, k) * [1.3, 0.8]
    V, C, N = orthonormal(lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=noise_std))
    rng, w, share = np.random.default_rng(1), np.tile(W, (draws // n, 1)), (d - k) / n
    Z, a = rng.standard_normal((draws, m, k)), w @ N
    left = np.sqrt(np.vecdot(w, w) - np.vecdot(a, a) + noise_std**2)
    y = np.einsum("imk,ik->im", Z, a) + left[:, None] * rng.standard_normal((draws, m))
    root = np.linalg.inv(np.linalg.cholesky(V)).T  # root root' = V^{-1}
    both = np.concatenate([Z @ root, y[..., None]], axis=-1)
    values, vectors = np.linalg.eigh(both.mT @ both)
    e, u = root @ vectors[:, :k, :1], root @ vectors[:, :k, 1:]
    ratios = values[:, 0, None] / (values[:, 1:] - values[:, :1])
    J = ((m - k) - ratios.sum(axis=1))[:, None, None] * (e @ e.mT) - (u * ratios[:, None, :]) @ u.mT
    P = values[:, 0, None, None] * (e @ e.mT)
    inverse = np.linalg.inv(J.mean(axis=0))
    np.testing.assert_allclose(share * inverse, V, rtol=0, atol=0.03 * np.abs(V).max())
    np.testing.assert_allclose(share * inverse @ P.mean(axis=0) @ inverse, C, rtol=0, atol=0.03 * np.abs(C).max())
    planted = share * np.linalg.inv((m - k) * (e @ e.mT).mean(axis=0))
    assert np.abs(planted - V).max() > 0.06 * np.abs(V).max()


def test_the_replicon_radius_is_that_of_numerical_hessians(monkeypatch):
    """Second differences of half the smallest eigenvalue with respect to all rows of Z, for 60 draws."""
    monkeypatch.setattr(cavity, "DRAWS", 60)
    monkeypatch.setattr(cavity, "NARROW", 1e-9)
    k, m, step = 2, 5, 1e-3
    clients = cavity.ClientDraws(normal(30, k), n_samples=m, unknowns=0.4, variance=0.5)
    V, C = np.array([[0.2, 0.05], [0.05, 0.1]]), np.array([[0.2, 0.0], [0.0, 0.1]])
    found = clients.solve(V, C)
    w, a, whiten = clients.heads, clients.heads @ cavity.overlap(C), np.eye(k + 1)
    whiten[:k, :k] = np.linalg.inv(np.linalg.cholesky(V)).T
    left = np.sqrt(np.vecdot(w @ C, w) + clients.variance)
    shift = np.zeros((60, k + 1, k + 1))  # (Z, y) = (Z, v) shift
    shift[:, range(k), range(k)], shift[:, :k, k], shift[:, k, k] = 1.0, a, left
    rows = np.zeros((60, m, k + 1))
    rows[:, : k + 1] = np.linalg.cholesky(np.linalg.inv(clients.inverse_wishart)).mT @ shift

    def value(moved):
        """Half the smallest eigenvalue, for moves of Z in coordinates with V = I."""
        whitened = rows @ whiten
        whitened[..., :k] += moved.reshape(m, k)
        return 0.5 * np.linalg.eigvalsh(whitened.mT @ whitened)[:, 0]

    units = step * np.eye(m * k)
    H = np.array([[value(p + q) - value(p - q) - value(q - p) + value(-p - q) for q in units] for p in units])
    H = np.moveaxis(H, -1, 0).reshape(60, m, k, m, k) / (4 * step**2)
    np.testing.assert_allclose(2.0 * value(0.0 * units[0]), found.least, rtol=1e-9)
    operator = np.einsum("drisj,drpsq->ipjq", H, H).reshape(k * k, k * k) / 60 / clients.unknowns
    assert clients.replicon(found) == pytest.approx(np.abs(np.linalg.eigvals(operator)).max(), rel=1e-3)


def test_fixed_factors_are_those_of_wishart_matrices():
    """Every coordinate of Sobol's first 127 points but 0 is a multiple of 1/128, so that their quantiles are exact."""
    L, levels = fixed_factors(3, 7, 127), np.arange(1, 128) / 128
    assert L.shape == (127, 3, 3)
    assert (np.triu(L, 1) == 0).all()
    for i in range(3):
        np.testing.assert_allclose(np.sort(L[:, i, i] ** 2), stats.chi2(7 - i).ppf(levels), rtol=1e-9)
        for j in range(i):
            np.testing.assert_allclose(np.sort(L[:, i, j]), stats.norm.ppf(levels), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((L @ L.mT).mean(axis=0), 7 * np.eye(3), atol=0.6)


def test_every_head_occurs_or_heads_have_the_second_moment_of_all():
    few, many = normal(7, 2), normal(50, 2) * [1.5, 0.5]
    sizes = {"n_samples": 9, "unknowns": 0.5, "variance": 0.1, "draws": 20}
    np.testing.assert_array_equal(cavity.ClientDraws(few, **sizes).heads, np.repeat(few, 3, axis=0))
    np.testing.assert_array_equal(cavity.ClientDraws(many[:20], **sizes).heads, many[:20])
    heads = cavity.ClientDraws(many, **sizes).heads
    np.testing.assert_allclose(heads.T @ heads / 20, many.T @ many / 50, rtol=1e-12)
    picked = many[np.floor(2.5 * np.arange(20)).astype(int)]
    np.testing.assert_allclose(picked @ np.linalg.lstsq(picked, heads)[0], heads, atol=1e-12)


def test_each_draw_is_a_total_least_squares_problem_of_its_own():
    """Generalised eigenvalues of the Gram matrix of (Z, y) and diag(V, 1), draw by draw."""
    k, W = 2, normal(40, 2) * [1.3, 0.7]
    V, C = np.array([[0.3, 0.1], [0.1, 0.2]]), np.array([[0.2, 0.05], [0.05, 0.3]])
    clients = cavity.ClientDraws(W, n_samples=7, unknowns=0.4, variance=0.5, draws=40)
    found, N = clients.solve(V, C), cavity.overlap(C)
    np.testing.assert_allclose(N, N.T, atol=1e-15)
    np.testing.assert_allclose(N @ N, np.eye(2) - C, atol=1e-14)
    training, new = clients.training(found, C)
    whole = np.eye(3)
    whole[:2, :2] = V
    P = np.zeros((k, k))
    for i, w in enumerate(W):
        a, shift = N @ w, np.eye(3)
        shift[:k, k], shift[k, k] = a, np.sqrt(w @ C @ w + 0.5)
        gram = shift.T @ np.linalg.inv(clients.inverse_wishart[i]) @ shift
        values, vectors = linalg.eigh(gram, whole)
        head = -vectors[:k, 0] / vectors[k, 0]
        assert found.least[i] == pytest.approx(values[0], rel=1e-9)
        assert found.inverse[i] == pytest.approx(shift[k, k] ** 2 / values[0], rel=1e-9)
        np.testing.assert_allclose(found.ratios[i], values[0] / (values[:0:-1] - values[0]), rtol=1e-7)
        back = np.linalg.inv(found.root).T
        np.testing.assert_allclose(-back @ found.e[i] / found.last[i], head, rtol=1e-7)
        assert abs(found.last[i]) == pytest.approx(abs(vectors[k, 0]), rel=1e-9)
        others = back @ found.others[i] @ np.diag([1.0, 2.0]) @ found.others[i].T @ back.T
        outer = vectors[:k, 2:0:-1] @ np.diag([1.0, 2.0]) @ vectors[:k, 2:0:-1].T
        np.testing.assert_allclose(others, outer, rtol=1e-6, atol=1e-9)
        squares = np.linalg.solve(gram[:k, :k], gram[:k, k])
        assert training[i] == pytest.approx(np.sum((head - a) ** 2) + w @ C @ w, rel=1e-7)
        assert new[i] == pytest.approx(np.sum((squares - a) ** 2) + w @ C @ w, rel=1e-7)
        P += values[0] * np.outer(vectors[:k, 0], vectors[:k, 0]) / 40
    np.testing.assert_allclose(clients.moments(V, C)[1], P, rtol=1e-8)


def test_the_equations_have_the_mean_hessian():
    """J from the gradients of the draws is the mean trace of their Hessians."""
    k, m = 2, 12
    clients = cavity.ClientDraws(normal(64, k) * [1.3, 0.7], n_samples=m, unknowns=0.3, variance=0.5)
    V, C = np.array([[0.06, 0.02], [0.02, 0.05]]), np.array([[0.2, 0.05], [0.05, 0.1]])
    found, back = clients.solve(V, C), np.linalg.inv(np.linalg.cholesky(V))
    e, u, ratios = found.e @ back, back.T @ found.others, found.ratios
    hessians = (m - k - ratios.sum(axis=1))[:, None, None] * e[:, :, None] * e[:, None, :]
    hessians -= (u * ratios[:, None, :]) @ u.mT
    J = clients.moments(V, C)[0]
    np.testing.assert_allclose(J, hessians.mean(axis=0), rtol=0, atol=0.02 * np.abs(J).max())


@pytest.mark.parametrize("variance", [0.0, 0.5])
def test_the_minimum_solves_its_equations(variance):
    W = normal(32, 2) * [1.4, 0.7]
    clients = cavity.ClientDraws(W, n_samples=12, unknowns=0.5, variance=variance, draws=256)
    V, C = clients.minimum()
    if variance:
        J, P = clients.moments(V, C)
        inverse = np.linalg.inv(J)
        np.testing.assert_allclose(V, 0.5 * inverse, rtol=0, atol=1e-5 * V.max())
        np.testing.assert_allclose(C, 0.5 * inverse @ P @ inverse, rtol=0, atol=1e-5 * C.max())
    else:
        weighted = sum(np.outer(w, w) / (1 + w @ V @ w) for w in W) / 32
        np.testing.assert_allclose(V, 0.5 / 10 * np.linalg.inv(weighted), rtol=1e-8)
        assert (C == 0).all()


@pytest.mark.parametrize("m", [5, 6, 7, 8])
def test_with_few_samples_the_risk_is_the_typical_mean_of_drawn_risks(m, monkeypatch):
    """Up to m = k + 4; beyond, the exact mean of new clients replaces that of their draws."""
    monkeypatch.setattr(cavity, "DRAWS", 256)
    found = lf.theory.fixed_sample_floor(normal(32, 2), dim=10, n_samples=m, noise_std=0.2)
    typical = cavity.typical_mean(found.drawn_risks.reshape(32, -1), 32)
    assert (found.risk == pytest.approx(typical, rel=1e-12)) == (m <= 6)
    assert found.risk == pytest.approx(typical, rel=0.1)


def test_a_typical_mean_takes_the_heads_in_turn():
    rows = np.outer([1.0, 2.0, 6.0], np.ones(5))
    assert cavity.typical_mean(rows, 3) == 3.0
    assert cavity.typical_mean(rows, 4) == 2.5
    assert cavity.typical_mean(rows, 7) == pytest.approx(19 / 7)
    assert cavity.typical_mean(np.array([[0.0, 0.0, 1.0]]), 1) == 0.0


def test_narrow_gaps_do_not_count_in_the_replicon_radius(monkeypatch):
    clients = cavity.ClientDraws(normal(30, 2), n_samples=5, unknowns=0.4, variance=0.5, draws=600)
    found = clients.solve(np.array([[0.8, 0.1], [0.1, 0.5]]), np.diag([0.2, 0.1]))
    assert found.ratios.max() > 5.0
    radius = clients.replicon(found)
    monkeypatch.setattr(cavity, "NARROW", 1e-9)
    wider = dataclasses.replace(found, ratios=np.minimum(found.ratios, 5.0))
    assert clients.replicon(wider) == pytest.approx(radius, rel=1e-12)
    assert clients.replicon(found) > 1.01 * radius


@pytest.mark.parametrize(("n", "m"), [(12, 20), (60, 8)])
def test_without_noise_isotropic_heads_have_a_closed_form(n, m):
    k = 3
    g = 37 * k / (n * (m - k))
    found = floor(isotropic(n, k), n_samples=m, noise_std=0.0)
    np.testing.assert_allclose(k * found.leverage, g / (1 - g) * np.eye(k), rtol=0, atol=1e-7)
    assert found.replicon == pytest.approx(g, rel=1e-4)
    assert (found.covariance == 0).all()
    assert found.distance == found.empirical_risk == 0
    np.testing.assert_allclose([found.risk, *found.drawn_risks], 0.0, atol=1e-20)
    slight = floor(isotropic(n, k), n_samples=m, noise_std=1e-7)
    assert slight.replicon == pytest.approx(g, rel=5e-3)
    np.testing.assert_allclose(slight.covariance, 1e-14 * slight.leverage, rtol=0, atol=0.02e-14 / k)


def test_many_clients_have_the_first_order():
    W = normal(40, 3)
    for copies, gap in ((20, 0.05), (2000, 0.02)):
        many = np.tile(W, (copies, 1))
        whole, first = floor(many), lf.theory.similar_floor(many, np.zeros(len(many)), **SIZES)
        np.testing.assert_allclose(whole.covariance, first.covariance, rtol=0, atol=gap * first.covariance.max())
        assert whole.risk == pytest.approx(first.risk.mean(), rel=gap)
    assert whole.empirical_risk == pytest.approx(0.045 * 17 / 20, rel=2e-3)


@pytest.mark.long
def test_trials_are_taken_one_by_one():
    W = np.stack([normal(30, 3, seed=seed) for seed in range(3)])
    together = floor(W)
    for trial in range(3):
        alone = floor(W[trial])
        for name in ("covariance", "distance", "empirical_risk", "risk", "drawn_risks", "leverage", "replicon"):
            np.testing.assert_array_equal(getattr(together, name)[trial], getattr(alone, name))
        np.testing.assert_allclose(together.outside(W)[trial], alone.outside(W[trial]), rtol=1e-9)


def test_only_the_span_matters():
    W, H = normal(30, 3), np.linalg.qr(normal(3, 3, seed=1))[0]
    one, other = floor(W), floor(W @ H)
    scale = one.covariance.max()
    np.testing.assert_allclose(other.covariance, H.T @ one.covariance @ H, rtol=0, atol=0.03 * scale)
    assert other.risk == pytest.approx(one.risk, rel=0.01)
    assert other.distance == pytest.approx(one.distance, rel=0.02)  # over its fixed draws


# --- against the minimiser ------------------------------------------------------------------------------------


def minimum(rng, W, d, m, noise_std):
    """Return the tangents' Gram matrix, empirical risk and clients' squared errors at the minimum that L-BFGS finds.

    The heads are exact, and L-BFGS starts at B*.
    """
    n, k = W.shape
    X = rng.standard_normal((n, m, d))
    y = np.einsum("nmk,nk->nm", X[:, :, :k], W) + noise_std * rng.standard_normal((n, m))
    rows = X.reshape(-1, d)

    def heads(B):
        H = (rows @ B).reshape(n, m, k)
        w = np.linalg.solve(H.mT @ H, H.mT @ y[..., None])
        return w[..., 0], (H @ w)[..., 0] - y

    def objective(values):
        w, r = heads(values.reshape(d, k))
        return 0.5 * np.square(r).sum(), (rows.T @ (r[..., None] * w[:, None, :]).reshape(-1, k)).ravel()

    options = {"maxiter": 3000, "maxcor": 20, "gtol": 1e-6 * n * m, "ftol": 1e-12}
    found = optimize.minimize(objective, np.eye(d, k).ravel(), jac=True, method="L-BFGS-B", options=options)
    B = np.linalg.qr(found.x.reshape(d, k))[0]
    D = B[k:] @ np.linalg.inv(B[:k])
    wrong = heads(B)[0] @ B.T
    wrong[:, :k] -= W
    return D.T @ D, found.fun / (n * m), np.square(wrong).sum(axis=1)


def first_law(W, d, m, noise_std):
    """Return C of the narrower law: leave one out with Gaussian errors of the heads, to first order in V."""
    (n, k), share = W.shape, (d - W.shape[1]) / (len(W) * (m - W.shape[1]))
    V, C = np.zeros((2, k, k))
    for _ in range(500):
        seen = 1.0 / (1.0 + np.vecdot(W @ V, W))
        inverse, T = np.linalg.inv((W * seen[:, None]).T @ W / n), noise_std**2 + np.vecdot(W @ C, W)
        noise = (W * (T * seen**2)[:, None]).T @ W / n + np.mean((T * seen) ** 2) / (m - k - 1) * np.eye(k)
        V, C = share * inverse, share * inverse @ noise @ inverse
    return C


MINIMA = {
    "many unknowns": {"n": 60, "d": 60, "k": 3, "m": 16, "noise_std": 0.3},
    "noisy": {"n": 150, "d": 100, "k": 2, "m": 10, "noise_std": 1.0},
    "unequal heads": {"n": 60, "d": 100, "k": 2, "m": 20, "noise_std": 0.4, "lengths": (1.6, 0.5)},
    "m = k + 2": {"n": 300, "d": 60, "k": 2, "m": 4, "noise_std": 0.3},
    "d = 2k": {"n": 50, "d": 8, "k": 4, "m": 20, "noise_std": 0.5},
    "n = k": {"n": 3, "d": 60, "k": 3, "m": 200, "noise_std": 0.3},
    "near the edge": {"n": 20, "d": 200, "k": 2, "m": 40, "noise_std": 0.5},
}
LONG = dict.fromkeys(MINIMA, 60) | {"d = 2k": 200}
SHORT = {"many unknowns": 24}


def compared(name, trials):
    """Compare the law with the minima of data sets that share their heads."""
    n, d, k, m, noise_std = (MINIMA[name][key] for key in ("n", "d", "k", "m", "noise_std"))
    rng = np.random.default_rng(0)
    W = rng.standard_normal((n, k)) * MINIMA[name].get("lengths", 1.0)
    law = lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=noise_std)
    assert law.replicon < 0.9
    found = [minimum(rng, W, d, m, noise_std) for _ in range(trials)]
    gram, risks = np.array([one[0] for one in found]), np.array([one[1] for one in found])
    traces = np.trace(gram, axis1=1, axis2=2)
    error = traces.std(ddof=1) / trials**0.5
    return law, W, (gram, traces, error), risks, np.array([one[2] for one in found])


@pytest.mark.parametrize(
    ("name", "trials"),
    [pytest.param(*one, marks=pytest.mark.long) for one in LONG.items()] + [tuple(one) for one in SHORT.items()],
)
def test_the_minimum_is_where_the_law_puts_it(name, trials):
    """The law may be off by 2 %, and its distance by 1 %; the error of the mean over data sets is added."""
    law, W, (gram, traces, error), risks, errors = compared(name, trials)
    n, d, k, m, noise_std = (MINIMA[name][key] for key in ("n", "d", "k", "m", "noise_std"))
    assert abs(traces.mean() - np.trace(law.covariance)) < 3 * error + 0.02 * traces.mean()
    spread = np.diagonal(gram, axis1=1, axis2=2).std(axis=0, ddof=1) / trials**0.5
    gap = np.abs(np.diag(gram.mean(axis=0)) - np.diag(law.covariance))
    assert (gap < 3.5 * spread + 0.03 * np.diag(law.covariance)).all()
    sines = np.sqrt(np.linalg.eigvalsh(gram)[:, -1])
    sines /= np.hypot(1.0, sines)
    assert abs(sines.mean() - law.distance) < 3 * sines.std(ddof=1) / trials**0.5 + 0.01 * law.distance
    assert abs(risks.mean() - law.empirical_risk) < 3 * risks.std(ddof=1) / trials**0.5 + 0.01 * risks.mean()
    levels = (0.25, 0.5, 0.75, 0.9)
    picks = np.random.default_rng(0).integers(trials, size=(200, trials))
    spread = np.std([np.quantile(errors[pick], levels) for pick in picks], axis=0)
    gap = np.abs(np.quantile(errors, levels) - 2 * np.quantile(law.drawn_risks, levels) + noise_std**2)
    if n > k:  # with k clients the span differs between data sets by more than the law allows for
        assert (gap < 3.5 * spread + 0.02 * np.quantile(errors, levels)).all()
    if m > k + 4:
        spread = np.median(errors.mean(axis=1)[picks], axis=1).std()
        gap = abs(np.median(errors.mean(axis=1)) - 2 * law.risk + noise_std**2)
        assert gap < 3.5 * spread + 0.02 * errors.mean()
    if name in ("many unknowns", "noisy"):  # planted: the first order
        first = lf.theory.similar_floor(W, np.zeros(n), dim=d, n_samples=m, noise_std=noise_std)
        assert traces.mean() - np.trace(first.covariance) > 5 * error
    if name in ("noisy", "near the edge") and trials > 30:  # planted: the narrower law
        assert traces.mean() - np.trace(first_law(W, d, m, noise_std)) > 4 * error


NEW_CLIENTS = ((150, 8, 0.5), (40, 25, 0.3), (200, 10, 1.0))


def test_the_errors_of_training_clients_are_those_of_total_least_squares_with_rows():
    """Planted: the errors of new clients, whose heads are least squares."""
    draws, m, sigma = 40_000, 9, 0.6
    w, V, C = np.array([1.5, 0.5]), np.diag([0.1, 0.03]), np.diag([0.05, 0.2])
    clients = cavity.ClientDraws(w[None], n_samples=m, unknowns=0.5, variance=sigma**2)
    training, new = clients.training(clients.solve(V, C), C)
    rng, a = np.random.default_rng(0), w * np.sqrt(1.0 - np.diag(C))
    left = np.sqrt(w @ C @ w + sigma**2)
    Z = rng.standard_normal((draws, m, 2))
    both = np.concatenate([Z, (Z @ a + left * rng.standard_normal((draws, m)))[..., None]], axis=-1)
    scale = np.append(np.diag(V) ** -0.5, 1.0)
    least = np.linalg.eigh((both.mT @ both) * scale[:, None] * scale)[1][..., 0] * scale
    found = np.square(-least[:, :2] / least[:, 2:] - a).sum(axis=1) + w @ C @ w
    levels = (0.1, 0.3, 0.5, 0.7, 0.9)
    np.testing.assert_allclose(np.quantile(training, levels), np.quantile(found, levels), rtol=0.03)
    assert new.mean() == pytest.approx(w @ C @ w + left**2 * 2 / (m - 3), rel=0.02)
    assert np.quantile(found, 0.9) > 1.08 * np.quantile(new, 0.9)


# --- against runs --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("n", "m", "noise_std"), [(80, 12, 0.3), *NEW_CLIENTS])
def test_new_clients_have_the_predicted_mean_risk(n, m, noise_std):
    """For several numbers of samples of new clients; planted: the first order of the subspace, and B* itself."""
    d, k, trials, counts = 60, 3, 16, (5, 8, 40)
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=noise_std)
    truth = problem.truth(0, range(trials))
    data = {"data": lf.FixedSamples(m), "rounds": 1, "trials": trials}
    result = lf.simulate(lf.BurerMonteiro(rank=k, init=truth.B, tolerance=1e-8), problem, **data)
    sizes = {"dim": d, "n_samples": m, "noise_std": noise_std}
    law = lf.theory.fixed_sample_floor(truth.W, **sizes)
    first = lf.theory.similar_floor(truth.W, np.zeros((trials, n)), **sizes)
    heads = problem.new_clients(truth, 400, 1, range(trials)).W
    outside = lf.theory.outside_length(result.final.B, problem.new_clients(truth, 400, 1, range(trials)).dense())
    for count in counts:
        each = {"noise_std": noise_std, "rank": k, "n_samples": count}
        # given B, the mean over a new client's samples is exact: the only noise is that of B
        measured, expected, planted, known = (
            lf.theory.new_client_mean_risk(part, **each).mean(axis=-1) - noise_std**2 / 2
            for part in (outside, law.outside(heads), first.outside(heads), np.zeros_like(outside))
        )
        ratio = measured / expected
        error = ratio.std(ddof=1) / trials**0.5
        assert abs(ratio.mean() - 1.0) < 3 * error + 0.01
        if noise_std < 1.0 or count > 5:  # otherwise the error of the head hides that of B
            assert all((measured / wrong).mean() > 1.0 + 3 * error for wrong in (planted, known))
    run = result.new_clients([counts[-1]], clients=400, seed=1).mean(axis=-1).squeeze() - noise_std**2 / 2
    np.testing.assert_allclose((run / measured).mean(), 1.0, rtol=0, atol=0.02)


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 3])
def test_as_many_clients_as_columns_are_alone(n):
    """Every predictor is then in reach, and the minimum of the empirical risk is each client's least squares."""
    problem = lf.SharedRepresentation(n_clients=n, dim=6, rank=3, noise_std=0.3)
    told = {"data": lf.FixedSamples(40), "trials": 2}
    alone = lf.simulate(lf.LocalOnly(), problem, rounds=1, **told).final.predictors()
    found = lf.simulate(lf.FedRep(rank=3, step_size=0.7, init="random"), problem, rounds=400, **told).final
    np.testing.assert_allclose(found.predictors(), alone, rtol=0, atol=1e-7)


# --- where it can be learned, and whom it pays ---------------------------------------------------------------

NOISY_SIZES = {"dim": 40, "rank": 3, "n_samples": 10, "noise_std": 1.0}


def edge(**changes):
    return lf.theory.fixed_sample_edge(**NOISY_SIZES | changes)


def pays(rival, **changes):
    return lf.theory.break_even_clients(rival, **NOISY_SIZES | changes)


@pytest.mark.long
def test_runs_from_the_truth_know_no_edge():
    """They end the farther the fewer clients there are; the equations for Gaussian heads end at 0.61 of the edge."""
    m, k, d = 10, 3, 40
    h = 1 / (m - k - 1)
    assert (d - k) * k / ((m - k) * (1 + 2 * h - 2 * np.sqrt(h * (1 + h)))) < 0.7 * edge()
    ends = []
    for share in (0.65, 1.35):
        n = round(share * edge())
        problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=1.0, condition_number=1.0)
        fedrep = lf.FedRep(rank=k, step_size=0.7, init=problem.truth(0, range(8)).B)
        told = {"data": lf.FixedSamples(m), "rounds": 300, "trials": 8, "record_every": 150}
        ends.append(np.median(lf.simulate(fedrep, problem, **told).metrics["subspace_distance"][:, -1]))
    assert 0.35 < ends[1] < 0.42
    assert 0.58 < ends[0] < 0.7


@pytest.mark.long
def test_without_noise_the_edge_is_where_samples_are_as_many_as_unknowns():
    assert edge(noise_std=0.0) == 37 * 3 / 7
    assert edge(noise_std=1e-3) == pytest.approx(37 * 3 / 7, rel=0.01)
    assert edge(noise_std=0.3) > 1.3 * 37 * 3 / 7
    assert edge(n_samples=100, noise_std=0.0) == 3
    assert edge(n_samples=4) == edge(n_samples=3, noise_std=0.0) == edge(n_samples=2) == np.inf
    assert edge(n_samples=4, noise_std=0.0) == pays(1.0, n_samples=4, noise_std=0.0) == 37 * 3


def test_it_never_pays_beside_a_better_baseline_or_with_too_few_samples():
    known = float(lf.theory.new_client_mean_risk(0.0, noise_std=1.0, rank=3, n_samples=10))
    assert pays(known - 1e-9) == pays(0.5) == pays(2.0, n_samples=4) == pays(0.0, noise_std=0.0) == np.inf


@pytest.fixture
def few_draws(monkeypatch):
    """Let the solutions be those of 128 draws, and typical means those of 40 data sets."""
    monkeypatch.setattr(break_even, "DRAWS", 128)
    monkeypatch.setattr(cavity, "DATA_SETS", 40)
    with cleared(break_even._solutions):
        yield


def solution(c, *, d, k, m, variance):
    """Return n and the mean risk of training clients at ``C = c/(1 + c) I``, for 128 draws."""
    nu, eye, u = m - k - 1, np.eye(k), variance + k * c
    clients, C = (
        cavity.ClientDraws(np.sqrt(k) * eye[:1], n_samples=m, unknowns=1.0, variance=variance, draws=128),
        c / (1 + c) * eye,
    )

    def gap(v):
        J, P = clients.moments(v * eye, C)
        return v * np.trace(P) / np.trace(J) - c / (1 + c)

    v = optimize.newton(gap, c / (u * (1 + u / nu) - k * c) / (1 + c), tol=1e-9)
    n = (d - k) / (v * np.trace(clients.moments(v * eye, C)[0]) / k)
    length = k * c / (1 + c)
    excess = length + (length + variance) * k / nu
    if m > k + 4:
        errors, new = clients.training(clients.solve(v * eye, C), C)
        excess += cavity.typical_mean((errors - new)[None], round(n))
    return n, (excess + variance) / 2


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("k", "m"), [(2, 6), (2, 9), (1, 4), (3, 8)])
def test_every_point_solves_the_equations(k, m):
    d, variance = 60, 0.5
    course = list(zip(*break_even._solutions(k, d - k, m, variance), strict=True))
    for c, unknowns, excess in course[1::4]:
        n, risk = solution(c, d=d, k=k, m=m, variance=variance)
        assert (d - k) / unknowns == pytest.approx(n, rel=0.01)
        assert (excess + variance) / 2 == pytest.approx(risk, rel=0.01)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("m", "c"), [(6, 0.05), (9, 0.03)])
def test_it_pays_from_the_solution_with_the_risk_of_the_baseline(m, c):
    n, risk = solution(c, d=60, k=2, m=m, variance=0.5)
    sizes = {"dim": 60, "rank": 2, "n_samples": m, "noise_std": 0.5**0.5}
    assert lf.theory.break_even_clients(risk, **sizes) == pytest.approx(n, rel=0.01)


@pytest.mark.usefixtures("few_draws")
def test_the_edge_is_the_fewest_clients_with_a_solution():
    sizes = {"d": 60, "k": 2, "m": 9, "variance": 0.5}
    fewest = min(solution(c, **sizes)[0] for c in np.geomspace(0.4, 1.5, 8))
    found = lf.theory.fixed_sample_edge(dim=60, rank=2, n_samples=9, noise_std=0.5**0.5)
    assert found == pytest.approx(fewest, rel=0.05)
    far = lf.theory.break_even_clients(100.0, dim=60, rank=2, n_samples=9, noise_std=0.5**0.5)
    assert far == pytest.approx(found, rel=1e-3)


@pytest.mark.usefixtures("few_draws")
def test_many_clients_pay_by_the_first_order_of_their_number():
    d, k, m, variance = 60, 2, 6, 0.5
    nu, known = m - k - 1, variance * (1 + k / (m - k - 1)) / 2
    for more in (1e-6, 1e-9):
        n = lf.theory.break_even_clients(known + more, dim=d, rank=k, n_samples=m, noise_std=variance**0.5)
        first = k * (1 + k / nu) * (d - k) / (m - k) * variance * (1 + variance / nu)
        assert n * 2 * more == pytest.approx(first, rel=0.05)


def test_without_noise_one_sample_more_than_the_rank_suffices():
    """Where `fixed_sample_edge` counts 16 clients, runs near B* find it with 24 and not with 10."""
    assert lf.theory.fixed_sample_edge(dim=10, rank=2, n_samples=3, noise_std=0.0) == 16
    algorithm = lf.FedRep(rank=2, step_size=0.9, init=lf.AtDistance(0.05))
    ends = {}
    for n in (10, 24):
        problem = lf.SharedRepresentation(n_clients=n, dim=10, rank=2)
        setting = {"data": lf.FixedSamples(n_samples=3), "rounds": 1700, "trials": 4, "record_every": 1700}
        ends[n] = lf.simulate(algorithm, problem, **setting).metrics["subspace_distance"][:, -1]
    assert ends[24].max() < 1e-6
    assert ends[10].min() > 0.02


@pytest.mark.long
def test_a_baseline_that_does_nothing_leaves_the_edge():
    assert pays(1e6) == edge()
    assert edge() < pays(1.1) < pays(0.9) < pays(0.8)


@pytest.mark.long
def test_it_pays_from_where_the_risks_cross():
    """Far from the edge the law is that of the floor."""
    for n in (300, 1000, 40_000):
        rival = float(floor(isotropic(n, 3), n_samples=10, noise_std=1.0).risk)
        assert pays(rival) == pytest.approx(n, rel=0.06 if n < 1000 else 0.04)


@pytest.mark.long
def test_it_never_pays_to_share_what_is_known():
    known = float(lf.theory.new_client_mean_risk(0.0, noise_std=1.0, rank=3, n_samples=10))
    assert pays(known) == np.inf
    assert pays(known + 1e-9) == pytest.approx(10 * pays(known + 1e-8), rel=1e-3)
    assert pays(2.0, n_samples=4) == np.inf
    assert np.isfinite(pays(2.0, n_samples=6, noise_std=0.3))


# --- where there is no law -----------------------------------------------------------------------------------


def test_it_warns_where_there_is_no_minimum():
    W = isotropic(6, 3)  # g = 1.09
    with pytest.warns(RuntimeWarning, match="no solution"):
        found = floor(W)
    assert all(np.isnan(part).all() for part in (found.covariance, found.distance, found.risk, found.outside(W)))
    both = np.stack([isotropic(30, 3), 1e-3 * isotropic(30, 3)])
    with pytest.warns(RuntimeWarning, match="in 1 of 2 trials"):
        found = floor(both)
    assert np.isnan(found.distance).tolist() == [False, True]


def test_it_warns_where_the_equations_are_not_stable():
    with pytest.warns(RuntimeWarning, match="replicon radius is [1-9]"):
        lf.theory.fixed_sample_floor(isotropic(150, 2), dim=100, n_samples=8, noise_std=1.0)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"W": normal(2, 3)}, ["W of shape (2, 3)", "span"]),
        ({"W": normal(3)}, ["W has shape (3,)"]),
        ({"n_samples": 4}, ["n_samples = 4", "rank + 2 = 5"]),
        ({"dim": 5}, ["dim = 5", "2 rank"]),
        ({"noise_std": -1.0}, ["noise_std = -1.0"]),
    ],
)
def test_bad_arguments(changes, fragments):
    arguments = {"W": normal(9, 3), **SIZES} | changes
    assert_one_line(lambda: lf.theory.fixed_sample_floor(arguments.pop("W"), **arguments), fragments)


def test_bad_arguments_of_what_follows():
    for call in (edge, functools.partial(pays, 1.0)):
        assert_one_line(lambda call=call: call(rank=0), ["rank = 0"])
        assert_one_line(lambda call=call: call(dim=4), ["dim = 4"])
        assert_one_line(lambda call=call: call(noise_std=-1.0), ["noise_std = -1.0"])
        assert_one_line(lambda call=call: call(n_samples=0), ["n_samples = 0"])
    assert_one_line(lambda: pays(-1.0), ["baseline_risk = -1.0"])
    assert_one_line(lambda: floor(normal(90, 3)).outside(normal(90, 2)), ["W has shape (90, 2)"])
