"""Cells of `flute-classification`: all methods begin at one model, and grids differ only in the penalty."""

import numpy as np
import pytest

import linfed as lf
from linfed.reproduction.experiments import load
from tests.helpers import ROOT

EXPERIMENTS = ROOT / "experiments"


@pytest.mark.parametrize("data", ["Gaussian classes", pytest.param("digits", marks=pytest.mark.long)])
def test_all_methods_of_a_contest_begin_at_one_model(data):
    """The same B and the same head, which is none of 0, in every trial; Local only has neither."""
    module = load("flute-classification", EXPERIMENTS)
    cells = {cell.method: cell for cell in module.cells(True)["runs"] if cell.data == data}  # of the last setting
    assert set(cells) == set(module.METHODS)
    del cells["LocalOnly"]
    begin = {}
    for method, cell in cells.items():
        problem, data = cell.source(2, 7)
        state = next(iter(lf.iterate(cell.algorithm, problem, data=data, n_rounds=1, trials=2, seed=7))).after
        B = state.own[:, 0] if method == "LGFedAvg" else state.B
        begin[method] = B, np.unique(state.W, axis=1), state.for_prediction().predictors()
    first = begin["FLUTE"]
    assert first[1].shape[1] == 1
    assert np.abs(first[1][..., :-1]).min() > 0
    assert not first[1][..., -1].any()
    for method, found in begin.items():
        for one, other in zip(found[:2], first[:2], strict=True):
            assert np.array_equal(one, other), method
        np.testing.assert_allclose(*np.broadcast_arrays(found[2], first[2]), rtol=1e-12, err_msg=method)


def test_flute_star_meets_itself_without_its_penalty():
    module = load("flute-classification", EXPERIMENTS)
    cells = {cell.method: cell for cell in module.cells(False)["runs"]}
    pairs = {"FLUTE": "FLUTE, no NC", "FLUTE*": "FLUTE*, no NC"}
    for method, without in pairs.items():
        assert cells[method].algorithm == cells[without].algorithm
        penalties = [{point["collapse_penalty"] for point in cells[name].grid} for name in (method, without)]
        assert penalties == [{0.01, 0.1, 1.0}, {0.0}]
        assert {point["server_step_size"] for point in cells[without].grid} == {0.0}
        steps = [{point["step_size"] for point in cells[name].grid} for name in (method, without)]
        assert steps[0] == steps[1]
