"""Head and full-dimensional part of a client fitted together: with a ridge, and with the shortest full part."""

import numpy as np
import pytest

from linfed.numerics.least_squares import joint_ridge, smallest_shortcut
from tests import references as ref
from tests.helpers import basis, normal


def conditioned(rng, m, d):
    """Return rows of which none is nearly a combination of the others: the loops are compared at 1e-10."""
    U, values, Vt = np.linalg.svd(rng.standard_normal((m, d)), full_matrices=False)
    return np.sqrt(max(m, d)) * (U * np.linspace(1.5, 0.7, len(values))) @ Vt


def draw(counts, d, k, noise=0.3, seed=1):
    """Return samples of a truth with shortcuts, one array a client, and an orthonormal B to start from."""
    rng = np.random.default_rng(seed)
    X = [conditioned(rng, m, d) for m in counts]
    B_star = basis(d, k, seed=7)
    Phi = [B_star @ rng.standard_normal(k) + 0.4 * rng.standard_normal(d) for _ in counts]
    y = [X_i @ phi + noise * rng.standard_normal(len(X_i)) for X_i, phi in zip(X, Phi, strict=True)]
    return X, y, basis(d, k, seed=8)


def stacked(counts, d, k, seed=1):
    """Return A, b, B with one trial, and the samples."""
    X, y, B = draw(counts, d, k, seed=seed)
    A = np.array([X_i.T @ X_i / len(y_i) for X_i, y_i in zip(X, y, strict=True)])[None]
    b = np.array([X_i.T @ y_i / len(y_i) for X_i, y_i in zip(X, y, strict=True)])[None]
    return A, b, B[None], X, y


# name: samples of each client, d, k
TOGETHER = {
    "m < k": ([2] * 4, 7, 3),
    "k < m < d": ([5] * 4, 7, 3),
    "m == d": ([7] * 4, 7, 3),
    "m > d": ([20] * 4, 7, 3),
    "unequal": ([1, 3, 6, 30], 6, 3),
    "k == d": ([2, 9], 3, 3),
    "k == 1": ([3, 9], 4, 1),
    "d == 1": ([1, 5], 1, 1),
}


@pytest.mark.parametrize("shape", TOGETHER)
def test_the_refit_solves_the_least_squares_with_the_shortest_shortcut(shape):
    A, b, B, X, y = stacked(*TOGETHER[shape])
    W, S, _ = smallest_shortcut(A, b, B)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        w, s = ref.shortest(X_i, y_i, B[0])
        np.testing.assert_allclose(S[0, i], s, rtol=0, atol=1e-9)
        np.testing.assert_allclose(W[0, i], w, rtol=0, atol=1e-9)
        best = np.linalg.lstsq(X_i, y_i, rcond=1e-12)[0]
        np.testing.assert_allclose(X_i @ (B[0] @ W[0, i] + S[0, i] - best), 0, atol=1e-9)


@pytest.mark.parametrize("shape", TOGETHER)
def test_the_refit_is_the_limit_of_the_joint_ridge(shape):
    A, b, B, *_ = stacked(*TOGETHER[shape])
    W, S, _ = smallest_shortcut(A, b, B)
    gaps = []
    for ridge in (1e-3, 1e-4, 1e-5):  # rounding errors are about 1e-14 over the ridge
        near_W, near_S, _ = joint_ridge(A, b, B, ridge)
        gaps.append(max(np.abs(near_W - W).max(), np.abs(near_S - S).max()))
        half_W, half_S, _ = joint_ridge(A, b, B, ridge / 2)
    # The difference is linear in the ridge: half of the ridge twice, less the whole, is the limit itself.
    assert gaps[2] < 1e-4
    assert gaps[2] < 0.11 * gaps[1] + 1e-8
    assert gaps[1] < 0.11 * gaps[0] + 1e-8
    np.testing.assert_allclose(2 * half_W - near_W, W, rtol=0, atol=1e-8)
    np.testing.assert_allclose(2 * half_S - near_S, S, rtol=0, atol=1e-8)


@pytest.mark.parametrize("ridge", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("shape", TOGETHER)
def test_the_joint_minimiser_is_stationary(shape, ridge):
    A, b, B, X, y = stacked(*TOGETHER[shape])
    W, S, _ = joint_ridge(A, b, B, ridge)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        g = ref.gradient(X_i, y_i, B[0] @ W[0, i] + S[0, i])
        np.testing.assert_allclose(B[0].T @ g, 0, atol=1e-10)
        # a shortcut is known to the last bit of the head beside it
        np.testing.assert_allclose(g + ridge * S[0, i], 0, atol=1e-10 + 1e-15 * ridge)


@pytest.mark.long
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize(("d", "k", "m"), [(6, 2, 1), (20, 3, 1), (20, 3, 2)])
def test_the_joint_minimiser_has_the_shortest_head(d, k, m, ridge):
    """Of all heads that explain as much; where m < k they have no part that the samples do not see."""
    A, b, B, X, _ = stacked([m] * 300, d, k)
    W, _, _ = joint_ridge(A, b, B, ridge)
    for i, X_i in enumerate(X):
        Z = X_i @ B[0]
        np.testing.assert_allclose(np.linalg.pinv(Z, rcond=1e-12) @ Z @ W[0, i], W[0, i], rtol=1e-6, atol=1e-6)


def spoilt(trouble, m=12, d=6):
    """Return a client's rows with some trouble, their rank, and the error to be expected of normal equations."""
    X = normal(m, d, seed=3)
    if trouble == "a duplicate column":
        X[:, 4] = X[:, 1]
        return X, d - 1, 1e-9
    if trouble == "a column of zeros":
        X[:, 4] = 0.0
        return X, d - 1, 1e-9
    if trouble == "rank 2":
        return normal(m, 2, seed=4) @ normal(2, d, seed=5), 2, 1e-9
    if trouble == "no samples but zeros":
        return np.zeros((m, d)), 0, 1e-12
    U, _, Vt = np.linalg.svd(X, full_matrices=False)
    condition = float(trouble)
    return (U * np.geomspace(1.0, 1.0 / condition, d)) @ Vt, d, 1e-13 * condition**2


TROUBLES = ["a duplicate column", "a column of zeros", "rank 2", "no samples but zeros", "1e2", "1e3", "1e4"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_head_and_shortcut_of_ill_conditioned_and_deficient_samples(trouble):
    (X, rank, error), y, B = spoilt(trouble), normal(12, seed=9), basis(6, 2, seed=8)
    y = X @ normal(6, seed=10) + 0.1 * y * np.linalg.norm(X) / 10
    A, b = (X.T @ X / 12)[None, None], (X.T @ y / 12)[None, None]
    W, S, _ = smallest_shortcut(A, b, B[None])
    w, s = ref.shortest(X, y, B, rank)
    scale = 1 + np.abs(s).max() + np.abs(w).max()
    np.testing.assert_allclose(S[0, 0], s, rtol=0, atol=scale * error)
    np.testing.assert_allclose(W[0, 0], w, rtol=0, atol=scale * error)
    for ridge in (1e-3, 10.0):
        W, S, _ = joint_ridge(A, b, B[None], ridge)
        rows = np.block([[X @ B, X], [np.zeros((6, 2)), np.sqrt(12 * ridge) * np.eye(6)]])
        both = ref.least_squares(rows, np.concatenate([y, np.zeros(6)]))
        np.testing.assert_allclose(S[0, 0], both[2:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(W[0, 0], both[:2], rtol=0, atol=scale * error + 1e-9)


SOLVERS = {
    "refit": lambda *arrays: smallest_shortcut(*arrays)[:2],
    "joint": lambda *arrays: joint_ridge(*arrays, 0.1)[:2],
}


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("spoil", ["NaN", "infinity", "singular", "singular to the last bit"])
def test_clients_and_trials_do_not_depend_on_their_neighbours(solve, spoil):
    trials = [stacked([9] * 4, 6, 2, seed=seed)[:3] for seed in (1, 2)]
    A, b, B = (np.concatenate(parts) for parts in zip(*trials, strict=True))
    B[1] = basis(6, 2, seed=5)
    W, S = solve(A, b, B)
    spoilt_A = A.copy()
    if spoil == "singular":
        spoilt_A[0, 1] = 0.0
    elif spoil == "singular to the last bit":
        spoilt_A[0, 1] = -0.1 * np.eye(6)  # of which the ridge makes zeros
    else:
        spoilt_A[0, 1, 2, 3] = {"NaN": np.nan, "infinity": np.inf}[spoil]
    with np.errstate(all="ignore"):
        other_W, other_S = solve(spoilt_A, b, B)
    others = np.ones((2, 4), dtype=bool)
    others[0, 1] = False
    for before, after in ((W, other_W), (S, other_S)):
        assert np.isfinite(before).all()
        assert before[others].tobytes() == after[others].tobytes()
        if spoil in ("NaN", "infinity"):
            assert not np.isfinite(after[0, 1]).any()
    for trial in range(2):
        alone = solve(A[trial : trial + 1], b[trial : trial + 1], B[trial : trial + 1])
        assert alone[0][0].tobytes() == W[trial].tobytes()
        assert alone[1][0].tobytes() == S[trial].tobytes()
