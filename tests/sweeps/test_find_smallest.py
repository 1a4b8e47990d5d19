"""`lf.find_smallest`: one search per cell, with the options of a sweep; `tests/cells` tests the search itself."""

import numpy as np
import pytest

import linfed as lf

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    problem=lf.SharedRepresentation(n_clients=20, dim=12, rank=2),
    data=lf.FreshSamples(n_samples=8),
    n_rounds=30,
)


def found(cells, **options):
    return lf.find_smallest("data.n_samples", cells, reaches=lf.below("subspace_distance", 0.01), **options)


def test_each_cell_may_have_a_range_of_its_own():
    """Ranks differ, and a step size may be defined from k + 2 samples on only."""
    cells = lf.grid(RUN, **{"algorithm.rank, problem.rank": [(1, 1), (3, 3)]})
    options = {"trials": 8, "step_size": lf.theory.best_step_size, "start": lambda run: 9}
    with pytest.raises(ValueError, match=r"n_samples = 3 must be at least rank \+ 2 = 5"):
        found(cells, lower=3, **options)
    table = found(cells, lower=lambda run: run.algorithm.rank + 2, **options)
    assert list(table["censored"]) == ["below", "below"]
    assert list(table["high"]) == [3, 5]
    default = found(cells, **options)
    for name in ("low", "high", "crossing", "censored", "total_trials"):
        np.testing.assert_array_equal(default[name], table[name])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"nope": 3}, TypeError, "no argument 'nope'; lf.sweep allows store, executor"),
        ({"worker": 3}, TypeError, "did you mean 'workers'"),
        ({"lower": lambda: 3}, TypeError, "lower = .* must be a number or a function of the cell"),
        ({"lower": lambda cell: -1}, ValueError, "lower = -1 must be a positive"),
    ],
)
def test_invalid_options_are_named(options, error, said):
    with pytest.raises(error, match=said):
        found(RUN, **options)
