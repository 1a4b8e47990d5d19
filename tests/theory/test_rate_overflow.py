"""A rate of averaging that overflows is infinite."""

import numpy as np
import pytest

import linfed as lf


def test_a_rate_that_overflows_is_infinite():
    A = np.stack([np.eye(3), 1e6 * np.eye(3)])[:, None].repeat(2, axis=1)
    gentle, steep = lf.theory.fedavg_rate(A, step_size=1e-3, local_steps=500)
    assert gentle == pytest.approx(0.999**500, rel=1e-12)
    assert np.isposinf(steep)
    mixed = np.concatenate([A[1], A[0]])
    assert np.isposinf(lf.theory.fedavg_rate(mixed, step_size=1e-3, local_steps=500))
    alone = lf.theory.fedavg_rate(mixed, step_size=1e-3, local_steps=500, weights=[0, 0, 1, 1])
    assert alone == pytest.approx(0.999**500, rel=1e-12)  # clients of weight 0 do not count
