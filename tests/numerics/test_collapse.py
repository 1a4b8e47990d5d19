"""The penalty of neural collapse and its gradient: against loops and finite differences, and where there is none."""

import warnings

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.collapse import nc2, nc_gradient, nc_target
from tests.helpers import normal


def owned(c, own):
    """Return the client's classes, not the first ones."""
    return np.isin(np.arange(c), (np.arange(own) * 2 + 1) % c if c % 2 else np.arange(own))


def by_hand(H, holds, size):
    """Return NC of one client in the spec's letters, a class at a time."""
    c = len(H)
    G, target = H @ H.T, np.zeros((c, c))
    for i in range(c):
        for j in range(c):
            if holds[i] and holds[j]:
                target[i, j] = ((i == j) - 1 / size) / np.sqrt(size - 1)
    return np.linalg.norm(G / np.linalg.norm(G) - target)


def gradient(H, holds):
    return nc_gradient(H, nc_target(holds))


def test_stacks_equal_the_loops():
    H = normal(3, 4, 5, 6, seed=1)
    holds = np.stack([owned(5, own) for own in (1, 2, 4, 5)])
    values, local = nc2(H, holds), nc2(H, holds, local=True)
    assert values.shape == local.shape == (3, 4)
    for t in range(3):
        for i, own in enumerate((1, 2, 4, 5)):
            assert values[t, i] == pytest.approx(by_hand(H[t, i], holds[i], 5), rel=1e-14)
            if own > 1:
                assert local[t, i] == pytest.approx(by_hand(H[t, i], holds[i], own), rel=1e-14)
            np.testing.assert_array_equal(gradient(H, holds)[t, i], gradient(H[t, i], holds[i]))
    np.testing.assert_array_equal(np.isnan(local), np.broadcast_to(holds.sum(axis=-1) == 1, (3, 4)))


@pytest.mark.parametrize(("c", "own", "k"), [(5, 5, 4), (5, 3, 7), (5, 1, 3), (2, 1, 1), (2, 2, 1)])
def test_the_gradient_is_that_of_finite_differences(c, own, k):
    holds = owned(c, own)
    H = normal(4, c, k, seed=c + k)
    found = gradient(H, holds)
    steps = 1e-6 * np.eye(c * k).reshape(c * k, 1, c, k)
    differences = (nc2(H + steps, holds) - nc2(H - steps, holds)) / 2e-6
    expected = differences.T.reshape(H.shape)
    assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)
    along = np.abs((found * H).sum(axis=(-2, -1)))
    assert (along < 1e-14 * np.linalg.norm(found, axis=(-2, -1)) * np.linalg.norm(H, axis=(-2, -1))).all()


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e150])
def test_the_scale_of_the_heads_changes_nothing(scale):
    H, holds = normal(6, 5, 4, seed=2), owned(5, 3)
    np.testing.assert_allclose(nc2(scale * H, holds), nc2(H, holds), rtol=1e-14)
    np.testing.assert_allclose(scale * gradient(scale * H, holds), gradient(H, holds), rtol=1e-11, atol=1e-15)


def test_where_there_is_no_gradient():
    """At zero and at a simplex, beside an ordinary client, with no warning."""
    exact = 3.7 * lf.theory.simplex_etf(4, 6)
    turned = exact @ np.linalg.qr(normal(6, 6, seed=3))[0]
    ordinary = normal(4, 6, seed=4)
    H = np.stack([np.zeros((4, 6)), exact, turned, ordinary, np.full((4, 6), np.nan)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values, gradients = nc2(H, np.ones(4, dtype=bool)), gradient(H, np.ones(4, dtype=bool))
    np.testing.assert_array_equal(np.isnan(values), [True, False, False, False, True])
    np.testing.assert_allclose(values[1:3], 0.0, atol=1e-15)
    np.testing.assert_array_equal(gradients[:3], 0.0)
    np.testing.assert_array_equal(gradients[3], gradient(ordinary, np.ones(4, dtype=bool)))
    assert np.isnan(gradients[4]).all()
    near = turned + 1e-9 * ordinary  # a norm has a gradient as near to its zero as one likes
    assert np.linalg.norm(gradient(near, np.ones(4, dtype=bool))) > 0.05


def test_a_client_without_samples_of_a_class_is_punished_for_its_head():
    """At the local collapse of its own classes the local penalty is 0, unless the other heads are not."""
    holds, H = owned(5, 3), np.zeros((5, 4))
    H[holds] = 0.2 * lf.theory.simplex_etf(3, 4)
    assert nc2(H, holds, local=True) == pytest.approx(0.0, abs=1e-15)
    H[~holds] = 0.1
    assert nc2(H, holds, local=True) > 0.1
