"""Products, inverses, factors and eigenpairs along the last axis, against each draw by NumPy."""

import numpy as np
import pytest

from linfed.numerics import linalg, trailing
from tests.helpers import normal


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


@pytest.mark.parametrize("scale", [1e-170, 1e150])
def test_largest_eigenpairs_of_small_and_large_matrices(scale):
    A = trailing.symmetric(normal(3, 2, 2, 50))
    values, vectors = trailing.largest_eigenpair(scale * A)
    wanted, _ = trailing.largest_eigenpair(A)
    np.testing.assert_allclose(values / scale, wanted, atol=1e-14)
    image = np.einsum("tabn,tbn->tan", A, vectors)
    np.testing.assert_allclose(image, (values / scale)[:, None] * vectors, atol=1e-14)
