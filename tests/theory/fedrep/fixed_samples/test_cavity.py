"""The equations of FedRep's minimum on fixed samples, draw by draw, against eigenvalue problems and Hessians."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg, stats

import linfed as lf
from linfed.theory.fedrep.fixed_samples import cavity
from linfed.theory.fedrep.wishart import fixed_factors
from tests.helpers import normal


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
