"""Samples of any memory order are stored row by row, and give the same bits."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_same
from tests.worlds import MEMORY_ORDERS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("layout", MEMORY_ORDERS)
@pytest.mark.parametrize("shape", [(12, 80, 40), (2, 12, 80, 40)])
def test_samples_of_any_memory_order_are_stored_row_by_row(layout, shape):
    rng, laid = np.random.default_rng(0), MEMORY_ORDERS[layout]
    X, y, x, z = (rng.standard_normal(one) for one in (shape, shape[:-1], (*shape[:-2], 9, 40), (*shape[:-2], 9)))
    plain, found = lf.GivenSamples(X, y, test=(x, z)), lf.GivenSamples(laid(X), laid(y), test=(laid(x), laid(z)))
    labels = (y > 0).astype(float)
    classes = lf.GivenClasses(laid(X), laid(labels), n_classes=2)
    for array in (found.X, found.y, found.test.X, found.test.y, classes.X):
        assert array.flags.c_contiguous
    algorithms = lf.FedRep(rank=2, step_size=0.1, init=np.eye(40, 2)), lf.LocalOnly(ridge=0.1), lf.FedAvg(step_size=0.1)
    for algorithm in algorithms:
        results = [lf.simulate(algorithm, data=data, n_rounds=2) for data in (plain, found)]
        assert_same(*results)
        new = [result.adapt(x, z).predictors() for result in results[:1] if algorithm.learned_rank]
        new += [result.adapt(laid(x), laid(z)).predictors() for result in results[1:] if algorithm.learned_rank]
        assert not new or np.array_equal(*new)
    assert_same(
        *(
            lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=2)
            for data in (lf.GivenClasses(X, labels, n_classes=2), classes)
        )
    )
