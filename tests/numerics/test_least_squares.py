"""Least squares of heads and in full dimension: against solvers per client and exact arithmetic, at any scale."""

import functools

import numpy as np
import pytest

from linfed.numerics import least_squares
from tests import references as ref
from tests.helpers import normal
from tests.numerics.stacks import assert_an_item_spoils_itself_only, assert_items_are_the_same_alone, outputs
from tests.numerics.test_linalg import graded

EPS = np.finfo(float).eps


# --- heads ---------------------------------------------------------------------------------------------------


def heads_case(k, m, *, counts=None, dependent=False, trials=2, p=3):
    """Return (Z, y, counts) with zero rows beyond each client's count, client 1 with a repeated column if asked."""
    Z, y = normal(trials, k, p, m), normal(trials, p, m, seed=1)
    held = np.broadcast_to(np.asarray(m if counts is None else counts, dtype=float), (trials, p)).copy()
    if dependent:
        Z[:, k - 1, 1] = -2.0 * Z[:, 0, 1]
    beyond = np.arange(m) >= held[..., None]
    Z[np.broadcast_to(beyond[:, None], Z.shape)] = 0.0
    y[beyond] = 0.0
    return Z, y, held


HEADS = {
    "tall": heads_case(3, 9),
    "one column": heads_case(1, 4),
    "square": heads_case(4, 4),
    "one client": heads_case(2, 5, p=1),
    "fewer samples than columns": heads_case(4, 2),
    "one sample": heads_case(3, 1),
    "unequal counts": heads_case(3, 8, counts=[8, 2, 3]),
    "dependent": heads_case(3, 7, dependent=True),
    "dependent, unequal counts": heads_case(3, 6, counts=[1, 5, 6], dependent=True),
}


def solve_heads(Z, y, counts, ridge=0.0, few=False):
    """Call the kernel, which has the clients last, on features (trials, k, p, m) and labels (trials, p, m)."""
    trials, k, p, m = Z.shape
    features, labels = Z.transpose(1, 3, 0, 2).reshape(k, m, -1), y.transpose(2, 0, 1).reshape(m, -1)
    W, residual, deficient = least_squares.head_least_squares(features, labels, counts.ravel(), ridge, few=few)
    shaped = W.T.reshape(trials, p, k), residual.T.reshape(trials, p, m), deficient.reshape(trials, p)
    return least_squares.HeadSolution(*shaped)


@pytest.mark.parametrize(
    ("name", "ridge", "few"),
    [
        *((name, ridge, few) for name in HEADS for ridge, few in ((0.0, False), (0.0, True), (0.7, False))),
        ("unequal counts", 0.7, True),
    ],
)
def test_heads_against_a_solver_per_client(name, ridge, few):
    Z, y, counts = HEADS[name]
    k = Z.shape[1]
    W, residual, deficient = solve_heads(Z, y, counts, ridge, few)
    for trial, client in np.ndindex(*counts.shape):
        count = int(counts[trial, client])
        rows, labels = Z[trial, :, client, :count].T, y[trial, client, :count]
        extended = np.vstack([rows, np.sqrt(ridge * count) * np.eye(k)])
        expected, _, rank, _ = np.linalg.lstsq(extended, np.append(labels, np.zeros(k)), rcond=1e-12)
        np.testing.assert_allclose(W[trial, client], expected, atol=1e-12)
        np.testing.assert_allclose(residual[trial, client, :count], rows @ expected - labels, atol=1e-12)
        assert not residual[trial, client, count:].any()
        if ridge == 0:
            assert deficient[trial, client] == (rank < k <= count)
            if count <= rank:
                assert not residual[trial, client].any()  # exactly: B must not move on rounding


def backward_error(A, w, y):
    """Return the relative size of the least change of A that makes w its least-squares solution.

    Walden, Karlson and Sun 1995, Theorem 2.1, for a change of A alone.
    """
    r = y - A @ w
    mu = np.sqrt((r @ r) / (w @ w))
    outside = np.eye(len(y)) - np.outer(r, r) / (r @ r)
    smallest = np.linalg.svd(np.hstack([A, mu * outside]), compute_uv=False)[-1]
    return min(mu, smallest) / np.linalg.norm(A)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("condition", [1e2, 1e5, 1e8, 1e11])
def test_heads_of_ill_conditioned_features_are_backward_stable(condition, few):
    rng = np.random.default_rng(3)
    p, m, k = 10, 12, 4
    rows = np.stack([graded(rng, m, k, condition) for _ in range(p)])
    y = rng.standard_normal((p, m))
    Z = np.ascontiguousarray(np.moveaxis(rows, -1, 0))[None]
    W, _, deficient = solve_heads(Z, y[None], np.full((1, p), float(m)), few=few)
    ours = [backward_error(A, w, labels) for A, w, labels in zip(rows, W[0], y, strict=True)]
    theirs = [backward_error(A, np.linalg.lstsq(A, b, rcond=None)[0], b) for A, b in zip(rows, y, strict=True)]
    assert max(ours) <= 10 * max(*theirs, EPS)
    assert not deficient.any()


@pytest.mark.parametrize("few", [False, True])
def test_numerically_dependent_features_are_reported(few):
    rng = np.random.default_rng(4)
    Z, y, counts = heads_case(3, 8)
    Z[0, 2, 0] = Z[0, 0, 0] + Z[0, 1, 0] + 1e-15 * rng.standard_normal(8)
    Z[1, :, 2] = 0.0
    deficient = solve_heads(Z, y, counts, few=few).deficient
    assert np.argwhere(deficient).tolist() == [[0, 0], [1, 2]]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1.0, 1e8, 1e20])
def test_whether_features_are_dependent_is_no_matter_of_their_unit(scale, few):
    Z, y, counts = heads_case(3, 8)
    Z[0, 2, 0] = Z[0, 0, 0] + Z[0, 1, 0]
    Z *= scale
    W, _, deficient = solve_heads(Z, y, counts, few=few)
    assert np.argwhere(deficient).tolist() == [[0, 0]]
    plain = solve_heads(Z / scale, y, counts, few=few).W
    np.testing.assert_allclose(W * scale, plain, rtol=1e-10, atol=1e-12)


def test_heads_have_no_ridge_by_default():
    Z, y, counts = normal(3, 9, 4), normal(9, 4, seed=1), np.full(4, 9.0)
    given = least_squares.head_least_squares(Z, y, counts, 0.0, few=False)
    for one, other in zip(least_squares.head_least_squares(Z, y, counts), given, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_heads_of_nearly_dependent_features_have_twelve_digits(k):
    m, count = 2 * k + 1, 2000
    Z, y = normal(k, m, count), normal(m, count, seed=1)
    shares = 10.0 ** np.random.default_rng(2).uniform(-1.7 / max(1, k - 1), 0.0, (k, 1, count))
    for j in range(1, k):
        Z[j] = Z[:j].sum(axis=0) + shares[j] * Z[j]
    y += Z.sum(axis=0)
    lengths = np.linalg.norm(Z, axis=1)
    W = least_squares.head_least_squares(Z, y, np.full(count, float(m))).W
    exact = np.stack([np.linalg.lstsq(Z[..., i].T, y[:, i], rcond=None)[0] for i in range(count)], axis=-1)
    errors = np.linalg.norm((W - exact) * lengths, axis=0) / np.linalg.norm(exact * lengths, axis=0)
    assert errors.max() < 1.3e-12


def test_heads_are_right_where_normal_equations_overflow_or_underflow():
    Z, y, counts = heads_case(2, 9)
    plain = solve_heads(Z, y, counts)
    for features, labels in ((1e150, 1.0), (1e-150, 1.0), (1e-158, 1.0), (1e150, 1e200)):
        W, residual, _ = solve_heads(features * Z, labels * y, counts)
        np.testing.assert_allclose(W * (features / labels), plain.W, rtol=1e-12)
        np.testing.assert_allclose(residual / labels, plain.residual, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_the_heads_of_a_client_alone_have_the_bits_of_many(ridge):
    Z, y, counts = normal(4, 40, 5), normal(40, 5, seed=1), np.full(5, 40.0)
    Z[1, :, 2] = Z[0, :, 2] + 1e-3 * Z[1, :, 2]  # nearly dependent
    counts[3] = 6.0
    Z[:, 6:, 3], y[6:, 3] = 0.0, 0.0
    together = least_squares.head_least_squares(Z, y, counts, ridge)
    for one in (slice(i, i + 1) for i in range(5)):
        alone = least_squares.head_least_squares(Z[..., one], y[:, one], counts[one], ridge)
        for whole, part in zip(together, alone, strict=True):
            assert np.ascontiguousarray(whole[..., one]).tobytes() == np.ascontiguousarray(part).tobytes()


@pytest.mark.parametrize("m", [2, 3, 7])
def test_a_ridge_below_rounding_errors_gives_the_shortest_head(m):
    Z, y, counts = heads_case(3, m, dependent=True)
    W, residual, deficient = solve_heads(Z, y, counts, 1e-40)
    for trial, client in np.ndindex(2, 3):
        rows, labels = Z[trial, :, client].T, y[trial, client]
        wanted = np.linalg.pinv(rows, rcond=1e-12) @ labels
        np.testing.assert_allclose(W[trial, client], wanted, atol=1e-11)
        np.testing.assert_allclose(residual[trial, client], rows @ wanted - labels, atol=1e-11)
    assert deficient.tolist() == [[False, m >= 3, False]] * 2


# --- full dimension ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "d"), [(3, 7), (7, 7), (12, 7), (1, 1), (5, 1), (1, 4)])
@pytest.mark.parametrize("rank", [None, 1])
def test_minimum_norm_against_a_solver_per_item(m, d, rank):
    X, y = normal(4, m, d), normal(4, m, seed=1)
    if rank is not None:
        X = normal(4, m, 1) * normal(4, 1, d, seed=2)
    X[3] = 0.0
    solution, residual, ranks = least_squares.minimum_norm(X, y)
    for item in range(4):
        expected, _, found, _ = np.linalg.lstsq(X[item], y[item], rcond=1e-12)
        np.testing.assert_allclose(solution[item], expected, atol=1e-12)
        np.testing.assert_allclose(residual[item], X[item] @ expected - y[item], atol=1e-12)
        assert ranks[item] == found


@pytest.mark.parametrize(("m", "d"), [(3, 7), (7, 7), (12, 7), (1, 1), (5, 1), (1, 4)])
@pytest.mark.parametrize(
    ("ridge", "trouble"),
    [(0.0, "none"), (0.0, "zero rows"), (0.0, "dependent"), (0.3, "zero rows"), (0.3, "dependent")],
)
def test_full_least_squares_against_a_solver_per_client(m, d, ridge, trouble):
    X, y, counts = normal(4, m, d), normal(4, m, seed=1), np.full(4, float(m))
    if trouble == "zero rows":
        counts[1:3] = np.maximum(1, m - 2), 1
        beyond = np.arange(m) >= counts[:, None]
        X[beyond], y[beyond] = 0.0, 0.0
    if trouble == "dependent":
        X[2] = normal(m, 1, seed=2) * normal(1, d, seed=3)
    theta, _ = least_squares.full_least_squares(X, y, counts, ridge)
    for item in range(4):
        extended = np.vstack([X[item], np.sqrt(ridge * counts[item]) * np.eye(d)])
        expected = np.linalg.lstsq(extended, np.append(y[item], np.zeros(d)), rcond=1e-12)[0]
        np.testing.assert_allclose(theta[item], expected, atol=1e-11)


def whole_numbers(rng, kind):
    """Return a matrix of small integers with at most six rows and five columns."""
    m, d = rng.integers(1, 7), rng.integers(1, 6)
    X = rng.integers(-8, 9, (m, d)).astype(float)
    if kind == "dependent":
        X[:, -1], X[:, d // 2] = 2 * X[:, 0], 0.0
    elif kind == "rank 1":
        X = X[:, :1] * rng.integers(-3, 4, d)
    return X


def some_units(rng, d, span):
    """Return d powers of two between ``2**-span`` and ``2**span``; half of the time only both ends and 1."""
    return 2.0 ** (rng.choice([-span, 0, span], d) if rng.random() < 0.5 else rng.integers(-span, span + 1, d))


def scaled_error(found, wanted, units):
    """Return the largest error in the units of each coordinate, as a share of the largest value."""
    scale = np.abs(wanted * units).max()
    return np.abs((found - wanted) * units).max() / (scale if scale else 1.0)


@pytest.mark.parametrize("kind", ["as drawn", "dependent", "rank 1"])
@pytest.mark.parametrize("span", [0, 20, 100])
def test_the_units_of_columns_cost_no_digits(span, kind):
    """Against exact arithmetic: the shortest solution, its rank, and the flag of dependent features."""
    rng = np.random.default_rng(span)
    for _ in range(15):
        X = whole_numbers(rng, kind)
        m, d = X.shape
        X = np.where(X.any(axis=0), X * (units := some_units(rng, d, span)), 0.0)
        units = np.where(X.any(axis=0), units, 0.0)
        y = rng.integers(-8, 9, m).astype(float)
        exact = ref.fractions(X)
        inverse, rank = ref.exact_pseudo_inverse(exact)
        wanted = (inverse @ ref.fractions(y)).astype(float)
        solution, residual, found = outputs(least_squares.minimum_norm, X[None], y[None])
        theta, deficient = outputs(least_squares.full_least_squares, X[None], y[None], np.array([float(m)]))
        assert found == rank
        assert deficient == (rank < d <= m)
        for one in (solution[0], theta[0]):
            assert scaled_error(one, wanted, units) < 1e-9
        loss = np.sum(np.square(X @ theta[0] - y))
        assert np.sum(np.square(residual)) == pytest.approx(loss, rel=1e-9, abs=1e-15 * np.sum(np.square(y)))
        parts = least_squares.semidefinite(X.T @ X)
        twice = (inverse @ inverse.T).astype(float)
        assert scaled_error(parts.pseudo_inverse(), twice, np.outer(units, units)) < 1e-7
        np.testing.assert_allclose(parts.projector(), (inverse @ exact).astype(float), rtol=0, atol=1e-8)
        assert np.count_nonzero(parts.values) == rank


# name: m, d, rows that are not zero, condition number (None: as drawn)
STACKS = {
    "m == d": (6, 6, 6, None),
    "m == d + 1": (7, 6, 7, None),
    "tall": (40, 6, 40, None),
    **{f"condition {condition:g}": (14, 6, 14, condition) for condition in (1e2, 1e3, 1e4, 1e6, 1e8, 1e11)},
    **{f"m == d, condition {condition:g}": (6, 6, 6, condition) for condition in (1e2, 1e6, 1e11)},
    "zero rows": (14, 6, 9, None),
    "zero rows, as many as columns": (14, 6, 6, 1e2),
}


@pytest.mark.parametrize("name", STACKS)
def test_full_least_squares_are_as_accurate_as_their_condition_allows(name):
    """By normal equations where they lose no more than six digits, and else backward stable."""
    m, d, count, condition = STACKS[name]
    rng = np.random.default_rng(11)
    X = np.zeros((20, m, d))
    for item in X:
        item[:count] = rng.standard_normal((count, d)) if condition is None else graded(rng, count, d, condition)
    y = rng.standard_normal((20, m)) * (X != 0).any(axis=-1)
    y = (X @ rng.standard_normal((20, d, 1)))[..., 0] + 0.1 * y * np.linalg.norm(X, axis=(1, 2))[:, None] / np.sqrt(m)
    theta, _ = least_squares.full_least_squares(X, y, np.full(20, float(count)))
    for rows, labels, found in zip(X, y, theta, strict=True):
        values = np.linalg.svd(rows, compute_uv=False)
        kappa = values[0] / values[-1]
        wanted = np.linalg.lstsq(rows, labels, rcond=1e-13)[0]
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        residual = np.linalg.norm(rows @ wanted - labels) / (values[0] * np.linalg.norm(wanted))
        assert error <= max(1e-10, 100 * EPS * (kappa + kappa**2 * residual))
        if kappa**2 > 10 * least_squares.SAFE_CONDITION * np.sqrt(d) and residual > 1e-3:
            best = backward_error(rows, wanted, labels)
            assert backward_error(rows, found, labels) <= 10 * max(best, EPS)


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e9, 1e180])
def test_full_least_squares_at_any_scale(scale):
    """What X'X cannot hold goes through the rows themselves."""
    X, y = normal(5, 12, 4), normal(5, 12, seed=1)
    X[3, :, 2] = X[3, :, 0]
    wanted, _ = least_squares.full_least_squares(X, y, np.full(5, 12.0))
    found, _ = outputs(least_squares.full_least_squares, scale * X, y, np.full(5, 12.0))
    np.testing.assert_allclose(found * scale, wanted, rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize(
    "trouble", ["zero column", "duplicate column", "one sample", "nothing", "NaN", "infinity", "1e9"]
)
def test_a_neighbour_never_decides_what_an_item_takes(trouble, ridge):
    X, y, counts = normal(6, 12, 4), normal(6, 12, seed=1), np.full(6, 12.0)
    X[4] = graded(np.random.default_rng(0), 12, 4, 1e7)  # this one takes the other way
    alone = [
        outputs(least_squares.full_least_squares, X[i : i + 1], y[i : i + 1], counts[:1], ridge)[0] for i in range(6)
    ]
    if trouble == "zero column":
        X[2, :, 1] = 0.0
    elif trouble == "duplicate column":
        X[2, :, 1] = X[2, :, 3]
    elif trouble in ("one sample", "nothing"):
        X[2, trouble == "one sample" :] = 0.0
    else:
        X[2, 3, 1] = {"NaN": np.nan, "infinity": np.inf, "1e9": 1e9}[trouble]
    theta, _ = outputs(least_squares.full_least_squares, X, y, counts, ridge)
    for i in (0, 1, 3, 4, 5):
        assert theta[i].tobytes() == alone[i][0].tobytes()
    if trouble in ("NaN", "infinity"):
        assert not np.isfinite(theta[2]).any()
    else:
        extended = np.vstack([X[2], np.sqrt(12 * ridge) * np.eye(4)])
        wanted = np.linalg.lstsq(extended, np.append(y[2], np.zeros(4)), rcond=1e-12)[0]
        np.testing.assert_allclose(theta[2], wanted, rtol=1e-9, atol=1e-9)


def test_few_samples_that_begin_as_the_probe_does():
    """Users draw from default_rng(0), too; a client with fewer samples than others then holds the probe as a row."""
    X, y = np.zeros((50, 7, 6)), np.zeros((50, 7))
    X[:, :2], y[:, :2] = normal(50, 2, 6, seed=3), normal(50, 2, seed=4)
    X[:, 0] = np.random.default_rng(0).standard_normal(6)
    theta, _ = least_squares.full_least_squares(X, y, np.full(50, 2.0))
    np.testing.assert_allclose(theta, least_squares.minimum_norm(X, y)[0], rtol=0, atol=1e-9)


# --- the two rules: an item alone has the same bits, and an item that is not finite spoils itself -----------------


X_CASES = {"tall": (6, 4), "square": (4, 4), "wide": (2, 5), "one column": (5, 1), "one row": (1, 5)}


def kernels():
    """Return functions of stacks by name, with their inputs of four items each; the first input is the one to spoil."""
    table = {}
    for name, (m, d) in X_CASES.items():
        X, y, counts = normal(4, m, d), normal(4, m, seed=1), np.full(4, float(m))
        X[2] = X[2, :1] * np.ones((m, 1))  # one item of rank 1: a stack that takes both ways
        table[f"minimum norm, {name}"] = least_squares.minimum_norm, (X, y)
        Z, labels, held = heads_case(d, m, trials=4)
        if m > 1:
            held[1, 0] = 1.0
            Z[1, :, 0, 1:], labels[1, 0, 1:] = 0.0, 0.0
        Z[2, :, 1] = Z[2, :1, 1]
        for ridge, few in ((0.0, False), (0.1, False), (0.0, True)):
            solve = functools.partial(least_squares.full_least_squares, ridge=ridge)
            table[f"full least squares, {name}, ridge {ridge}"] = solve, (X, y, counts)
            solve = functools.partial(solve_heads, ridge=ridge, few=few)
            table[f"heads, {name}, ridge {ridge}, {'few' if few else 'many'}"] = solve, (Z, labels, held)
    return table


KERNELS = kernels()


@pytest.mark.parametrize("name", KERNELS)
def test_an_item_is_the_same_bits_alone_and_in_a_stack(name):
    assert_items_are_the_same_alone(*KERNELS[name])


@pytest.mark.parametrize(
    ("name", "value"), [*((name, np.nan) for name in KERNELS), *((name, np.inf) for name in KERNELS if "tall" in name)]
)
def test_an_item_that_is_not_finite_spoils_itself_only(name, value):
    assert_an_item_spoils_itself_only(*KERNELS[name], value)


def test_a_client_that_is_not_finite_spoils_itself_only():
    for Z, y, counts in HEADS.values():
        clean = solve_heads(Z, y, counts)
        last = Z.shape[2] - 1
        for spoil in ("Z", "y"):
            spoiled = {"Z": Z.copy(), "y": y.copy()}
            spoiled[spoil][0, ..., last, 0] = np.nan
            W, residual, deficient = outputs(solve_heads, spoiled["Z"], spoiled["y"], counts)
            assert np.isnan(W[0, last]).all()
            others = np.ones(counts.shape, dtype=bool)
            others[0, last] = False
            assert W[others].tobytes() == clean.W[others].tobytes()
            assert residual[others].tobytes() == clean.residual[others].tobytes()
            assert np.array_equal(deficient[others], clean.deficient[others])
