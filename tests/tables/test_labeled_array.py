"""Labelled arrays: which shapes and labels they accept, and that nobody can change their content."""

import copy
import pickle

import numpy as np
import pytest

import linfed as lf
from linfed.tables.labeled_array import same_labels
from tests.helpers import assert_one_line, normal


def test_the_axis_of_trials_is_optional():
    assert lf.LabeledArray(normal(2, 3), round=[0, 1, 2]).names == ("trial", "round")
    assert lf.LabeledArray(normal(2, 3), client=[4, 5], round=[0, 1, 2]).names == ("client", "round")
    assert lf.LabeledArray(normal(4, 2, 3), client=[4, 5], round=[0, 1, 2]).names == ("trial", "client", "round")


INVALID = {
    "too few labels": (normal(2, 3), {"round": [0, 1]}, ["shape (2, 3)"], ValueError),
    "no axis": (normal(2), {}, ["shape (2,)"], ValueError),
    "too many axes": (normal(2, 3, 4), {"round": range(4)}, ["shape (2, 3, 4)"], ValueError),
    "the name of the trials": ([[1, 2]], {"trial": [0, 1]}, ["must not contain 'trial'"], ValueError),
    "objects": ([None, 1.0], {"r": [0, 1]}, ["dtype object"], TypeError),
    "labels in two axes": ([1.0, 2.0], {"r": [[0, 1], [2, 3]]}, ["r must be one-d"], TypeError),
    "labels of objects": ([1.0, 2.0], {"r": [None, 1]}, ["r must be one-d"], TypeError),
    "one label": ([1.0, 2.0], {"r": 3}, ["r must be one-d"], TypeError),
    "rows of different sizes": ([[1.0], [2.0, 3.0]], {"r": [0, 1]}, ["values = ", "different sizes"], ValueError),
    "a name with a null character": ([1.0], {"a\0b": [0]}, ["names of axes", "'a\\x00b'"], ValueError),
    "a name with half a surrogate pair": ([1.0], {"\ud800": [0]}, ["names of axes", "'\\ud800'"], ValueError),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_array_that_fits_no_row_is_refused(name):
    values, axes, fragments, error = INVALID[name]
    assert_one_line(lambda: lf.LabeledArray(values, **axes), fragments, error)


def test_it_copies_what_it_is_given_and_nobody_can_write_into_it():
    values, labels = normal(3, 2), np.arange(2.0)
    array = lf.LabeledArray(values, step=labels)
    expected = values.copy()
    values[:], labels[:] = 0.0, 7.0
    for one in (array, copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert np.array_equal(one.values, expected)
        assert one.axes["step"].tolist() == [0.0, 1.0]
        for held in (one.values, one.axes["step"]):
            with pytest.raises(ValueError, match="read-only"):
                held[:] = -1


def test_equal_labels_may_be_nan():
    nan = np.array([0.5, np.nan])
    assert same_labels(nan, nan.copy())
    assert not same_labels(nan, np.array([0.5, 1.0]))
    assert same_labels(np.array(["a"]), np.array(["a"]))
    assert not same_labels(np.array(["a"]), np.array([1.0]))
