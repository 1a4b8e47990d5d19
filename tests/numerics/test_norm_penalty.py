"""Least squares with a norm as penalty: conditions of optimality, against searches, and extreme values."""

import numpy as np
import pytest

from linfed.numerics.norm_penalty import norm_penalised, norm_penalised_next_to_heads, shortened
from tests import references as ref
from tests.helpers import basis


def normal_equations(rng, m, d, items=6, units=0.0):
    """Return samples, and ``X'X/m`` and ``X'y/m``; the units of columns and labels differ by powers of ten."""
    X = rng.standard_normal((items, m, d)) * 10.0 ** rng.uniform(-units, units, size=d)
    y = rng.standard_normal((items, m)) * 10.0 ** rng.uniform(-units, units)
    return X, y, X.mT @ X / m, (X.mT @ y[..., None])[..., 0] / m


def gap(A, b, s, penalty):
    """Return by how much each item violates its condition of optimality, relative to its terms."""
    lengths = np.linalg.norm(s, axis=-1)
    slope = (A @ s[..., None])[..., 0] - b
    at_zero = np.maximum(np.linalg.norm(slope, axis=-1) - penalty, 0.0)
    elsewhere = np.linalg.norm(slope + penalty * s / np.where(lengths, lengths, 1.0)[..., None], axis=-1)
    terms = np.linalg.norm(A, axis=(-2, -1)) * lengths + np.linalg.norm(b, axis=-1)
    return np.where(lengths == 0, at_zero, elsewhere) / terms


@pytest.mark.parametrize("share", [1e-12, 1e-3, 0.3, 0.999, 1.0, 1.001, 1e6])
@pytest.mark.parametrize(("m", "d"), [(3, 7), (7, 7), (30, 7), (4, 1)])
def test_the_conditions_of_optimality_hold(m, d, share):
    rng = np.random.default_rng(m)
    for _ in range(20):
        _, _, A, b = normal_equations(rng, m, d)
        penalty = share * float(np.median(np.linalg.norm(b, axis=-1)))
        s = norm_penalised(A, b, penalty)
        assert gap(A, b, s, penalty).max() < 1e-13
        np.testing.assert_array_equal(s.any(axis=-1), np.linalg.norm(b, axis=-1) > penalty)


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1.0, 1e20, 1e150])
def test_units_do_not_matter(scale):
    rng = np.random.default_rng(0)
    _, _, A, b = normal_equations(rng, 10, 4)
    np.testing.assert_allclose(norm_penalised(A, scale * b, scale * 0.2), scale * norm_penalised(A, b, 0.2), rtol=1e-13)
    np.testing.assert_allclose(
        norm_penalised(scale * A, b, 0.2) * scale, norm_penalised(A, b, 0.2), rtol=1e-12, atol=1e-14
    )


def test_columns_in_units_that_differ_keep_the_conditions():
    rng = np.random.default_rng(1)
    for _ in range(50):
        _, _, A, b = normal_equations(rng, int(rng.integers(1, 20)), 5, units=3.0)
        penalty = 10.0 ** rng.uniform(-6, 0) * float(np.linalg.norm(b, axis=-1).mean())
        assert gap(A, b, norm_penalised(A, b, penalty), penalty).max() < 1e-13


def test_the_solution_is_the_one_of_a_bracketing_search():
    rng = np.random.default_rng(2)
    for m in (2, 5, 20):
        X, y, A, b = normal_equations(rng, m, 5)
        found = [ref.personal_part(*one, 0.15) for one in zip(X, y, strict=True)]
        np.testing.assert_allclose(norm_penalised(A, b, 0.15), found, rtol=0, atol=1e-12)


def test_next_to_heads_no_other_head_or_part_is_better():
    rng = np.random.default_rng(3)
    for m in (4, 6, 20):
        X, y, A, b = normal_equations(rng, m, 5)
        B = basis(5, 2, seed=4)
        S = norm_penalised_next_to_heads(A[None], b[None], B[None], 0.1)[0]
        assert S.any()
        for X_i, y_i, s in zip(X, y, S, strict=True):
            w, same = ref.head_and_personal_part(X_i, y_i, B, 0.1)
            np.testing.assert_allclose(s, same, rtol=0, atol=1e-12)
            least = ref.loss(X_i, y_i, B @ w + s) + 0.1 * np.linalg.norm(s)
            for _ in range(20):
                other_w, other_s = w + 0.1 * rng.standard_normal(2), s + 0.1 * rng.standard_normal(5)
                assert ref.loss(X_i, y_i, B @ other_w + other_s) + 0.1 * np.linalg.norm(other_s) >= least


def test_a_bad_item_is_nan_and_leaves_the_others_alone():
    _, _, A, b = normal_equations(np.random.default_rng(5), 10, 4)
    alone = norm_penalised(A, b, 0.2)
    A[2], b[4] = np.nan, np.inf
    with np.errstate(all="ignore"):
        found = norm_penalised(A, b, 0.2)
    good = [0, 1, 3, 5]
    np.testing.assert_array_equal(found[good], alone[good])
    assert np.isnan(found[[2, 4]]).any(axis=-1).all()


def test_a_shorter_vector_keeps_its_direction():
    vectors = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(shortened(vectors, 1.0), [[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]], rtol=1e-15)
