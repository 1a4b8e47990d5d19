"""The two rules of kernels on stacks: an item has the same bits alone, and one that is not finite spoils no other."""

import numpy as np

from linfed.numerics import linalg


def outputs(function, *inputs):
    """Call a kernel as the loop does: with one thread, and no warning about numbers that are not finite."""
    with linalg.one_blas_thread(), np.errstate(all="ignore"):
        result = function(*inputs)
    return result if isinstance(result, tuple) else (result,)


def assert_items_are_the_same_alone(function, inputs):
    """Assert the first rule of a kernel, whose inputs have four items each."""
    together = outputs(function, *inputs)
    for chosen in (slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4), slice(1, 4)):
        for whole, part in zip(together, outputs(function, *(a[chosen] for a in inputs)), strict=True):
            assert np.ascontiguousarray(whole[chosen]).tobytes() == np.ascontiguousarray(part).tobytes()


def assert_an_item_spoils_itself_only(function, inputs, value):
    """Assert the second rule of a kernel for a value that is not finite, in the first input."""
    clean = outputs(function, *inputs)
    spoiled = inputs[0].copy()
    spoiled[(1, *np.subtract(spoiled.shape[1:], 1))] = value
    kept = [0, 2, 3]
    for before, after in zip(clean, outputs(function, spoiled, *inputs[1:]), strict=True):
        assert np.ascontiguousarray(before[kept]).tobytes() == np.ascontiguousarray(after[kept]).tobytes()
    assert not np.isfinite(outputs(function, spoiled, *inputs[1:])[0][1]).all()
