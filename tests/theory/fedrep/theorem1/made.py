"""Runs for the tests of Theorem 1 of the FedRep paper: simulated ones, and made-up distances."""

import math

import numpy as np

import linfed as lf
from linfed.theory.fedrep.theorem1 import runs
from tests.helpers import basis

ANGLES = np.arange(12) * np.pi / 12

PROBLEM = lf.GivenTruth(B=basis(10, 2), W=math.sqrt(2) * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1))
"""Heads of kappa 1."""


def simulated(problem=PROBLEM, *, m=60, step=0.2499, heads=None, n_rounds=20, trials=72, delta=0.5, **run):
    data = m if not isinstance(m, int) else lf.FreshSamples(m)
    own = {} if heads is None else {"heads": heads}
    algorithm = lf.FedRep(rank=2, step_size=step, init=lf.AtDistance(delta), **own)
    return lf.simulate(
        algorithm, problem, data=data, n_rounds=n_rounds, trials=trials, metrics=["subspace_distance"], **run
    )


def made(distance, **fields):
    """Return a run of made-up distances, in which every hypothesis holds."""
    distance = np.asarray(distance, dtype=float)
    one = np.ones(len(distance))
    own = {"dim": 10, "rank": 2, "n_clients": 20, "participants": 20, "n_samples": 1000, "step_size": 0.25}
    exact = {"noise_std": 0.0, "batch_rounds": 1, "head_steps": 0, "ridge": 0.0}
    heads = {"smallest": one, "largest": one, "unequal": 0 * one}
    return runs.Theorem1Run(
        **own | exact | heads | {"rounds": np.arange(distance.shape[1]), "distance": distance} | fields
    )


def falling(factor=0.9, trials=80, n_rounds=10, start=0.5):
    return np.tile(start * factor ** np.arange(n_rounds + 1), (trials, 1))
