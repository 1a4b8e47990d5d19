"""Quantiles of trials."""

import numpy as np

from linfed.numerics.quantiles import quantiles


def test_quantiles_are_values_of_trials_and_a_nan_is_the_worst():
    values = np.random.default_rng(0).permuted(np.tile(np.arange(10.0)[:, None], 2), axis=0)
    values[values[:, 0] == 9, 0], values[values[:, 1] > 6, 1] = np.nan, np.nan
    assert [part.tolist() for part in quantiles(values)] == [[4.0, 4.0], [0.0, 0.0], [8.0, np.inf]]
