"""Levels that curves keep, against loops over the rounds."""

import numpy as np

from experiments.shared.kept import mostly_kept, worst_from


def curves(rng):
    """Return random curves (3, rounds), undefined in some rounds."""
    values = rng.random((3, rng.integers(1, 25)))
    values[rng.random(values.shape) < 0.1] = np.nan
    return values


def test_the_worst_value_from_each_round_on():
    rng = np.random.default_rng(0)
    for values in (curves(rng) for _ in range(50)):
        known = np.nan_to_num(values, nan=np.inf)
        wanted = [[max(curve[at:]) for at in range(len(curve))] for curve in known]
        found = worst_from(values)
        np.testing.assert_array_equal(np.where(found > 1e8, np.inf, found), wanted)


def test_a_level_is_mostly_kept():
    rng = np.random.default_rng(0)
    for values in (curves(rng) for _ in range(200)):
        level, rounds = rng.choice([0.2, 0.5, 0.9, 1.0]), 2 * np.arange(values.shape[1])
        wanted = []
        for curve in values:
            below = [value <= level for value in curve]
            kept = [at for at in range(len(curve)) if below[at] and np.mean(below[at:]) > 0.9 - 1e-12]
            wanted.append(rounds[kept[0]] if kept else np.inf)
        np.testing.assert_array_equal(mostly_kept(rounds, values, level), wanted)
