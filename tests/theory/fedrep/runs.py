"""Heads, and runs of FedRep on fresh samples, for the tests of its theory."""

import numpy as np

import linfed as lf
from tests.helpers import basis


def heads_of(n, k, condition_number, seed=0):
    """Return heads (n, k) of equal length whose second moment has this condition number."""
    problem = lf.SharedRepresentation(n_clients=n, dim=k, rank=k, condition_number=condition_number)
    return problem.truth(seed, [0]).W[0]


def isotropic(n, k):
    """Return heads of length sqrt(k) whose second moment is the identity."""
    return heads_of(n, k, 1.0)


def run_of(W, *, dim, n_samples, step_size, start, n_rounds, noise_std=0.0, participants=None, **options):
    """Return a run as the arguments of `lf.simulate` and `lf.predict`; `start` is the initial distance or B."""
    k = W.shape[1]
    init = lf.AtDistance(start) if isinstance(start, float) else start
    return {
        "algorithm": lf.FedRep(rank=k, step_size=step_size, init=init, **options),
        "problem": lf.GivenTruth(B=np.eye(dim, k), W=W, noise_std=noise_std),
        "data": lf.FreshSamples(n_samples),
        "n_rounds": n_rounds,
        "participation": participants or 1.0,
    }


def distances(run, trials, **how):
    """Return the distances of simulated runs, (trials, rounds + 1)."""
    return lf.simulate(**run, trials=trials, metrics=["subspace_distance"], **how).metrics["subspace_distance"]


def squared_tangents(B):
    """Return the squared lengths of B's tangents at the first k coordinates, (trials,)."""
    k = B.shape[-1]
    return np.square(B[:, k:] @ np.linalg.inv(B[:, :k])).sum(axis=(-2, -1))


def overlaps(B, B_star):
    """Return N = B*'B and Q = B'(I - B*B*')B, (.., k, k)."""
    N = np.swapaxes(B_star, -1, -2) @ B
    outside = B - B_star @ N
    return N, np.swapaxes(outside, -1, -2) @ outside


def starts(d, k, trials):
    """Return initial B and B*, (trials, d, k)."""
    return tuple(np.stack([basis(d, k, first + trial) for trial in range(trials)]) for first in (2, 20))
