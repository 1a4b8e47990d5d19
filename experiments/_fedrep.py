"""What the experiments of the FedRep paper share: its reading of a setting, and the authors' notebook's.

The published linear notebook differs from the paper: x ~ N(0, I/m), one fixed data set, heads of length 1, B not
normalised, sums over participants, noise of standard deviation 1e-3, a ridge of 1e-5 on exact heads.

A cell names its ``preset``, its ``method`` and its ``config``; of the sizes it has those in which cells differ, the
others are its configuration's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import linfed as lf
from linfed.simulation.participation import n_participants
from linfed.statistics.findings import quoted

PRESETS = ("paper", "notebook")

UNTUNED = ("LocalOnly", "Oracle")
"""Methods without a step size; one round is all they need."""

_FIG1, _FIG3, _FIG4 = (
    f"FedRep paper, {place}" for place in ("Figure 1", "section 5.1, Figure 3", "section 5.1, Figure 4")
)
FEDREP_SMALL = quoted(
    _FIG1, "FedRep exploits a common representation of the clients to achieve small error in all cases"
)
FEDAVG_CANNOT = quoted(
    _FIG1, "FedAvg cannot overcome client heterogeneity even when the number of training samples is large"
)
LOCAL_SUFFERS = quoted(_FIG1, "Local only training suffers in small-training data regime")
MORE_CLIENTS = quoted(_FIG3, "by increasing the number of nodes n, clients converge to the true representation faster")
FASTEST = quoted(_FIG3, "FedRep [...] has the fastest rate compared to GD-GD and 10GD-GD")
MORE_UPDATES = quoted(
    _FIG3, "running more local updates for finding the local head accelerates the convergence speed of FedRep"
)
SCALES = quoted(_FIG3, "GD-GD and 10GD-GD [...] do not scale properly with n")
NEW_ACCURATE = quoted(
    _FIG4,
    "the representation learned by FedRep allows an accurate model to be found [...] as long as m_new >= k",
    threshold=True,
)
NEW_FEDAVG = quoted(
    _FIG4,
    "The large error for FedAvg demonstrates that it does not learn the ground-truth representation",
    threshold=True,
)
NEW_LOCAL = quoted(_FIG4, "drastically improves over the complexity for Local Only (m_new = Omega(d))", threshold=True)
"""What the paper says."""

NOTEBOOK_NOISE = 1e-3
NOTEBOOK_RIDGE = 1e-5


def _size(cell: Any, name: str) -> Any:
    """Return a size of a cell: its own, or else its configuration's."""
    return getattr(cell, name) if hasattr(cell, name) else getattr(cell.config, name)


def _participation(cell: Any) -> float:
    """Return the share of the clients that take part in a round: all, where a configuration does not say."""
    share: float = getattr(cell.config, "participation", 1.0)
    return share


# --- the truth -----------------------------------------------------------------------------------------------


def problem_of(cell: Any) -> lf.SharedRepresentation:
    """Return the truth of a cell, as the paper or as the notebook has it."""
    c, n_clients = cell.config, _size(cell, "n_clients")
    if cell.preset == "paper":
        noise_std = math.sqrt(c.noise_variance)
        return lf.SharedRepresentation(n_clients=n_clients, dim=c.dim, rank=c.rank, noise_std=noise_std)
    return lf.SharedRepresentation(
        n_clients=n_clients,
        dim=c.dim,
        rank=c.rank,
        noise_std=NOTEBOOK_NOISE,
        head_norm=1.0,
        design=lf.Gaussian(covariance=1.0 / _size(cell, "n_samples")),
    )


def x_variance(problem: Any) -> float:
    """Return the variance of each entry of x."""
    return 1.0 if problem.design.covariance is None else float(np.asarray(problem.design.covariance))


def squared_error(problem: Any, risk: Any) -> Any:
    """Return ``||theta - phi||^2`` for a risk."""
    return (2 * risk - problem.noise_std**2) / x_variance(problem)


# --- the methods ---------------------------------------------------------------------------------------------


def scaled_step(cell: Any, step: float) -> float:
    """Return a step on B for one that is given in the paper's normalisation.

    In the notebook's, gradients are m times smaller (x has covariance I/m, and the loss keeps its 1/m) and the server
    sums over p participants. Scaled so, one grid means the same in both but for the heads' length: heads of norm 1 in
    place of sqrt(k) make the gradient of B k times smaller.
    """
    if cell.preset == "paper":
        return step
    scaled: float = step * _size(cell, "n_samples") / n_participants(_participation(cell), _size(cell, "n_clients"))
    return scaled


def exact_ridge(cell: Any) -> float:
    """Return the ridge of exact heads: beside (1/m) Z'Z it is the notebook's 1e-5 beside Z'Z."""
    return NOTEBOOK_RIDGE / _size(cell, "n_samples") if cell.preset == "notebook" else 0.0


def fedrep(cell: Any, step_size: float, **heads: Any) -> lf.FedRep:
    """Return FedRep from a random subspace with the preset's server step; `heads` are the options of its heads."""
    server: dict[str, Any] = {"orthonormalize": False, "aggregate": "sum"} if cell.preset == "notebook" else {}
    return lf.FedRep(rank=cell.config.rank, step_size=step_size, init="random", **heads, **server)


def method_of(cell: Any, step: float, **fedavg: Any) -> lf.Algorithm:
    """Return the method of a cell at a step size given in the paper's normalisation.

    Parameters
    ----------
    cell : Cell
    step : float
    **fedavg
        Options of FedAvg, which any other name than those of the other methods stands for.
    """
    rank = cell.config.rank
    if cell.method == "LocalOnly":
        return lf.LocalOnly()
    if cell.method == "Oracle":
        return lf.Oracle(rank=rank)
    if cell.method == "FedRep":
        return fedrep(cell, scaled_step(cell, step), head_ridge=exact_ridge(cell))
    if cell.method == "FedPer":
        # One step serves B and heads: summed over the participants B would move that many times as fast as they do.
        return lf.FedPer(rank=rank, step_size=step * _size(cell, "n_samples"))
    # A sum in place of the mean.
    server = _participation(cell) * _size(cell, "n_clients") if cell.preset == "notebook" else 1.0
    return lf.FedAvg(rank=rank, step_size=scaled_step(cell, step), server_step_size=server, **fedavg)
