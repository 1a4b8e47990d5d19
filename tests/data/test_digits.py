"""The digits of scikit-learn, scaled to numbers from 0 to 1."""

import sys
import types

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line


@pytest.mark.long
def test_digits_are_scaled_images():
    pytest.importorskip("sklearn.datasets")
    X, labels = lf.load_digits()
    assert X.shape == (1797, 64)
    assert (X.min(), X.max()) == (0.0, 1.0)
    assert np.array_equal(X * 16, np.round(X * 16))
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert X.dtype == np.float64


def test_digits_are_scaled_to_one(monkeypatch):
    package = types.ModuleType("sklearn.datasets")
    package.load_digits = lambda *, return_X_y: (np.array([[0.0, 4.0, 16.0]]), np.array([3])) if return_X_y else None
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", package)
    rows, labels = lf.load_digits()
    assert (rows.tolist(), labels.tolist(), rows.dtype) == ([[0.0, 0.25, 1.0]], [3], np.float64)


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert_one_line(lf.load_digits, ["load_digits() requires", "linfed[digits]"], ImportError)
