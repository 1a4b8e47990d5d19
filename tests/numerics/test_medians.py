"""Medians of vectors: conditions of optimality, against a loop, breakdown, and independence of the trials."""

import numpy as np
import pytest

from linfed.numerics.medians import centre, geometric_median
from tests import references as ref


def excess(points, found):
    """Return by how much the pull on a point exceeds its multiplicity: 0 at the geometric median."""
    offsets = points - found
    distances = np.linalg.norm(offsets, axis=1)
    away = distances > 1e-12 * distances.mean()
    pull = np.linalg.norm((offsets[away] / distances[away, None]).sum(axis=0))
    return max(0.0, pull - np.count_nonzero(~away))


MANY = pytest.param(30, 12, marks=pytest.mark.long)


@pytest.mark.parametrize(("p", "size"), [(1, 3), (2, 2), (3, 2), (5, 2), (6, 3), (10, 4), (7, 1), MANY])
def test_the_geometric_median_is_the_minimiser(p, size):
    rng = np.random.default_rng(p)
    points = rng.standard_normal((3, p, size)) * 10.0 ** rng.uniform(-3, 3, size=(3, 1, 1))
    found = geometric_median(points)
    assert found.shape == (3, 1, size)
    for trial, point in zip(points, found, strict=True):
        assert excess(trial, point) < 1e-10
        if p > 2:
            scale = np.abs(trial).max()
            np.testing.assert_allclose(point[0], ref.geometric_median(trial), rtol=0, atol=1e-9 * scale)


SPECIAL = {
    "begins at a point that is not the median": ([[0, 0], [1, 0], [0, 1], [-1, 0], [3, 3], [-3, -4]], None),
    "a point": ([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1.5]], [0, 0]),
    "a point that several clients sent": ([[5, 5], [5, 5], [5, 5], [1, 2], [-7, 3]], [5, 5]),
    "all equal": ([[2, 1]] * 4, [2, 1]),
    "on a line": ([[0, 0], [1, 1], [2, 2], [7, 7], [9, 9]], [2, 2]),
    "all zero": ([[0, 0]] * 3, [0, 0]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_places(name):
    points, wanted = np.array(SPECIAL[name][0], dtype=float), SPECIAL[name][1]
    found = geometric_median(points[None])[0, 0]
    assert excess(points, found) < 1e-10
    if wanted is not None:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["median", "geometric median"])
def test_a_minority_has_a_bounded_influence(name):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((1, 11, 3))
    near, far = points.copy(), points.copy()
    near[:, :5] += 1e3
    far[:, :5] += 1e9
    one, other = centre(near, name), centre(far, name)
    assert np.linalg.norm(one) < 10
    np.testing.assert_allclose(one, other, rtol=0, atol=0.02)
    assert np.linalg.norm(far.mean(axis=1)) > 1e8


@pytest.mark.parametrize("name", ["median", "geometric median"])
def test_trials_do_not_depend_on_each_other(name):
    points = np.random.default_rng(1).standard_normal((6, 9, 4))
    together = centre(points, name)
    for trial in range(6):
        np.testing.assert_array_equal(centre(points[trial : trial + 1], name)[0], together[trial])
    points[2] = np.nan
    with np.errstate(all="ignore"):
        found = centre(points, name)
    assert np.isnan(found[2]).all()
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), np.delete(together, 2, axis=0))
