"""Cells of `flute-classification`: all methods begin at one model, and grids differ only in the penalty."""

from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from experiments.flute._classes import climbed
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
        tried = [[*cell.begin, *cell.neighbours(cell.begin[1])] for cell in (cells[method], cells[without])]
        penalties = [{point["collapse_penalty"] for point in points} for points in tried]
        assert penalties == [{0.01, 0.1, 1.0}, {0.0}]
        assert {point["server_step_size"] for point in tried[1]} == {0.0}
        steps = [{point["step_size"] for point in points} for points in tried]
        assert steps[0] == steps[1] == {0.025, 0.05, 0.1, 0.2}


@dataclass
class Tuned:
    """What a search reads of the result of `lf.tune`."""

    settings: list
    scores: np.ndarray
    curves: np.ndarray
    best: int

    @property
    def best_params(self):
        return self.settings[self.best]


def test_the_search_ends_where_no_neighbour_is_better():
    """From 0 and 4 to the smallest square distance from 7; only the best setting is tried again."""
    calls = []

    def tune(grid):
        calls.append([one["x"] for one in grid])
        scores = np.array([(one["x"] - 7.0) ** 2 for one in grid])
        return Tuned(settings=list(grid), scores=scores, curves=scores[:, None], best=int(scores.argmin()))

    def neighbours(of):
        return [{"x": x} for x in (of["x"] - 1, of["x"] + 1) if 0 <= x < 9]

    found = climbed(tune, [{"x": 0}, {"x": 4}], neighbours, 9)
    assert calls == [[0, 4], [4, 3, 5], [5, 6], [6, 7], [7, 8]]
    assert [one["x"] for one in found.settings] == [0, 4, 3, 5, 6, 7, 8]
    assert found.best_params == {"x": 7}
    assert found.scores.tolist() == [49, 9, 16, 4, 1, 0, 1]
    assert found.curves.shape == (7, 1)
    assert climbed(tune, [{"x": 0}, {"x": 4}], neighbours, 1).best_params == {"x": 5}
