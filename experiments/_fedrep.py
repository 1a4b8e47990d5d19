"""What the experiments of the FedRep paper share: its reading of a setting, and the authors' notebook's.

The published linear notebook differs from the paper: x ~ N(0, I/m), one fixed data set, heads of length 1, B not
normalised, sums over participants, noise of standard deviation 1e-3, a ridge of 1e-5 on exact heads.
"""

from __future__ import annotations

import math
from typing import Any

import linfed as lf
from linfed.streams import n_participants

PRESETS = ("paper", "notebook")

HUGE = 1e9
"""Stands for the error of a diverged trial: worse than any other, yet finite, as intervals need it."""

NOTEBOOK_NOISE = 1e-3
NOTEBOOK_RIDGE = 1e-5


def truth(
    preset: str, *, n_clients: int, dim: int, rank: int, n_samples: int, noise_variance: float
) -> lf.SharedRepresentation:
    """Return the truth of a setting, as the paper or as the notebook has it."""
    if preset == "paper":
        return lf.SharedRepresentation(n_clients=n_clients, dim=dim, rank=rank, noise_std=math.sqrt(noise_variance))
    return lf.SharedRepresentation(
        n_clients=n_clients,
        dim=dim,
        rank=rank,
        noise_std=NOTEBOOK_NOISE,
        head_norm=1.0,
        design=lf.Gaussian(covariance=1.0 / n_samples),
    )


def exact_ridge(preset: str, n_samples: int) -> float:
    """Return the ridge of exact heads: beside (1/m) Z'Z it is the notebook's 1e-5 beside Z'Z."""
    return NOTEBOOK_RIDGE / n_samples if preset == "notebook" else 0.0


def server_options(preset: str) -> dict[str, Any]:
    """Return FedRep's options for its server step."""
    return {"orthonormalize": False, "aggregate": "sum"} if preset == "notebook" else {}


def scaled_step(preset: str, step: float, *, n_samples: int, participation: float, n_clients: int) -> float:
    """Return a step on B for one that is given in the paper's normalisation.

    In the notebook's, gradients are m times smaller (x has covariance I/m, and the loss keeps its 1/m) and the server
    sums over p participants. Scaled so, one grid means the same in both but for the heads' length: heads of norm 1 in
    place of sqrt(k) make the gradient of B k times smaller.
    """
    if preset == "paper":
        return step
    return step * n_samples / n_participants(participation, n_clients)
