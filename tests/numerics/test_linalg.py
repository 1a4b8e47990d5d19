"""Every kernel against a loop over single matrices by another method, and the two rules that hold for all of them."""

import functools
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import linfed as lf
from linfed.numerics import least_squares, linalg, trailing
from linfed.numerics.quantiles import quantiles
from tests import references as ref
from tests.helpers import each, normal

EPS = np.finfo(float).eps


def graded(rng, m, k, condition):
    """Return a matrix (m, k) with geometric singular values from 1 down to 1 / condition."""
    U, _ = np.linalg.qr(rng.standard_normal((m, k)))
    V, _ = np.linalg.qr(rng.standard_normal((k, k)))
    return (U * np.geomspace(1.0, 1.0 / condition, k)) @ V.T


# --- orthonormal bases ---------------------------------------------------------------------------------------


def gram_schmidt(A):
    """Classical Gram-Schmidt, every column projected twice."""
    Q, R = np.zeros_like(A), np.zeros((A.shape[1], A.shape[1]))
    for j, column in enumerate(A.T):
        rest = column
        for _ in range(2):
            part = Q[:, :j].T @ rest
            rest, R[:j, j] = rest - Q[:, :j] @ part, R[:j, j] + part
        R[j, j] = np.sqrt(rest @ rest)
        Q[:, j] = rest / R[j, j]
    return Q, R


@pytest.mark.parametrize("shape", [(4, 7, 3), (2, 3, 5, 5), (3, 4, 1), (1, 1), (6, 2)])
def test_qr_is_gram_schmidt(shape):
    A = normal(*shape)
    Q, R = linalg.qr_positive(A)
    assert np.array_equal(linalg.orthonormalize(A), Q)
    for index in np.ndindex(shape[:-2]):
        expected_Q, expected_R = gram_schmidt(A[index])
        np.testing.assert_allclose(Q[index], expected_Q, atol=1e-13)
        np.testing.assert_allclose(R[index], expected_R, atol=1e-13)
        assert np.array_equal(R[index], np.triu(R[index]))


def test_qr_of_dependent_columns_is_orthonormal_with_a_non_negative_diagonal():
    A = normal(3, 6, 4)
    A[0] = 0.0
    A[1, :, 2] = A[1, :, 0]
    A[2] *= -1e-300
    Q, R = linalg.qr_positive(A)
    np.testing.assert_allclose(np.swapaxes(Q, -1, -2) @ Q, np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-14)
    assert (np.diagonal(R, axis1=-2, axis2=-1) >= 0).all()


def test_a_zero_of_either_sign_counts_as_positive():
    A = normal(5, 3)
    A[:, 1:] = 0.0
    assert np.array_equal(linalg.orthonormalize(A * [1.0, -1.0, 1.0]), linalg.orthonormalize(A))
    assert np.array_equal(linalg.orthonormalize(-0.0 * A), linalg.orthonormalize(0.0 * A))


@each("scale", [1e150, 1.0, 1e-8, 1e-100, 1e-150])
@pytest.mark.parametrize("shape", [(5, 8, 3), (2, 2, 4, 4), (3, 6, 1)])
def test_spectral_norm_keeps_relative_accuracy_at_any_scale(scale, shape):
    A = scale * normal(*shape)
    values = linalg.spectral_norm(A)
    assert values.shape == shape[:-2]
    for index in np.ndindex(shape[:-2]):
        assert values[index] == pytest.approx(np.linalg.svd(A[index], compute_uv=False)[0], rel=1e-14)


# --- distances -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-150, 1e-14, 1e-9, 0.3, np.pi / 2])
def test_distance_reads_tiny_angles(angle):
    """e_1 and e_2 are turned towards e_4 and e_5, by `angle` and a tenth of it: no rounding in the input."""
    eye = np.eye(7)
    turned = np.stack(
        [
            np.cos(angle) * eye[0] + np.sin(angle) * eye[3],
            np.cos(angle / 10) * eye[1] + np.sin(angle / 10) * eye[4],
            eye[2],
        ],
        axis=-1,
    )
    assert lf.subspace_distance(eye[:, :3], turned) == pytest.approx(np.sin(angle), rel=1e-12, abs=0)
    mix = np.array([[2.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, 3.0]])  # any basis of the same spaces
    Q, _ = np.linalg.qr(normal(7, 7))
    assert lf.subspace_distance(Q[:, :3] @ mix, Q @ turned @ mix.T) == pytest.approx(np.sin(angle), abs=2e-15)


@pytest.mark.parametrize("stretch", [4e-14, 4e-13, 1e-3])
def test_distance_does_not_see_the_lengths_of_the_columns(stretch):
    Q = linalg.orthonormalize(normal(5, 9, 3))
    stretched = Q * (1.0 + stretch * np.array([1.0, -1.0, 0.5]))
    assert (lf.subspace_distance(stretched, stretched) <= 2e-15).all()
    assert (lf.subspace_distance(Q, stretched) <= 2e-15).all()


@pytest.mark.parametrize("plain", [0, 2, 4])
def test_one_orthonormal_basis_says_nothing_of_the_others(plain):
    """Of a stack, the bases that are orthonormal are taken as they are, the others are orthonormalised: each alone."""
    first, second = normal(5, 9, 3), linalg.orthonormalize(normal(5, 9, 2, seed=1))
    first[plain] = linalg.orthonormalize(first[plain])
    for distance in (linalg.span_distance, lambda one, other: linalg.span_distance(other, one)):
        together = distance(first, second)
        for item, value in enumerate(together):
            assert distance(first[item], second[item]).tobytes() == value.tobytes()
        sine = np.sin([scipy.linalg.subspace_angles(a, b).max() for a, b in zip(first, second, strict=True)])
        np.testing.assert_allclose(together, sine, atol=1e-13)


@pytest.mark.parametrize(("k1", "k2"), [(3, 3), (4, 2), (2, 4), (1, 5), (5, 5)])
def test_distance_is_the_sine_of_the_largest_angle(k1, k2):
    B1, B2 = normal(4, 6, k1), normal(4, 6, k2, seed=1)
    values = lf.subspace_distance(B1, B2)
    np.testing.assert_allclose(lf.subspace_distance(B2, B1), values, atol=1e-14)
    for a, b, value in zip(B1, B2, values, strict=True):
        assert value == pytest.approx(np.sin(scipy.linalg.subspace_angles(a, b).max()), abs=1e-13)
    assert (values <= 1.0).all()


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e8])
@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_the_root_of_a_gram_matrix_has_its_null_directions(rank, scale):
    """Rounding puts 1e-16 in the place of a zero eigenvalue, and its root would be 1e-8."""
    A = normal(5, 6, rank) @ normal(5, rank, 4, seed=1)
    F = linalg.root_of_gram(scale * A.mT @ (scale * A)) / scale
    np.testing.assert_allclose(F.mT @ F, A.mT @ A, rtol=0, atol=1e-13)
    null = np.linalg.svd(A)[2][:, rank:]
    np.testing.assert_allclose(F @ null.mT, 0, atol=1e-13)


def test_the_root_of_a_gram_matrix_keeps_small_directions():
    A = np.stack([graded(np.random.default_rng(seed), 6, 4, 1e6) for seed in range(5)])
    F = linalg.root_of_gram(A.mT @ A)
    np.testing.assert_allclose(F.mT @ F, A.mT @ A, rtol=0, atol=1e-15)
    assert (linalg.singular_values(F)[:, -1] > 0.9e-6).all()


def test_distance_never_exceeds_one():
    eye = np.eye(8)
    rotations = linalg.orthonormalize(normal(50, 8, 8))
    assert (lf.subspace_distance(rotations @ eye[:, :4], rotations @ eye[:, 4:]) <= 1.0).all()


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("small", [0, 5])
def test_top_eigenvectors_against_a_full_decomposition(small, k, monkeypatch):
    """Small matrices are decomposed in full, by NumPy, and larger ones in part, by SciPy."""
    monkeypatch.setattr(linalg, "SMALL_DIM", small)
    A = normal(4, 5, 5)
    M = A @ np.swapaxes(A, -1, -2)
    M[3] = -M[3]  # the largest, not the largest in modulus
    vectors = linalg.top_eigenvectors(M, k)
    for matrix, basis in zip(M, vectors, strict=True):
        expected = np.linalg.eigh(matrix)[1][:, ::-1][:, :k]
        signs = np.sign(expected[np.abs(expected).argmax(axis=0), np.arange(k)])
        np.testing.assert_allclose(basis, expected * signs, atol=1e-12)


# --- errors in factored form ---------------------------------------------------------------------------------


def exact_length(pairs, client):
    """Return ``||sum_j basis_j c_j||`` of one client in rational arithmetic."""
    total = Fraction(0)
    for row in range(pairs[0][0].shape[0]):
        entry = sum(
            Fraction(float(b)) * Fraction(float(c))
            for basis, coordinates in pairs
            for b, c in zip(basis[row], coordinates[client], strict=True)
        )
        total += entry * entry
    return float(total) ** 0.5


@pytest.mark.parametrize("gap", [1.0, 1e-6, 1e-12, 0.0])
def test_errors_of_nearly_equal_vectors_lose_no_digits(gap):
    basis, heads = normal(3, 6, 2), normal(3, 4, 2, seed=1)
    other = linalg.orthonormalize(normal(2, 2, seed=2))
    left = [(basis, heads), (basis @ other, -(heads @ other) + gap * normal(3, 4, 2, seed=3))]
    bases = np.concatenate([basis for basis, _ in left], axis=-1)
    lengths = np.sqrt(linalg.factored_squared_lengths(bases, [factor for _, factor in left]))
    for trial in range(3):
        for client in range(4):
            exact = exact_length([(b[trial], c[trial]) for b, c in left], client)
            # A few roundings of the vectors themselves; through squares it would be their root, 1e-8.
            assert lengths[trial, client] == pytest.approx(exact, abs=1e-14)


@each("single", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize(("d", "ranks", "n"), [(5, (2, 1), 3), (3, (2, 2), 1), (1, (1, 1), 4), (30, (9, 3), 1)])
def test_lengths_against_a_loop(d, ranks, n, single):
    bases = [normal(2, d, rank, seed=rank) for rank in ranks]
    heads = [normal(2, 1 if j in single else n, rank, seed=10 + rank) for j, rank in enumerate(ranks)]
    values = linalg.factored_squared_lengths(np.concatenate(bases, axis=-1), heads)
    assert values.shape == (2, 1 if len(single) == 2 else n)
    for trial, client in np.ndindex(values.shape):
        rows = [head[trial, client if head.shape[1] > 1 else 0] for head in heads]
        vector = sum(basis[trial] @ row for basis, row in zip(bases, rows, strict=True))
        assert values[trial, client] == pytest.approx(vector @ vector, rel=1e-12)


# --- blocks, pieces and participants -------------------------------------------------------------------------

# name: floats in a block; trials, clients, floats of a client (and few clients); first and last of trials and clients
BLOCKS = {
    "two trials at a time": (60, (5, 3, 10), [(0, 2, 0, 3), (2, 4, 0, 3), (4, 5, 0, 3)]),
    "two blocks are one": (15, (2, 3, 10), [(0, 1, 0, 3), (1, 2, 0, 3)]),
    "client by client": (14, (2, 3, 10), [(t, t + 1, c, c + 1) for t in range(2) for c in range(3)]),
    "two clients at a time": (24, (1, 5, 10), [(0, 1, 0, 2), (0, 1, 2, 4), (0, 1, 4, 5)]),
    "few clients": (14, (1, 5, 10, 2), [(0, 1, 0, 2), (0, 1, 2, 4), (0, 1, 4, 5)]),
    "all clients are few": (14, (2, 3, 10, 3), [(0, 1, 0, 3), (1, 2, 0, 3)]),
    "no more than eight blocks": (14, (1, 12, 10, 64), [(0, 1, 0, 11), (0, 1, 11, 12)]),
    "a large client": (1, (1, 2, 10, 64), [(0, 1, 0, 1), (0, 1, 1, 2)]),
    "clients of no floats": (7, (2, 3, 0), [(0, 2, 0, 3)]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_clients(name, monkeypatch):
    floats, sizes, wanted = BLOCKS[name]
    monkeypatch.setattr(linalg, "CACHE_VALUES", floats)
    assert [(t.start, t.stop, c.start, c.stop) for t, c in linalg.client_blocks(*sizes)] == wanted


# name: floats in a piece, multiplications of a short piece; rows of the pieces
PIECES = {
    "short": (1, 30, [5] * 8),
    "too many multiplications": (1, 29, [8] * 5),
    "rows of three clients": (36, 30, [12, 12, 12, 4]),
    "one piece": (120, 30, []),
}


@pytest.mark.parametrize("name", PIECES)
def test_tall_products_go_in_pieces(name, monkeypatch):
    """A short piece has 5 rows, and any other at least 6, of whole clients."""
    floats, multiplications, wanted = PIECES[name]
    constants = {"CACHE_VALUES": floats, "UNCOPIED": multiplications, "FEWEST_UNCOPIED": 5, "FEWEST_ROWS": 6}
    for constant, value in constants.items():
        monkeypatch.setattr(linalg, constant, value)
    pieces, matmul = [], np.matmul

    def counted(rows, basis, out):
        pieces.append(rows.shape[1])
        return matmul(rows, basis, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    rows, basis = normal(2, 10, 4, 3), normal(2, 3, 2, seed=1)
    found = linalg.tall_product(rows, basis)
    np.testing.assert_allclose(found, np.einsum("tcmd,tdr->tcmr", rows, basis).reshape(2, 40, 2), atol=1e-13)
    assert pieces == wanted


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_values_of_participants_are_taken_and_put_back(trials):
    active = np.array([[0, 3], [1, 2], [2, 4]])[:trials]
    values, new = normal(trials, 5, 2, 3), normal(trials, 2, 2, 3, seed=1)
    for array in (values, np.broadcast_to(values[:1], values.shape)):
        taken, put, wanted = linalg.take_clients(array, active), linalg.put_clients(array, active, new), array.copy()
        for t, i in np.ndindex(trials, 2):
            assert np.array_equal(taken[t, i], array[t, active[t, i]])
            wanted[t, active[t, i]] = new[t, i]
        assert np.array_equal(put, wanted)
    everybody = np.broadcast_to(np.arange(5), (trials, 5))
    assert linalg.take_clients(values, everybody) is values
    assert linalg.put_clients(values, everybody, wanted) is wanted


# --- matrices along the last axis ----------------------------------------------------------------------------


def by_draw(function, *stacks):
    """Apply a function of matrices to each trial and draw of stacks (trials, a, b, draws)."""
    trials, draws = stacks[0].shape[0], stacks[0].shape[-1]
    found = [[function(*(stack[t, ..., n] for stack in stacks)) for n in range(draws)] for t in range(trials)]
    return np.moveaxis(np.array(found), 1, -1)


def test_products_along_the_last_axis_are_those_of_each_draw():
    A, B, C, square = normal(2, 3, 4, 5), normal(2, 4, 2, 5, seed=1), normal(2, 3, 4, 5, seed=2), normal(2, 3, 3, 5)
    products = [
        (trailing.times(A, B), by_draw(np.matmul, A, B)),
        (trailing.left_times(A[..., 0], B), by_draw(np.matmul, np.repeat(A[..., :1], 5, axis=-1), B)),
        (trailing.gram(A), by_draw(lambda a: a.T @ a, A)),
        (trailing.outer(A), by_draw(lambda a: a @ a.T, A)),
        (trailing.mean_gram(A), by_draw(lambda a: a.T @ a, A).mean(axis=-1)),
        (trailing.inner(A, C), by_draw(lambda a, c: np.trace(a.T @ c), A, C)),
        (trailing.transposed(A), by_draw(np.transpose, A)),
        (trailing.symmetric(square), by_draw(lambda a: (a + a.T) / 2, square)),
        (linalg.symmetric(square[..., 0]), [(a + a.T) / 2 for a in square[..., 0]]),
    ]
    for found, wanted in products:
        np.testing.assert_allclose(found, wanted, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_inverses_and_factors_along_the_last_axis_are_those_of_each_draw(k):
    A = np.eye(k)[..., None] + 0.2 * normal(2, k, k, 4)
    kept = A.copy()
    np.testing.assert_allclose(trailing.inverse(A), by_draw(np.linalg.inv, A), atol=1e-12)
    assert np.array_equal(A, kept)
    A = trailing.outer(normal(2, k, k + 2, 4, seed=1))
    np.testing.assert_allclose(trailing.cholesky(A), by_draw(np.linalg.cholesky, A), atol=1e-10)
    added = by_draw(lambda a: a + 0.3 * np.trace(a) / k * np.eye(k), A)
    np.testing.assert_allclose(trailing.cholesky(A, 0.3), by_draw(np.linalg.cholesky, added), atol=1e-12)
    A[1, k - 1, k - 1, 2] = -1.0
    with np.errstate(invalid="ignore"), pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        trailing.cholesky(A)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_largest_eigenpairs_along_the_last_axis(k):
    A = trailing.symmetric(normal(2, k, k, 20))
    A[0, ..., 3], A[1, ..., 5] = 2.5 * np.eye(k), np.nan
    values, vectors = trailing.largest_eigenpair(A)
    assert np.isnan(values[1, 5])
    assert np.isnan(vectors[1, :, 5]).all()
    assert (values[0, 3], vectors[0, :, 3].tolist()) == (2.5, [0.0] * (k - 1) + [1.0])
    A[1, ..., 5], values[1, 5], vectors[1, :, 5] = np.eye(k), 1.0, np.eye(k)[0]
    np.testing.assert_allclose(values, by_draw(lambda a: np.linalg.eigvalsh(a)[-1], A), atol=1e-13)
    np.testing.assert_allclose(np.einsum("tabn,tbn->tan", A, vectors), values[:, None] * vectors, atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-13)


def test_quantiles_are_values_of_trials_and_a_nan_is_the_worst():
    values = np.random.default_rng(0).permuted(np.tile(np.arange(10.0)[:, None], 2), axis=0)
    values[values[:, 0] == 9, 0], values[values[:, 1] > 6, 1] = np.nan, np.nan
    assert [part.tolist() for part in quantiles(values)] == [[4.0, 4.0], [0.0, 0.0], [8.0, np.inf]]


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


@each("name", HEADS)
@each(("ridge", "few"), [(0.0, False), (0.0, True), (0.7, False), (0.7, True)])
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


def test_heads_satisfy_the_normal_equations():
    Z, y, counts = heads_case(5, 40, p=20)
    W, residual, _ = solve_heads(Z, y, counts)
    rows = np.moveaxis(Z, 1, -1)
    np.testing.assert_allclose(residual, (rows @ W[..., None])[..., 0] - y, atol=1e-13)
    lengths = np.sqrt(np.einsum("tpmk,tpmk->tpk", rows, rows) * np.vecdot(residual, residual)[..., None])
    assert (np.abs(np.einsum("tpmk,tpm->tpk", rows, residual)) <= 20 * EPS * lengths).all()


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


@each(("m", "d"), [(3, 7), (7, 7), (12, 7), (1, 1), (5, 1), (1, 4)])
@each("ridge", [0.0, 0.3])
@each("trouble", ["none", "zero rows", "dependent"])
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


@each("kind", ["as drawn", "dependent", "rank 1"])
@each("span", [0, 5, 9, 20, 40, 100])
def test_the_units_of_columns_cost_no_digits(span, kind):
    """Against exact arithmetic: the shortest solution, its rank, and the flag of dependent features."""
    rng = np.random.default_rng(span)
    for _ in range(40):
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


@pytest.mark.parametrize("lengths", [(1e-8, 1.0, 1e8), (1e-100, 1.0, 1e100), (1e-200, 3.0, 2e-5), (1e8, 1e8, 1e8)])
def test_the_lengths_of_columns_do_not_decide_a_rank(lengths):
    Q = np.linalg.qr(normal(9, 6))[0]
    A, C = Q[:, :3], np.cos(0.3) * Q[:, :3] + np.sin(0.3) * Q[:, 3:]
    assert linalg.column_rank(A * lengths) == 3
    assert linalg.column_rank(np.hstack([A * lengths, 7.0 * A[:, :1]])) == 3
    assert lf.subspace_distance(A * lengths, A) == pytest.approx(0.0, abs=1e-12)
    assert lf.subspace_distance(A * lengths, C) == pytest.approx(np.sin(0.3), abs=1e-12)
    with pytest.raises(ValueError, match="must have full column rank"):
        lf.subspace_distance(np.hstack([A * lengths, 7.0 * A[:, :1]]), A)


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
NORMAL = {"tall", "zero rows", "condition 100", "m == d, condition 100", "zero rows, as many as columns"}
ORTHOGONAL = {name for name in STACKS if "condition" in name and name.split()[-1] not in ("100", "1000")}


@pytest.mark.parametrize("name", STACKS)
def test_full_least_squares_by_normal_equations_or_orthogonally(name, monkeypatch):
    m, d, count, condition = STACKS[name]
    rng = np.random.default_rng(11)
    X = np.zeros((20, m, d))
    for item in X:
        item[:count] = rng.standard_normal((count, d)) if condition is None else graded(rng, count, d, condition)
    y = rng.standard_normal((20, m)) * (X != 0).any(axis=-1)
    y = (X @ rng.standard_normal((20, d, 1)))[..., 0] + 0.1 * y * np.linalg.norm(X, axis=(1, 2))[:, None] / np.sqrt(m)
    taken, right = [], least_squares._orthogonal_least_squares

    def counted(X, *rest):
        taken.extend(X)
        return right(X, *rest)

    monkeypatch.setattr(least_squares, "_orthogonal_least_squares", counted)
    theta, _ = least_squares.full_least_squares(X, y, np.full(20, float(count)))
    assert name not in NORMAL or len(taken) <= 5
    assert name not in ORTHOGONAL or len(taken) == 20
    orthogonal = {item.tobytes() for item in taken}
    for rows, labels, found in zip(X, y, theta, strict=True):
        values = np.linalg.svd(rows, compute_uv=False)
        kappa = values[0] / values[-1]
        wanted = np.linalg.lstsq(rows, labels, rcond=1e-13)[0]
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        if rows.tobytes() in orthogonal:
            residual = np.linalg.norm(rows @ wanted - labels) / (values[0] * np.linalg.norm(wanted))
            assert error <= 100 * EPS * (kappa + kappa**2 * residual)
            if residual > 1e-3:
                best = backward_error(rows, wanted, labels)
                assert backward_error(rows, found, labels) <= 10 * max(best, EPS)
        else:
            assert error <= 1e-10
            assert kappa**2 < 10 * least_squares.SAFE_CONDITION * np.sqrt(d)


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


def test_each_system_is_solved_or_nan():
    A, right = normal(6, 3, 3), normal(6, 3, 2, seed=1)
    A[1], A[3, 0, 0], A[4, 2, 1], right[5, 0, 1] = 0.0, np.nan, np.inf, np.nan
    for chosen in ([0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5]):  # with and without one that is singular to the last bit
        solved = linalg.solve(A[chosen], right[chosen])
        for item, found in zip(chosen, solved, strict=True):
            if item in (0, 2):
                np.testing.assert_allclose(found, np.linalg.solve(A[item], right[item]), rtol=1e-13)
            else:
                assert np.isnan(found).all()


def test_few_samples_that_begin_as_the_probe_does():
    """Users draw from default_rng(0), too; a client with fewer samples than others then holds the probe as a row."""
    X, y = np.zeros((50, 7, 6)), np.zeros((50, 7))
    X[:, :2], y[:, :2] = normal(50, 2, 6, seed=3), normal(50, 2, seed=4)
    X[:, 0] = np.random.default_rng(0).standard_normal(6)
    theta, _ = least_squares.full_least_squares(X, y, np.full(50, 2.0))
    np.testing.assert_allclose(theta, least_squares.minimum_norm(X, y)[0], rtol=0, atol=1e-9)


# --- the two rules -------------------------------------------------------------------------------------------

X_CASES = {"tall": (6, 4), "square": (4, 4), "wide": (2, 5), "one column": (5, 1), "one row": (1, 5)}


def symmetric(A):
    return A + np.swapaxes(A, -1, -2)


def kernels():
    """Return (name, function of stacks, its inputs with 4 items each); the first input is the one to spoil."""
    table = [
        ("qr", linalg.qr_positive, (normal(4, 6, 3),)),
        ("spectral norm", linalg.spectral_norm, (normal(4, 6, 3),)),
        ("distance", linalg.span_distance, (normal(4, 6, 3), normal(4, 6, 2, seed=1))),
        ("distance, the other way", linalg.span_distance, (normal(4, 6, 2), normal(4, 6, 3, seed=1))),
        ("singular value decomposition", linalg.svd, (normal(4, 6, 3),)),
        ("singular values", linalg.singular_values, (normal(4, 3, 6),)),
        ("eigenvectors", linalg.eigh, (symmetric(normal(4, 5, 5)),)),
        ("eigenvalues", linalg.eigvalsh, (symmetric(normal(4, 5, 5)),)),
        ("root of a Gram matrix", lambda A: linalg.root_of_gram(A.mT @ A), (normal(4, 6, 3),)),
        ("top eigenvectors", lambda M: linalg.top_eigenvectors(M, 2), (symmetric(normal(4, 5, 5)),)),
    ]
    for n in (1, 7):
        lengths = lambda B, W1, W2: linalg.factored_squared_lengths(B, [W1, W2])  # noqa: E731
        table.append((f"lengths, {n}", lengths, (normal(4, 20, 12), normal(4, n, 9, seed=1), normal(4, n, 3, seed=2))))
    for name, (m, d) in X_CASES.items():
        X, y, counts = normal(4, m, d), normal(4, m, seed=1), np.full(4, float(m))
        X[2] = X[2, :1] * np.ones((m, 1))  # one item of rank 1: a stack that takes both ways
        table.append((f"minimum norm, {name}", least_squares.minimum_norm, (X, y)))
        for ridge in (0.0, 0.1):
            solve = lambda X, y, counts, ridge=ridge: least_squares.full_least_squares(X, y, counts, ridge)  # noqa: E731
            table.append((f"full least squares, {name}, ridge {ridge}", solve, (X, y, counts)))
    for name, (m, k) in X_CASES.items():
        Z, y, counts = heads_case(k, m, trials=4)
        if m > 1:
            counts[1, 0] = 1.0
            Z[1, :, 0, 1:], y[1, 0, 1:] = 0.0, 0.0
        Z[2, :, 1] = Z[2, :1, 1]
        for ridge, few in ((0.0, False), (0.1, False), (0.0, True)):
            solve = functools.partial(solve_heads, ridge=ridge, few=few)
            table.append((f"heads, {name}, ridge {ridge}, {'few' if few else 'many'}", solve, (Z, y, counts)))
    return [pytest.param(function, inputs, id=name) for name, function, inputs in table]


def outputs(function, *inputs):
    # As the loop calls them: one thread, and no word about numbers that are not finite.
    with linalg.one_blas_thread(), np.errstate(all="ignore"):
        result = function(*inputs)
    return result if isinstance(result, tuple) else (result,)


@each(("function", "inputs"), [case.values for case in kernels()])
def test_an_item_is_the_same_bits_alone_and_in_a_stack(function, inputs):
    together = outputs(function, *inputs)
    for chosen in (slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4), slice(1, 4)):
        for whole, part in zip(together, outputs(function, *(a[chosen] for a in inputs)), strict=True):
            assert np.ascontiguousarray(whole[chosen]).tobytes() == np.ascontiguousarray(part).tobytes()


GUARDED = {
    "svd": (linalg.svd, lambda A: np.linalg.svd(A, full_matrices=False)),
    "singular values": (linalg.singular_values, lambda A: np.linalg.svd(A, compute_uv=False)),
    "eigh": (linalg.eigh, np.linalg.eigh),
    "eigvalsh": (linalg.eigvalsh, np.linalg.eigvalsh),
}


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_decompositions_are_numpys_and_nan_where_a_matrix_is_not_finite(name, shape):
    ours, plain = GUARDED[name]
    stack = symmetric(normal(*shape, 4, 4))
    for one, other in zip(outputs(ours, stack), outputs(plain, stack), strict=True):
        assert one.tobytes() == other.tobytes()
    for value in (np.nan, np.inf, -np.inf):
        spoiled, last = stack.copy(), tuple(size - 1 for size in shape)
        spoiled[last][1, 2] = value
        others = np.ones(shape, dtype=bool)
        others[last] = False
        for one, other in zip(outputs(ours, spoiled), outputs(plain, stack), strict=True):
            assert np.isnan(one[last]).all()
            assert one[others].tobytes() == other[others].tobytes()
        assert np.isnan(spoiled[last][1, 2]) == np.isnan(value)  # not written into


@each("value", [np.nan, np.inf, -np.inf])
@each(("function", "inputs"), [case.values for case in kernels()])
def test_an_item_that_is_not_finite_spoils_itself_only(function, inputs, value):
    clean = outputs(function, *inputs)
    spoiled = inputs[0].copy()
    spoiled[(1, *np.subtract(spoiled.shape[1:], 1))] = value
    kept = [0, 2, 3]
    for before, after in zip(clean, outputs(function, spoiled, *inputs[1:]), strict=True):
        assert np.ascontiguousarray(before[kept]).tobytes() == np.ascontiguousarray(after[kept]).tobytes()
    assert not np.isfinite(outputs(function, spoiled, *inputs[1:])[0][1]).all()


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


LATE = """
import sys
import numpy as np, threadpoolctl
from linfed.numerics import linalg

finite = np.isfinite

def counted(values):  # called right before SciPy's eigh
    if "scipy.linalg" in sys.modules:
        print(sorted(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"))
    return finite(values)

with linalg.one_blas_thread():
    assert "scipy.linalg" not in sys.modules
    np.isfinite = counted
    linalg.top_eigenvectors(np.eye(1 + linalg.SMALL_DIM)[None], 2)
"""


@pytest.mark.long
def test_a_blas_that_scipy_brings_later_runs_one_thread_too():
    """It is found once SciPy is there, although the others have been found before."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(Path(linalg.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True)
    counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert counts
    assert {count for line in counts for count in line} == {1}
