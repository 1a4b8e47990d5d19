"""Kernels of linear algebra against loops over single matrices by another method, and the two rules that all obey."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

import linfed as lf
from linfed.numerics import linalg
from tests.helpers import normal
from tests.numerics.stacks import assert_an_item_spoils_itself_only, assert_items_are_the_same_alone, outputs


def graded(rng, m, k, condition):
    """Return a matrix (m, k) with geometric singular values from 1 down to 1 / condition."""
    U, _ = np.linalg.qr(rng.standard_normal((m, k)))
    V, _ = np.linalg.qr(rng.standard_normal((k, k)))
    return (U * np.geomspace(1.0, 1.0 / condition, k)) @ V.T


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


@pytest.mark.parametrize(
    ("scale", "shape"), [(1e150, (5, 8, 3)), (1.0, (2, 2, 4, 4)), (1e-8, (3, 6, 1)), (1e-150, (5, 8, 3))]
)
def test_spectral_norm_keeps_relative_accuracy_at_any_scale(scale, shape):
    A = scale * normal(*shape)
    values = linalg.spectral_norm(A)
    assert values.shape == shape[:-2]
    for index in np.ndindex(shape[:-2]):
        assert values[index] == pytest.approx(np.linalg.svd(A[index], compute_uv=False)[0], rel=1e-14)


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
    turned = linalg.orthonormalize(normal(50, 6, 6))
    assert (lf.subspace_distance(turned[..., :k1], turned[..., -k2:]) <= 1.0).all()


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


@pytest.mark.parametrize(
    ("d", "ranks", "n", "single"),
    [
        (5, (2, 1), 3, ()),
        (5, (2, 1), 3, (0,)),
        (5, (2, 1), 3, (0, 1)),
        (3, (2, 2), 1, ()),
        (1, (1, 1), 4, (1,)),
        (30, (9, 3), 1, ()),
    ],
)
def test_lengths_against_a_loop(d, ranks, n, single):
    bases = [normal(2, d, rank, seed=rank) for rank in ranks]
    heads = [normal(2, 1 if j in single else n, rank, seed=10 + rank) for j, rank in enumerate(ranks)]
    values = linalg.factored_squared_lengths(np.concatenate(bases, axis=-1), heads)
    assert values.shape == (2, 1 if len(single) == 2 else n)
    for trial, client in np.ndindex(values.shape):
        rows = [head[trial, client if head.shape[1] > 1 else 0] for head in heads]
        vector = sum(basis[trial] @ row for basis, row in zip(bases, rows, strict=True))
        assert values[trial, client] == pytest.approx(vector @ vector, rel=1e-12)


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


NARROW = {"at once": (True, 8, 1), "too large": (True, 7, 2), "without AVX-512": (False, 8, 2)}
"""Whether BLAS has AVX-512, the largest product of rows and smaller side, and the number of products of 2 rows."""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", NARROW)
def test_few_rows_are_multiplied_at_once_or_one_by_one(name, transposed, monkeypatch):
    has_avx512, largest, products = NARROW[name]
    monkeypatch.setattr(linalg, "_has_avx512", lambda: has_avx512)
    monkeypatch.setattr(linalg, "NARROW", largest)
    few, many = np.broadcast_to(normal(1, 2, 6), (4, 2, 6)), normal(4, 6, 4, seed=1)
    many = np.ascontiguousarray(many.mT).mT if transposed else many
    found = linalg.narrow_product(few, many)
    np.testing.assert_allclose(found, np.einsum("tka,tab->tkb", few, many), atol=1e-13)
    assert found.flags.c_contiguous
    assert found.base is None if products == 1 else found.base.shape == (4, products, 4, 1)
    assert_items_are_the_same_alone(linalg.narrow_product, (few, many))


@pytest.mark.parametrize(
    ("pool", "wanted"), [({"architecture": "SkylakeX"}, True), ({"architecture": "Zen"}, False), ({}, False)]
)
def test_only_openblas_tells_whether_it_has_avx512(pool, wanted, monkeypatch):
    pools = SimpleNamespace(lib_controllers=[SimpleNamespace(), SimpleNamespace(**pool)])
    monkeypatch.setattr(linalg, "ThreadpoolController", lambda: pools)
    assert linalg._has_avx512.__wrapped__() == wanted


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


# --- the two rules: an item alone has the same bits, and an item that is not finite spoils itself -----------------


def symmetric(A):
    return A + np.swapaxes(A, -1, -2)


KERNELS = {
    "qr": (linalg.qr_positive, (normal(4, 6, 3),)),
    "spectral norm": (linalg.spectral_norm, (normal(4, 6, 3),)),
    "distance": (linalg.span_distance, (normal(4, 6, 3), normal(4, 6, 2, seed=1))),
    "distance, the other way": (linalg.span_distance, (normal(4, 6, 2), normal(4, 6, 3, seed=1))),
    "singular value decomposition": (linalg.svd, (normal(4, 6, 3),)),
    "singular values": (linalg.singular_values, (normal(4, 3, 6),)),
    "eigenvectors": (linalg.eigh, (symmetric(normal(4, 5, 5)),)),
    "eigenvalues": (linalg.eigvalsh, (symmetric(normal(4, 5, 5)),)),
    "root of a Gram matrix": (lambda A: linalg.root_of_gram(A.mT @ A), (normal(4, 6, 3),)),
    "top eigenvectors": (lambda M: linalg.top_eigenvectors(M, 2), (symmetric(normal(4, 5, 5)),)),
    **{
        f"lengths, {n}": (
            lambda B, W1, W2: linalg.factored_squared_lengths(B, [W1, W2]),
            (normal(4, 20, 12), normal(4, n, 9, seed=1), normal(4, n, 3, seed=2)),
        )
        for n in (1, 7)
    },
}
"""Functions of stacks, and their inputs with four items each; the first input is the one to spoil."""


@pytest.mark.parametrize("name", KERNELS)
def test_an_item_is_the_same_bits_alone_and_in_a_stack(name):
    assert_items_are_the_same_alone(*KERNELS[name])


@pytest.mark.parametrize(
    ("name", "value"), [*((name, np.nan) for name in KERNELS), *((name, np.inf) for name in list(KERNELS)[:3])]
)
def test_an_item_that_is_not_finite_spoils_itself_only(name, value):
    assert_an_item_spoils_itself_only(*KERNELS[name], value)


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
