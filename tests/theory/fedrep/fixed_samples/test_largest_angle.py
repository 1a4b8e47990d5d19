"""Medians and means of the largest angle of Gaussian tangents, against drawn rows."""

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.theory import largest_sine
from linfed.theory.fedrep.fixed_samples import largest_angle
from tests.helpers import assert_one_line, cleared, normal


def test_the_typical_distance_is_the_median_of_gaussian_tangents():
    """Against rows drawn one by one; for one angle the median of a chi-square."""
    X = 1e-4 * np.array([[2.0, 0.6], [0.6, 1.0]])
    rows = normal(10_000, 18, 2, seed=1) @ np.linalg.cholesky(X / 18).T
    largest = np.median(np.linalg.eigvalsh(rows.mT @ rows)[:, -1]) ** 0.5
    assert lf.theory.median_distance(X, dim=20) == pytest.approx(largest, rel=0.015)
    one = np.sqrt(1e-4 * stats.chi2(19).median() / 19)
    assert lf.theory.median_distance([[1e-4]], dim=20) == pytest.approx(one, rel=0.015)
    assert lf.theory.median_distance(np.stack([X, 4 * X]), dim=20)[1] == pytest.approx(2 * largest, rel=0.015)
    assert lf.theory.median_distance(1e12 * X, dim=20) == pytest.approx(1.0)
    assert lf.theory.median_distance(np.zeros((2, 2)), dim=20) == 0.0
    assert 0 < lf.theory.median_distance(X, dim=3) < 0.03  # fewer rows than angles


@pytest.fixture
def many_draws(monkeypatch):
    """Let medians and means over fixed draws be precise."""
    monkeypatch.setattr(largest_angle, "MEDIAN_DRAWS", 20_000)
    monkeypatch.setattr(largest_angle, "MEAN_DRAWS", 20_000)
    with cleared(largest_angle._wishart_roots):
        yield


@pytest.mark.usefixtures("many_draws")
@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_distances_of_long_tangents_are_those_of_drawn_rows(rows):
    """With about as few rows as columns, and sines that are no tangents."""
    X = np.array([[0.4, 0.15], [0.15, 0.2]])
    D = normal(20_000, rows, 2, seed=5) @ np.linalg.cholesky(X / rows).T
    largest = np.linalg.eigvalsh(D.mT @ D)[:, -1]
    sines = np.sqrt(largest / (1.0 + largest))
    assert lf.theory.median_distance(X, dim=rows + 2) == pytest.approx(np.median(sines), rel=0.02)
    if rows > 1:
        both = largest_angle.mean_distance(np.stack([X, np.full((2, 2), np.nan)]), rows)
        assert both[0] == largest_angle.mean_distance(X, rows) == pytest.approx(sines.mean(), rel=0.01)
        assert np.isnan(both[1])


@pytest.mark.parametrize(("d", "k", "margin"), [(40, 1, 0.01), (103, 3, 0.008), (210, 10, 0.006)])
def test_largest_sine_is_that_of_gaussian_tangents(d, k, margin):
    rng = np.random.default_rng(0)
    tangents = np.linalg.norm(0.3 / np.sqrt(d - k) * rng.standard_normal((1000, d - k, k)), ord=2, axis=(-2, -1))
    found = largest_sine(0.09 / 1.09, dim=d, rank=k)
    assert found == pytest.approx(np.mean(tangents / np.hypot(1, tangents)), rel=margin)


@pytest.mark.parametrize(("d", "k", "margin"), [(9, 1, 0.005), (20, 2, 0.02), (20, 4, 0.015)])
def test_the_tangent_of_few_directions_is_that_of_gaussian_tangents(d, k, margin):
    tangents = np.random.default_rng(1).standard_normal((20_000, d - k, k)) * np.sqrt(0.25 / (d - k))
    largest = np.linalg.eigvalsh(tangents.mT @ tangents)[:, -1] ** 0.5
    found = largest_sine([0.0, 0.2], dim=d, rank=k)
    assert found[0] == 0.0
    assert found[1] / np.sqrt(1 - found[1] ** 2) == pytest.approx(largest.mean(), rel=margin)


@pytest.mark.parametrize(
    ("call", "fragments"),
    [
        (lambda: lf.theory.median_distance(np.ones((2, 3)), dim=9), ["X of shape (2, 3)"]),
        (lambda: lf.theory.median_distance(-np.eye(2), dim=9), ["X of shape (2, 2)", "semidefinite"]),
        (lambda: lf.theory.median_distance(np.eye(2), dim=2), ["dim = 2", "at least 3"]),
        (lambda: largest_sine([-0.1], dim=20, rank=2), ["squared_sine must contain only values"]),
        (lambda: largest_sine([0.1, 1.0], dim=20, rank=2), ["squared_sine must contain only values"]),
        (lambda: largest_sine(0.1, dim=3, rank=2), ["dim = 3", "at least 4"]),
    ],
)
def test_invalid_arguments_are_one_line(call, fragments):
    assert_one_line(call, fragments)
