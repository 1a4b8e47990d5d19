"""Method of moments: a spectral estimate of the representation from the clients' samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, optional
from linfed.algorithms.initial.base import Initial, InitialStart
from linfed.checks import check_integer
from linfed.errors import SizeError
from linfed.numerics.linalg import top_eigenvectors

MOMENTS_WORK = 1e14
"""Largest allowed number of operations of the method of moments (hours of computation)."""


@dataclass(frozen=True, kw_only=True)
class Moments(Initial):
    """Initial B by the method of moments: top-k eigenvectors of ``(1/n) sum_i (1/m) sum_j y_ij^2 x_ij x_ij'``.

    Parameters
    ----------
    clients : int, optional
        Number of clients to use, the first ones; all by default.

    Raises
    ------
    ValueError
        If `clients` is below 1; in `simulate` also if it exceeds the number of clients.
    SizeError
        In `simulate`, if the work or the (d, d) matrix is too large.
    EngineError
        In `simulate`, for classification, or if no samples are drawn (see `FixedSamples`).

    Notes
    -----
    With fresh data it uses an additional batch, drawn from separate streams; with fixed or given data it uses the data
    set. Cost O(n m d^2), computed in blocks of clients.

    **Deviations**: the subset of clients is an addition.

    References
    ----------
    FedRep paper, Algorithm 2; Tripuraneni, Jin and Jordan 2021.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.Moments(clients=20))
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=200), n_rounds=0)
    >>> bool(result.metrics["subspace_distance"][0, 0] < 0.5)
    True
    """

    clients: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, clients=optional(check_integer))

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if there are fewer clients than `clients`, or the work or memory is too large."""
        clients = n_clients if self.clients is None else self.clients
        if clients > n_clients:
            raise ValueError(f"clients = {clients} of lf.Moments must be at most n_clients = {n_clients}")
        work = samples * clients / n_clients * dim**2
        if work > MOMENTS_WORK or 24.0 * dim**2 > memory:
            raise SizeError(
                f"init = {self!r} requires explicit samples, about {work:.1g} operations per trial and a {dim} x {dim} "
                "matrix: use fewer clients, lf.Moments(clients=...), or init = lf.AtDistance(delta) or 'random'"
            )

    def floats_per_trial(self, *, rank: int, n_clients: int, dim: int) -> int:
        """Return the size of the moment matrix and its decomposition."""
        return 3 * dim**2

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the top-k eigenvectors, computed in blocks of clients at bounded memory."""
        clients = start.n_clients if self.clients is None else self.clients
        moment = np.zeros((start.trials, start.dim, start.dim))
        for trial, X, y, counts in start.rows(clients):
            weighted = ((y / np.sqrt(counts)[:, None])[..., None] * X).reshape(-1, start.dim)
            moment[trial] += weighted.T @ weighted
        return top_eigenvectors(moment / clients, rank)
