"""The predictors of a state, in dense form."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import normal


@pytest.mark.parametrize("parts", ["B, W", "S", "B, W, S", "B, w", "s", "B, w, s", "B, w, S", "B, W, s"])
def test_predictors(parts):
    """One row, in lower case, serves all clients; where nothing is a client's own there is one predictor."""
    arrays = {"B": normal(2, 4, 2), "W": normal(2, 5, 2, seed=1), "S": normal(2, 5, 4, seed=2)}
    rows = {name.upper(): arrays[name.upper()][:, : 1 if name.islower() else None] for name in parts.split(", ")}
    held = {name: np.repeat(rows[name], 5, axis=1) if name.lower() in parts else rows[name] for name in rows}
    for clients in (None, slice(1, 3), slice(None, None, 2), np.array([4, 0])):
        theta = lf.State(**rows).predictors(clients)
        chosen = np.arange(5)[slice(None) if clients is None else clients]
        if parts in ("B, w", "s", "B, w, s"):
            chosen = chosen[:1]
        assert theta.shape == (2, len(chosen), 4)
        for trial, (row, client) in ((t, pair) for t in range(2) for pair in enumerate(chosen)):
            expected = np.zeros(4)
            if "B" in held:
                expected += held["B"][trial] @ held["W"][trial, client]
            if "S" in held:
                expected += held["S"][trial, client]
            np.testing.assert_allclose(theta[trial, row], expected, atol=1e-14)
        theta[:] = 0.0  # a copy: the state stays
        assert all(array.any() for array in rows.values())


def test_predictors_beyond_8_gb_are_refused():
    state = lf.State(B=np.broadcast_to(1.0, (1, 10_000, 1)), W=np.broadcast_to(2.0, (1, 1_000_000, 1)))
    with pytest.raises(lf.SizeError, match="80 GB: pass fewer clients="):
        state.predictors()
    assert np.array_equal(state.predictors(slice(7, 10)), np.full((1, 3, 10_000), 2.0))
    assert state.predictors(np.array([5, 999_999])).shape == (1, 2, 10_000)
    shared = lf.State(B=state.B, W=np.full((1, 1, 1), 2.0))
    assert np.array_equal(shared.predictors(), np.full((1, 1, 10_000), 2.0))  # one row takes no more than that
