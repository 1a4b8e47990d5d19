"""Random tables for property tests: names, numbers, strings, tuples, arrays over trials, and labelled arrays."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

import linfed as lf

AXES = ("round", "step", "\u00e4xis", "a/b")
DTYPES = ("<f8", ">f8", "<f4", "<f2", "<i8", "|i1", "<u8", "|b1", "<U3")


def allowed(name):
    return "//" not in name and not name.endswith("/") and "\0" not in name and name not in ("trial", *AXES)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
names = (words | st.sampled_from(["n", "a.n", "b.n", "x.npy", "../n", "description", "\u00fc"])).filter(allowed)
numbers = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.floats(), words)
scalars = numbers | st.recursive(numbers, lambda part: st.lists(part, max_size=3).map(tuple), max_leaves=5)


def arrays(dtype, shape):
    texts = words.map(lambda word: word[:3].rstrip("\0"))  # NumPy's strings cannot end with zeros
    return hnp.arrays(dtype, shape, elements=texts if "U" in dtype else None)


@st.composite
def rows(draw, scalars=scalars, names=names):
    """Draw a row: its arrays share the number of trials, which may be zero, and the labels of their axes."""
    trials = draw(st.integers(0, 3))
    axes = {}
    for axis in draw(st.lists(st.sampled_from(AXES), unique=True, max_size=2)):
        axes[axis] = draw(arrays(draw(st.sampled_from(DTYPES)), draw(st.integers(0, 3))))
    row = {}
    for name in draw(st.lists(names, unique=True, max_size=5)):
        kind = draw(st.sampled_from(["scalar", "scalar", "trials", "labelled"]))
        if kind == "scalar":
            row[name] = draw(scalars)
        elif kind == "trials" or not axes:
            row[name] = draw(arrays(draw(st.sampled_from(DTYPES)), trials))
        else:
            along = draw(st.permutations(list(axes)).map(lambda order: order[: 1 + len(order) // 2]))
            shape = (trials,) * draw(st.booleans()) + tuple(len(axes[axis]) for axis in along)
            values = draw(arrays(draw(st.sampled_from(DTYPES)), shape))
            row[name] = lf.LabeledArray(values, **{axis: axes[axis] for axis in along})
    return row


def assert_identical(one, other):
    """Assert that two tables are equal: order of columns, types, and every bit."""
    assert [list(row) for row in one.rows] == [list(row) for row in other.rows]
    for row, found in zip(one.rows, other.rows, strict=True):
        for name, value in row.items():
            assert_same_value(value, found[name])


def assert_same_value(one, other):
    assert type(one) is type(other)
    if isinstance(one, lf.LabeledArray):
        assert one.names == other.names
        pairs = [(one.values, other.values), *((one.axes[axis], other.axes[axis]) for axis in one.axes)]
    elif isinstance(one, np.ndarray):
        pairs = [(one, other)]
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same_value(first, second)
        return
    else:
        assert repr(one) == repr(other)  # NaN and -0.0 too
        return
    for first, second in pairs:
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        assert np.ascontiguousarray(first).tobytes() == np.ascontiguousarray(second).tobytes()
