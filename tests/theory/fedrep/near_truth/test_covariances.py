"""The mean gradient of FedRep under covariances of x, its rates near B*, and the subspace at which it vanishes."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis, normal

N, D, K, M, SIGMA = 3, 5, 2, 20, 0.8
OPTIONS = {
    "same": {},
    "split": {"disjoint_samples": True},
    "same, whitened": {"whiten": "design"},
    "split, whitened": {"disjoint_samples": True, "whiten": "design"},
    "same, own": {"whiten": "own"},
    "split, own": {"disjoint_samples": True, "whiten": "own"},
}


def covariances(n, d, condition=9.0, seed=0):
    """Return n covariances with the eigenvalues of a geometric sequence, and random axes."""
    turns = np.stack([basis(d, d, seed=seed + i) for i in range(n)])
    return turns @ (np.geomspace(1.0, condition, d)[:, None] * turns.mT)


def problem(common, *, n=N, d=D, noise_std=SIGMA, condition=9.0, rank=K):
    found = covariances(n, d, condition)
    design = lf.Gaussian(covariance=found[0] if common else found)
    return lf.SharedRepresentation(n_clients=n, dim=d, rank=rank, noise_std=noise_std, design=design)


def chosen(name, design):
    """Return the options of a name, with the true covariances for "design"."""
    return {key: design if value == "design" else value for key, value in OPTIONS[name].items()}


def gradients(one, B, name, draws, m=M, rng=0):
    """Return the gradient on B of each draw, (draws, d, k), from rows of one client at a time."""
    truth, rng, out, options = one.truth(0, [0]), np.random.default_rng(rng), 0.0, OPTIONS[name]
    for i, phi in enumerate(truth.dense()[0]):
        Sigma = one.design.covariance if one.design.covariance.ndim == 2 else one.design.covariance[i]
        X = rng.standard_normal((draws, m, D)) @ np.linalg.cholesky(Sigma).T
        y = X @ phi + one.noise_std * rng.standard_normal((draws, m))
        half = m // 2 if options.get("disjoint_samples") else m
        first, second = (X[:, :half], y[:, :half]), (X[:, m - half :], y[:, m - half :])
        Z = first[0] @ B
        w = np.linalg.solve(Z.mT @ Z, Z.mT @ first[1][..., None])
        message = second[0].mT @ (second[0] @ (B @ w) - second[1][..., None]) / half
        if options.get("whiten"):
            own = second[0].mT @ second[0] / half if options["whiten"] == "own" else Sigma
            message = np.linalg.solve(own, message)
        out = out + message @ w.mT / N
    return out


@pytest.mark.long
@pytest.mark.parametrize(("name", "common"), [*itertools.product(OPTIONS, [True, False])])
def test_the_mean_gradient_is_that_of_draws(name, common):
    """z-tests of all entries at a B far from B* and at B*: 240 in all, at 1e-3 together."""
    one = problem(common)
    truth = one.truth(0, [0])
    threshold = stats.norm.isf(1e-3 / 2 / (12 * 2 * D * K))
    for B in (basis(D, K, seed=9), truth.B[0]):
        found = gradients(one, B, name, draws=10_000)
        error = found.std(axis=0) / np.sqrt(len(found))
        law = lf.theory.mean_gradient(B, truth, n_samples=M, **chosen(name, one.design))[0]
        assert np.abs((found.mean(axis=0) - law) / error).max() < threshold
        # Planted: twice as many samples, which changes 1 - k/m or 1/(m - k - 1), is rejected where they enter.
        planted = lf.theory.mean_gradient(B, truth, n_samples=2 * M, **chosen(name, one.design))[0]
        enters = "split" in name or (B is not truth.B[0] and B[0, 0] != truth.B[0, 0, 0])
        if enters:
            assert np.abs((found.mean(axis=0) - planted) / error).max() > threshold


@pytest.mark.long
def test_with_few_samples_for_heads():
    """m_1 = k + 4, the fewest with a finite variance of the message; planted: m_1 - k instead of m_1 - k - 1."""
    one, m = problem(False), 2 * (K + 4)
    truth = one.truth(0, [0])
    found = gradients(one, truth.B[0], "split", draws=40_000, m=m)
    law = lf.theory.mean_gradient(truth.B, truth, n_samples=m, disjoint_samples=True)[0]
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - law) / error).max() < 4
    assert np.abs((found.mean(axis=0) - law * (m // 2 - K - 1) / (m // 2 - K)) / error).max() > 6


def test_one_client_and_no_complement():
    """n = 1 < k has a mean gradient but no rate; d = k has no tangents."""
    one = problem(True, n=1)
    truth = one.truth(0, [0])
    law = lf.theory.mean_gradient(truth.B, truth, n_samples=M, disjoint_samples=True)[0]
    assert np.linalg.norm(law - truth.B[0] @ (truth.B[0].T @ law)) > 0.01
    full = problem(True, d=K)
    found = lf.theory.near_truth_drift(full.truth(0, [0]), n_samples=M, disjoint_samples=True)
    assert found.rates.shape == (1, 0)
    assert found.distance[0] < 1e-12


def gradient_by_clients(B, Phi, Sigma, name, m):
    """Return the mean gradient of one trial by the closed forms, client by client."""
    split, whiten = "split" in name, OPTIONS[name].get("whiten")
    m, out = m // 2 if split else m, np.zeros_like(B)
    for phi, A in zip(Phi, Sigma, strict=True):
        heads = np.linalg.inv(B.T @ A @ B)
        a = heads @ B.T @ A @ phi
        e = phi - B @ a
        noise = (e @ A @ e + (SIGMA**2 if split else 0.0)) / (m - K - 1)
        if split or whiten == "own":
            here = A @ (noise * B @ heads - np.outer(e, a))
        else:
            here = -(1 - K / m) * A @ np.outer(e, a)
        out += (here if whiten is None else np.linalg.solve(A, here)) / len(Phi)
    return out


@pytest.mark.parametrize(("name", "common"), [*itertools.product(OPTIONS, [True, False])])
def test_the_mean_gradient_is_that_of_a_loop_over_clients(name, common):
    """For bases that are not orthonormal, of each trial or of both."""
    one, B = problem(common), normal(2, D, K, seed=5)
    truth, Sigma = one.truth(0, [0, 1]), np.broadcast_to(one.design.covariance, (N, D, D))
    options = {"n_samples": 21, **chosen(name, one.design)}
    for given in (B, B[0]):
        found = lf.theory.mean_gradient(given, truth, **options)
        for t, own in enumerate(np.broadcast_to(given, (2, D, K))):
            wanted = gradient_by_clients(own, truth.dense()[t], Sigma, name, 21)
            np.testing.assert_allclose(found[t], wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 4),
        ({"disjoint_samples": True}, 8),
        ({"whiten": "own"}, 7),
        ({"whiten": "own", "disjoint_samples": True}, 14),
    ],
)
def test_the_fewest_samples_of_a_mean_gradient(options, least):
    truth = problem(True).truth(0, [0])
    assert np.isfinite(lf.theory.mean_gradient(truth.B, truth, n_samples=least, **options)).all()
    words = [f"n_samples = {least - 1}", f"at least {least}"]
    assert_one_line(lambda: lf.theory.mean_gradient(truth.B, truth, n_samples=least - 1, **options), words)


def risk(B, truth, Sigma):
    """Return half the mean squared error with the best heads, less the noise."""
    out = 0.0
    for phi, A in zip(truth.dense()[0], np.broadcast_to(Sigma, (N, D, D)), strict=True):
        e = phi - B @ np.linalg.solve(B.T @ A @ B, B.T @ A @ phi)
        out += e @ A @ e / 2 / N
    return out


@pytest.mark.parametrize("common", [True, False])
def test_on_the_same_batch_it_is_the_gradient_of_the_risk(common):
    one, B, step = problem(common), normal(D, K, seed=5), 1e-6
    truth, slope = one.truth(0, [0]), np.zeros((D, K))
    for entry in np.ndindex(D, K):
        change = np.zeros((D, K))
        change[entry] = step
        slope[entry] = sum(sign * risk(B + sign * change, truth, one.design.covariance) for sign in (1, -1)) / step / 2
    law = lf.theory.mean_gradient(B, truth, n_samples=M)[0]
    np.testing.assert_allclose(law, (1 - K / M) * slope, atol=1e-7)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("noise_std", [0.0, SIGMA])
def test_at_the_truth_only_a_split_batch_is_biased(common, noise_std):
    """The closed form at B*, client by client; condition numbers up to 1e4."""
    for condition in (1.0, 100.0, 1e4):
        one = problem(common, condition=condition, noise_std=noise_std)
        truth = one.truth(0, [0])
        B, Sigma = truth.B[0], np.broadcast_to(one.design.covariance, (N, D, D))
        s = noise_std**2 / (M // 2 - K - 1)
        wanted = sum(s * A @ B @ np.linalg.inv(B.T @ A @ B) for A in Sigma) / N
        law = lf.theory.mean_gradient(B, truth, n_samples=M, disjoint_samples=True)[0]
        np.testing.assert_allclose(law, wanted, atol=1e-11 * condition)
        outside = np.abs(law - B @ (B.T @ law)).max()
        assert (outside > 1e-3) == (condition > 1 and noise_std > 0)
        for name in set(OPTIONS) - {"split"}:
            law = lf.theory.mean_gradient(B, truth, n_samples=M, **chosen(name, one.design))[0]
            assert np.abs(law - B @ (B.T @ law)).max() < 1e-10 * condition, name


# --- near the truth, and where the mean gradient is 0 -----------------------------------------------------------


@pytest.mark.parametrize(("name", "common"), [*itertools.product(OPTIONS, [True, False])])
def test_rates_are_those_of_the_numerical_derivative(name, common):
    one, step = problem(common, n=6, condition=30.0), 1e-6
    truth, options = one.truth(0, [0]), chosen(name, one.design)
    B = truth.B[0]
    perp = np.linalg.svd(B)[0][:, K:]

    def drift(D_):
        G = lf.theory.mean_gradient(B + perp @ D_, truth, n_samples=M, **options)[0]
        return (perp.T @ G - D_ @ (B.T @ G)).ravel()

    units = np.eye(K * (D - K)).reshape(-1, D - K, K) * step
    J = np.stack([(drift(unit) - drift(-unit)) / (2 * step) for unit in units], axis=1)
    found = lf.theory.near_truth_drift(truth, n_samples=M, **options)
    np.testing.assert_allclose(found.rates[0], np.sort(np.linalg.eigvals(J).real), atol=1e-6)
    np.testing.assert_allclose(perp.T @ found.bias[0], drift(np.zeros((D - K, K))).reshape(D - K, K), atol=1e-12)


@pytest.mark.parametrize("common", [True, False])
def test_a_stationary_subspace_contains_its_mean_gradient(common):
    one = problem(common, n=6, condition=20.0, noise_std=1.0)
    truth, run = one.truth(0, [0, 1]), {"n_samples": M, "disjoint_samples": True}
    found = lf.theory.near_truth_drift(truth, **run)
    S, G = found.stationary, lf.theory.mean_gradient(found.stationary, truth, **run)
    np.testing.assert_allclose(S @ (S.mT @ G), G, atol=1e-9)
    np.testing.assert_allclose(S.mT @ S, [np.eye(K)] * 2, atol=1e-12)
    np.testing.assert_allclose(found.distance, lf.subspace_distance(S, truth.B), rtol=1e-9)
    assert (found.distance > 0.005).all()
    for t in range(2):
        alone = lf.theory.near_truth_drift(one.truth(0, [t]), **run)
        for name in ("rates", "bias", "distance"):
            np.testing.assert_allclose(getattr(found, name)[t], getattr(alone, name)[0], rtol=1e-7, atol=1e-12)


def test_without_noise_or_anisotropy_there_is_no_displacement():
    for one in (problem(True, noise_std=0.0), problem(True, condition=1.0)):
        assert lf.theory.near_truth_drift(one.truth(0, [0]), n_samples=M, disjoint_samples=True).distance[0] < 1e-10
    isotropic = lf.SharedRepresentation(n_clients=40, dim=5, rank=3, condition_number=1.0)
    found = lf.theory.near_truth_drift(isotropic.truth(0, [0]), n_samples=10)
    np.testing.assert_allclose(found.rates, 1 - 3 / 10, rtol=1e-9)
    whitened = lf.theory.near_truth_drift(isotropic.truth(0, [0]), n_samples=10, whiten="own")
    np.testing.assert_allclose(whitened.rates, 1.0, rtol=1e-9)


@pytest.mark.long
def test_under_a_common_covariance_the_reference_is_the_only_stable_subspace():
    """A truth of rank 5 and k = 2: mean steps end at L^-T times the top subspace of L'ML, not at that of M."""
    matrix = covariances(1, D, 20.0)[0]
    one = lf.UnderParameterized(n_clients=30, dim=D, design=lf.Gaussian(covariance=matrix), noise_std=0.5)
    truth = one.truth(0, [0])
    Phi, L = truth.dense()[0], np.linalg.cholesky(matrix)
    axes = np.linalg.eigh(L.T @ Phi.T @ Phi @ L / 30)[1][:, ::-1]
    np.testing.assert_allclose(
        lf.subspace_distance(truth.reference(2), [np.linalg.solve(L.T, axes[:, :2])]), 0, atol=1e-9
    )
    for pair in ([0, 1], [0, 2], [1, 3]):  # every invariant subspace is stationary
        B = np.linalg.solve(L.T, axes[:, pair])
        assert np.abs(lf.theory.mean_gradient(B, truth, n_samples=M)).max() < 1e-11
    top = np.linalg.eigh(Phi.T @ Phi)[1][:, -2:]
    assert np.abs(lf.theory.mean_gradient(top, truth, n_samples=M)).max() > 0.01
    B = ref.qr_positive(np.linalg.solve(L.T, axes[:, [0, 2]]) + 1e-3 * normal(D, 2))[0]
    for _ in range(1500):
        B = ref.qr_positive(B - 0.05 * lf.theory.mean_gradient(B, truth, n_samples=M)[0])[0]
    assert lf.subspace_distance(truth.reference(2)[0], B) < 1e-6 < 0.05 < lf.subspace_distance(B, top)


@pytest.mark.parametrize(
    ("call", "fragments"),
    [
        (lambda t: lf.theory.mean_gradient(t.B, t, n_samples=9, whiten="pooled"), ("whiten", "'own'")),
        (lambda t: lf.theory.mean_gradient(t.B[0, :4], t, n_samples=9), ("B has shape", "d = 5")),
        (
            lambda t: lf.theory.mean_gradient(np.stack([t.B[0]] * 3), t, n_samples=9),
            ("B has shape (3, 5, 2)", "(1, 5, 2)"),
        ),
        (
            lambda t: lf.theory.near_truth_drift(
                dataclasses.replace(t, design=lf.Gaussian(covariance=np.diag([1.0, 1, 1, 1, 0]))), n_samples=9
            ),
            ("design", "regular covariance"),
        ),
        (lambda t: lf.theory.near_truth_drift(dataclasses.replace(t, S=t.dense()), n_samples=9), ("form B* w_i*",)),
        (
            lambda t: lf.theory.near_truth_drift(dataclasses.replace(t, design=lf.Rademacher()), n_samples=9),
            ("design", "Gaussian"),
        ),
        (
            lambda t: lf.theory.near_truth_drift(dataclasses.replace(t, W=t.W[..., :1] * [1.0, 1.0]), n_samples=9),
            ("heads of trial 0", "must span"),
        ),
    ],
)
def test_what_the_law_does_not_cover_is_one_line(call, fragments):
    assert_one_line(lambda: call(problem(True).truth(0, [0])), fragments)


def test_a_bias_that_is_too_large_is_a_warning():
    one = problem(True, condition=1e4, noise_std=60.0, n=40)
    with pytest.warns(RuntimeWarning, match="stationary subspace"):
        found = lf.theory.near_truth_drift(one.truth(0, [0]), n_samples=M, disjoint_samples=True)
    assert found.rates[0, 0] < 0
