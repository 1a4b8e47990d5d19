"""Runs and first batches of an engine on small problems."""

import numpy as np

import linfed as lf
from linfed.data.sources import Sizes
from linfed.simulation.engines import open_source

GRADIENT = {"heads": lf.GradientHeads(steps=3, step_size=0.2)}
PLAIN = {"rank": 2, "step_size": 0.5}
LEVELS, COUNTS = (0.1, 0.5, 0.05, 1.0, 2.0, 0.3), (5, 7, 5, 9, 6, 12)
"""Standard deviations of the noise and numbers of samples that differ between clients."""


def simulate(algorithm, problem, data, **more):
    return lf.simulate(algorithm, problem, data=data, **({"n_rounds": 5, "trials": 3, "seed": 7} | more))


def batch_of(engine, problem, data, k=2, trials=4, seed=1):
    """Return the first round's batch, in which everybody takes part."""
    n, d = (problem or data).n_clients, (problem or data).dim
    sizes = Sizes(n_clients=n, dim=d, participants=n, n_rounds=1, features=20)
    truths = None if problem is None else problem.truth(seed, range(trials))
    source = open_source(engine, data, truths, sizes, k, seed, range(trials))
    return source.round(np.broadcast_to(np.arange(n), (trials, n)))


def at(B, trials=4):
    """Return B for every trial."""
    return np.broadcast_to(B, (trials, *B.shape))
